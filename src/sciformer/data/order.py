"""Which samples come when: a pure function of the seed, the epoch and the step, and nothing else.

A checkpoint therefore needs no state of a loader, and a run resumed with other workers or ranks sees the same samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UserError
from .chance import Integers, key, permute


class Order:
    """`order(epoch, step)` is the global batch of ids; ranks slice it.

    count    samples in the data set
    batch    samples in a global batch; an epoch leaves out what does not fill the last one, others each time
    lengths  of the samples (count,): batches then hold samples of similar length, sorted within windows of `window`
             batches; None leaves them mixed
    chunks   sizes of the pieces in which data larger than memory are stored: pieces are shuffled, then samples
             within `near` neighbouring pieces, so that only those need be in memory
    """

    def __init__(
        self,
        count: int,
        batch: int,
        seed: int = 0,
        *,
        lengths: Any = None,
        window: int = 64,
        chunks: Any = None,
        near: int = 4,
    ) -> None:
        if count < 1:
            raise UserError("at least one sample to train on", "none")
        if batch < 1:
            raise UserError("a batch of one sample or more", f"{batch}")
        self.count, self.batch, self.seed = count, min(batch, count), seed
        self.lengths = None if lengths is None or np.ptp(lengths) == 0 else np.asarray(lengths)
        self.window = window
        if chunks is not None:  # a window reaches into two neighbourhoods of pieces at most
            self.window = max(1, min(window, int(near * count / len(chunks)) // self.batch))
        self.chunks = np.asarray([count] if chunks is None else chunks, np.int64)
        if self.chunks.sum() != count:
            raise UserError(f"chunks that hold {count} samples", f"{int(self.chunks.sum())}")
        self.near = near
        self.block: tuple[int, int, Integers] = (-1, -1, np.zeros((0, 0), np.int64))  # the last window made
        self.batches = count // self.batch
        """How many batches an epoch has."""

    def at(self, step: int) -> tuple[int, int]:
        """The epoch and the step in it, of a step counted from the beginning."""
        return divmod(step, self.batches)

    def __call__(self, epoch: int, step: int) -> Integers:
        """The ids of the global batch."""
        assert 0 <= step < self.batches
        number, inside = divmod(step, self.window)
        block = self.block  # once: another thread may put another one there
        if block[:2] != (epoch, number):
            block = self.block = (epoch, number, self._window(epoch, number))
        return block[2][inside]

    def _window(self, epoch: int, number: int) -> Integers:
        """The batches (W, B) of a window of steps, made at once because small arrays cost as much as large ones."""
        whole = min(self.window, self.batches - number * self.window)  # the last window may be shorter
        first = number * self.window * self.batch
        ids = self._samples(epoch, np.arange(first, first + whole * self.batch))
        if self.lengths is None:
            return ids.reshape(whole, self.batch)
        sorted_ids = ids[np.argsort(self.lengths[ids], kind="stable")].reshape(whole, self.batch)
        return sorted_ids[permute(np.arange(whole), whole, key(self.seed, "batches", epoch, number))]

    def _samples(self, epoch: int, places: Integers) -> Integers:
        """The ids at these places of the epoch's sequence."""
        if len(self.chunks) == 1:
            return permute(places, self.count, key(self.seed, "samples", epoch))
        pieces = permute(np.arange(len(self.chunks)), len(self.chunks), key(self.seed, "chunks", epoch))
        first = self.chunks.cumsum() - self.chunks
        ends = self.chunks[pieces].cumsum()
        ids = np.empty(len(places), np.int64)
        for group in range(0, len(pieces), self.near):
            members = pieces[group : group + self.near]
            begin, end = int(ends[group] - self.chunks[members[0]]), int(ends[min(group + self.near, len(pieces)) - 1])
            mine = (places >= begin) & (places < end)
            if mine.any():
                local = permute(places[mine] - begin, end - begin, key(self.seed, "near", epoch, group))
                stops = self.chunks[members].cumsum()
                piece = np.searchsorted(stops, local, side="right")
                ids[mine] = first[members][piece] + local - (stops - self.chunks[members])[piece]
        return ids


def share(ids: Integers, rank: int, world: int) -> Integers:
    """The part of a global batch that one of `world` ranks works on: neighbouring runs of near-equal size."""
    return np.array_split(ids, world)[rank]
