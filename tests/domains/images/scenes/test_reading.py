"""Pictures read back: exactly if rendered, within limits if noisy or blurred."""

import numpy as np
import pytest

from sciformer.domains.images.scenes.captions import describe, parse_caption
from sciformer.domains.images.scenes.reading import read_things
from sciformer.domains.images.scenes.rendering import render_things
from sciformer.domains.images.scenes.things import parse_things
from sciformer.domains.images.simulate.scenes import Scenes
from tests.domains.images.scenes.examples import SIDE, thing
from tests.errors import refuses


def read(picture):
    return sorted((one.kind.rank, one.box) for one in read_things(picture))


@pytest.mark.parametrize(("part", "side", "number"), [("train", 64, 50), ("unseen", 64, 30), ("test", 96, 4)])
def test_rendered_scenes_are_read_exactly(part, side, number):
    table = Scenes(size=side, seed=5).make(number, part=part)
    for picture, caption, text in zip(table["image"], table["caption"], table["things"]):
        things = read_things(picture)
        assert read(picture) == sorted((kind.rank, box) for kind, box in parse_things(text))
        found = describe(things, side)
        assert found is not None
        assert found.words == caption
        assert parse_caption(caption).holds(things, side)
        np.testing.assert_array_equal(render_things(things, side), picture)


@pytest.mark.parametrize("part", ["train", "unseen"])
def test_noisy_scenes_are_read(part):
    table = Scenes(seed=6).make(12, part=part)
    rng = np.random.default_rng(0)
    for picture in table["image"]:
        noisy = np.clip(picture + rng.normal(0, 25, picture.shape), 0, 255).astype(np.uint8)
        assert read(noisy) == read(picture)


def test_things_of_one_colour_side_by_side_are_not_one_thing():
    things = [thing("small green square", 20, 30), thing("small green square", 20, 40), thing("cyan bar", 45, 36)]
    assert read(render_things(things, SIDE)) == sorted((one.kind.rank, one.box) for one in things)


def test_pictures_without_things():
    blank = render_things([], SIDE)
    assert read_things(blank) == []
    dim = blank.copy()
    dim[20:35, 20:35] = 50  # the form of a square in no colour
    assert read_things(dim) == []
    with refuses("(64, 64)"):
        read_things(blank[..., 0])
