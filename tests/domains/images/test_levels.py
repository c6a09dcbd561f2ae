"""Values of pixels: type, range and levels, and PNG files."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from sciformer.domains.images.levels import MAX_LEVELS, PixelLevels, round_to_levels
from sciformer.domains.images.png import write_pictures
from sciformer.domains.images.tokens import Patches
from tests.errors import refuses


def known(*arrays):
    levels = PixelLevels()
    for array in arrays:
        levels.add(array)
    return json.loads(json.dumps(levels.to_json()))


def test_two_levels_stay_two_levels():
    spins = known(np.array([[-1, 1]], np.int8), np.array([1, 1], np.int8))
    assert spins == {"type": "int8", "low": -1, "high": 1, "levels": [-1, 1]}
    found = round_to_levels(np.array([-3.0, -0.1, 0.2, 7]), spins)
    assert found.dtype == np.int8
    assert found.tolist() == [-1, -1, 1, 1]


def test_many_whole_numbers_stay_whole():
    bytes_ = known(np.arange(200, dtype=np.uint8), np.zeros(0, np.uint8))
    assert bytes_["levels"] is None
    found = round_to_levels(np.array([-5.0, 3.4, 3.6, 400]), bytes_)
    assert found.dtype == np.uint8
    assert found.tolist() == [0, 3, 4, 199]


def test_real_numbers_are_clipped_alone():
    real = known(np.linspace(0, 1, 100, dtype=np.float32))
    found = round_to_levels(np.array([-1.0, 0.3, 2.0]), real)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [0, 0.3, 1])
    assert known(np.arange(MAX_LEVELS) * 1.5)["levels"] is not None
    values = np.array([1.5])
    assert round_to_levels(values, None) is values  # a run of an earlier version


def test_png_files_keep_bytes(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3), np.uint8)
    write_pictures(pictures, [tmp_path / "a.png", tmp_path / "b.png"])
    for picture, name in zip(pictures, "ab"):
        assert np.array_equal(np.rint(imread(tmp_path / f"{name}.png")[..., :3] * 255), picture)
    spins = np.where(pictures[..., :1] > 100, 1, -1).astype(np.int8)
    write_pictures(spins, [tmp_path / "c.png", tmp_path / "d.png"])
    shades = imread(tmp_path / "c.png")[..., 0]
    assert np.array_equal(shades < 0.5, spins[0, :, :, 0] > 0)


@pytest.mark.parametrize(
    ("keys", "key"),
    [({"window": 1}, "tokens.window"), ({"target": "patch"}, "tokens.target"), ({"scale": "image"}, "tokens.scale")],
)
def test_patches_that_cannot_be_generated(keys, key):
    tokens = Patches(kind="patches", patch=2, **keys)
    tokens.fit([{"image": np.random.default_rng(0).normal(size=(3, 4, 4))}])
    with refuses(key=key):
        tokens.blank(1)
    step = Patches(kind="patches", patch=2, step=1)
    step.fit([{"image": np.random.default_rng(0).normal(size=(3, 4, 4))}])
    with refuses(key="tokens.step"):
        step.blank(1)


def test_patches_are_drawn_in_the_units_of_the_data():
    images = np.random.default_rng(0).integers(0, 255, (6, 4, 6, 3), np.uint8)
    tokens = Patches(kind="patches", patch=2, stretch="sqrt")
    tokens.fit([{"image": images}])
    found = tokens.invert(tokens.normalise(tokens.tokenize({"image": images})))["image"]
    assert np.array_equal(found, images)
    grey = tokens.invert(tokens.blank(2))["image"]
    assert grey.shape == (2, 4, 6, 3)
    assert grey.dtype == np.uint8
