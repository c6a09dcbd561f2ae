"""A batch: named streams of ragged token columns, and sample columns.

Batch         NumPy arrays, flat and ragged, for reading, tokenisation, corruption and normalisation
ModelInputs   tensors on the device of the model, padded or packed
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
MAX_SHOWN_LETTERS = 32  # characters of a string in `describe`
MAX_PLACES_PER_VALUE = 8  # largest ratio of table cells to values; larger tables would waste memory


@dataclass(frozen=True)
class Stream:
    """Token columns (T, ...), flat over all samples, with lengths (B,)."""

    columns: dict[str, Column]
    lengths: Array

    def __post_init__(self) -> None:
        total = int(self.lengths.sum())
        for name, column in self.columns.items():
            if len(column) != total:
                raise UserError(f"column `{name}` has {len(column)} tokens, but the sum of the lengths is {total}")

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Array:
        """Start (B,) of each sample in the flat columns."""
        return np.asarray(self.lengths.cumsum() - self.lengths)

    @property
    def sample(self) -> Array:
        """Sample index (T,) of each token."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def position(self) -> Array:
        """Position (T,) of each token in its sample."""
        return np.arange(int(self.lengths.sum())) - np.repeat(self.starts, self.lengths)

    def cut(self, starts: Array, lengths: Array) -> Stream:
        """Cut runs of tokens from the flat columns: one sample per start and length."""
        if len(lengths) and (lengths == lengths[0]).all():
            index = (starts[:, None] + np.arange(lengths[0])).reshape(-1)
        else:
            index = np.repeat(starts - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum()))
        return Stream({name: column.take(index, axis=0) for name, column in self.columns.items()}, lengths)

    def take(self, rows: Array) -> Stream:
        """Select samples by row number."""
        return self.cut(self.starts[rows], self.lengths[rows])

    def keep(self, tokens: Array) -> Stream:
        """Select tokens by a mask (T,)."""
        lengths = np.bincount(self.sample[tokens], minlength=len(self)).astype(np.int64)
        return Stream({name: column[tokens] for name, column in self.columns.items()}, lengths)

    def reorder(self, order: Array) -> Stream:
        """Permute the tokens by `order` (T,); the lengths do not change."""
        return Stream({name: column[order] for name, column in self.columns.items()}, self.lengths)

    def as_one_sample(self) -> Stream:
        """Concatenate all samples into a single sample."""
        return Stream(self.columns, self.lengths.sum(keepdims=True))

    def with_columns(self, **columns: Column) -> Stream:
        """Copy of the stream with added or replaced columns."""
        return Stream({**self.columns, **columns}, self.lengths)


