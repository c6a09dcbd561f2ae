"""Lenses: light is bent as theory says, the same each time, and as lenstronomy bends it where that is installed."""

import importlib.util

import numpy as np
import pytest

from sciformer.domains.images.simulate import lenses
from sciformer.domains.images.simulate.lenses import FIELD_ARCSEC, SOURCE_COLUMNS, TARGETS, Lenses, source_plane
from sciformer.domains.images.simulate.optics import pixel_centres
from tests.domains.images.simulate.test_optics import one

ZERO = np.zeros(1)


def plane(size=64):
    along = pixel_centres(size, FIELD_ARCSEC)
    return np.broadcast_to(along, (1, size, size)), np.broadcast_to(along[:, None], (1, size, size))


@pytest.mark.parametrize("slope", [1.7, 2.0, 2.3])
def test_a_round_power_law_bends_by_a_power_of_the_distance(slope):
    x, y = plane()
    bent, far = lenses.deflection(x, y, one(1.3), one(slope), ZERO, ZERO), np.hypot(x, y)
    np.testing.assert_allclose(bent, 1.3 * (1.3 / far) ** (slope - 2) * np.stack([x, y]) / far, atol=1e-4)


def test_an_isothermal_ellipsoid_bends_as_the_closed_form_says():
    q, angle = 0.6, 0.5
    f = (1 - q) / (1 + q)
    x, y = plane()
    bent = lenses.deflection(x, y, one(1.0), one(2.0), one(f * np.cos(2 * angle)), one(f * np.sin(2 * angle)))
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    root, psi = np.sqrt(1 - q * q), np.sqrt(q * q * along**2 + across**2)
    u = np.sqrt(q) / root * np.arctan(root * along / psi)
    v = np.sqrt(q) / root * np.arctanh(root * across / psi)
    there = np.cos(angle) * u - np.sin(angle) * v, np.sin(angle) * u + np.cos(angle) * v
    np.testing.assert_allclose(bent, there, atol=1e-4)
    found = lenses.axis_ratio_and_angle(one(f * np.cos(2 * angle)), one(f * np.sin(2 * angle)))
    np.testing.assert_allclose(found, [[q], [angle]])


@pytest.mark.parametrize("slope", [1.8, 2.2])
def test_the_mass_within_is_that_of_the_density(slope):
    """The divergence of the deflection is twice the density, whose form is known."""
    e1, e2, q = one(0.12), one(-0.1), (1 - np.hypot(0.12, 0.1)) / (1 + np.hypot(0.12, 0.1))
    x, y = (place.astype(float) for place in plane(256))
    step = FIELD_ARCSEC / 256
    u, v = lenses.deflection(x, y, one(1.1), one(slope), e1, e2)
    density = 0.5 * (np.gradient(u[0], step, axis=1) + np.gradient(v[0], step, axis=0))
    angle = 0.5 * np.arctan2(-0.1, 0.12)
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    known = (3 - slope) / 2 * (np.sqrt(q) * 1.1 / np.hypot(q * along, across)[0]) ** (slope - 1)
    far = (np.hypot(x, y)[0] > 0.5) & (np.abs(x[0]) < 3) & (np.abs(y[0]) < 3)
    np.testing.assert_allclose(density[far], known[far], rtol=0.01)


def test_shear_pulls_and_a_lens_without_mass_does_nothing():
    x, y = plane()
    nothing = np.zeros((1, 2))
    np.testing.assert_allclose(source_plane(x, y, ZERO, one(2.0), ZERO, ZERO, nothing, nothing), [x, y], atol=1e-6)
    u, v = source_plane(x, y, ZERO, one(2.0), ZERO, ZERO, nothing, np.array([[0.1, 0.05]]))
    np.testing.assert_allclose([u, v], [x - 0.1 * x - 0.05 * y, y - 0.05 * x + 0.1 * y], atol=1e-6)


