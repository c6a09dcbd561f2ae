"""Data loader: prepares training batches in this process or in workers.

There is no thread that prepares batches: it would compete with the training loop for Python's global lock, which costs
more time than it saves. The thread that reads pieces of large data ahead works mostly without the lock.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

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

MAX_RETRIES = 3  # restarts of lost workers in a row
TIMED_STEPS = 30  # steps over which the time is measured
MIN_WARNED_SECONDS = 60.0  # remaining preparation time that is worth a message


class Fetch(TorchDataset[Batch]):
    """Prepared batch of a step, for one rank: `fetch[step]`, a pure function."""

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
            yield from _here(fetch, first, last, log)
        return
    step, failures = first, 0
    while step < last:
        try:
            for found in _processes(fetch, step, last, workers):
                if isinstance(found, UserError):
                    raise found
                yield found.open()
                step, failures = step + 1, 0
        except (RuntimeError, OSError, EOFError) as error:
            if not _lost(error):
                raise
            failures += 1
            if failures > MAX_RETRIES:
                raise UserError(
                    f"the data workers died {failures} times in a row: {error}",
                    hint="They may have run out of memory: reduce train.workers, or set it to 0.",
                    key="train.workers",
                ) from error
            log(f"a data worker died; restarting at step {step} (attempt {failures} of {MAX_RETRIES})")


def _here(fetch: Fetch, first: int, last: int, log: Callable[[str], None]) -> Generator[Batch]:
    """Batches prepared in this process; logs once if preparation is slow."""
    watched = range(first + TIMED_STEPS, first + 2 * TIMED_STEPS)  # the first steps are slow for other reasons
    began = preparing = 0.0
    for step in range(first, last):
        now = time.monotonic()
        if step == watched.start:
            began, preparing = now, 0.0
        elif step == watched.stop:
            each, whole = preparing / TIMED_STEPS, (now - began) / TIMED_STEPS
            if each > whole / 2 and each * (last - step) > MIN_WARNED_SECONDS:
                beside = min(max(1, (os.cpu_count() or 2) - 1), 8, round(each / max(whole - each, each / 8)) or 1)
                log(
                    f"preparing a batch takes {1000 * each:.0f} of the {1000 * whole:.0f} ms of a step: "
                    f"train.workers: {beside} would do it in parallel"
                )
        batch = fetch[step]
        preparing += time.monotonic() - now
        yield batch


def _lost(error: Exception) -> bool:
    """Whether an exception means that a worker died.

    PyTorch marks an exception raised inside a living worker with «Caught».
    """
    text = str(error)
    return text.startswith("DataLoader worker (pid") if isinstance(error, RuntimeError) else "Caught" not in text


class _Parcel(NamedTuple):
    """A batch sent from a worker; its array data are in shared memory."""

    form: bytes
    sizes: list[int]
    shared: Tensor

    @classmethod
    def of(cls, batch: Batch) -> _Parcel:
        """Pack a batch, without the columns that no model reads."""
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


class _Guarded(TorchDataset["_Parcel | UserError"]):
    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch

    def __getitem__(self, step: int) -> _Parcel | UserError:
        try:
            return _Parcel.of(self.fetch[step])
        except UserError as error:
            return error  # raised in the main process

    def begin(self, worker: int) -> None:
        """Start reading pieces ahead, for the lifetime of a worker."""
        self.alive = ExitStack()
        self.alive.enter_context(self.fetch.dataset.reading())


def _processes(fetch: Fetch, first: int, last: int, workers: int) -> Iterator[_Parcel | UserError]:
    """Parcels from one loader per worker, so that each worker reads its own pieces."""
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    guarded, loaders = _Guarded(fetch), list[Any]()
    try:
        for worker in range(workers):
            runs = islice(fetch.order.runs(first, last), worker, None, workers)  # steps of a run need the same pieces
            loader = DataLoader(
                guarded,
                batch_size=None,
                sampler=chain.from_iterable(runs),
                num_workers=1,
                prefetch_factor=2,
                collate_fn=_same,
                worker_init_fn=guarded.begin,
            )
            loaders.append(iter(loader))
        if before is not None and threading.current_thread() is threading.main_thread():
            # PyTorch's handler would raise anywhere in the training; lost workers are detected here instead.
            signal.signal(signal.SIGCHLD, before)
        for number, run in enumerate(fetch.order.runs(first, last)):
            for _ in run:
                yield next(loaders[number % workers])
    finally:
        for batches in loaders:
            batches._shutdown_workers()  # now, not when the traceback is freed


def _same(batch: Any) -> Any:
    return batch
