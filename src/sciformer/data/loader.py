"""Data loader: prepares training batches in this process or in workers.

Batches are not prepared in a thread, because the thread would compete with the training loop for Python's global lock.
This costs more time than it saves. The thread that reads pieces of large data ahead works mostly without the lock.

Each worker has a pipe of its own and shares no lock with another process, unlike the workers of PyTorch's DataLoader.
If a worker is killed, its pipe closes, which the training notices at once. If the training is killed, the workers end.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, multiprocessing

from ..errors import UserError
from .batch import Batch
from .dataset import Dataset
from .mixup import partners
from .prepare import prepare
from .random import SampleRandom
from .sampler import BatchSampler, share

if TYPE_CHECKING:
    from ..objectives.base import Objective
    from ..tokens.base import Tokens

MAX_RETRIES = 3  # maximum number of successive restarts of lost workers
PREFETCHED = 2  # batches that a worker prepares ahead
MAX_WAIT = 5.0  # seconds for a worker to end before it is killed
TIMED_STEPS = 30  # steps over which the time is measured
MIN_WARNED_SECONDS = 60.0  # remaining preparation time that is worth a message


class Fetch:
    """Function from a step to the prepared batch of a rank: `fetch[step]`.

    A call has no side effects.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: BatchSampler,
        tokens: Mapping[str, Tokens],
        objective: Objective,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.dataset, self.order, self.tokens, self.objective = dataset, order, tokens, objective
        self.rank, self.world = rank, world
        if order.batch < world:
            raise UserError(
                f"train.batch must be at least {world}, one sample for each process, not {order.batch}",
                key="train.batch",
            )

    def __getitem__(self, step: int) -> Batch:
        epoch, inside = self.order.at(step)
        whole = self.order(epoch, inside)
        ids = share(whole, self.rank, self.world)
        taken = ids if len(ids) else whole[:1]  # some ranks have no samples if the batch is smaller than the world
        rng = SampleRandom(self.order.seed, epoch, taken)
        self.dataset.expect(self.order.ahead(epoch, inside).tolist())
        raw, other = self.dataset.batch(taken, rng), None
        if self.objective.mixing:
            chosen, luck = partners(self.dataset, rng)
            other = self.dataset.batch(chosen, luck), luck
        made = prepare(raw, self.tokens, self.objective, rng, training=True, other=other)
        made = made if len(ids) else made.take(np.arange(0))
        return replace(made, room=self.order.room(epoch, inside, self.world))


def load(
    fetch: Fetch,
    first: int,
    last: int,
    *,
    workers: int = 0,
    log: Callable[[str], None] = lambda text: None,
) -> Generator[Batch]:
    """Batches of the steps first .. last - 1.

    workers  number of processes that prepare batches; lost processes are restarted at the current step
    """
    if workers == 0:
        with fetch.dataset.reading():
            yield from _prepare_in_process(fetch, first, last, log)
        return
    step, failures = first, 0
    while step < last:
        try:
            for parcel in _processes(fetch, step, last, workers):
                yield parcel.open()
                step, failures = step + 1, 0
        except _LostWorker as error:
            failures += 1
            if failures > MAX_RETRIES:
                raise UserError(
                    f"the data workers died {failures} times in a row: {error}",
                    hint="They may have run out of memory: reduce train.workers, or set it to 0.",
                    key="train.workers",
                ) from error
            log(f"a data worker died; restarting at step {step} (attempt {failures} of {MAX_RETRIES})")


def _prepare_in_process(fetch: Fetch, first: int, last: int, log: Callable[[str], None]) -> Generator[Batch]:
    """Yield batches prepared in this process; log once if preparation is slow."""
    timed = range(first + TIMED_STEPS, first + 2 * TIMED_STEPS)  # the first steps are slow for other reasons
    began = preparing = 0.0
    for step in range(first, last):
        now = time.monotonic()
        if step == timed.start:
            began, preparing = now, 0.0
        elif step == timed.stop:
            each, whole = preparing / TIMED_STEPS, (now - began) / TIMED_STEPS
            if each > whole / 2 and each * (last - step) > MIN_WARNED_SECONDS:
                beside = min(max(1, (os.cpu_count() or 2) - 1), 8, round(each / max(whole - each, each / 8)) or 1)
                log(
                    f"preparing a batch takes {1000 * each:.0f} of the {1000 * whole:.0f} ms of a step; "
                    f"set train.workers: {beside} to prepare batches in parallel"
                )
        batch = fetch[step]
        preparing += time.monotonic() - now
        yield batch


