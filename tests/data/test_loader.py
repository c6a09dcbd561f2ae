import contextlib
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from sciformer.data import loader
from sciformer.data.batch import join
from sciformer.data.dataset import Dataset
from sciformer.data.loader import Fetch, load
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.sampler import BatchSampler, TokenBudgetSampler, share
from sciformer.data.source import Memory
from sciformer.domains.text.tokens import Text, as_table
from sciformer.errors import UserError
from sciformer.objectives.masked import Masked
from sciformer.tokens.protocols import Augmentable
from tests.errors import refuses

TEXTS = ["".join(chr(97 + (i * j) % 7) for j in range(3 + i % 9)) for i in range(23)]
MAIN = os.getpid()


class Trouble(Text, Augmentable):
    """Text tokens whose augmentation fails at a marked sample."""

    def augment_stream(self, stream, rng):
        trouble = self.state.get("trouble")
        if trouble and trouble(stream):
            raise AssertionError
        return stream


def fetch_of(trouble=None, rank=0, world=1, batch=4, budget=None):
    tokens = {"t": Trouble(kind="text", unit="characters")}
    tokens["t"].fit([as_table(TEXTS)])
    dataset = Dataset(Memory({**as_table(TEXTS), "n": np.arange(23)}), tokens)
    tokens["t"].state["trouble"] = trouble
    order = BatchSampler(len(dataset), batch, 1, lengths=dataset.lengths, window=2)
    if budget is not None:
        order = TokenBudgetSampler(dataset.widths, budget, 1, multiple=4)
    return Fetch(dataset, order, tokens, Masked(kind="masked", random=0.2), rank, world)


def assert_same(found, expected):
    found, expected = list(found), list(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert (one.count, one.room) == (other.count, other.room)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.samples["n"], other.samples["n"])
        assert set(one.stream.columns) == {"ids", "hidden", "asked", "target ids"}
        for name, column in one.stream.columns.items():
            np.testing.assert_array_equal(column, other.stream.columns[name])


def left_behind(before):
    """Threads and processes left after a loader."""
    end = time.monotonic() + 5
    while time.monotonic() < end and (multiprocessing.active_children() or set(threading.enumerate()) - before):
        time.sleep(0.01)
    return multiprocessing.active_children(), set(threading.enumerate()) - before


@pytest.fixture(scope="module")
def expected():
    fetch = fetch_of()
    made = []
    for step in range(12):  # 5 batches an epoch: two and a half epochs
        epoch, inside = divmod(step, 5)
        ids = fetch.order(epoch, inside)
        rng = SampleRandom(1, epoch, ids)
        made.append(prepare(fetch.dataset.batch(ids), fetch.tokens, fetch.objective, rng, training=True))
    return made


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_same_batches_from_any_step(expected, workers):
    before = set(threading.enumerate())
    fetch = fetch_of()
    for first, last in [(0, 12), (7, 11), (3, 3)]:
        assert_same(load(fetch, first, last, workers=workers), expected[first:last])
    assert left_behind(before) == ([], set())


def killer(flag):
    def trouble(stream):
        if os.getpid() != MAIN and len(stream.lengths) and not flag.exists() and stream.columns["ids"].sum() % 3 == 0:
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return trouble


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_worker_is_replaced_and_nothing_changes(expected, workers, tmp_path):
    before, said, flag = set(threading.enumerate()), [], tmp_path / "done"
    assert_same(load(fetch_of(killer(flag)), 0, 12, workers=workers, log=said.append), expected)
    assert flag.exists()
    assert len(said) == 1
    assert "worker" in said[0]
    assert left_behind(before) == ([], set())


def test_workers_killed_at_any_instant_never_leave_the_training_waiting(expected):
    """A lock shared with a killed process would stay closed for ever."""
    random = np.random.default_rng(0)
    for _ in range(6):
        said, victims = [], []

        def kill(victims=victims):
            victims.extend(process.pid for process in multiprocessing.active_children())
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(random.uniform(0, 0.05), kill)
        timer.start()
        assert_same(load(fetch_of(), 0, 12, workers=2, log=said.append), expected)
        timer.join()
        assert len(said) <= len(victims)


