"""Light: how much there is, where it goes, what a blur and a picture make of it."""

import numpy as np
import pytest

from sciformer.domains.images.simulate import optics
from sciformer.domains.images.simulate.optics import add_noise, band_fluxes, pixel_centres, render_blobs
from sciformer.domains.images.simulate.sersic import sersic, sersic_b, total_flux

MIDDLE = np.zeros((1, 2))


def one(value):
    return np.array([value], float)


@pytest.mark.parametrize("n", [0.5, 1.0, 2.5, 4.0])
def test_half_of_a_profile_is_within_its_radius(n):
    r = np.linspace(0, 400, 400_001) / 4
    light = np.exp(-sersic_b(n) * ((r / 5) ** (1 / n) - 1)) * 2 * np.pi * r * (r[1] - r[0])
    assert light.sum() == pytest.approx(float(total_flux(n, 5.0)), rel=0.02)
    assert light[r < 5].sum() / total_flux(n, 5.0) == pytest.approx(0.5, abs=2e-3)


@pytest.mark.parametrize(("n", "held"), [(0.5, 1.0), (1.0, 0.998), (4.0, 0.92)])
def test_the_light_of_a_profile_is_one(n, held):
    for centre in (MIDDLE, MIDDLE + 0.43, MIDDLE + [[3.3, -2.1]]):
        for ratio in (1.0, 0.4):
            light = sersic(64, one(n), one(5.0), one(ratio), one(0.7), centre)
            assert light.sum() == pytest.approx(held, abs=0.03)


def test_a_profile_is_long_along_its_angle_and_stands_where_it_should():
    angle, centre = 0.6, np.array([[4.0, -3.0]])
    light = sersic(64, one(1.0), one(4.0), one(0.3), one(angle), centre)[0].astype(float)
    y, x = np.meshgrid(pixel_centres(64), pixel_centres(64), indexing="ij")
    mean = [(light * place).sum() / light.sum() for place in (x, y)]
    np.testing.assert_allclose(mean, centre[0], atol=0.05)
    xx, yy, xy = ((light * a * b).sum() for a, b in ((x - 4, x - 4), (y + 3, y + 3), (x - 4, y + 3)))
    assert 0.5 * np.arctan2(2 * xy, xx - yy) == pytest.approx(angle, abs=0.02)


def test_more_pixels_see_the_same():
    few, many = (sersic(size, one(2.0), one(6.0), one(0.6), one(1.0), MIDDLE + 0.7)[0] for size in (32, 128))
    np.testing.assert_allclose(many.reshape(32, 4, 32, 4).sum((1, 3)), few, atol=0.03 * few.max())


def test_a_blur_keeps_light_and_widens_it():
    light = render_blobs(64, one(3.0)[:, None], one(-5.0)[:, None], one(2.0)[:, None], one(10.0)[:, None])
    assert light.sum() == pytest.approx(10, rel=1e-4)
    seen = optics.blur(light, one(1.5))
    assert seen.sum() == pytest.approx(10, rel=1e-3)
    direct = optics.render_blurred_blobs(64, *(one(v)[:, None] for v in (3.0, -5.0, 2.0, 10.0)), one(1.5))
    np.testing.assert_allclose(seen, direct, atol=1e-3)
    assert seen.max() < light.max()


def test_blobs_of_several_colours_are_those_of_one_each():
    rng = np.random.default_rng(0)
    x, y, width = rng.uniform(-20, 20, (2, 3, 5)).tolist() + [rng.uniform(1, 3, (3, 5))]
    flux = rng.uniform(1, 2, (3, 2, 5))
    both = render_blobs(32, np.array(x), np.array(y), width, flux)
    for colour in range(2):
        alone = render_blobs(32, np.array(x), np.array(y), width, flux[:, colour])
        np.testing.assert_allclose(both[:, colour], alone, rtol=1e-4, atol=1e-6)


def test_noise_is_that_of_the_sky_where_there_is_no_light():
    seen = add_noise(np.zeros((4, 64, 64), np.float32), np.random.default_rng(0))
    assert seen.std() == pytest.approx(1, abs=0.02)
    assert add_noise(np.full((4, 64, 64), 100, np.float32), np.random.default_rng(0)).std() > 4


def test_a_picture_rises_with_light_and_has_eight_bits():
    levels = optics.to_picture(np.array([-50, -3, -1, 0, 1, 10, 100, 150, 1e5], np.float32))
    assert levels.dtype == np.uint8
    assert (np.diff(levels.astype(int)) >= 0).all()
    assert levels[0] == levels[1] == 0
    assert levels[-1] == 255
    assert levels[4] - levels[3] >= 10  # noise is not lost


def test_colours_go_from_red_to_blue_and_keep_the_mean():
    found = band_fluxes(np.array([1.0, -1.0, 0.0]), 5)
    np.testing.assert_allclose(found.mean(1), 1, rtol=1e-6)
    assert (np.diff(found[0]) < 0).all()
    assert (np.diff(found[1]) > 0).all()
    np.testing.assert_allclose(found[2], 1)
    assert band_fluxes(np.array([1.0]), 1).tolist() == [[1.0]]


def test_signal_is_that_of_a_matched_filter():
    light = np.zeros((1, 2, 8, 8), np.float32)
    light[0, :, 0, :4] = 3
    assert optics.signal_to_noise(light) == pytest.approx(6.0)
    assert pixel_centres(64)[0] == -31.5
    assert pixel_centres(64, 6.4)[-1] == pytest.approx(3.15)