class _LostWorker(Exception):
    """Error: a worker process has ended."""


class _Parcel(NamedTuple):
    """Batch sent by a worker, with arrays in shared memory."""

    form: bytes
    sizes: list[int]
    shared: Tensor

    @classmethod
    def of(cls, batch: Batch) -> _Parcel:
        """Pack a batch, without columns unused by models."""
        streams = {
            name: replace(
                stream, columns={k: v for k, v in stream.columns.items() if k not in batch.aside.get(name, ())}
            )
            for name, stream in batch.streams.items()
        }
        buffers: list[pickle.PickleBuffer] = []
        form = pickle.dumps(replace(batch, streams=streams), protocol=5, buffer_callback=buffers.append)
        views = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        sizes = [-(-len(view) // 64) * 64 for view in views]
        shared = torch.empty(sum(sizes), dtype=torch.uint8).share_memory_()
        place, there = 0, shared.numpy()
        for view, size in zip(views, sizes):
            there[place : place + len(view)] = view
            place += size
        return cls(form, [len(view) for view in views], shared)

    def open(self) -> Batch:
        """Unpack the batch; its arrays are views of the shared memory."""
        place, there, parts = 0, self.shared.numpy(), []
        for size in self.sizes:
            parts.append(there[place : place + size])
            place += -(-size // 64) * 64
        found: Batch = pickle.loads(self.form, buffers=parts)
        return found


class _Worker:
    """Worker process: prepares batches ahead of the training.

    It receives step numbers, answers each with a parcel or an exception, and ends when its pipe is closed.
    """

    def __init__(self, fetch: Fetch, steps: Iterator[int]) -> None:
        self.steps = steps
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_work, args=(fetch, theirs, self.pipe), daemon=True)
        self.process.start()
        theirs.close()
        self._request(PREFETCHED)

    def _request(self, count: int) -> None:
        with suppress(OSError):  # a dead worker is noticed by `receive`
            for step in islice(self.steps, count):
                self.pipe.send(step)

    def receive(self) -> _Parcel:
        """Return the next parcel, and request one more step."""
        try:
            found: _Parcel | Exception = self.pipe.recv()
        except (OSError, EOFError) as error:  # also if it died before its shared memory was opened here
            self.process.join(MAX_WAIT)
            raise _LostWorker(f"worker {self.process.pid} ended with exit code {self.process.exitcode}") from error
        if isinstance(found, Exception):
            raise found
        self._request(1)
        return found

    def join(self) -> None:
        """Wait for the end of a worker, after its pipe is closed."""
        self.process.join(MAX_WAIT)
        if self.process.is_alive():  # in the middle of a long read
            self.process.kill()
            self.process.join()
        self.process.close()


def _work(fetch: Fetch, pipe: Connection, parent: Connection) -> None:
    """Main function of a worker."""
    parent.close()  # a fork inherits the other end, and would never see it close
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, which then closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGUSR1"):  # a scheduler signals all processes of a job; the training saves and ends
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with suppress(OSError, EOFError), fetch.dataset.reading():
        while True:
            step = pipe.recv()
            try:
                answer: _Parcel | Exception = _Parcel.of(fetch[step])
            except Exception as error:
                answer = _sendable(error)
            pipe.send(answer)


def _sendable(error: Exception) -> Exception:
    """Exception with the worker's traceback, added as a note.

    An exception that cannot be pickled becomes a RuntimeError.
    """
    note = f"in a data worker:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(error, UserError):
        error.add_note(note)
    return error


def _processes(fetch: Fetch, first: int, last: int, workers: int) -> Iterator[_Parcel]:
    """Yield batches prepared by worker processes, in the order of the steps.

    Consecutive steps that need the same pieces go to the same worker.
    """
    processes: list[_Worker] = []
    try:
        for place in range(workers):
            runs = islice(fetch.order.runs(first, last), place, None, workers)
            processes.append(_Worker(fetch, chain.from_iterable(runs)))
        for number, run in enumerate(fetch.order.runs(first, last)):
            for _ in run:
                yield processes[number % workers].receive()
    finally:
        for worker in processes:
            worker.pipe.close()
        for worker in processes:  # a fork also holds the pipes of the workers before it, until it ends
            worker.join()