def killed_parent(pipe):
    def trouble(stream):
        time.sleep(0.02)

    batches = load(fetch_of(trouble), 0, 12, workers=2)
    next(batches)
    pipe.send([process.pid for process in multiprocessing.active_children()])
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_end_when_the_training_is_killed():
    near, far = multiprocessing.Pipe()
    parent = multiprocessing.get_context("fork").Process(target=killed_parent, args=(far,))
    parent.start()
    pids = near.recv()
    parent.join()
    assert len(pids) == 2
    end = time.monotonic() + 5
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.01)
    assert not any(alive(pid) for pid in pids)


def alive(pid):
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_workers_that_die_again_and_again():
    said = []
    with refuses(4, key="train.workers", hint="train.workers"):
        list(load(fetch_of(lambda stream: os._exit(1)), 0, 12, workers=1, log=said.append))
    assert len(said) == 3


def raiser(error):
    def trouble(stream):
        raise error

    return trouble


@pytest.mark.parametrize("workers", [0, 2])
def test_mistakes_come_through_and_are_not_tried_again(workers):
    before, said = set(threading.enumerate()), []
    wrong = UserError("NaN in sample 7", hint="Look at it.", key="data.blank", file="a.fits", line=7)
    for error in (wrong, ValueError("odd value"), RuntimeError("no worker to blame"), KeyError("column")):
        with pytest.raises(type(error), match=r"NaN in sample 7|odd value|no worker|column") as caught:
            list(load(fetch_of(raiser(error)), 0, 12, workers=workers, log=said.append))
        if error is wrong:
            assert str(caught.value) == str(wrong)
            assert caught.value.fields == wrong.fields
    assert not said
    del caught
    assert left_behind(before) == ([], set())


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_share_every_batch(world):
    one, many = fetch_of(), [fetch_of(rank=rank, world=world) for rank in range(world)]
    for step in (0, 6):
        whole, parts = one[step], [fetch[step] for fetch in many]
        np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), whole.ids)
        for name, column in whole.stream.columns.items():
            np.testing.assert_array_equal(np.concatenate([part.stream.columns[name] for part in parts]), column)
        assert sum(part.count for part in parts) == whole.count
        assert all(part.ids.tolist() == share(whole.ids, rank, world).tolist() for rank, part in enumerate(parts))
    with refuses(5, 4, key="train.batch"):
        fetch_of(world=5)


@pytest.mark.parametrize("world", [3, 5])
def test_ranks_share_batches_of_tokens_and_some_have_nothing(world):
    """A batch of a single long sample: one rank has it, the other ranks have no sample."""

    def trouble(stream):  # tokens need not know how to vary nothing
        return not len(stream)

    one = fetch_of(trouble, budget=24)
    many = [fetch_of(trouble, rank, world, budget=24) for rank in range(world)]
    idle = 0
    for step in range(2 * one.order.batches):
        whole, parts = one[step], [fetch[step] for fetch in many]
        np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), whole.ids)
        assert sum(part.count for part in parts) == whole.count
        joined = join(parts)
        for name, column in whole.stream.columns.items():
            np.testing.assert_array_equal(joined.stream.columns[name], column)
        assert {part.room for part in parts} == {(-(-whole.room[0] // world), whole.room[1])}
        assert all(len(part) <= part.room[0] and part.widest() <= part.room[1] for part in parts)
        assert [part.count for part in parts if not len(part)] == [0.0] * sum(not len(part) for part in parts)
        idle += sum(not len(part) for part in parts)
    assert idle > 0


@pytest.mark.parametrize(("prepares", "computes", "expected"), [(4, 1, True), (1, 4, False)])
def test_slow_preparing_is_told_once_and_only_where_it_is_worth_it(monkeypatch, prepares, computes, expected):
    clock = [0.0]
    monkeypatch.setattr(loader.time, "monotonic", lambda: clock[0])

    class Slow:
        dataset = fetch_of().dataset

        def __getitem__(self, step):
            clock[0] += prepares
            return step

    def told(first, last):
        said, seen = [], []
        for step in load(Slow(), first, last, log=said.append):
            clock[0] += computes
            seen.append(step)
        assert seen == list(range(first, last))
        return said

    said = told(7, 1000)
    assert len(said) == expected
    if expected:
        assert "4000 of the 5000 ms" in said[0]
        assert "train.workers: " in said[0]
    monkeypatch.setattr(loader, "MIN_WARNED_SECONDS", 1e9)
    assert not told(0, 200)
