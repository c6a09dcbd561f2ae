"""Tokenised samples by number, in memory or piece by piece."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, one_of
from .batch import Batch, Stream, join
from .columns import Lists, rows_of
from .source import Source, known_column
from .token_labels import ITEMS as ITEMS
from .token_labels import labelled

if TYPE_CHECKING:
    from ..tokens.base import Tokens
    from .random import SampleRandom

Array = NDArray[Any]


WINDOW = "window of"  # the column of samples that says which sample of the source a window was cut from
START = "window from"  # the column of samples that says at which of its tokens, but for those given beside, it begins
PIECES_AHEAD = 2  # pieces made ahead of the time when they are wanted
LOCKS: dict[int, Lock] = {}  # of each process: one that is forked must not wait for a thread that it has not


class Dataset:
    """The samples of a source, tokenised: `dataset.batch(ids)`.

    window, stride   cut every sample into windows of so many tokens, so many apart; with `tail` what is left at the
                     end becomes a shorter window; but windows of a series that would stand end to end overlap
                     instead, evenly. Without a window samples stay whole; but of several streams, one that is longer
                     than its tokens' own window is cut there, and `shortened` counts such samples.
    loose            one window of each sample, where `chance` puts it: `dataset.batch(ids, chance)`; else in the middle
    near             pieces kept in memory at a time; while `reading`, up to two more are made ahead
    labels           columns of lists with a label for each word (or each token where tokens are no parts of words):
                     they stay with the samples, and the first token of a word has the number of its label in the
                     column `item`, others -1
    until            only the beginning of each sample: tokens at most so far after its first
    """

    def __init__(
        self,
        source: Source,
        tokens: Mapping[str, Tokens],
        *,
        window: int | None = None,
        stride: int = 1,
        tail: bool = False,
        loose: bool = False,
        near: int = 8,
        labels: tuple[str, ...] = (),
        until: float | None = None,
    ) -> None:
        self.source, self.tokens, self.near, self.labels = source, dict(tokens), near, labels
        self.until = until
        if until is not None and labels:
            raise UserError(
                f"the beginnings of samples cannot be judged because each sample has a list of {labels[0]}, "
                "not a single answer"
            )
        self.window, self.stride, self.tail, self.loose = window, stride, tail, loose
        self.lead, self.even = 0, False
        if window is not None:
            if len(self.tokens) > 1:
                raise UserError(f"only a single stream of tokens can be cut into windows, not {len(self.tokens)}")
            (only,) = self.tokens.values()
            self.lead = only.prefix_tokens
            if self.lead >= window:
                raise UserError(f"a window must be longer than the {self.lead} tokens it begins with, not {window}")
            self.stride = min(stride, window - self.lead)  # nothing is skipped
            self.even = only.random_windows and tail and self.stride == window - self.lead
        self.kept: OrderedDict[int, Batch] = OrderedDict()
        self.found: dict[int, tuple[Array, Array]] = {}  # lengths and widths of the samples of a piece
        self.firsts: dict[int, Array] = {}  # the first window of each whole sample in a piece
        self.totals: dict[int, Array] = {}  # tokens of each whole sample in a piece
        self.short: dict[int, int] = {}  # samples of a piece that were cut
        self.pool: ThreadPoolExecutor | None = None
        self.coming: dict[int, Future[Batch]] = {}  # pieces that are made by a thread, ahead of time
        plain = window is None and until is None and len(self.tokens) == 1 and not labels
        self.waits = plain and len(source.sizes) > 1 and hasattr(source, "known_column") and not self._joins
        """Whether no piece is loaded before it is needed."""
        self.sizes = list(source.sizes)
        if not self.waits:
            self.sizes = [self._size(piece) for piece in range(len(source.sizes))]
        self.stops = np.cumsum(self.sizes)

    def __len__(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    @property
    def shortened(self) -> int:
        """How many samples were cut at their end, for a stream was longer than its tokens' window."""
        return sum(self.short.values())

    @property
    def _joins(self) -> bool:
        return len(self.tokens) == 1 and next(iter(self.tokens.values())).concatenates

    def _size(self, piece: int) -> int:
        """Samples or windows of a piece; how long they are is noted."""
        if self.window is not None:
            return int(self._first(piece)[-1])
        whole = self._load(piece)
        self.found[piece] = _lengths(whole), _widths(whole)
        return len(whole)

    @cached_property
    def lengths(self) -> Array | None:
        """Tokens of every sample, of all streams together; None where windows make them alike."""
        return None if self.window is not None or not self.sizes else self._counted(0)

    @cached_property
    def widths(self) -> Array:
        """(n,) tokens of every sample or window, in its longest stream."""
        if self.window is None:
            return self._counted(1) if self.sizes else np.zeros(0, np.int64)
        found = [self._windows(piece, np.arange(size))[2] for piece, size in enumerate(self.sizes)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _counted(self, which: int) -> Array:
        """Tokens of every sample, of all streams (0) or of the longest (1)."""
        if self.waits:
            counts = next(iter(self.tokens.values())).count_tokens(partial(known_column, self.source))
            if counts is not None:
                return counts
        for piece in range(len(self.sizes)):
            if piece not in self.found:
                self._size(piece)
        return np.concatenate([self.found[piece][which] for piece in range(len(self.sizes))])

    @cached_property
    def width(self) -> int | None:
        """Tokens of every sample or window, in its longest stream, where all have as many; else None."""
        if (
            self.window is not None
            and not self.tail
            and all((some >= self.window).all() for some in self.totals.values())
        ):
            return self.window  # known without a number for each of many windows
        return int(self.widths[0]) if len(self) and np.ptp(self.widths) == 0 else None

    def batch(self, ids: Array, rng: SampleRandom | None = None) -> Batch:
        """The samples with these numbers, in this order."""
        ids = np.asarray(ids, np.int64)
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(self)):
            raise IndexError(f"samples {ids.min()} to {ids.max()} of {len(self)}")
        piece = np.searchsorted(self.stops, ids, side="right")
        where = np.full(len(ids), 0.5) if rng is None or not self.loose else rng.uniform("window")
        used = np.unique(piece)
        if len(used) <= 1:
            return self._piece_batch(int(used[0]) if len(used) else 0, ids, where)
        self._bring(int(number) for number in used)
        parts, rows = [], []
        for number in used:
            mine = np.flatnonzero(piece == number)
            parts.append(self._piece_batch(int(number), ids[mine], where[mine]))
            rows.append(mine)
        back = np.argsort(np.concatenate(rows), kind="stable")
        return join(parts).take(back)

    def _piece_batch(self, piece: int, ids: Array, where: Array) -> Batch:
        local = ids - (int(self.stops[piece]) - self.sizes[piece])
        whole = self._load(piece)
        if self.window is None:
            taken = whole.take(local)
        else:
            sample, start, lengths = self._windows(piece, local, where)
            (name,) = whole.streams
            cut = self._cut_windows(whole.streams[name], sample, start, lengths)
            samples = {key: column[sample] for key, column in whole.samples.items()}
            samples[WINDOW], samples[START] = sample + sum(self.source.sizes[:piece]), start
            taken = Batch({name: cut}, samples)
        return Batch(taken.streams, taken.samples, ids)

    def _first(self, piece: int) -> Array:
        """The number of the first window of each whole sample of a piece, and in the end the number of windows."""
        if piece not in self.firsts:
            assert self.window is not None
            total = self.totals[piece] = _lengths(self._load(piece))
            own, room = np.maximum(0, total - self.lead), self.window - self.lead
            if self.loose:
                counts = np.ones(len(total), np.int64)
            elif self.even:
                counts = np.maximum(1, -(-own // room))
            elif self.tail:  # the last window may be shorter, but none repeats only what others hold
                counts = np.maximum(1, -(-np.maximum(0, own - (room - self.stride)) // self.stride))
            else:
                counts = 1 + np.maximum(0, own - room) // self.stride
            self.firsts[piece] = np.concatenate([[0], counts.cumsum()])
        return self.firsts[piece]

    def _windows(self, piece: int, local: Array, where: Array | float = 0.5) -> tuple[Array, Array, Array]:
        """(sample, start, length) of the windows of a piece that are numbered `local`, in the flat sample.

        where  in [0, 1): how far along a sample a loose window begins
        """
        assert self.window is not None
        firsts = self._first(piece)
        sample = np.searchsorted(firsts, local, side="right") - 1
        own, room = np.maximum(0, self.totals[piece][sample] - self.lead), self.window - self.lead
        spare, turn = np.maximum(0, own - room), local - firsts[sample]
        if self.loose:
            start = (where * (spare + 1)).astype(np.int64)
        elif self.even:
            start = turn * spare // np.maximum(1, np.diff(firsts)[sample] - 1)
        else:
            start = turn * self.stride
        return sample, start, self.lead + np.minimum(room, own - start)

    def _cut_windows(self, stream: Stream, sample: Array, start: Array, lengths: Array) -> Stream:
        """Windows, each of which begins with what every window of its sample begins with."""
        first = stream.starts[sample]
        if not self.lead:
            return stream.cut(first + start, lengths)
        runs = np.stack([np.full(len(sample), self.lead), lengths - self.lead], 1)
        cut = stream.cut(np.stack([first, first + self.lead + start], 1).ravel(), runs.ravel())
        return Stream(cut.columns, lengths)

    # Pieces

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within it a thread makes pieces that are expected."""
        if len(self.sizes) < 2 or self.pool is not None:
            yield
            return
        pool = self.pool = ThreadPoolExecutor(1, "read ahead")
        try:
            yield
        finally:
            self.coming.clear()
            self.pool = None
            pool.shutdown(cancel_futures=True)

    def expect(self, pieces: Iterable[int]) -> None:
        """Begin to make pieces that will be wanted soon, if there is a thread to do it; forget what is no more."""
        if self.pool is None:
            return
        wanted = [piece for piece in pieces if piece not in self.kept][:PIECES_AHEAD]
        for piece in self.coming.keys() - set(wanted):
            self.coming.pop(piece).cancel()
        for piece in wanted:
            if piece not in self.coming:
                self.coming[piece] = self.pool.submit(self._made, piece)

    def _bring(self, pieces: Iterable[int]) -> None:
        """Have these pieces in memory: the thread makes some, while others are made here."""
        missing = [piece for piece in pieces if piece not in self.kept]
        if self.pool is None or not missing or len(missing) > self.near:
            return
        here = [piece for piece in missing if piece not in self.coming]
        self.expect([*self.coming, *here[1:]])
        for piece in [*here[:1], *here[:0:-1], *missing]:
            self._load(piece)

    def _load(self, piece: int) -> Batch:
        if piece in self.kept:
            self.kept.move_to_end(piece)
            return self.kept[piece]
        coming = self.coming.pop(piece, None)
        batch = self._made(piece) if coming is None or coming.cancel() else coming.result()
        self.kept[piece] = batch
        while len(self.kept) > self.near:
            self.kept.popitem(last=False)
        return batch

    def _made(self, piece: int) -> Batch:
        with LOCKS.setdefault(os.getpid(), Lock()):  # readers of any data set need not care for threads
            table = self.source.load(piece)
        streams = {name: tokens.tokenize(table) for name, tokens in self.tokens.items()}
        if self.until is not None:
            streams = {name: self.tokens[name].truncate(stream, self.until) for name, stream in streams.items()}
        if len(streams) > 1:
            streams = self._cut(piece, streams)
        used = {column for tokens in self.tokens.values() for column in tokens.source_columns}
        samples = {
            name: np.asarray(column)
            for name, column in table.items()
            if name not in used and not isinstance(column, Lists)
        }
        batch = Batch(streams, samples, np.arange(rows_of(table)))
        if self._joins:  # what belonged to one sample is lost
            batch = Batch({name: stream.as_one_sample() for name, stream in streams.items()}, {}, np.arange(1))
        if self.labels:
            (only,) = self.tokens.values()
            batch = labelled(batch, table, only, self.labels)
        return batch

    def _cut(self, piece: int, streams: dict[str, Stream]) -> dict[str, Stream]:
        """The streams as long as their tokens allow."""
        made, long = {}, np.zeros((len(streams), len(next(iter(streams.values())))), bool)
        for number, (name, stream) in enumerate(streams.items()):
            most = self.tokens[name].window
            if most is not None:
                long[number] = stream.lengths > most
                stream = stream.cut(stream.starts, np.minimum(stream.lengths, most))
            made[name] = stream
        self.short[piece] = int(long.any(0).sum())
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Threads stay in their process."""
        return self.__dict__ | {"pool": None, "coming": {}}

    def all(self, limit: int | None = None) -> Batch:
        """Every sample, or the first `limit`, in one batch: for looking, not for training."""
        count = len(self) if limit is None else min(limit, len(self))
        return self.batch(np.arange(count))

    def sample_column(self, name: str) -> Array:
        """A column of samples of the whole data set."""
        if self.waits and (column := known_column(self.source, name)) is not None:
            return column
        parts = []
        for piece in range(len(self.sizes)):
            whole = self._load(piece)
            if name not in whole.samples:
                one_of("a column of samples", name, whole.samples)
            column = whole.samples[name]
            parts.append(column if self.window is None else np.repeat(column, np.diff(self._first(piece)), axis=0))
        return np.concatenate(parts)


def _lengths(whole: Batch) -> Array:
    """Tokens of every sample, of all streams together."""
    return sum((stream.lengths for stream in whole.streams.values()), np.zeros(len(whole), np.int64))


def _widths(whole: Batch) -> Array:
    """Tokens of every sample, in its longest stream."""
    return np.max([stream.lengths for stream in whole.streams.values()], 0)
