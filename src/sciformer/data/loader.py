"""Batches of a training, one after the other, prepared here or in worker processes.

A thread was tried and left: it fights with the loop for Python's lock, which costs more than the host has time for
anyway while a GPU works.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from ..errors import UserError
from .batch import Batch
from .chance import Chance
from .dataset import Dataset
from .order import Order, share

if TYPE_CHECKING:
    from ..objectives.base import Objective
    from ..tokens.base import Tokens

RETRIES = 3  # times in a row that lost workers are started again


class Fetch(TorchDataset[Batch]):
    """The share of one rank of the batch of a step: `fetch[step]`, a pure function."""

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        tokens: Mapping[str, Tokens],
        objective: Objective,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.dataset, self.order, self.tokens, self.objective = dataset, order, tokens, objective
        self.rank, self.world = rank, world
        if order.batch < world:
            raise UserError(f"a batch of {world} samples or more, one for each process", f"{order.batch}")

    def __getitem__(self, step: int) -> Batch:
        from ..objectives.base import prepare

        epoch, inside = self.order.at(step)
        whole = self.order(epoch, inside)
        ids = share(whole, self.rank, self.world)
        taken = ids if len(ids) else whole[:1]  # of a batch with fewer samples than ranks, some have nothing
        chance = Chance(self.order.seed, epoch, taken)
        made = prepare(self.dataset.batch(taken, chance), self.tokens, self.objective, chance, training=True)
        made = made if len(ids) else made.take(np.arange(0))
        return replace(made, room=self.order.room(epoch, inside, self.world))


def load(
    fetch: Fetch,
    first: int,
    last: int,
    *,
    workers: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Generator[Batch]:
    """The batches of the steps first .. last - 1.

    workers  processes that prepare them; one that dies is replaced, and the batches go on where they were
    """
    if workers == 0:
        yield from (fetch[step] for step in range(first, last))
        return
    step, failures = first, 0
    while step < last:
        try:
            for batch in _processes(fetch, range(step, last), workers):
                if isinstance(batch, _Refusal):
                    raise UserError(batch.expected, batch.found, batch.advice)
                yield batch
                step, failures = step + 1, 0
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker (pid"):  # what went wrong inside a worker that lives
                raise
            failures += 1
            if failures > RETRIES:
                raise UserError(
                    "data workers that live",
                    f"{failures} losses in a row: {error}",
                    "Often memory ran out: try fewer train.workers, or 0.",
                ) from error
            say(f"a data worker was lost; starting again at step {step} ({failures} of {RETRIES})")


class _Refusal(NamedTuple):
    """A UserError on its way out of a worker: exceptions lose their parts there."""

    expected: str
    found: str
    advice: str


class _Guarded(TorchDataset["Batch | _Refusal"]):
    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch

    def __getitem__(self, step: int) -> Batch | _Refusal:
        try:
            return self.fetch[step]
        except UserError as error:
            return _Refusal(error.expected, error.found, error.advice)


def _processes(fetch: Fetch, steps: range, workers: int) -> Iterator[Batch | _Refusal]:
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    loader = DataLoader(
        _Guarded(fetch),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        prefetch_factor=2,
        collate_fn=_same,
    )
    batches: Any = iter(loader)
    if before is not None and threading.current_thread() is threading.main_thread():
        # PyTorch's handler would raise wherever the training happens to be; lost workers are found here, at a batch.
        signal.signal(signal.SIGCHLD, before)
    try:
        yield from batches
    finally:
        batches._shutdown_workers()  # now, not when the traceback of an error is forgotten


def _same(batch: Any) -> Any:
    return batch
