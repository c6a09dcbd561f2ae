"""Images that are in memory: a table for answers, as files would give it; and what is refused."""

import numpy as np
import pytest
from PIL import Image

from sciformer.data.columns import Lists
from sciformer.data.source import Memory
from sciformer.domains.images.reader.memory import images
from sciformer.domains.images.tokens import Patches
from tests.domains.images.reader.examples import picture, pixels, read
from tests.errors import refuses
from tests.training.tiny import go, image_recipe


def test_images_of_one_size_are_an_array():
    some = pixels(3, 6, 8)
    table = images(list(some), label=["a", "b", "a"])
    np.testing.assert_array_equal(table["image"], some[..., None])
    assert table["label"].tolist() == ["a", "b", "a"]
    np.testing.assert_array_equal(images(some)["image"], table["image"])


def test_images_of_several_sizes_are_cut_as_from_files(tmp_path):
    some = [picture(tmp_path / f"{n}.png", pixels(6 + n, 8, 3)) for n in range(3)]
    table, other = images([Image.fromarray(some[0]), *some[1:]]), read([tmp_path])
    assert isinstance(table["image"], Lists)
    np.testing.assert_array_equal(table["image"].values, other["image"].values)
    np.testing.assert_array_equal(table["image_shape"], other["image_shape"])
    tokens = Patches(kind="patches", patch=2)
    tokens.fit([table])
    assert tokens.tokenize(table).lengths.tolist() == [12, 16, 16]
    for more in ({}, {"channels": 1}):  # Pillow rounds twice
        both = images(some, size=6, **more), read([tmp_path], size=6, **more)
        np.testing.assert_allclose(*(made["image"].reshape(3, 6, 6, -1).astype(int) for made in both), atol=1)


@pytest.mark.parametrize(
    ("what", "mentions", "hint"),
    [
        ([], [], None),
        ([np.zeros((2, 2)), np.zeros((2, 2, 3))], ["1 and 3"], "channels=3"),
        ([np.zeros((2, 2)), np.full((2, 2), np.nan)], ["image 1", 4], None),
        ([np.zeros(4)], ["image 0", (4,)], None),
        (["a.png"], ["image 0", "<U5"], None),
        ([np.zeros((2, 2)), np.zeros((2, 2), np.uint8)], ["float64 in image 0", "uint8 in image 1"], None),
    ],
)
def test_what_is_refused(what, mentions, hint):
    with refuses(*mentions, hint=hint):
        images(what)
    with refuses("`image`", "`label`", 1, 2):
        images([np.zeros((2, 2))], label=["a", "b"])


def test_answers_for_what_is_in_memory(tmp_path):
    run = go(image_recipe(tmp_path, train__steps=1), tmp_path / "run")
    some = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
    found = run.predict({"image": some})
    np.testing.assert_array_equal(run.predict(images(some))["probabilities"], found["probabilities"])
    listed = run.predict({"image": list(some), "note": ["a", "b", "c"]})
    np.testing.assert_array_equal(listed["probabilities"], found["probabilities"])
    assert listed["note"].tolist() == ["a", "b", "c"]
    some[1, 0, 0] = np.nan
    known = found["class"].tolist()
    assert run.predict({"image": some})["class"].tolist() == [known[0], "", known[2]]
    with refuses("`image`", "array"):
        run.predict(some)
    with refuses(1, 3, (2, 4, 4, 3)):
        run.predict({"image": np.zeros((2, 4, 4, 3))})
    with refuses("`image`"):
        Memory({"image": [np.zeros((2, 2)), np.zeros((3, 2))]})
