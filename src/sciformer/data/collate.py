"""Collation: batches as tensors on the device of the model, padded or packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, one_of
from ..nn.gather import gather_rows
from ..nn.ragged import Ragged
from .columns import Array
from .sampler import rounded

if TYPE_CHECKING:
    from .batch import Stream

Valid = Tensor | Ragged | None
DTYPES: dict[str, Any] = {"f": np.float32, "i": np.int64, "u": np.int64}  # tensor dtypes by NumPy kind


@dataclass
class StreamView:
    """Tensors of a stream, padded or packed.

    columns  padded (B, N, ...) or packed (T, ...)
    valid    padded: mask (B, N), or None if all tokens are real; packed: a `Ragged` layout
    """

    columns: dict[str, Tensor]
    valid: Valid
    name: str = ""
    streams: Mapping[str, StreamView] = field(default_factory=dict)
    """All streams of the batch by name, including this stream; set by `ModelInputs.view`."""

    @property
    def real(self) -> Tensor | None:
        """Mask of the real tokens, in the layout of the columns; None if all are real."""
        return self.valid.inside if isinstance(self.valid, Ragged) else self.valid

    def pad(self, tokens: Tensor) -> Tensor:
        """Convert a column from the layout of the stream to padded (B, N, ...)."""
        return self.valid.pad(tokens) if isinstance(self.valid, Ragged) else tokens


@dataclass
class ModelInputs:
    """A batch as tensors: streams, sample columns, and masks of padding."""

    streams: dict[str, StreamView]
    samples: dict[str, Tensor]
    real: Tensor | None = None
    """Mask (B,) of real samples, False for padding rows; None if all are real."""
    carried: dict[str, Tensor] = field(default_factory=dict)
    """State tensors of the objective."""
    divided: bool = False
    """Whether the batch is distributed over several ranks."""

    def to(self, device: torch.device) -> ModelInputs:
        """Copy of the inputs on another device, in a single asynchronous transfer."""
        if device.type == "cpu":
            return self
        return self.placed(iter(_copy_to_device(list(self.tensors()), device)))

    def placed(self, moved: Iterator[Tensor]) -> ModelInputs:
        """Copy with the tensors `moved` in place of `tensors()`, in the same order."""
        views = {}
        for name, view in self.streams.items():
            columns, valid = {key: next(moved) for key in view.columns}, view.valid
            if isinstance(valid, Ragged):
                valid = Ragged(next(moved), total=valid.total, longest=valid.longest, pairs=valid.pairs)
            views[name] = StreamView(columns, valid if valid is None or isinstance(valid, Ragged) else next(moved))
        samples = {name: next(moved) for name in self.samples}
        real = None if self.real is None else next(moved)
        return replace(self, streams=views, samples=samples, real=real)

    def shape(self) -> tuple[Any, ...]:
        """Hashable key of layout and shapes; batches with equal keys run the same kernels."""
        names = tuple((name, *view.columns) for name, view in self.streams.items())
        every = [view.valid for view in self.streams.values()]
        laid = tuple((v.total, v.longest, v.pairs) if isinstance(v, Ragged) else v is None for v in every)
        sizes = tuple((tensor.dtype, tensor.shape) for tensor in self.tensors())
        return names, laid, sizes, tuple(self.samples), self.real is None

    def tensors(self) -> Iterator[Tensor]:
        """All tensors of the inputs; a packed layout adds only its `lengths`."""
        for view in self.streams.values():
            yield from view.columns.values()
            if view.valid is not None:
                yield view.valid.lengths if isinstance(view.valid, Ragged) else view.valid
        yield from self.samples.values()
        if self.real is not None:
            yield self.real

    def counted(self, loss: Tensor) -> Tensor:
        """Loss (B,), set to 0 for padding rows."""
        return loss if self.real is None else loss.masked_fill(~self.real, 0)

    def gathered(self, rows: Tensor) -> tuple[Tensor, slice]:
        """Gather the real rows (B, ...) of all ranks; also return the slice of this rank.

        Gradients flow back through the gathered rows.
        """
        if self.real is not None:
            rows = rows[self.real]
        return gather_rows(rows) if self.divided else (rows, slice(0, len(rows)))

    @property
    def stream(self) -> StreamView:
        """The only stream of the inputs; an error if there are several streams."""
        return self.streams[stream_name(self.streams)]

    def view(self, stream: str = "") -> StreamView:
        """A stream (default: the only stream), with access to all streams of the batch."""
        name = stream_name(self.streams, stream)
        return StreamView(self.streams[name].columns, self.streams[name].valid, name, self.streams)


def stream_name(streams: Iterable[str], name: str = "") -> str:
    """Check and return the name of a stream (default: the only stream)."""
    names = list(streams)
    if name in names:
        return name
    if name:
        one_of("the stream of tokens", name, names, key="objective.stream")
    if len(names) != 1:
        message = f"there are {len(names)} streams of tokens ({', '.join(names)}), but no stream is chosen"
        raise UserError(message, hint="Choose one with objective.stream.", key="objective.stream")
    return names[0]


class AsyncTensors:
    """Asynchronous copy of tensors to the host.

    `read()` waits only for these copies. (Reading a tensor directly would also wait for all work queued after it.)
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.arrived: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors.values()):
            pinned = {n: torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for n, t in tensors.items()}
            self.tensors = {n: pinned[n].copy_(t, non_blocking=True) for n, t in tensors.items()}
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def read(self) -> dict[str, Tensor]:
        """Wait for the copies and return the tensors on the host."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return {name: tensor.cpu() for name, tensor in self.tensors.items()}


def _copy_to_device(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors to a device; to a GPU, as one buffer of pinned memory."""
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    run, starts = run_of(tensors, pinned=True)
    return parts(run.to(device, non_blocking=True), tensors, starts)


