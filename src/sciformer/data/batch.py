"""A batch: named streams of ragged columns, and beside them one value a sample.

Batch    in the data's hands: NumPy, flat, ragged; read, tokenised, corrupted and normalised there
Inputs   in the model's hands: tensors on its device, padded (or packed) as a kernel wants them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from ..errors import UserError
from .collate import ModelInputs, StreamView, Valid, filled, numeric, packed_view, padded_view, stream_name, tensor_of
from .columns import Array

__all__ = ["Batch", "ModelInputs", "Stream", "StreamView", "Valid", "describe", "join", "stream_name"]

Column = Array
MAX_SHOWN_LETTERS = 32  # of a text that are shown
MAX_PLACES_PER_VALUE = 8  # places of a table for each value in it, up to which it is worth its room


@dataclass(frozen=True)
class Stream:
    """Columns that share their lengths (B,): each is flat over all tokens (T, ...), with its own dtype and shape."""

    columns: dict[str, Column]
    lengths: Array

    def __post_init__(self) -> None:
        total = int(self.lengths.sum())
        for name, column in self.columns.items():
            if len(column) != total:
                raise UserError(f"column `{name}` has {len(column)} tokens, but the lengths add up to {total}")

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Array:
        """(B,) where each sample begins in the flat columns."""
        return np.asarray(self.lengths.cumsum() - self.lengths)

    @property
    def sample(self) -> Array:
        """(T,) which sample each token belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def position(self) -> Array:
        """(T,) the place of each token in its sample."""
        return np.arange(int(self.lengths.sum())) - np.repeat(self.starts, self.lengths)

    def cut(self, starts: Array, lengths: Array) -> Stream:
        """Runs of tokens out of the flat columns: one sample for each start and length."""
        if len(lengths) and (lengths == lengths[0]).all():
            index = (starts[:, None] + np.arange(lengths[0])).reshape(-1)
        else:
            index = np.repeat(starts - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum()))
        return Stream({name: column.take(index, axis=0) for name, column in self.columns.items()}, lengths)

    def take(self, rows: Array) -> Stream:
        """The samples of these rows."""
        return self.cut(self.starts[rows], self.lengths[rows])

    def keep(self, tokens: Array) -> Stream:
        """The tokens where the mask (T,) is True."""
        lengths = np.bincount(self.sample[tokens], minlength=len(self)).astype(np.int64)
        return Stream({name: column[tokens] for name, column in self.columns.items()}, lengths)

    def reorder(self, order: Array) -> Stream:
        """The same tokens in another order (T,), each sample with as many as before."""
        return Stream({name: column[order] for name, column in self.columns.items()}, self.lengths)

    def as_one_sample(self) -> Stream:
        """All samples as one, end to end."""
        return Stream(self.columns, self.lengths.sum(keepdims=True))

    def with_columns(self, **columns: Column) -> Stream:
        """The same tokens with these columns added or replaced."""
        return Stream({**self.columns, **columns}, self.lengths)


