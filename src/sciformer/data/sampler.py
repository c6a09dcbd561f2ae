"""Which samples come when: a pure function of the seed, the epoch and the step, and nothing else.

A checkpoint therefore needs no state of a loader, and a run resumed with other workers or ranks sees the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError
from .random import Integers, key, permute

if TYPE_CHECKING:
    from .dataset import Dataset

Room = tuple[int, int]  # rows and width of a batch with its padding


class BatchSampler:
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
            raise UserError("there are no samples to train on")
        if batch < 1:
            raise UserError(f"train.batch must be 1 or more, not {batch}", key="train.batch")
        self.count, self.batch, self.seed = count, min(batch, count), seed
        self.lengths = None if lengths is None or np.ptp(lengths) == 0 else np.asarray(lengths)
        self.window = window
        if chunks is not None:  # a window reaches into two neighbourhoods of pieces at most
            self.window = max(1, min(window, int(near * count / len(chunks)) // self.batch))
        self.chunks = np.asarray([count] if chunks is None else chunks, np.int64)
        if self.chunks.sum() != count:
            raise UserError(f"the chunks hold {int(self.chunks.sum())} samples, not {count}")
        self.near = near
        self.turns: dict[int, Integers] = {}  # the pieces in the order of the last epochs
        self.block: tuple[int, int, Integers] = (-1, -1, np.zeros((0, 0), np.int64))  # the last window made
        self.batches = count // self.batch
        """How many batches an epoch has."""

    def room(self, epoch: int, step: int, world: int = 1) -> Room | None:
        """Rows and width into which any rank's share of a batch like this one fits; None: as its samples need."""
        return None

    def shapes(self, multiple: int) -> int:
        """How many shapes the batches may have, where samples are padded to multiples of so many tokens."""
        return 1 if self.lengths is None else len(np.unique(rounded(self.lengths, multiple)))

    def widest(self) -> int:
        """A step of the first epoch that has the widest sample, where some batches have wider ones than others."""
        return 0

    def at(self, step: int) -> tuple[int, int]:
        """The epoch and the step in it, of a step counted from the beginning."""
        return divmod(step, self.batches)

    def runs(self, first: int, last: int) -> Iterator[range]:
        """The steps first .. last - 1 in runs that need nearly the same pieces; one by one, where there is one."""
        while first < last:
            stop = first + 1
            if len(self.chunks) > 1:
                epoch, inside = self.at(first)
                end = int(self._ends(epoch)[min(self._group(epoch, inside), len(self.chunks)) - 1])
                stop = max(stop, epoch * self.batches + min(self.batches, -(-end * self.batches // self.count)))
            yield range(first, min(stop, last))
            first = stop

    def ahead(self, epoch: int, step: int) -> Integers:
        """The pieces around this step, then those that are wanted after them; none where there is only one."""
        if len(self.chunks) == 1:
            return self.chunks[:0]
        group = self._group(epoch, step)
        after = self._turn(epoch)[group : group + self.near]
        after = after if len(after) else self._turn(epoch + 1)[: self.near]
        return np.concatenate([self._turn(epoch)[group - self.near : group], after])

    def _group(self, epoch: int, step: int) -> int:
        """Where the pieces that come after those of this step begin in their sequence."""
        place = self.count * step // self.batches
        return (int(np.searchsorted(self._ends(epoch), place, "right")) // self.near + 1) * self.near

    def _ends(self, epoch: int) -> Integers:
        """Where each piece ends in the sequence of an epoch."""
        return np.asarray(self.chunks[self._turn(epoch)].cumsum())

    def _turn(self, epoch: int) -> Integers:
        """The pieces in the order in which an epoch takes them."""
        turns = self.turns  # once: another thread may put others there
        if epoch not in turns:
            count = len(self.chunks)
            made = {epoch: permute(np.arange(count), count, key(self.seed, "chunks", epoch))}
            turns = self.turns = {old: turns[old] for old in turns if abs(old - epoch) == 1} | made
        return turns[epoch]

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
    """Batches of at most `tokens` tokens, padding included: few long samples or many short ones (fairseq).

    widths    tokens of each sample (count,), in its longest stream
    multiple  samples whose widths round up to the same multiple of it come together; unless given, of 16, growing
              with the width so that twice the width has four kinds more

    A batch of width w has tokens // w samples, at least one. Every sample comes once in an epoch: the last batch of
    each kind may have fewer. Their number is the same in every epoch.
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
        self.starts = np.concatenate(runs)  # where each batch begins, once samples are sorted by kind
        self.stops = np.append(self.starts[1:], self.count)
        self.which = np.repeat(np.arange(len(self.kinds)), of)
        self.batch, self.batches = int(self.rows.max()), len(self.starts)
        none = np.zeros(0, np.int64)
        self.made: tuple[int, Integers, Integers] = (-1, none, none)  # the last epoch

    def room(self, epoch: int, step: int, world: int = 1) -> Room:
        """Rows and width of the kind of this batch."""
        kind = self.which[self._epoch(epoch)[1][step]]
        return -(-int(self.rows[kind]) // world), int(self.kinds[kind])

    def widest(self) -> int:
        """A step of the first epoch that has the widest sample."""
        ids, turn = self._epoch(0)
        number = np.searchsorted(self.starts, np.flatnonzero(ids == self.widths.argmax()), side="right") - 1
        return int(np.flatnonzero(turn == number)[0])

    def shapes(self, multiple: int) -> int:
        """One for each kind."""
        return len(self.kinds)

    def __call__(self, epoch: int, step: int) -> Integers:
        """The ids of the global batch."""
        ids, turn = self._epoch(epoch)
        return ids[self.starts[turn[step]] : self.stops[turn[step]]]

    def _epoch(self, epoch: int) -> tuple[Integers, Integers]:
        """The samples sorted by kind, and which batch of them comes when."""
        made = self.made  # once: another thread may put another one there
        if made[0] != epoch:
            ids = self._samples(epoch, np.arange(self.count))
            place = np.argsort(self.kind[ids], kind="stable")
            if len(self.chunks) > 1:  # when the first of their samples would, so that neighbours stay together
                turn = np.argsort(place[self.starts], kind="stable")
            else:
                turn = permute(np.arange(self.batches), self.batches, key(self.seed, "batches", epoch))
            made = self.made = (epoch, ids[place], turn)
        return made[1:]


class PackedSampler(BatchSampler):
    """Batches of nearly `tokens` tokens, for samples laid end to end without padding: at most so many where three
    of the longest samples fit, and nearly as many.

    Samples are shuffled, and their run of tokens is cut at even distances: a sample belongs where it begins. Every
    sample comes once in an epoch, and every epoch has the same number of batches.
    """

    def __init__(self, widths: Any, tokens: int, seed: int = 0, *, chunks: Any = None, near: int = 4) -> None:
        self.widths, self.tokens = np.maximum(1, np.asarray(widths, np.int64)), tokens
        super().__init__(len(self.widths), 1, seed, chunks=chunks, near=near)
        longest = int(self.widths.max())
        cut = int(self.widths.sum()) - longest  # the last sample begins there or later, whichever it is
        self.batches = max(1, min(-(-cut // max(1, tokens - longest)), cut // longest))
        self.cuts = np.arange(self.batches + 1) * cut // self.batches
        self.batch = self.count // self.batches
        self.made: tuple[int, Integers, Integers] = (-1, self.cuts, self.cuts)  # the last epoch

    def room(self, epoch: int, step: int, world: int = 1) -> Room:
        """Samples, rounded up to few different numbers, and tokens."""
        return int(rounded(np.array([-(-len(self(epoch, step)) // world)]), 64)[0]), -(-self.tokens // world)

    def shapes(self, multiple: int) -> int:
        """Few: the number of samples varies little."""
        return 2

    def __call__(self, epoch: int, step: int) -> Integers:
        """The ids of the global batch."""
        made = self.made  # once: another thread may put another one there
        if made[0] != epoch:
            ids = self._samples(epoch, np.arange(self.count))
            widths = self.widths[ids]
            firsts = np.searchsorted(widths.cumsum() - widths, self.cuts)
            firsts[-1] = self.count
            made = self.made = (epoch, ids, firsts)
        return made[1][made[2][step] : made[2][step + 1]]


def rounded(widths: Integers, multiple: int | None = None) -> Integers:
    """Widths rounded up, to few different ones: at least 1."""
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
    """The order of the samples of a data set: batches of so many samples, or of at most so many tokens.

    shift    tokens by which the only stream is shorter in a model's hands than in the data set
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
    """The part of a global batch that one of `world` ranks works on: neighbouring runs of near-equal size."""
    return np.array_split(ids, world)[rank]
