"""Data in many pieces: read ahead by a thread, divided among workers, loaded on use."""

import os
import threading
import time

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.dataset import PIECES_AHEAD, Dataset
from sciformer.data.loader import Fetch, load
from sciformer.data.sampler import BatchSampler, PackedSampler, TokenBudgetSampler, make_sampler
from sciformer.domains.text.tokens import Text, as_table
from sciformer.objectives.masked import Masked
from sciformer.recipe import Recipe
from tests.data.examples import Cut
from tests.data.test_loader import assert_same, left_behind

SIZES = [7, 5, 8, 6, 7, 7, 4, 6, 5, 9, 3, 7]
TEXTS = ["".join(chr(97 + (i * j) % 7) for j in range(3 + i % 9)) for i in range(sum(SIZES))]


class Recorded(Cut):
    """Texts in pieces; every load is recorded as a file named by process and piece."""

    def __init__(self, folder=None, slow=0.0):
        super().__init__({**as_table(TEXTS), "n": np.arange(len(TEXTS))}, SIZES)
        self.folder, self.slow, self.threads = folder, slow, []

    def load(self, piece):
        self.threads.append((piece, threading.current_thread().name))
        if self.folder is not None:
            (self.folder / f"{os.getpid()} {piece} {time.monotonic_ns()}").touch()
        time.sleep(self.slow)
        return super().load(piece)


def fetch_of(source, kind=BatchSampler, near=8):
    tokens = {"t": Text(kind="text", unit="characters")}
    tokens["t"].fit([as_table(TEXTS)])
    dataset = Dataset(source, tokens, near=near)
    made = {
        BatchSampler: lambda: BatchSampler(len(dataset), 6, 1, lengths=dataset.lengths, chunks=SIZES, near=2),
        TokenBudgetSampler: lambda: TokenBudgetSampler(dataset.widths, 40, 1, multiple=4, chunks=SIZES, near=2),
        PackedSampler: lambda: PackedSampler(dataset.widths, 40, 1, chunks=SIZES, near=2),
    }
    return Fetch(dataset, made[kind](), tokens, Masked(kind="masked", random=0.2))


@pytest.mark.parametrize("kind", [BatchSampler, TokenBudgetSampler, PackedSampler])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_batches_are_the_same_whoever_reads_the_pieces(kind, workers):
    fetch = fetch_of(Recorded(), kind)
    last = 2 * fetch.order.batches + 3
    expected = [fetch[step] for step in range(last)]
    before = set(threading.enumerate())
    for first in (0, 5):
        assert_same(load(fetch_of(Recorded(), kind, near=5), first, last, workers=workers), expected[first:])
    batches = load(fetch_of(Recorded(slow=0.01), kind), 2, last, workers=workers)
    assert_same([next(batches)], expected[2:3])
    batches.close()
    assert left_behind(before) == ([], set())


def test_a_thread_makes_what_comes_next():
    source = Recorded()
    fetch = fetch_of(source)
    fetch.dataset.kept.clear()
    source.threads.clear()
    batches = load(fetch, 0, fetch.order.batches)
    next(batches)
    pool = fetch.dataset.pool
    assert len(fetch.dataset.coming) <= PIECES_AHEAD
    pool.submit(int).result()
    there = {piece for piece, name in source.threads if name.startswith("read ahead")}
    assert there
    soon = fetch.order.ahead(0, 0).tolist()
    assert set(soon[: fetch.order.near]) <= set(fetch.dataset.kept) | set(fetch.dataset.coming)
    source.threads.clear()
    for _ in range(next(iter(fetch.order.runs(0, 99))).stop):  # into the next pieces
        next(batches)
    assert len({piece for piece, _ in source.threads}) == len(source.threads)  # none is made twice
    batches.close()
    assert fetch.dataset.pool is None


def test_without_a_reader_nothing_is_made_ahead():
    fetch = fetch_of(Recorded())
    fetch[0]
    assert fetch.dataset.coming == {}


@pytest.mark.parametrize("kind", [BatchSampler, TokenBudgetSampler, PackedSampler])
def test_runs_of_steps_cover_all_and_share_their_pieces(kind):
    order = fetch_of(Recorded(), kind).order
    for first, last in ((0, order.batches), (3, 3 * order.batches - 1), (4, 5), (4, 4)):
        runs = list(order.runs(first, last))
        assert [step for run in runs for step in run] == list(range(first, last))
    assert len(list(order.runs(0, 2 * order.batches))) == 2 * len(SIZES) // 2
    ends = np.cumsum(SIZES)
    for step in range(order.batches):
        used = set(np.searchsorted(ends, order(0, step), side="right").tolist())
        assert len(used) <= 3 * order.near
        assert len(order.ahead(0, step)) == 2 * order.near
    assert order.ahead(0, 0).tolist() == order._turn(0)[: 2 * order.near].tolist()
    assert order.ahead(0, order.batches - 1).tolist()[order.near :] == order._turn(1)[: order.near].tolist()
    plain = BatchSampler(20, 4, 0)
    assert [list(run) for run in plain.runs(2, 5)] == [[2], [3], [4]]
    assert plain.ahead(0, 1).tolist() == []


def test_workers_read_their_own_pieces(tmp_path):
    fetch = fetch_of(Recorded(tmp_path), near=6)
    for path in tmp_path.iterdir():
        path.unlink()
    last = 3 * fetch.order.batches
    assert len(list(load(fetch, 0, last, workers=3))) == last
    loads = [path.name.split() for path in tmp_path.iterdir()]
    assert len({pid for pid, *_ in loads}) == 3
    assert len(loads) < 2.2 * 3 * len(SIZES)  # each of three would read nearly all of three times as many


def test_simulated_jets_are_made_when_they_are_needed(monkeypatch):
    from sciformer.domains.jets.simulate.jets import Jets

    made = []
    real = Jets.make
    monkeypatch.setattr(Jets, "make", lambda *given: made.extend(given[-1:] * (given[-1] == "train")) or real(*given))
    changes = {"data.number": 200, "data.chunk_size": 64, "data.valid": 100, "data.test": 0, "tokens.max_tokens": 30}
    opened = Assembly.open(Recipe.load("jets/part", changes))
    assert len(made) == 1  # for the profile of the training data
    train = opened.dataset("train")
    assert opened.objective.state["counts"] == np.unique(train.sample_column("label"), return_counts=True)[1].tolist()
    order = make_sampler(train, 8, packed=True)
    train.batch(order(0, 0))
    assert len(made) <= 4
    np.testing.assert_array_equal(train.lengths, np.concatenate([train._load(i).stream.lengths for i in range(4)]))
    np.testing.assert_array_equal(train.sample_column("label"), train.all().samples["label"])
    assert len(made) == 4  # what was made stays