@dataclass(frozen=True)
class Batch:
    """Samples: streams of tokens, columns of one value a sample, and their ids in the data set."""

    streams: dict[str, Stream]
    samples: dict[str, Array] = field(default_factory=dict)
    ids: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    count: float = 0  # what the loss is divided by: tokens or samples, as the objective has it
    sent: tuple[str, ...] | None = None  # columns of samples that the model's side needs; all numbers unless said
    room: tuple[int, int] | None = None  # rows and width of the largest batch of its kind, for steps of fixed shape
    most: dict[str, int] = field(default_factory=dict)  # places that a model has for the tokens of a stream
    aside: dict[str, tuple[str, ...]] = field(default_factory=dict)  # columns of a stream that no model reads

    def __len__(self) -> int:
        if self.streams:
            return len(next(iter(self.streams.values())))
        return len(self.ids)

    @property
    def stream(self) -> Stream:
        """The only stream."""
        return self.streams[stream_name(self.streams)]

    def with_columns(self, stream: Stream | None = None, name: str = "", /, **samples: Array) -> Batch:
        """The same batch with a stream replaced (default: the only one), or columns of samples added."""
        new = {} if stream is None else {stream_name(self.streams, name): stream}
        return replace(self, streams={**self.streams, **new}, samples={**self.samples, **samples})

    def only(self, stream: str) -> Batch:
        """The same samples with this stream alone."""
        return replace(self, streams={stream: self.streams[stream]})

    def take(self, rows: Array) -> Batch:
        """The samples of these rows, uncounted."""
        return Batch(
            {name: stream.take(rows) for name, stream in self.streams.items()},
            {name: column[rows] for name, column in self.samples.items()},
            self.ids[rows] if len(self.ids) else self.ids,
            sent=self.sent,
            most=self.most,
            aside=self.aside,
        )

    @property
    def tokens(self) -> int:
        """How many tokens there are in all streams."""
        return sum(int(stream.lengths.sum()) for stream in self.streams.values())

    def widest(self, packed: bool = False) -> int:
        """Tokens of the longest sample of any stream; packed, of all samples of the longest stream."""
        lengths = [stream.lengths for stream in self.streams.values()]
        return max((int(some.sum() if packed else some.max()) for some in lengths if len(some)), default=0)

    def inputs(
        self,
        device: torch.device | str = "cpu",
        multiple: int = 1,
        packed: bool = False,
        width: int | None = None,
        rows: int | None = None,
        moves: bool = False,
        shares: bool = False,
    ) -> ModelInputs:
        """Tensors on a device: padded to the longest sample, rounded up to a `multiple`; or packed end to end.

        width    pad every stream to so many tokens, so that shapes do not depend on the samples; packed, all its
                 samples together
        rows     add samples without tokens up to so many; `real` then tells them from samples
        moves    these go to another device at once, and what can be made there is left to it
        shares   coordinates on several axes that are the same in all samples are one for all: `at` (N, A)
        """
        device = torch.device(device)
        views = {}
        for name, stream in self.streams.items():
            aside = self.aside.get(name, ())
            columns = {key: column for key, column in stream.columns.items() if key not in aside}
            stream = Stream(columns, stream.lengths if rows is None else filled(stream.lengths, rows))
            if packed:
                views[name] = packed_view(stream, device, width, self.most.get(name), lay=not moves)
                continue
            longest = int(stream.lengths.max()) if len(stream) else 0
            wide = width if width is not None and longest <= width else -(-longest // multiple) * multiple
            wide = max(longest, min(wide, self.most.get(name, wide)))  # no further than a model has places
            views[name] = padded_view(stream, device, wide, width is not None, shares)
        samples = {
            name: tensor_of(column if rows is None else filled(column, rows), device)
            for name, column in self.samples.items()
            if numeric(column) and (self.sent is None or name in self.sent)
        }
        return ModelInputs(views, samples, None if rows is None else tensor_of(np.arange(rows) < len(self), device))


def join(batches: list[Batch]) -> Batch:
    """Batches one after the other, as one; columns of samples that not all have are dropped."""
    first = batches[0]
    streams = {}
    for name in first.streams:
        parts = [batch.streams[name] for batch in batches]
        columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns}
        streams[name] = Stream(columns, np.concatenate([part.lengths for part in parts]))
    common = [key for key in first.samples if all(key in batch.samples for batch in batches)]
    samples = {key: np.concatenate([batch.samples[key] for batch in batches]) for key in common}
    return Batch(streams, samples, np.concatenate([batch.ids for batch in batches]))


def sorted_rows(values: Array, group: Array, number: Array) -> Array | None:
    """(B, most) the values of each group in their order, NaN behind them; None where they are so uneven that most of
    it would be empty. Values come group by group, `number` (B,) of each.

    Rows of a table are sorted many times faster than all values by two keys.
    """
    most = int(number.max(initial=0))
    if len(number) * most > MAX_PLACES_PER_VALUE * len(values):
        return None
    table = np.full((len(number), most), np.nan)
    table[group, np.arange(len(values)) - (number.cumsum() - number)[group]] = values
    table.sort(1)
    return table


def describe(samples: Mapping[str, Array]) -> dict[str, str]:
    """Each column of samples in a few words, for the report."""
    words = {}
    for name, column in samples.items():
        if column.dtype.kind == "f" and column.ndim == 1 and np.isfinite(column).any():
            words[name] = f"{np.nanmin(column):.6g} to {np.nanmax(column):.6g}"
        elif column.dtype == object and any(isinstance(value, np.ndarray) for value in column[:1]):
            words[name] = f"lists, {sum(map(len, column)):,} entries in all"
        elif column.ndim == 1:
            values = np.unique(column)
            shown = ", ".join(_short(str(value)) for value in values[:6])
            words[name] = shown if len(values) <= 6 else f"{len(values)} different values"
        elif column.ndim == 2 and column.dtype.kind in "iu" and len(column) and column.shape[1] <= 3:
            words[name] = ", ".join(f"{low} to {high}" for low, high in zip(column.min(0), column.max(0)))
        else:
            words[name] = f"{column.dtype} of shape {column.shape[1:]}"
    return words


def _short(text: str) -> str:
    """A text; of a long one its end, of the path of a file its name."""
    if len(text) <= MAX_SHOWN_LETTERS:
        return text
    name = text.rpartition("/")[2]
    return name if 0 < len(name) <= MAX_SHOWN_LETTERS else f"…{text[1 - MAX_SHOWN_LETTERS :]}"