@dataclass(frozen=True)
class Batch:
    """Samples: token streams, sample columns (B, ...), and ids (B,) in the dataset."""

    streams: dict[str, Stream]
    samples: dict[str, Array] = field(default_factory=dict)
    ids: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    count: float = 0  # divisor of the loss: number of tokens or samples, depending on the objective
    sent: tuple[str, ...] | None = None  # sample columns for ModelInputs (default: all numeric columns)
    room: tuple[int, int] | None = None  # rows and width to pad to, for steps of fixed shape
    most: dict[str, int] = field(default_factory=dict)  # stream -> maximum number of tokens in the model
    aside: dict[str, tuple[str, ...]] = field(default_factory=dict)  # stream -> columns that stay on the host
    double: bool = False  # whether the tensors of floats are in double precision

    def __len__(self) -> int:
        return len(next(iter(self.streams.values()), self.ids))

    @property
    def stream(self) -> Stream:
        """The only stream of the batch; an error if there are several streams."""
        return self.streams[stream_name(self.streams)]

    def with_columns(self, stream: Stream | None = None, name: str = "", /, **samples: Array) -> Batch:
        """Copy with a replaced stream, or with further sample columns.

        name   stream to replace (default: the only stream)
        """
        new = {} if stream is None else {stream_name(self.streams, name): stream}
        return replace(self, streams={**self.streams, **new}, samples={**self.samples, **samples})

    def only(self, stream: str) -> Batch:
        """Copy of the batch with this stream only."""
        return replace(self, streams={stream: self.streams[stream]})

    def take(self, rows: Array) -> Batch:
        """Select samples by row number; `count` and `room` are reset."""
        streams = {name: stream.take(rows) for name, stream in self.streams.items()}
        samples = {name: column[rows] for name, column in self.samples.items()}
        ids = self.ids[rows] if len(self.ids) else self.ids
        return replace(self, streams=streams, samples=samples, ids=ids, count=0, room=None)

    @property
    def tokens(self) -> int:
        """Total number of tokens in all streams."""
        return sum(int(stream.lengths.sum()) for stream in self.streams.values())

    def widest(self, packed: bool = False) -> int:
        """Number of tokens in the longest sample; if `packed`, in the longest stream."""
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
        """Tensors on a device, padded (to a `multiple` of tokens) or packed.

        width    pad every stream to this number of tokens, for fixed shapes (per sample; if packed, in total)
        rows     pad the batch with empty samples to this number of rows (False in `real`)
        moves    whether the tensors will be copied to another device; the packed layout is then computed on that device
        shares   store the coordinates `at` once, as (N, A), if they are equal in all samples
        """
        device = torch.device(device)
        views = {}
        for name, stream in self.streams.items():
            aside = self.aside.get(name, ())
            columns = {key: column for key, column in stream.columns.items() if key not in aside}
            stream = Stream(columns, stream.lengths if rows is None else filled(stream.lengths, rows))
            if packed:
                views[name] = packed_view(stream, device, width, self.most.get(name), not moves, self.double)
                continue
            longest = int(stream.lengths.max()) if len(stream) else 0
            wide = width if width is not None and longest <= width else -(-longest // multiple) * multiple
            wide = max(longest, min(wide, self.most.get(name, wide)))  # not beyond the maximum of the model
            views[name] = padded_view(stream, device, wide, width is not None, shares, self.double)
        samples = {
            name: tensor_of(column if rows is None else filled(column, rows), device, self.double)
            for name, column in self.samples.items()
            if numeric(column) and (self.sent is None or name in self.sent)
        }
        return ModelInputs(views, samples, None if rows is None else tensor_of(np.arange(rows) < len(self), device))


def join(batches: list[Batch]) -> Batch:
    """Concatenate batches; sample columns missing in some batches are dropped."""
    first = batches[0]
    streams = {}
    for name in first.streams:
        parts = [batch.streams[name] for batch in batches]
        columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].columns}
        streams[name] = Stream(columns, np.concatenate([part.lengths for part in parts]))
    common = [key for key in first.samples if all(key in batch.samples for batch in batches)]
    samples = {key: np.concatenate([batch.samples[key] for batch in batches]) for key in common}
    return Batch(streams, samples, np.concatenate([batch.ids for batch in batches]), double=first.double)


def sorted_rows(values: Array, group: Array, number: Array) -> Array | None:
    """Sort the values of each group into a row of a table (B, most), padded with NaN.

    Returns None if the groups are so uneven that the table would be mostly empty. Sorting rows of a table is many
    times faster than sorting all values by two keys.

    values  (t,) values, group by group
    group   (t,) group of each value
    number  (B,) number of values in each group
    """
    most = int(number.max(initial=0))
    if len(number) * most > MAX_PLACES_PER_VALUE * len(values):
        return None
    table = np.full((len(number), most), np.nan)
    table[group, np.arange(len(values)) - (number.cumsum() - number)[group]] = values
    table.sort(1)
    return table


def describe(samples: Mapping[str, Array]) -> dict[str, str]:
    """Short description of each sample column, for the report."""
    words = {}
    for name, column in samples.items():
        if column.dtype.kind == "f" and column.ndim == 1 and np.isfinite(column).any():
            words[name] = f"{np.nanmin(column):.6g} to {np.nanmax(column):.6g}"
        elif column.dtype == object and any(isinstance(value, np.ndarray) for value in column[:1]):
            words[name] = f"lists, {sum(map(len, column)):,} entries in all"
        elif column.ndim == 1:
            values = np.unique(column)
            shown = ", ".join(_shorten(str(value)) for value in values[:6])
            words[name] = shown if len(values) <= 6 else f"{len(values)} different values"
        elif column.ndim == 2 and column.dtype.kind in "iu" and len(column) and column.shape[1] <= 3:
            words[name] = ", ".join(f"{low} to {high}" for low, high in zip(column.min(0), column.max(0)))
        else:
            words[name] = f"{column.dtype} of shape {column.shape[1:]}"
    return words


def _shorten(text: str) -> str:
    """Shorten a long string to its last part, or a path to its file name."""
    if len(text) <= MAX_SHOWN_LETTERS:
        return text
    name = text.rpartition("/")[2]
    return name if 0 < len(name) <= MAX_SHOWN_LETTERS else f"…{text[1 - MAX_SHOWN_LETTERS :]}"