def test_a_source_behind_the_middle_becomes_a_ring():
    truth = dict.fromkeys((*TARGETS, *SOURCE_COLUMNS), ZERO)
    truth |= {"einstein_radius": one(1.5), "slope": one(2.0), "source_radius": one(0.15), "source_index": one(1.0)}
    light = lenses.render_arcs(truth, 64)[0]
    far = np.hypot(*plane())[0]
    assert np.average(far, weights=light) == pytest.approx(1.5, abs=0.06)
    assert light[np.abs(far - 1.5) < 0.3].sum() > 0.7 * light.sum()
    edge = lenses.source_brightness(one(0.15)[:, None, None], ZERO[:, None, None], truth)
    assert edge.item() == pytest.approx(1, abs=1e-3)


def test_truths_are_in_their_ranges():
    table = Lenses(seed=1, size=24).make(lenses.LENSES_PER_CHUNK + 1)
    for name in (*TARGETS, *SOURCE_COLUMNS, "snr", "seeing"):
        assert table[name].std() > 0
    assert np.hypot(table["e1"], table["e2"]).max() < 0.36
    assert 0.6 <= table["einstein_radius"].min() <= table["einstein_radius"].max() <= 2


def test_the_lens_can_be_dark():
    bright, dark = (Lenses(unit="flux", light=light).make(8)["image"] for light in (True, False))
    assert (bright.sum((1, 2)) > dark.sum((1, 2))).all()


@pytest.mark.skipif(importlib.util.find_spec("lenstronomy") is None, reason="lenstronomy is not installed")
def test_light_goes_as_in_lenstronomy():
    from lenstronomy.Data.imaging_data import ImageData
    from lenstronomy.Data.psf import PSF
    from lenstronomy.ImSim.image_model import ImageModel
    from lenstronomy.LensModel.lens_model import LensModel
    from lenstronomy.LightModel.light_model import LightModel

    truth = lenses.draw_truths(np.random.default_rng(0))
    ours, along = lenses.render_arcs(truth, 64), pixel_centres(64, FIELD_ARCSEC).astype(float)
    data = ImageData(np.zeros((64, 64)), ra_at_xy_0=along[0], dec_at_xy_0=along[0], transform_pix2angle=np.eye(2) * 0.1)
    models = LensModel(["EPL", "SHEAR"]), LightModel(["SERSIC_ELLIPSE"])
    fine = {"supersampling_factor": 2, "supersampling_convolution": False}
    image = ImageModel(data, PSF("NONE"), *models, kwargs_numerics=fine)
    apart, pixels = [], []
    for i in range(16):
        own = {name: float(values[i]) for name, values in truth.items()}
        mass = dict(zip(("theta_E", "gamma", "e1", "e2", "center_x", "center_y"), (own[name] for name in TARGETS)))
        lens = [mass, {"gamma1": own["shear_1"], "gamma2": own["shear_2"]}]
        names = ("center_x", "center_y", "R_sersic", "n_sersic", "e1", "e2")
        source = [{"amp": 1.0, **dict(zip(names, (own[name] for name in SOURCE_COLUMNS)))}]
        x, y = plane()
        row = {name: values[i : i + 1] for name, values in truth.items()}
        centre, shear = (np.stack([row[name] for name in pair], 1) for pair in (TARGETS[4:6], TARGETS[6:]))
        u, v = source_plane(x, y, *(row[name] for name in TARGETS[:4]), centre, shear)
        there = models[0].ray_shooting(x.ravel().astype(float), y.ravel().astype(float), lens)
        apart.append(max(np.abs(u.ravel() - there[0]).max(), np.abs(v.ravel() - there[1]).max()))
        light = image.image(lens, source) / 0.01  # of a pixel's area
        pixels.append(np.abs(light - ours[i]).max() / ours[i].max())
    assert max(apart) < 1e-5  # arcseconds
    assert max(pixels) < 0.03  # its b(n) is a shorter series
    assert np.median(pixels) < 0.005
