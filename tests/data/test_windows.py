"""Windows of series: in training one of each at random, elsewhere evenly; what stands in front is in all of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.columns import Lists, select
from sciformer.data.dataset import WINDOW, Dataset
from sciformer.data.random import SampleRandom
from sciformer.data.sampler import make_sampler
from sciformer.data.source import Data, Memory, Splits
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.recipe import Recipe
from sciformer.recipe.registry import REGISTERED, register
from sciformer.run import train
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses


def dataset(lengths, window=10, extra=(), **more):
    table = curves(lengths, extra=True)
    tokens = Observations(kind="observations", window=window, extra=extra)
    tokens.fit([table])
    return Dataset(Memory(table), {"tokens": tokens}, window=window, **{"tail": True, "stride": window, **more}), table


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 45), min_size=1, max_size=5), st.integers(3, 12), st.booleans())
def test_windows_cover_a_series_evenly_and_are_full(lengths, window, beside):
    extra = ("redshift", "field") if beside else ()
    if not sum(lengths):
        return
    data, table = dataset(lengths, window, extra)
    batch, room = data.all(), window - len(extra)
    time, starts = table["time"].values, np.cumsum(lengths) - lengths
    for row, long in enumerate(lengths):
        mine = batch.take(np.flatnonzero(batch.samples[WINDOW] == row)).stream
        assert len(mine) == max(1, -(-long // room))
        assert (mine.lengths == len(extra) + min(long, room)).all()
        own = np.ones(len(mine.columns["at"]), bool)
        if beside:
            own = mine.columns["entry"] == 0
            assert (~own).reshape(-1)[mine.starts].all()
            assert (mine.columns["entry"][mine.starts] > 0).all()
            assert (~own).sum() == 2 * len(mine)
        assert set(mine.columns["at"][own]) == set(time[starts[row] : starts[row] + long])
    np.testing.assert_array_equal(data.widths, batch.stream.lengths)


def test_loose_windows_are_drawn_anew_in_every_epoch():
    data, table = dataset((60, 5, 33), extra=("redshift",), loose=True)
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
    data, _ = dataset((25, 4, 10), stride=5)
    batch = data.all()
    assert batch.samples[WINDOW].tolist() == [0, 0, 0, 0, 1, 2]
    assert batch.stream.lengths.tolist() == [10, 10, 10, 10, 4, 10]
    with refuses(2):
        dataset((5,), 2, ("redshift", "field"))


def test_batches_hold_windows_of_similar_length():
    lengths = np.tile([4, 9, 30], 20)
    data, _ = dataset(lengths, loose=True)
    order = make_sampler(data, 10, None, 0, bucket=True, multiple=None, packed=False, shift=0)
    spreads = [np.ptp(data.widths[order(0, step)]) for step in range(order.batches)]
    assert np.mean(spreads) < 3


def test_a_long_series_has_one_answer(tmp_path):
    """The mean of those of its windows."""

    class Made(Data):
        def open(self, log=None):
            table = {**curves(np.tile([4, 25, 40], 4)), "label": np.array(["a", "b", "b"] * 4)}
            return Splits(
                {"train": Memory(select(table, np.arange(6))), "valid": Memory(select(table, np.arange(6, 12)))}
            )

    register("data", "long-series")(Made)
    try:
        sections = {
            "data": {"kind": "long-series"},
            "tokens": {"kind": "observations", "window": 10},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify"},
            "train": {"steps": 3, "batch": 4, "warmup": 1, "learning_rate": 0.05, "device": "cpu", "packed": True},
        }
        run = train(Recipe.from_dict(sections), tmp_path / "run", show=False, report=False)
        table = curves((33, 7), seed=9)
        found = run.predict(table)["probabilities"]
        (tokens,) = run.assembly.tokens.values()
        starts = [0, 7, 15, 23]  # four windows of ten, from the beginning to the end
        whole = tokens.tokenize(table)
        cut = whole.cut(np.array(starts), np.full(4, 10))
        time, value, error = (Lists(cut.columns[name], cut.lengths) for name in ("at", "value", "error"))
        apart = run.predict({"time": time, "value": value, "error": error})["probabilities"]
    finally:
        del REGISTERED["data"]["long-series"]
    assert len(found) == 2
    np.testing.assert_allclose(found[0], apart.mean(0), atol=1e-5)
    assert np.ptp(apart, axis=0).max() > 1e-4
