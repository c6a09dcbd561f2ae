"""Windows on any number of axes compared with loops, and windows of a dataset."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.assembly import Assembly
from sciformer.data.batch import Stream
from sciformer.data.columns import select
from sciformer.data.dataset import Dataset
from sciformer.data.random import SampleRandom
from sciformer.data.source import Data, Memory, Splits
from sciformer.data.windows import START, WINDOW, WindowIndex, Windows
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.domains.text.tokens import as_table
from sciformer.recipe import Recipe
from sciformer.recipe.registry import REGISTERED, register
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses


def starts_along(places, size, stride, rule, where):
    """Starts of the windows along one axis."""
    if rule == "loose":
        return [int(where * (max(0, places - size) + 1))]
    if rule == "full":
        return [s for s in range(0, max(1, places), stride) if s + size <= places] or [0]
    if rule == "even":
        count = max(1, -(-places // size))
        return [k * max(0, places - size) // max(1, count - 1) for k in range(count)]
    starts = [0]
    while starts[-1] + size < places:
        starts.append(starts[-1] + stride)
    return starts


@st.composite
def cuts(draw):
    axes, rule = draw(st.integers(1, 4)), draw(st.sampled_from(["full", "tail", "even", "loose"]))
    size = tuple(draw(st.integers(1, 5)) for _ in range(axes))
    stride = tuple(draw(st.integers(1, one)) for one in size)
    shapes = draw(st.lists(st.tuples(*[st.integers(0 if axes == 1 else 1, 7)] * axes), min_size=1, max_size=3))
    return Windows(size, stride, rule, draw(st.integers(0, 2))), np.array(shapes, np.int64)


@settings(max_examples=200, deadline=None)
@given(cuts(), st.floats(0, 0.999))
def test_windows_against_a_loop(case, where):
    windows, shapes = case
    lengths, index = windows.prefix + shapes.prod(1), WindowIndex(windows, shapes)
    stream = Stream({"number": np.arange(lengths.sum())}, lengths)
    sample, starts = index.find(np.arange(len(index)), where)
    found = index.cut(stream, sample, starts)
    expected, owner = [], []
    for row, shape in enumerate(shapes.tolist()):
        numbers = stream.take(np.array([row])).columns["number"]
        grid = numbers[windows.prefix :].reshape(shape)
        every = [starts_along(*one, windows.rule, where) for one in zip(shape, windows.size, windows.stride)]
        for place in product(*every):
            inside = grid[tuple(slice(start, start + size) for start, size in zip(place, windows.size))]
            expected.append([*numbers[: windows.prefix], *inside.ravel()])
            owner.append((row, *place))
        if windows.rule in ("tail", "even"):
            mine = {number for (own, *_), window in zip(owner, expected) if own == row for number in window}
            assert mine == set(numbers.tolist())
    assert [part.tolist() for part in np.split(found.columns["number"], found.starts[1:])] == expected
    assert [(row, *start) for row, start in zip(sample.tolist(), starts.tolist())] == owner
    if windows.rule != "loose":
        assert index.widths.tolist() == found.lengths.tolist()
    assert (found.lengths <= windows.tokens).all()
    assert index.whole_lengths.tolist() == lengths.tolist()


def dataset(lengths, window=10, extra=(), stride=None, rule="tail"):
    table = curves(lengths, extra=True)
    tokens = Observations(kind="observations", window=window, extra=extra)
    tokens.fit([table])
    windows = {"tokens": tokens.make_windows(0, stride, rule)}
    return Dataset(Memory({**table, "label": np.arange(len(lengths))}), {"tokens": tokens}, windows=windows), table


@pytest.mark.parametrize("extra", [(), ("redshift", "field")])
def test_windows_of_series_are_even_and_all_begin_with_what_is_given_beside(extra):
    lengths, room = [45, 0, 12, 3], 12 - len(extra)
    data, table = dataset(lengths, 12, extra)
    batch = data.all()
    counts = [max(1, -(-long // room)) for long in lengths]
    assert batch.samples[WINDOW].tolist() == np.repeat(np.arange(4), counts).tolist() == batch.samples["label"].tolist()
    assert data.sample_column("label").tolist() == batch.samples["label"].tolist()
    assert batch.stream.lengths.tolist() == data.widths.tolist()
    assert data.widths.tolist() == np.repeat(np.minimum(lengths, room) + len(extra), counts).tolist()
    assert data.whole_lengths.tolist() == [long + len(extra) for long in lengths]
    if extra:
        beside = batch.stream.columns["entry"] > 0
        assert np.flatnonzero(beside).tolist() == np.flatnonzero(batch.stream.position < 2).tolist()
        batch = batch.with_columns(batch.stream.keep(~beside))
    assert set(batch.stream.columns["at"]) == set(table["time"].values)


def test_loose_windows_are_drawn_anew_in_every_epoch():
    data, table = dataset((60, 5, 33), extra=("redshift",), rule="loose")
    assert len(data) == 3
    ids, places = np.arange(3), set()
    for epoch in range(80):
        batch = data.batch(ids, SampleRandom(0, epoch, ids))
        assert batch.stream.lengths.tolist() == [10, 6, 10]
        again = data.batch(ids[::-1], SampleRandom(0, epoch, ids[::-1]))  # of the sample, not of its company
        np.testing.assert_array_equal(again.stream.take(ids[::-1]).columns["at"], batch.stream.columns["at"])
        places.add(int(np.searchsorted(table["time"].values[:60], batch.stream.columns["at"][1])))
    assert places <= set(range(52))
    assert len(places) > 30
    middle = data.batch(ids).stream.columns["at"][1]
    assert middle == table["time"].values[26]


def test_strided_windows_overlap_and_lose_nothing():
    data, _ = dataset((25, 4, 10), stride=(5,))
    batch = data.all()
    assert batch.samples[WINDOW].tolist() == [0, 0, 0, 0, 1, 2]
    assert batch.stream.lengths.tolist() == [10, 10, 10, 10, 4, 10]
    with refuses(2, key="tokens.window"):
        dataset((5,), 2, ("redshift", "field"))


class LongSeries(Data):
    """Series of 4, 25 and 40 points, with a class and a text."""

    def open(self, log=None):
        table = {**curves(np.tile([4, 25, 40], 4)), "label": np.array(["a", "b", "b"] * 4)}
        table |= as_table(["short", "a text of many letters", "x"] * 4)
        return Splits({"train": Memory(select(table, np.arange(6))), "valid": Memory(select(table, np.arange(6, 12)))})


@pytest.fixture
def series():
    register("data", "long-series")(LongSeries)
    yield {
        "data": {"kind": "long-series"},
        "tokens": {"kind": "observations", "window": 10},
        "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
        "objective": {"kind": "classify"},
        "train": {"steps": 3, "batch": 4, "warmup": 1, "learning_rate": 0.05, "device": "cpu", "packed": True},
    }
    del REGISTERED["data"]["long-series"]


def test_one_of_several_streams_is_cut_into_windows(series):
    """Other streams are uncut in each window; texts too long for the model are truncated."""
    texts = {"kind": "text", "unit": "bytes", "context": 8}
    made = Assembly.open(Recipe.from_dict({**series, "tokens": {"curve": series["tokens"], "note": texts}}))
    data = made.dataset("valid")
    batch = data.all()
    assert batch.samples[WINDOW].tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 5, 5, 5, 5]
    assert batch.samples[START].tolist()[:8] == [0, 0, 7, 15, 0, 10, 20, 30]
    whole = [b"short", b"a text o", b"x", b"short", b"a text o", b"x"]
    note = batch.streams["note"]
    parts = np.split(note.columns["ids"], note.starts[1:])
    assert [bytes(part.tolist()) for part in parts] == [whole[row] for row in batch.samples[WINDOW]]
    assert data.widths.tolist() == np.maximum(batch.streams["curve"].lengths, note.lengths).tolist()
    assert data.shortened == 2
    assert data.width is None
    training = made.dataset("train")
    assert len(training) == 6  # one window of each, anywhere
    ids = np.arange(6)
    drawn = [training.batch(ids, SampleRandom(0, epoch, ids)).streams for epoch in range(2)]
    assert not np.array_equal(*(streams["curve"].columns["at"] for streams in drawn))
    np.testing.assert_array_equal(*(streams["note"].columns["ids"] for streams in drawn))


def test_two_streams_cannot_both_be_cut_into_windows(series):
    curve = series["tokens"]
    with refuses("one, two", key="tokens.two.window"):
        Assembly.open(Recipe.from_dict({**series, "tokens": {"one": curve, "two": curve}})).dataset("train")
    made = Assembly.open(Recipe.from_dict({**series, "tokens": {"one": curve, "two": {**curve, "window": None}}}))
    batch = made.dataset("valid").all()
    assert batch.streams["one"].lengths.max() == 10
    assert batch.streams["two"].lengths.max() == 40
