"""Pictures as codes: the codebook, sequences of codes, and pictures from them."""

import json

import numpy as np
import pytest

from sciformer.data.batch import Stream
from sciformer.domains.images.codes.tokens import BEGIN, Codes
from sciformer.domains.images.scenes.agreement import shares
from sciformer.domains.images.simulate.scenes import Scenes
from tests.errors import refuses

SPINS = np.where(np.random.default_rng(0).random((40, 4, 6)) < 0.5, -1, 1).astype(np.int8)


def fitted(table, **keys):
    tokens = Codes(kind="picture_codes", **keys)
    tokens.fit(iter([table]))
    return tokens


@pytest.fixture(scope="module")
def spins():
    return fitted({"image": SPINS}, patch=2)


def test_few_distinct_patches_are_exact(spins):
    assert spins.size == 17  # 2^4 patches and the begin token
    stream = spins.tokenize({"image": SPINS})
    assert stream.lengths.tolist() == [7] * 40
    ids = stream.columns["ids"].reshape(40, 7)
    assert (ids[:, 0] == BEGIN).all()
    assert (ids[:, 1:] != BEGIN).all()
    found = spins.invert(stream)["image"]
    assert found.dtype == np.int8
    assert np.array_equal(found[..., 0], SPINS)


def test_codes_stand_row_by_row(spins):
    one = SPINS[:1].copy()
    before, other = spins.tokenize({"image": one}), one.copy()
    other[0, 2:, :2] *= -1  # the first patch of the second row
    after = spins.tokenize({"image": other})
    assert np.flatnonzero(before.columns["ids"] != after.columns["ids"]).tolist() == [1 + 3]


def test_scenes_are_read_after_they_were_rebuilt():
    table = Scenes(chunk_size=256).make(256)
    codes = fitted({"image": table["image"]}, codes=1024)
    assert codes.grid == (16, 16)
    rebuilt = codes.invert(codes.tokenize({"image": table["image"][:40]}))["image"]
    assert rebuilt.dtype == np.uint8
    assert shares(rebuilt, [str(text) for text in table["caption"][:40]])["right"] >= 0.9


def test_the_codebook_is_the_same_in_every_fit():
    rng = np.random.default_rng(0)
    table = {"image": rng.normal(size=(30, 8, 8, 2))}
    one, two = (fitted(table, codes=16) for _ in range(2))
    assert one.state == two.state
    json.dumps(one.state)
    split = Codes(kind="picture_codes", codes=16)
    split.fit(iter([{"image": table["image"][:10]}, {"image": table["image"][10:]}]))
    assert split.state == one.state


def test_unfinished_pictures_are_drawn_with_holes(spins):
    blank = spins.blank(3)
    assert blank.columns["ids"].tolist() == [BEGIN] * 3
    assert spins.new_tokens == 6
    assert spins.allowed.tolist() == [False] + [True] * 16
    begun = Stream({"ids": np.array([BEGIN, 5, 7])}, np.array([3]))
    picture = spins.invert(begun)["image"][0, :, :, 0]
    assert picture.shape == (4, 6)
    whole = Stream({"ids": np.array([BEGIN, 5, 7, 1, 1, 1, 1])}, np.array([7]))
    assert np.array_equal(picture[:2, :4], spins.invert(whole)["image"][0, :2, :4, 0])


def test_sizes_that_the_codebook_cannot_make(spins):
    with refuses("5 x 6", "2 x 2", key="tokens.patch"):
        fitted({"image": np.zeros((3, 5, 6))}, patch=2)
    with refuses("6 x 6", "4 x 6", key="data.size"):
        spins.tokenize({"image": np.ones((2, 6, 6), np.int8)})
    with refuses("fit"):
        _ = Codes(kind="picture_codes").size


def test_a_missing_autoencoder_is_told(tmp_path):
    with refuses("nothing"):
        fitted({"image": SPINS}, autoencoder=str(tmp_path / "nothing"))
