"""Crop, free rotation, shift and noise, scaling by image, targets of hidden patches, and their drawing."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists
from sciformer.data.random import SampleRandom
from sciformer.domains.images.augment import Augmentation, resample
from sciformer.domains.images.scaling import denormalise_patches, stretch_values, unstretch_values
from sciformer.objectives.masked import Masked
from tests.domains.images.test_tokens import fitted, images_of
from tests.errors import refuses

RNG = np.random.default_rng(0)


def varied(images, ids, **options):
    tokens = fitted(images, **options)
    return images_of(tokens.augment_stream(tokens.tokenize({"image": images}), SampleRandom(0, 0, ids)), tokens)


def bump(height, width, down, aside):
    y, x = np.mgrid[:height, :width]
    return np.exp(-((y - down) ** 2 + (x - aside) ** 2) / 8)[None, ..., None]


def test_views_of_an_image():
    image = bump(21, 25, 7, 18)
    middle, still = np.array([[10.0, 12.0]]), np.ones(1)
    np.testing.assert_array_equal(resample(image, middle, still), image)
    np.testing.assert_allclose(resample(image, middle, still, np.zeros(1)), image, atol=1e-6)
    for angle in (0.3, 1.7, -2.0):  # 3 rows above the middle, 6 columns to its right, turned counter-clockwise
        up, right = 3 * np.cos(angle) + 6 * np.sin(angle), 6 * np.cos(angle) - 3 * np.sin(angle)
        seen = resample(image, middle, still, np.array([angle]))
        wanted = bump(21, 25, 10 - up, 12 + right)
        np.testing.assert_allclose(seen[:, 3:18, 3:22], wanted[:, 3:18, 3:22], atol=0.08)
    square = RNG.normal(size=(1, 8, 8, 2))
    np.testing.assert_allclose(
        resample(square, np.full((1, 2), 3.5), still, np.array([np.pi / 2])), np.rot90(square, axes=(1, 2)), atol=1e-5
    )
    np.testing.assert_allclose(resample(image, np.array([[7.0, 18.0]]), np.full(1, 0.5))[0, 10, 12], 1, atol=1e-6)
    for angle in (None, np.zeros(1)):
        moved = resample(square, np.array([[4.5, 1.5]]), still, angle)
        np.testing.assert_allclose(moved[0, :7, 2:], square[0, 1:, :6], atol=1e-5)
        np.testing.assert_allclose(moved[0, 7, 2:], square[0, 7, :6], atol=1e-5)  # mirrored
        np.testing.assert_allclose(moved[0, :7, :2], square[0, 1:, 1::-1], atol=1e-5)
        ring = resample(square, np.array([[4.5, 1.5]]), still, angle, periodic=True)
        np.testing.assert_allclose(ring, np.roll(square, (-1, 2), (1, 2)), atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize(("shape", "augment"), [((6, 9), ("flip",)), ((6, 6), ("turn",)), ((6, 6), ("flip", "turn"))])
def test_pixels_that_only_change_places_are_moved_in_the_patches(monkeypatch, dtype, channels, shape, augment):
    images = RNG.integers(0, 2 if dtype == "bool" else 255, (30, *shape, channels)).astype(dtype)
    tokens, rng = fitted(images, patch=3, augment=augment), SampleRandom(0, 0, np.arange(30))
    stream = tokens.tokenize({"image": images})
    found = tokens.augment_stream(stream, rng).columns["patch"]
    monkeypatch.setattr(Augmentation, "permutes_pixels", lambda self, shape: False)
    expected = tokens.augment_stream(stream, rng).columns["patch"]
    assert found.dtype == expected.dtype == images.dtype
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, stream.columns["patch"])


def test_how_far_they_go():
    flat = np.full((400, 8, 8), 5.0)
    flat[:, 4:] = 9
    noisy = varied(flat, np.arange(400), augment=("noise",), noise_std=0.5)[..., 0] - flat
    np.testing.assert_allclose(noisy.std(), 0.5 * flat.std(), rtol=0.02)
    assert abs(noisy.mean()) < 0.02
    ramp = np.tile(np.arange(12.0)[:, None], (300, 1, 12))
    apart = varied(ramp, np.arange(300), augment=("shift",), shift=3)[:, 6, 6, 0] - 6
    assert set(apart.tolist()) == {-3, -2, -1, 0, 1, 2, 3}
    slope = np.diff(varied(ramp, np.arange(300), augment=("crop",), crop=(0.25, 0.81))[:, 5:7, 6, 0], axis=1)[:, 0]
    assert 0.5 <= slope.min() < 0.55
    assert 0.85 < slope.max() <= 0.9 + 1e-5
    turned = varied(ramp, np.arange(300), augment=("rotate",))
    down, aside = (np.diff(turned[..., 0], axis=axis)[:, 5, 5] for axis in (1, 2))
    np.testing.assert_allclose(np.hypot(down, aside), 1, atol=1e-4)
    assert np.abs(np.exp(1j * np.arctan2(aside, down)).mean()) < 0.12  # all angles alike
    assert varied(ramp.astype(np.uint8), np.arange(300), augment=("rotate",)).dtype == np.float32
    with refuses("[0.9, 0.5]", key="tokens.crop"):
        varied(ramp, np.arange(300), augment=("crop",), crop=(0.9, 0.5))


def test_images_of_several_shapes_vary_each_for_itself():
    shapes = np.array([[6, 9], [8, 5], [6, 9]], np.int32)
    table = {"image": Lists(RNG.normal(size=(148, 1)), shapes.prod(1).astype(np.int64)), "image_shape": shapes}
    tokens = fitted(table, augment=("flip", "rotate"))
    stream = tokens.tokenize(table)
    found = tokens.augment_stream(stream, SampleRandom(0, 0, np.arange(3)))
    alone = tokens.augment_stream(stream.take(np.array([1])), SampleRandom(0, 0, np.array([1])))
    np.testing.assert_array_equal(found.take(np.array([1])).columns["patch"], alone.columns["patch"])
    outside = tokens.normalise(found).columns["patch"].reshape(-1, 4, 4)[stream.columns["cell"][:, 0] == 1]
    np.testing.assert_allclose(outside[stream.columns["size"][stream.columns["cell"][:, 0] == 1][:, 0] == 6, 2:], 0)


@pytest.mark.parametrize("how", ["asinh", "log", "sqrt", "none"])
def test_stretching(how):
    values = np.concatenate([-np.geomspace(1e-3, 1e4, 20)[::-1], [0], np.geomspace(1e-3, 1e4, 20)])
    found = stretch_values(values, how, 3.0)
    assert (np.diff(found) > 0).all()
    np.testing.assert_allclose(found, -found[::-1])
    np.testing.assert_allclose(unstretch_values(found, how, 3.0), values, rtol=1e-9)
    assert stretch_values(np.array([7], np.uint16), how).dtype in (np.float32, np.uint16)


def hidden(tokens, images, share=0.5):
    batch = Batch({"t": tokens.tokenize({"image": images})}, ids=np.arange(len(images)))
    return Masked(kind="masked", mask_ratio=share).corrupt(batch, {"t": tokens}, SampleRandom(0, 0, batch.ids))


@pytest.mark.parametrize("scale", ["channel", "image", "none"])
@pytest.mark.parametrize("stretch", ["none", "asinh"])
@pytest.mark.parametrize("target", ["pixels", "patch"])
def test_targets_and_the_way_back(scale, stretch, target):
    images = RNG.normal(5, 2, (4, 10, 7, 3))
    tokens = fitted(images, scale=scale, stretch=stretch, target=target)
    batch = hidden(tokens, images)
    seen = tokens.normalise(batch.stream)
    asked = seen.columns["target patch"]
    if target == "patch":
        np.testing.assert_allclose(asked.mean(-1), 0, atol=1e-5)
        np.testing.assert_allclose(asked.var(-1, ddof=1), 1, atol=1e-3)
    back = denormalise_patches(tokens, batch.stream, asked).reshape(4, -1, tokens.pixels)
    np.testing.assert_allclose(tokens.image(back), images, atol=1e-3)
    if scale == "image":  # by what is seen of each image
        for row in range(4):
            one = seen.take(np.array([row]))
            inside = tokens.image(np.where(one.columns["hidden"][:, None], np.nan, one.columns["patch"]))
            assert abs(np.nanmean(inside)) < 1e-5
            assert abs(np.nanstd(inside) - 1) < 1e-5


def test_all_or_nothing_is_seen():
    images = np.concatenate([np.full((1, 4, 4), 3.0), RNG.normal(size=(1, 4, 4))])
    tokens = fitted(images, patch=2, scale="image", target="patch")
    for share in (0.25, 1.0):
        columns = tokens.normalise(hidden(tokens, images, share).stream).columns
        assert all(np.isfinite(columns[name]).all() for name in ("patch", "target patch"))


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_what_was_hidden_is_drawn(channels):
    images = RNG.normal(size=(2, 10, 7, channels))
    tokens = fitted(images, target="patch")
    one = hidden(tokens, images, 0.75).take(np.array([0]))
    answer = tokens.normalise(one.stream).columns["target patch"].astype(np.float64)
    answer[~one.stream.columns["asked"].astype(bool)] = np.nan
    figure = Figure(figsize=(4, 2))
    axes = figure.add_subplot()
    tokens.draw_hidden(one, {"patch": answer}, axes)
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.texts] == ["seen", "model", "truth"]
    seen, said, true = (image.get_array() for image in axes.images)
    np.testing.assert_allclose(said, true, atol=1e-3)
    assert (seen != true).any()