def run_of(tensors: list[Tensor], pinned: bool) -> tuple[Tensor, list[int]]:
    """Pack tensors into one byte buffer, each aligned to 256 bytes."""
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        end += -(-tensor.nbytes // 256) * 256
    run = torch.empty(end, dtype=torch.uint8, pin_memory=pinned)
    for there, tensor in zip(parts(run, tensors, starts), tensors):
        there.numpy()[...] = tensor.numpy()  # copy_ of PyTorch would wake all CPU cores
    return run, starts


def parts(run: Tensor, like: list[Tensor], starts: list[int]) -> list[Tensor]:
    """Tensors in a byte buffer, with the shapes and types of the tensors `like`.

    The tensors are not views of the buffer, because a compiler would trace views.

    starts   first byte of each tensor
    """
    storage = run.untyped_storage()
    return [
        torch.empty(0, dtype=tensor.dtype, device=run.device).set_(
            storage, start // tensor.itemsize, tensor.shape, tensor.stride()
        )
        for tensor, start in zip(like, starts)
    ]


def numeric(column: Array) -> bool:
    """Whether a column can become a tensor."""
    return column.dtype.kind in "biuf"


def tensor_dtype(column: Array, double: bool = False) -> Any:
    """NumPy type of the tensor of a column: int64, float32 (float64 if `double`) or bool."""
    return np.float64 if double and column.dtype.kind == "f" else DTYPES.get(column.dtype.kind, column.dtype)


def tensor_of(column: Array, device: torch.device, double: bool = False) -> Tensor:
    """Convert a column to a tensor on the device, of the type `tensor_dtype`."""
    dtype = tensor_dtype(column, double)
    own = np.require(column, dtype, ["C", "W"])  # copies arrays of other byte order and read-only arrays
    return torch.from_numpy(own).to(device)


def filled(column: Array, rows: int) -> Array:
    """Pad a column with zeros to `rows` rows."""
    if len(column) == rows:
        return column
    return np.concatenate([column, np.zeros((rows - len(column), *column.shape[1:]), column.dtype)])


def packed_view(
    stream: Stream, device: torch.device, width: int | None, most: int | None, lay: bool, double: bool = False
) -> StreamView:
    """View of a stream with packed columns (T, ...).

    width   pad the columns at the end to this number of tokens (default: no padding)
    most    maximum number of tokens of a sample in the model (default: unlimited)
    lay     whether to compute the layout now (False: after a copy to another device)
    double  whether floats are in double precision
    """
    lengths, columns = stream.lengths, stream.columns
    total, longest = int(lengths.sum()), int(lengths.max()) if len(lengths) else 0
    pairs = int((lengths.astype(np.int64) * (lengths + 1) // 2).sum())
    if width is not None:
        total, longest = max(total, width), most or 1 << max(0, longest - 1).bit_length()
        pairs = int(rounded(np.array(pairs)))
        columns = {name: filled(column, total) for name, column in columns.items()}
    ragged = Ragged(torch.as_tensor(lengths, device=device), total=total, longest=longest, pairs=pairs, lay=lay)
    return StreamView({name: tensor_of(column, device, double) for name, column in columns.items()}, ragged)


def padded_view(
    stream: Stream, device: torch.device, wide: int, masked: bool, shares: bool, double: bool = False
) -> StreamView:
    """View of a stream with padded columns (B, wide, ...).

    masked   add a mask even if all samples have `wide` tokens
    shares   store the coordinates `at` once, as (wide, A), if they are equal in all samples
    double   whether floats are in double precision
    """
    lengths = stream.lengths
    if not masked and len(lengths) and (lengths == wide).all():
        shaped = {name: c.reshape(len(lengths), wide, *c.shape[1:]) for name, c in stream.columns.items()}
        at = shaped.get("at")
        if shares and at is not None and at.ndim == 3 and wide > at.shape[2] and (at == at[:1]).all():
            shaped["at"] = at[0]
        return StreamView({name: tensor_of(column, device, double) for name, column in shaped.items()}, None)
    inside = np.arange(wide) < lengths[:, None]
    columns = {}
    for name, column in stream.columns.items():
        dense = np.zeros((len(lengths), wide, *column.shape[1:]), tensor_dtype(column, double))
        dense[inside] = column
        columns[name] = tensor_of(dense, device, double)
    return StreamView(columns, tensor_of(inside, device))
