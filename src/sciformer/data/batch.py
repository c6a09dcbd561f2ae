"""A batch: named streams of ragged columns, and beside them one value a sample.

Batch    in the data's hands: NumPy, flat, ragged; read, tokenised, corrupted and normalised there
Inputs   in the model's hands: tensors on its device, padded (or packed) as a kernel wants them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..nn.ragged import Ragged

Array = NDArray[Any]
Column = Array
Valid = Tensor | Ragged | None


@dataclass(frozen=True)
class Stream:
    """Columns that share their lengths (B,): each is flat over all tokens (T, ...), with its own dtype and shape."""

    columns: dict[str, Column]
    lengths: Array

    def __post_init__(self) -> None:
        total = int(self.lengths.sum())
        for name, column in self.columns.items():
            if len(column) != total:
                raise UserError(f"{total} tokens in column `{name}`, the sum of the lengths", f"{len(column)}")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
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
        return Stream({name: column[index] for name, column in self.columns.items()}, lengths)

    def take(self, rows: Array) -> Stream:
        """The samples of these rows."""
        return self.cut(self.starts[rows], self.lengths[rows])

    def keep(self, tokens: Array) -> Stream:
        """The tokens where the mask (T,) is True."""
        lengths = np.bincount(self.sample[tokens], minlength=len(self)).astype(np.int64)
        return Stream({name: column[tokens] for name, column in self.columns.items()}, lengths)

    def but(self, **columns: Column) -> Stream:
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

    def __len__(self) -> int:
        if self.streams:
            return len(next(iter(self.streams.values())))
        return len(self.ids)

    @property
    def stream(self) -> Stream:
        """The only stream."""
        (only,) = self.streams.values()
        return only

    def but(self, stream: Stream | None = None, **samples: Array) -> Batch:
        """The same batch with its only stream replaced, or columns of samples added."""
        assert stream is None or len(self.streams) == 1
        streams = self.streams if stream is None else dict.fromkeys(self.streams, stream)
        return replace(self, streams=streams, samples={**self.samples, **samples})

    def take(self, rows: Array) -> Batch:
        """The samples of these rows, uncounted."""
        return Batch(
            {name: stream.take(rows) for name, stream in self.streams.items()},
            {name: column[rows] for name, column in self.samples.items()},
            self.ids[rows] if len(self.ids) else self.ids,
            sent=self.sent,
        )

    @property
    def tokens(self) -> int:
        """How many tokens there are in all streams."""
        return sum(int(stream.lengths.sum()) for stream in self.streams.values())

    def inputs(self, device: torch.device | str = "cpu", multiple: int = 1, packed: bool = False) -> Inputs:
        """Tensors on a device: padded to the longest sample, rounded up to a `multiple`; or packed end to end."""
        views = {name: _view(stream, torch.device(device), multiple, packed) for name, stream in self.streams.items()}
        samples = {
            name: _tensor(column, torch.device(device))
            for name, column in self.samples.items()
            if _numeric(column) and (self.sent is None or name in self.sent)
        }
        return Inputs(views, samples)


@dataclass
class View:
    """A stream as a model sees it: columns (B, N, ...) with `valid` (B, N) or None, or (T, ...) with a Ragged."""

    columns: dict[str, Tensor]
    valid: Valid


@dataclass
class Inputs:
    """A batch as a model sees it."""

    streams: dict[str, View]
    samples: dict[str, Tensor]

    def to(self, device: torch.device) -> Inputs:
        """The same on another device; the host does not wait for a GPU."""
        views = {name: _moved(view, device) for name, view in self.streams.items()}
        return Inputs(views, {name: _sent(column, device) for name, column in self.samples.items()})

    @property
    def stream(self) -> View:
        """The only stream."""
        (only,) = self.streams.values()
        return only


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


def _moved(view: View, device: torch.device) -> View:
    columns = {name: _sent(column, device) for name, column in view.columns.items()}
    valid = view.valid
    if isinstance(valid, Ragged):
        valid = Ragged(_sent(valid.lengths, device), total=valid.total, longest=valid.longest)
    elif valid is not None:
        valid = _sent(valid, device)
    return View(columns, valid)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device, from memory that a GPU can fetch from by itself."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _numeric(column: Array) -> bool:
    return column.dtype.kind in "biuf"


def _tensor(column: Array, device: torch.device) -> Tensor:
    """Whole numbers as int64, real ones in single precision, on the device."""
    dtype = {"f": np.float32, "i": np.int64, "u": np.int64}.get(column.dtype.kind, column.dtype)
    tensor = torch.from_numpy(np.require(column, dtype, ["C", "W"]))  # a copy where bytes are swapped or read-only
    return tensor.to(device)


def _view(stream: Stream, device: torch.device, multiple: int, packed: bool) -> View:
    lengths = stream.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    wide = -(-longest // multiple) * multiple
    if packed:
        columns = {name: _tensor(column, device) for name, column in stream.columns.items()}
        total = int(lengths.sum())
        return View(columns, Ragged(torch.as_tensor(lengths, device=device), total=total, longest=longest))
    if len(lengths) and (lengths == wide).all():
        shaped = {
            name: column.reshape(len(lengths), wide, *column.shape[1:]) for name, column in stream.columns.items()
        }
        return View({name: _tensor(column, device) for name, column in shaped.items()}, None)
    inside = np.arange(wide) < lengths[:, None]
    columns = {}
    for name, column in stream.columns.items():
        dense = np.zeros((len(lengths), wide, *column.shape[1:]), column.dtype)
        dense[inside] = column
        columns[name] = _tensor(dense, device)
    return View(columns, _tensor(inside, device))


def describe(samples: Mapping[str, Array]) -> dict[str, str]:
    """Each column of samples in a few words, for the report."""
    words = {}
    for name, column in samples.items():
        if column.dtype.kind == "f" and column.ndim == 1 and np.isfinite(column).any():
            words[name] = f"{np.nanmin(column):.6g} to {np.nanmax(column):.6g}"
        elif column.ndim == 1:
            values = np.unique(column)
            shown = ", ".join(str(value) for value in values[:6])
            words[name] = shown if len(values) <= 6 else f"{len(values)} different values"
        else:
            words[name] = f"{column.dtype} of shape {column.shape[1:]}"
    return words
