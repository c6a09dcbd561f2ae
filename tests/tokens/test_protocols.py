"""Abilities of tokens: edits of one token, named masks, and who must declare what."""

import numpy as np
import pytest

from sciformer.data.batch import Batch, Stream
from sciformer.data.random import SampleRandom
from sciformer.domains.images.tokens import Patches
from sciformer.domains.jets.tokens import Particles
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.domains.text.tokens import Text, as_table
from sciformer.objectives.masked import Masked
from sciformer.recipe.registry import register
from sciformer.tokens.base import Tokens
from tests.domains.jets.jets_table import jets
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses

IMAGE = {"image": np.arange(2 * 6 * 4.0).reshape(2, 6, 4)}


def fitted(section, table):
    """Tokens, and their raw stream of the first sample."""
    section.fit([table])
    return section, section.tokenize(table).take(np.array([0]))


def test_edits_of_text():
    tokens, stream = fitted(Text(kind="text"), as_table(["abcd", "x"]))
    edits = [tokens.drop(stream, 1), tokens.move(stream, 0, 2), tokens.change(stream, 3, "ids", "x")]
    assert [tokens.decode(one.columns["ids"]) for one in edits] == ["acd", "bcad", "abcx"]
    assert tokens.decode(stream.columns["ids"]) == "abcd"
    for wrong, mentions in ((("ids", "ab"), ("'ab'", 2)), (("ids", 99), (99,)), (("word", 1), ("'word'", "ids"))):
        with refuses(*mentions):
            tokens.change(stream, 0, *wrong)
    for token in (4, -1):
        with refuses(token, 3):
            tokens.drop(stream, token)


def test_edits_of_images():
    tokens, stream = fitted(Patches(kind="patches", patch=2), IMAGE)
    assert tokens.drop(stream, 0).columns["at"].tolist()[0] == [0, 1]
    patch, moved = stream.columns["patch"], tokens.move(stream, 1, 2, 0).columns["patch"]
    np.testing.assert_array_equal(moved, patch[[0, 4, 2, 3, 1, 5]])
    changed = tokens.change(stream, 2, "patch", 7).columns["patch"]
    assert (changed[2] == 7).all()
    np.testing.assert_array_equal(np.delete(changed, 2, 0), np.delete(patch, 2, 0))
    with refuses("row 9", "column 1"):
        tokens.move(stream, 0, 9, 1)
    with refuses("row and column", 1):
        tokens.move(stream, 0, 9)
    with refuses("`patch`", "(4,)"):
        tokens.change(stream, 0, "patch", [1, 2])


@pytest.mark.parametrize("sums", [True, False])
def test_edits_of_jets(sums):
    """The jet is the sum of its particles, the hardest first."""
    tokens, stream = fitted(Particles(kind="particles"), jets(sums=sums))
    vector = stream.columns["vector"]
    softer = tokens.change(stream, 0, "vector", vector[0] * 1e-3)
    assert np.argmin(np.hypot(*softer.columns["vector"].T[:2])) == len(vector) - 1
    turned = tokens.move(stream, 2, 0.5, -1.0)
    for edited in (tokens.drop(stream, 0), softer, turned):
        total = edited.columns["vector"].astype(np.float64).sum(0)
        np.testing.assert_allclose(edited.columns["jet"][:, 3], total[3], rtol=1e-5)
        np.testing.assert_allclose(edited.columns["jet"][:, 0], np.hypot(*total[:2]), rtol=1e-5)
        assert (np.diff(np.hypot(*edited.columns["vector"].T[:2])) <= 1e-4).all()
    before, after = vector[2].astype(np.float64), turned.columns["vector"][2].astype(np.float64)
    for quantity in (lambda p: np.hypot(*p[:2]), lambda p: p[3] ** 2 - (p[:3] ** 2).sum()):  # pT and mass
        np.testing.assert_allclose(quantity(after), quantity(before), rtol=1e-4, atol=1e-2)
    angles = [stream.columns["jet"][2][1:3], np.array([np.arcsinh(after[2] / np.hypot(*after[:2])), 0])]
    assert abs(angles[1][0] - angles[0][0]) == pytest.approx(0.5, abs=1e-3)


def test_edits_of_series():
    table = curves((8, 9), extra=True)
    tokens, stream = fitted(Observations(kind="observations", extra=("redshift",), periods=1), table)
    time = table["time"].values[:8]
    late = tokens.move(stream, 1, time[-1] + 1)
    assert late.columns["at"][1:].tolist() == [*time[1:], time[-1] + 1]
    assert late.columns["value"][-1] == stream.columns["value"][1]
    bright = tokens.change(stream, 3, "value", 99.0)
    assert bright.columns["value"][3] == 99
    assert not np.array_equal(bright.columns["power"], stream.columns["power"])  # the periods are those of the edit
    assert tokens.drop(stream, 8).columns["at"][1:].tolist() == time[:-1].tolist()
    with refuses(1, 8, 0):
        tokens.drop(stream, 0)  # given beside the series


def masked(tokens, stream, **options):
    batch, rng = Batch({"t": stream}), SampleRandom(0, 0, np.arange(len(stream)))
    return Masked(kind="masked", **options).corrupt(batch, {"t": tokens}, rng).stream.columns["hidden"]


def test_named_masks():
    tokens = Text(kind="text", end=True)
    tokens.fit([as_table(["abcdef"])])
    stream = tokens.tokenize(as_table(["abcdef", "", "b"]))
    hidden = masked(tokens, stream, mask="last", mask_ratio=0.5)
    assert hidden.tolist() == [False, False, False, True, True, True, False, False, True, False]  # never the end
    tokens, _ = fitted(Patches(kind="patches", patch=1), {"image": np.ones((1, 6, 4))})
    stream = tokens.tokenize({"image": np.ones((2, 6, 4))})
    hidden = masked(tokens, stream, mask="centre", mask_ratio=1 / 3).reshape(2, 6, 4)
    assert hidden[0].astype(int).tolist() == [[0] * 4, [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0] * 4]
    np.testing.assert_array_equal(hidden[0], hidden[1])
    with refuses("last, centre", key="objective.mask", hint="'centre'"):
        masked(tokens, stream, mask="center")
    with refuses("objective.whole_words", key="objective.mask"):
        masked(tokens, stream.with_columns(word=stream.position), mask="last", whole_words=True)


def test_a_kind_without_its_core_is_not_registered():
    class Hollow(Tokens):
        def tokenize(self, table):
            return Stream({}, np.zeros(0, np.int64))

    with refuses("Hollow", "'hollow'", "embedding", key="tokens.kind"):
        register("tokens", "hollow")(Hollow)
