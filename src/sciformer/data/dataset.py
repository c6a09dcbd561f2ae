"""Tokenised samples by number, in memory or piece by piece."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, one_of
from .batch import Batch, join
from .source import Lists, Source, rows_of

if TYPE_CHECKING:
    from ..tokens.base import Tokens

Array = NDArray[Any]


WINDOW = "window of"  # the column of samples that says which sample of the source a window was cut from


class Dataset:
    """The samples of a source, tokenised: `dataset.batch(ids)`.

    window, stride   cut every sample into windows of so many tokens, so many apart; with `tail` what is left at the
                     end becomes a shorter window. Without a window samples stay whole.
    near             pieces kept in memory at a time
    """

    def __init__(
        self,
        source: Source,
        tokens: Mapping[str, Tokens],
        *,
        window: int | None = None,
        stride: int = 1,
        tail: bool = False,
        near: int = 8,
    ) -> None:
        self.source, self.tokens, self.near = source, dict(tokens), near
        self.window, self.stride, self.tail = window, stride, tail
        if window is not None and len(self.tokens) > 1:
            raise UserError("one stream of tokens to cut into windows", f"{len(self.tokens)}")
        self.kept: OrderedDict[int, Batch] = OrderedDict()
        self.firsts: dict[int, Array] = {}  # the first window of each whole sample in a piece
        lengths, sizes = [], []
        for piece in range(len(source.sizes)):
            whole = self._load(piece)
            if window is None:
                lengths.append(_lengths(whole))
            sizes.append(len(whole) if window is None else int(self._first(piece)[-1]))
        self.lengths: Array | None = np.concatenate(lengths) if lengths else None
        """Tokens of every sample, of all streams together; None where windows make them alike."""
        self.sizes = sizes
        self.stops = np.cumsum(sizes)

    def __len__(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    def batch(self, ids: Array) -> Batch:
        """The samples with these numbers, in this order."""
        ids = np.asarray(ids, np.int64)
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(self)):
            raise IndexError(f"samples {ids.min()} to {ids.max()} of {len(self)}")
        piece = np.searchsorted(self.stops, ids, side="right")
        used = np.unique(piece)
        if len(used) <= 1:
            return self._piece_batch(int(used[0]) if len(used) else 0, ids)
        parts, rows = [], []
        for number in used:
            mine = np.flatnonzero(piece == number)
            parts.append(self._piece_batch(int(number), ids[mine]))
            rows.append(mine)
        back = np.argsort(np.concatenate(rows), kind="stable")
        return join(parts).take(back)

    def _piece_batch(self, piece: int, ids: Array) -> Batch:
        local = ids - (int(self.stops[piece]) - self.sizes[piece])
        whole = self._load(piece)
        if self.window is None:
            taken = whole.take(local)
        else:
            sample, start, lengths = self._windows(piece, local)
            (name,) = whole.streams
            cut = whole.streams[name].cut(whole.streams[name].starts[sample] + start, lengths)
            samples = {key: column[sample] for key, column in whole.samples.items()}
            samples[WINDOW] = sample + sum(self.source.sizes[:piece])
            taken = Batch({name: cut}, samples)
        return Batch(taken.streams, taken.samples, ids)

    def _first(self, piece: int) -> Array:
        """The number of the first window of each whole sample of a piece, and in the end the number of windows."""
        if piece not in self.firsts:
            assert self.window is not None
            total = _lengths(self._load(piece))
            counts = 1 + np.maximum(0, total - self.window) // self.stride
            if self.tail:  # the last window may be shorter, but none repeats only what others hold
                counts = np.maximum(1, -(-np.maximum(0, total - (self.window - self.stride)) // self.stride))
            self.firsts[piece] = np.concatenate([[0], counts.cumsum()])
        return self.firsts[piece]

    def _windows(self, piece: int, local: Array) -> tuple[Array, Array, Array]:
        """(sample, start, length) of the windows of a piece that are numbered `local`."""
        assert self.window is not None
        firsts = self._first(piece)
        sample = np.searchsorted(firsts, local, side="right") - 1
        start = (local - firsts[sample]) * self.stride
        return sample, start, np.minimum(self.window, _lengths(self._load(piece))[sample] - start)

    def _load(self, piece: int) -> Batch:
        if piece in self.kept:
            self.kept.move_to_end(piece)
            return self.kept[piece]
        table = self.source.load(piece)
        streams = {name: tokens.tokenize(table) for name, tokens in self.tokens.items()}
        used = {column for tokens in self.tokens.values() for column in tokens.reads}
        samples = {
            name: np.asarray(column)
            for name, column in table.items()
            if name not in used and not isinstance(column, Lists)
        }
        batch = Batch(streams, samples, np.arange(rows_of(table)))
        self.kept[piece] = batch
        while len(self.kept) > self.near:
            self.kept.popitem(last=False)
        return batch

    def all(self, limit: int | None = None) -> Batch:
        """Every sample, or the first `limit`, in one batch: for looking, not for training."""
        count = len(self) if limit is None else min(limit, len(self))
        return self.batch(np.arange(count))

    def sample_column(self, name: str) -> Array:
        """A column of samples of the whole data set."""
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
