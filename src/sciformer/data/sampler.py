"""Samplers: the order of samples as a pure function of seed, epoch and step.

A checkpoint therefore needs no loader state, and a run resumed with other workers or ranks sees the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError
from .random import Integers, key, permute

if TYPE_CHECKING:
    from .dataset import Dataset

Room = tuple[int, int]  # rows and width of a padded batch


class BatchSampler:
    """Shuffled batches of fixed size; `order(epoch, step)` returns sample ids.

    count    number of samples in the dataset
    batch    number of samples in a global batch; the last samples of an epoch are dropped if too few for a batch
    lengths  (count,) sample lengths, for batches of similar length, sorted within windows of `window` batches
             (default: batches of mixed length)
    chunks   sizes of the pieces of data larger than memory: pieces are shuffled, then samples within groups of
             `near` consecutive pieces, so that only one group is in memory
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
            raise UserError("the training part has no samples")
        if batch < 1:
            raise UserError(f"train.batch must be 1 or more, not {batch}", key="train.batch")
        self.count, self.batch, self.seed = count, min(batch, count), seed
        self.lengths = None if lengths is None or np.ptp(lengths) == 0 else np.asarray(lengths)
        self.window = window
        if chunks is not None:  # a window covers at most two groups of pieces
            self.window = max(1, min(window, int(near * count / len(chunks)) // self.batch))
        self.chunks = np.asarray([count] if chunks is None else chunks, np.int64)
        if self.chunks.sum() != count:
            raise UserError(f"the pieces have {int(self.chunks.sum())} samples in total, not {count}")
        self.near = near
        self.turns: dict[int, Integers] = {}  # order of the pieces in recent epochs
        self.block: tuple[int, int, Integers] = (-1, -1, np.zeros((0, 0), np.int64))  # cached window
        self.batches = count // self.batch
        """Number of batches per epoch."""

    def room(self, epoch: int, step: int, world: int = 1) -> Room | None:
        """Number of rows and width of the batch of each rank; None if they vary."""
        return None

    def shapes(self, multiple: int) -> int:
        """Number of different batch shapes with padding to a `multiple` of tokens."""
        return 1 if self.lengths is None else len(np.unique(rounded(self.lengths, multiple)))

    def widest(self) -> int:
        """Step of the first epoch with the longest sample; 0 if lengths are unknown."""
        if self.lengths is None:
            return 0
        windows = [self._window(0, number) for number in range(-(-self.batches // self.window))]
        return int(np.argmax(np.concatenate([self.lengths[ids].max(1) for ids in windows])))

    def at(self, step: int) -> tuple[int, int]:
        """Epoch and step within the epoch, from the number of the step in the training."""
        return divmod(step, self.batches)

    def runs(self, first: int, last: int) -> Iterator[range]:
        """Split the steps first .. last - 1 into runs of steps with the same pieces."""
        while first < last:
            stop = first + 1
            if len(self.chunks) > 1:
                epoch, inside = self.at(first)
                end = int(self._ends(epoch)[min(self._group(epoch, inside), len(self.chunks)) - 1])
                stop = max(stop, epoch * self.batches + min(self.batches, -(-end * self.batches // self.count)))
            yield range(first, min(stop, last))
            first = stop

    def ahead(self, epoch: int, step: int) -> Integers:
        """Pieces to load for a step; empty if the data are a single piece.

        First the pieces of the group of this step, then the pieces of the next group.
        """
        if len(self.chunks) == 1:
            return self.chunks[:0]
        group = self._group(epoch, step)
        after = self._turn(epoch)[group : group + self.near]
        after = after if len(after) else self._turn(epoch + 1)[: self.near]
        return np.concatenate([self._turn(epoch)[group - self.near : group], after])

    def _group(self, epoch: int, step: int) -> int:
        """End of the group of this step, as an index into the pieces of the epoch."""
        place = self.count * step // self.batches
        return (int(np.searchsorted(self._ends(epoch), place, "right")) // self.near + 1) * self.near

    def _ends(self, epoch: int) -> Integers:
        """Cumulative sizes of the pieces, in their order in an epoch."""
        return np.asarray(self.chunks[self._turn(epoch)].cumsum())

    def _turn(self, epoch: int) -> Integers:
        """Random order of the pieces in an epoch."""
        turns = self.turns  # read once: another thread may replace it
        if epoch not in turns:
            count = len(self.chunks)
            made = {epoch: permute(np.arange(count), count, key(self.seed, "chunks", epoch))}
            turns = self.turns = {old: turns[old] for old in turns if abs(old - epoch) == 1} | made
        return turns[epoch]

    def __call__(self, epoch: int, step: int) -> Integers:
        """Sample ids of the global batch."""
        assert 0 <= step < self.batches
        number, inside = divmod(step, self.window)
        block = self.block  # read once: another thread may replace it
        if block[:2] != (epoch, number):
            block = self.block = (epoch, number, self._window(epoch, number))
        return block[2][inside]

    def _window(self, epoch: int, number: int) -> Integers:
        """Batches (W, B) of a window of steps, computed together for speed."""
        whole = min(self.window, self.batches - number * self.window)  # the last window may be shorter
        first = number * self.window * self.batch
        ids = self._samples(epoch, np.arange(first, first + whole * self.batch))
        if self.lengths is None:
            return ids.reshape(whole, self.batch)
        sorted_ids = ids[np.argsort(self.lengths[ids], kind="stable")].reshape(whole, self.batch)
        return sorted_ids[permute(np.arange(whole), whole, key(self.seed, "batches", epoch, number))]

    def _samples(self, epoch: int, places: Integers) -> Integers:
        """Sample ids at the positions `places` in the order of an epoch."""
        if len(self.chunks) == 1:
            return permute(places, self.count, key(self.seed, "samples", epoch))
        pieces = self._turn(epoch)
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


class TokenBudgetSampler(BatchSampler):
    """Batches of at most `tokens` tokens with padding (as in fairseq).

    widths    (count,) number of tokens of each sample, in its longest stream
    multiple  widths are rounded up to a multiple of this number, and samples of equal rounded width share batches
              (default: 16 up to a width of 128; above, four rounded widths per octave)

    A batch of width w has max(1, tokens // w) samples. Every sample occurs once per epoch; the last batch of a width
    may be smaller. The number of batches is the same in every epoch.
    """

    def __init__(
        self,
        widths: Any,
        tokens: int,
        seed: int = 0,
        *,
        multiple: int | None = None,
        chunks: Any = None,
        near: int = 4,
    ) -> None:
        self.widths = np.asarray(widths, np.int64)
        super().__init__(len(self.widths), 1, seed, chunks=chunks, near=near)
        kinds = rounded(self.widths, multiple)
        self.kinds, self.kind, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        self.rows = np.minimum(np.maximum(1, tokens // self.kinds), counts)
        of = -(-counts // self.rows)
        runs = [begin + rows * np.arange(n) for begin, rows, n in zip(counts.cumsum() - counts, self.rows, of)]
        self.starts = np.concatenate(runs)  # start of each batch in the samples sorted by width
        self.stops = np.append(self.starts[1:], self.count)
        self.which = np.repeat(np.arange(len(self.kinds)), of)
        self.batch, self.batches = int(self.rows.max()), len(self.starts)
        none = np.zeros(0, np.int64)
        self.made: tuple[int, Integers, Integers] = (-1, none, none)  # cached epoch

    def room(self, epoch: int, step: int, world: int = 1) -> Room:
        """Shape of the padded batch of a step: rows on each of `world` ranks, and tokens."""
        kind = self.which[self._epoch(epoch)[1][step]]
        return -(-int(self.rows[kind]) // world), int(self.kinds[kind])

    def widest(self) -> int:
        """Step of the first epoch with the longest sample."""
        ids, turn = self._epoch(0)
        number = np.searchsorted(self.starts, np.flatnonzero(ids == self.widths.argmax()), side="right") - 1
        return int(np.flatnonzero(turn == number)[0])

    def shapes(self, multiple: int) -> int:
        """Number of different batch shapes: one for each width."""
        return len(self.kinds)

    def __call__(self, epoch: int, step: int) -> Integers:
        """Sample ids of the global batch."""
        ids, turn = self._epoch(epoch)
        return ids[self.starts[turn[step]] : self.stops[turn[step]]]

    def _epoch(self, epoch: int) -> tuple[Integers, Integers]:
        """Samples sorted by width, and the order of their batches."""
        made = self.made  # read once: another thread may replace it
        if made[0] != epoch:
            ids = self._samples(epoch, np.arange(self.count))
            place = np.argsort(self.kind[ids], kind="stable")
            if len(self.chunks) > 1:  # in the order of their first samples, to keep neighbouring pieces together
                turn = np.argsort(place[self.starts], kind="stable")
            else:
                turn = permute(np.arange(self.batches), self.batches, key(self.seed, "batches", epoch))
            made = self.made = (epoch, ids[place], turn)
        return made[1:]


class PackedSampler(BatchSampler):
    """Batches of nearly `tokens` tokens, for packed samples without padding.

    A batch has at most `tokens` tokens if three of the longest samples fit into it. Samples are shuffled, and their
    sequence of tokens is cut at equal distances; a sample belongs to the batch in which it starts. Every sample occurs
    once per epoch, and every epoch has the same number of batches.
    """

    def __init__(self, widths: Any, tokens: int, seed: int = 0, *, chunks: Any = None, near: int = 4) -> None:
        self.widths, self.tokens = np.maximum(1, np.asarray(widths, np.int64)), tokens
        super().__init__(len(self.widths), 1, seed, chunks=chunks, near=near)
        longest = int(self.widths.max())
        cut = int(self.widths.sum()) - longest  # lower bound for the start of the last sample
        self.batches = max(1, min(-(-cut // max(1, tokens - longest)), cut // longest))
        self.cuts = np.arange(self.batches + 1) * cut // self.batches
        self.batch = self.count // self.batches
        self.made: tuple[int, Integers, Integers] = (-1, self.cuts, self.cuts)  # cached epoch

    def room(self, epoch: int, step: int, world: int = 1) -> Room:
        """Number of rows (rounded up, to limit the batch shapes) and tokens of each rank."""
        return int(rounded(np.array([-(-len(self(epoch, step)) // world)]), 64)[0]), -(-self.tokens // world)

    def shapes(self, multiple: int) -> int:
        """Number of different batch shapes: two, as the number of samples varies little."""
        return 2

    def __call__(self, epoch: int, step: int) -> Integers:
        """Sample ids of the global batch."""
        made = self.made  # read once: another thread may replace it
        if made[0] != epoch:
            ids = self._samples(epoch, np.arange(self.count))
            widths = self.widths[ids]
            firsts = np.searchsorted(widths.cumsum() - widths, self.cuts)
            firsts[-1] = self.count
            made = self.made = (epoch, ids, firsts)
        return made[1][made[2][step] : made[2][step + 1]]


def rounded(widths: Integers, multiple: int | None = None) -> Integers:
    """Round widths up to a multiple (default: a larger multiple for larger widths)."""
    widths = np.maximum(1, widths)
    if multiple is None:
        octave = np.frexp(widths - 1)[1].astype(np.int64)  # 2 ** (octave - 1) < width <= 2 ** octave
        by = np.maximum(16, np.left_shift(1, np.maximum(octave - 3, 0)))
    else:
        by = np.asarray(multiple)
    return -(-widths // by) * by


def make_sampler(
    dataset: Dataset,
    batch: int,
    tokens: int | None = None,
    seed: int = 0,
    *,
    bucket: bool = True,
    multiple: int | None = None,
    packed: bool = False,
    shift: int = 0,
) -> BatchSampler:
    """Sampler of a dataset: batches of `batch` samples, or of at most `tokens` tokens.

    tokens    maximum number of tokens in a batch (default: None, each batch has `batch` samples)
    bucket    whether batches of `batch` samples have samples of similar length; ignored with `packed`
    multiple  for batches of at most `tokens` tokens: round widths up to a multiple of this number (default: see
              `TokenBudgetSampler`)
    packed    whether samples are packed without padding
    shift     number of tokens by which the model shortens the only stream (as for next-token targets)
    """
    chunks = dataset.sizes if len(dataset.sizes) > 1 else None
    if tokens is None:
        lengths = dataset.bucket_lengths if bucket and not packed else None
        return BatchSampler(len(dataset), batch, seed, lengths=lengths, chunks=chunks)
    shift = shift if len(dataset.tokens) == 1 else 0
    if (width := dataset.width) is not None:
        return BatchSampler(len(dataset), max(1, tokens // max(1, width - shift)), seed, chunks=chunks)
    widths = np.maximum(1, dataset.widths - shift)
    if packed:
        return PackedSampler(widths, tokens, seed, chunks=chunks)
    return TokenBudgetSampler(widths, tokens, seed, multiple=multiple, chunks=chunks)


def share(ids: Integers, rank: int, world: int) -> Integers:
    """Slice of a global batch for one of `world` ranks; sizes differ by at most 1."""
    return np.array_split(ids, world)[rank]
