"""Dataset of tokenised samples, in memory or loaded piece by piece."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError, one_of
from ..tokens.base import Tokens
from ..tokens.protocols import Windowed
from .batch import Batch, Stream, join, stream_name
from .columns import Array, Lists, Table, rows_of
from .source import Source, known_column
from .token_labels import ITEMS, labelled
from .windows import START, WINDOW, WindowIndex, Windows, truncate

if TYPE_CHECKING:
    from .random import SampleRandom

ADDED_COLUMNS = (WINDOW, START, ITEMS)  # sample columns added here, not read from the source
PIECES_AHEAD = 2  # pieces loaded in advance
Watch = Callable[[Table, Mapping[str, Stream]], dict[str, Array]]
LOCKS: dict[int, Lock] = {}  # one per process: a forked process must not wait for a thread of its parent


class Dataset:
    """Tokenised samples of a source: `dataset.batch(ids)`.

    windows   {stream: rule} for cutting at most one stream into windows. The other streams of a window are uncut.
              Without windows, samples are complete; but with several streams, a stream longer than the context of its
              tokens is truncated, and `shortened` counts these samples. `rng` of `dataset.batch(ids, rng)` draws the
              starts of loose windows; without `rng` they are in the middle.
    near      number of pieces kept in memory; inside `reading`, up to two more are loaded ahead
    labels    columns of lists with a label for each word (or each token, if tokens are not parts of words). The
              lists stay with the samples. The first token of a word has the index of its label in the column `item`,
              all other tokens have -1.
    asked     stream of the labels and of `until` (default: the only stream for labels, all streams for `until`)
    until     truncate samples at this distance from their first token (default: no truncation)
    watch     function called with the table and the streams of every loaded piece; it returns further sample columns
    double    whether the tensors of floats are in double precision
    """

    def __init__(
        self,
        source: Source,
        tokens: Mapping[str, Tokens],
        *,
        windows: Mapping[str, Windows] | None = None,
        near: int = 8,
        labels: tuple[str, ...] = (),
        asked: str = "",
        until: float | None = None,
        watch: Watch | None = None,
        double: bool = False,
    ) -> None:
        self.watch, self.double = watch, double
        self.source, self.tokens, self.near, self.labels = source, dict(tokens), near, labels
        self.until, self.asked = until, asked
        if until is not None and labels:
            message = (
                f"truncated samples (`--until`) cannot be evaluated: `{labels[0]}` has a list of labels for each sample"
            )
            raise UserError(message)
        if windows and len(windows) > 1:
            raise UserError(f"only one stream of tokens can be cut into windows, not {', '.join(windows)}")
        self.windowed: str = next(iter(windows), "") if windows else ""
        self.windows = windows[self.windowed] if windows else None
        if until is not None and self.windows is not None and len(self.windows.size) > 1:
            message = "samples truncated at a time (`--until`) cannot be evaluated if windows have several axes"
            raise UserError(message, hint="Evaluate without --until, or with tokens.window: null.", key="tokens.window")
        self.kept: OrderedDict[int, Batch] = OrderedDict()
        self.found: dict[int, tuple[Array, Array]] = {}  # per piece: lengths and widths of its samples
        self.indices: dict[int, WindowIndex] = {}  # per piece: its windows
        self.short: dict[int, int] = {}  # per piece: number of truncated samples
        self.pool: ThreadPoolExecutor | None = None
        self.coming: dict[int, Future[Batch]] = {}  # pieces being loaded by the thread
        plain = self.windows is None and until is None and not labels
        later = plain and len(source.sizes) > 1 and hasattr(source, "known_column") and not self._joins
        self.waits = later and (len(self.tokens) == 1 or self._known_counts() is not None)
        """Whether pieces are loaded only on use."""
        self.sizes = [size if self.waits else self._size(piece) for piece, size in enumerate(source.sizes)]
        self.stops = np.cumsum(self.sizes)

    def __len__(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    @property
    def samples(self) -> int:
        """Number of samples, not counting windows."""
        return sum(self.source.sizes) if self.windows is not None else len(self)

    @property
    def count_in_words(self) -> str:
        """Number of samples as text, with the number of windows: "100 (250 windows)"."""
        windows = f" ({len(self):,} windows)" if len(self) != self.samples else ""
        return f"{self.samples:,}{windows}"

    @property
    def unit(self) -> str:
        """Unit of the ids of `batch`: samples, or windows if samples are cut."""
        return "samples" if len(self) == self.samples else "windows"

    @property
    def shortened(self) -> int:
        """Number of samples truncated to the maximum number of tokens."""
        return sum(self.short.values())

    @property
    def _joins(self) -> bool:
        only = next(iter(self.tokens.values())) if len(self.tokens) == 1 else None
        return isinstance(only, Windowed) and only.concatenates

    def _size(self, piece: int) -> int:
        """Number of samples or windows of a piece; also stores the lengths of the samples."""
        if self.windows is not None:
            return len(self._index(piece))
        whole = self._load(piece)
        lengths = [stream.lengths for stream in whole.streams.values()]
        self.found[piece] = np.sum(lengths, 0), np.max(lengths, 0)
        return len(whole)

    @cached_property
    def lengths(self) -> Array | None:
        """Number of tokens (n,) of each sample in all streams; None with windows."""
        return None if self.windows is not None or not self.sizes else self._token_counts(0)

    @cached_property
    def widths(self) -> Array:
        """Number of tokens (n,) of each sample or window in its longest stream."""
        if self.windows is None:
            return self._token_counts(1) if self.sizes else np.zeros(0, np.int64)
        return np.concatenate([np.zeros(0, np.int64), *(index.widths for index in self.indices.values())])

    @property
    def bucket_lengths(self) -> Array | None:
        """Lengths (n,) for grouping samples into batches; None if windows have one length."""
        if self.windows is None:
            return self.lengths
        return self.widths if self.windows.rule != "full" and self.width is None else None

    @property
    def whole_lengths(self) -> Array:
        """Number of tokens in every sample before it is cut.

        The tokens of the windowed stream are counted; without windows, the tokens of the longest stream.
        """
        if self.windows is None:
            return self.widths
        return np.concatenate([index.whole_lengths for index in self.indices.values()])

    def _token_counts(self, which: int) -> Array:
        """Number of tokens of each sample.

        which   0: in all streams together; 1: in the longest stream
        """
        if self.waits and (counts := self._known_counts()) is not None:
            return np.asarray(counts.max(0) if which else counts.sum(0))
        for piece in range(len(self.sizes)):
            if piece not in self.found:
                self._size(piece)
        return np.concatenate([self.found[piece][which] for piece in range(len(self.sizes))])

    def _known_counts(self) -> Array | None:
        """Number of tokens (S, n) of S streams and n samples, from metadata alone.

        None if the number is unknown for a stream. Several streams that are truncated to a maximum length have to
        be loaded.
        """
        counts = [one.count_tokens(partial(known_column, self.source)) for one in self.tokens.values()]
        cut = [isinstance(one, Windowed) and isinstance(one.window, int) for one in self.tokens.values()]
        if len(counts) > 1 and any(cut):
            return None
        return None if any(one is None for one in counts) else np.stack(counts)  # type: ignore[arg-type]

    @cached_property
    def width(self) -> int | None:
        """Number of tokens in the longest stream if equal for all samples, else None."""
        windows = self.windows if len(self.tokens) == 1 else None
        shapes = [index.shapes for index in self.indices.values()]
        if windows is not None and windows.rule == "full" and all((some >= windows.size).all() for some in shapes):
            return windows.tokens  # no need to compute the width of every window
        return int(self.widths[0]) if len(self) and np.ptp(self.widths) == 0 else None

    def batch(self, ids: Array, rng: SampleRandom | None = None) -> Batch:
        """Batch of the samples with these ids, in this order."""
        ids = np.asarray(ids, np.int64)
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(self)):
            raise IndexError(f"sample ids must be from 0 to {len(self) - 1}, not from {ids.min()} to {ids.max()}")
        piece = np.searchsorted(self.stops, ids, side="right")
        where = self._draw_starts(len(ids), rng)
        used = np.unique(piece).tolist() or [0]
        if len(used) == 1:
            return self._piece_batch(used[0], ids, where)
        self._load_ahead(used)
        rows = [np.flatnonzero(piece == number) for number in used]
        parts = [self._piece_batch(number, ids[mine], where[mine]) for number, mine in zip(used, rows)]
        return join(parts).take(np.argsort(np.concatenate(rows), kind="stable"))

    def _draw_starts(self, count: int, rng: SampleRandom | None) -> Array:
        """Random relative starts (n, A) of loose windows; see `Windows.starts`."""
        axes = 0 if self.windows is None else len(self.windows.size)
        if rng is None or self.windows is None or self.windows.rule != "loose":
            return np.full((count, axes), 0.5)
        return np.stack([rng.uniform(f"window {axis}" if axis else "window") for axis in range(axes)], 1)

    def _piece_batch(self, piece: int, ids: Array, where: Array) -> Batch:
        local = ids - (int(self.stops[piece]) - self.sizes[piece])
        whole = self._load(piece)
        if self.windows is None:
            taken = whole.take(local)
            return Batch(taken.streams, taken.samples, ids, double=self.double)
        index = self._index(piece)
        sample, starts = index.find(local, where)
        cut = index.cut(whole.streams[self.windowed], sample, starts)
        shifted = self._windowed_tokens.shift_windows(cut, starts)
        streams = {n: shifted if n == self.windowed else stream.take(sample) for n, stream in whole.streams.items()}
        samples = {key: column[sample] for key, column in whole.samples.items()}
        samples[WINDOW] = sample + sum(self.source.sizes[:piece])
        samples[START] = starts[:, 0] if starts.shape[1] == 1 else starts
        return Batch(streams, samples, ids, double=self.double)

    @property
    def _windowed_tokens(self) -> Windowed:
        found = self.tokens[self.windowed]
        assert isinstance(found, Windowed)
        return found

    def _index(self, piece: int) -> WindowIndex:
        if piece not in self.indices:
            assert self.windows is not None
            whole = self._load(piece)
            shapes = self._windowed_tokens.sample_shapes(whole.streams[self.windowed])
            others = [stream.lengths for name, stream in whole.streams.items() if name != self.windowed]
            self.indices[piece] = WindowIndex(self.windows, shapes, np.max([0 * shapes[:, 0], *others], 0))
        return self.indices[piece]

    # Pieces

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context manager: start a thread for loading the pieces named by `expect`."""
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
        """Load the next pieces in the thread; cancel the loading of all other pieces."""
        if self.pool is None:
            return
        wanted = [piece for piece in pieces if piece not in self.kept][:PIECES_AHEAD]
        for piece in self.coming.keys() - set(wanted):
            self.coming.pop(piece).cancel()
        for piece in wanted:
            if piece not in self.coming:
                self.coming[piece] = self.pool.submit(self._made, piece)

    def _load_ahead(self, pieces: Iterable[int]) -> None:
        """Load pieces into memory, some in the thread of `reading`, some in the caller."""
        missing = [piece for piece in pieces if piece not in self.kept]
        if self.pool is None or not missing or len(missing) > self.near:
            return
        here = [piece for piece in missing if piece not in self.coming]
        self.expect([*self.coming, *here[1:]])
        for piece in [*here[:1], *here[:0:-1], *missing]:
            self._load(piece)

    def load_first(self) -> None:
        """Load the first piece, so that `watch` is called at least once."""
        if self.sizes:
            self._load(0)

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
        with LOCKS.setdefault(os.getpid(), Lock()):  # readers need not be thread-safe
            table = self.source.load(piece)
        streams = {name: tokens.tokenize(table) for name, tokens in self.tokens.items()}
        further = {} if self.watch is None else self.watch(table, streams)
        if self.until is not None:
            for name in [self.asked] if self.asked else streams:
                tokens = self.tokens[name]
                cut = tokens.truncate if isinstance(tokens, Windowed) else truncate
                streams[name] = cut(streams[name], self.until)
        if len(streams) > 1:
            streams = self._truncate_streams(piece, streams)
        used = {column for tokens in self.tokens.values() for column in tokens.source_columns}
        samples = {n: np.asarray(c) for n, c in table.items() if n not in used and not isinstance(c, Lists)} | further
        batch = Batch(streams, samples, np.arange(rows_of(table)))
        if self._joins:  # sample columns have no meaning after concatenation
            batch = Batch({name: stream.as_one_sample() for name, stream in streams.items()}, {}, np.arange(1))
        if self.labels:
            name = stream_name(self.tokens, self.asked)
            batch = labelled(batch, name, table, self.tokens[name], self.labels)
        return batch

    def _truncate_streams(self, piece: int, streams: dict[str, Stream]) -> dict[str, Stream]:
        """Truncate each stream to its maximum length, except the windowed stream."""
        made, long = dict(streams), np.zeros(len(next(iter(streams.values()))), bool)
        for name, stream in streams.items():
            tokens = self.tokens[name]
            if name != self.windowed and isinstance(tokens, Windowed) and isinstance(tokens.window, int):
                long |= stream.lengths > tokens.window
                made[name] = stream.cut(stream.starts, np.minimum(stream.lengths, tokens.window))
        self.short[piece] = int(long.sum())
        return made

    def __getstate__(self) -> dict[str, Any]:
        """State without threads, for pickling."""
        return self.__dict__ | {"pool": None, "coming": {}}

    def all(self, limit: int | None = None) -> Batch:
        """All samples, or the first `limit`, in one batch (not for training)."""
        return self.batch(np.arange(len(self))[:limit])

    def sample_column(self, name: str) -> Array:
        """A sample column of the whole dataset."""
        if self.waits and (column := known_column(self.source, name)) is not None:
            return column
        parts = []
        for piece in range(len(self.sizes)):
            whole = self._load(piece)
            if name not in whole.samples:
                one_of("a column of samples", name, whole.samples)
            parts.append(whole.samples[name])
            if self.windows is not None:
                parts[-1] = np.repeat(parts[-1], np.diff(self._index(piece).firsts), axis=0)
        return np.concatenate(parts)
