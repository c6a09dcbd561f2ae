"""Images as a person looks at them."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sciformer.data.batch import Batch
from sciformer.domains.images.draw import MISSING_COLOUR, display_limits, draw_image, to_rgb
from tests.domains.images.test_tokens import fitted


def drawn(image, shade=None):
    axes = Figure().subplots()
    draw_image(axes, image, shade)
    return [picture.get_array() for picture in axes.get_images()], axes


def test_the_largest_weight_is_the_least_like_the_image():
    (_, level), axes = drawn(np.zeros((2, 3, 1)), np.array([[0.0, 1.0, 4.0]] * 2))
    assert level[0].tolist() == [0, 0.25, 1]
    assert axes.get_images()[1].get_alpha()[0].tolist() == [0, 0.1875, 0.75]


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_what_is_not_there_is_empty(channels):
    image = np.random.default_rng(0).normal(size=(6, 6, channels))
    image[:2] = np.nan
    found = to_rgb(image, display_limits(image))
    np.testing.assert_array_equal(found[:2], np.broadcast_to(MISSING_COLOUR, (2, 6, 3)))
    assert np.isfinite(found).all()
    assert np.ptp(found[2:]) == 1
    for flat in (np.nan, 0.0):
        (shown,), _ = drawn(np.full((2, 2, channels), flat))
        assert np.isfinite(shown).all()


def test_hidden_patches_are_drawn_empty():
    images = np.random.default_rng(0).normal(size=(1, 4, 4))
    tokens = fitted(images, patch=2)
    stream = tokens.tokenize({"image": images})
    axes = Figure().subplots()
    tokens.draw(Batch({"tokens": stream.with_columns(hidden=np.array([True, False, False, False]))}), None, axes)
    shown = axes.get_images()[0].get_array()
    assert (shown[:2, :2] == MISSING_COLOUR).all()
    assert not (shown[2:] == MISSING_COLOUR).all(-1).any()
    assert tokens.distance_unit == "pixels"
