"""Padded arrays (n, m) of n events; a mask, a count or zeros mark the padding.

px (n, m), py (n, m), mask (n, m)          columns of lists `px` and `py`
px (n, m), py (n, m), count (n,)           the same
points (n, m, 3), mask (n, m)              columns of lists `points_0`, `points_1`, `points_2`, or named by `axes`
tracks (n, m) with fields and `valid`      columns of lists `tracks.px`, ... (the layout of ATLAS)
px (t,), count (n,) with the sum t         columns of lists without padding
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Samples, Table, rows_of
from ...errors import UserError, nearest
from ..packages import require
from .base import Column, TableFile, as_text, shared

MASKS = ("mask", "valid", "lengths", "length", "counts", "count", "n")
"""Usual names of masks and counts; an array `NAME_mask` belongs only to the array NAME."""
ZEROS = "zeros"


class PaddedFile(TableFile):
    """Named arrays of h5py or NumPy, read as columns of values or of lists."""

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Sort arrays into columns of lists and columns of values."""
        self.arrays = dict(arrays)
        self.whole: dict[str, Array] = {}  # counts, as start offsets of the lists
        self.rows = self._rows()
        self.place: dict[str, tuple[str, Any, str]] = {}  # column -> array, field or index in it, mask
        masks = {name: self._mask(name) for name in self.arrays}
        for name, array in self.arrays.items():
            self._sort(name, array, masks[name])
        chunks = [array.chunks[0] for array in self.arrays.values() if getattr(array, "chunks", None)]
        self.edges = np.append(np.arange(0, self.rows, max(chunks, default=1024)), self.rows)

    def _rows(self) -> int:
        """Number of events: length of the mask, or most frequent length of the arrays."""
        if self.layout.mask not in ("", ZEROS):
            array = self.arrays.get(self.layout.mask)
            if array is None and not any(self.layout.mask in (one.dtype.names or ()) for one in self.arrays.values()):
                message = f"data.mask names {self.layout.mask!r}, which is not an array of {self.path}"
                raise self.error(message, hint=nearest(self.layout.mask, self.arrays), key="data.mask")
            if array is not None:
                return len(array)
        counts: dict[int, int] = {}
        for array in self.arrays.values():
            if array.shape:
                counts[array.shape[0]] = counts.get(array.shape[0], 0) + 1 + 8 * (len(array.shape) > 1)
        for name, array in self.arrays.items():
            if array.shape and name.rpartition(".")[2] in MASKS:  # flat values are longer than their counts
                counts[array.shape[0]] += 8
        return max(counts, key=lambda rows: (counts[rows], rows), default=0)

    def _mask(self, name: str) -> str:
        """Name of the mask array or count array of an array; "" if there is none."""
        if self.layout.mask:
            return self.layout.mask
        before = name.rpartition(".")[0]
        own = [f"{name}_{word}" for word in MASKS]
        near = [f"{before}.{word}" if before else word for word in MASKS]
        found = [one for one in [*own, *near, *(word.upper() for word in near)] if one in self.arrays and one != name]
        return next((one for one in found if self.arrays[one].shape[:1] == (self.rows,)), "")

    def _sort(self, name: str, array: Any, mask: str) -> None:
        shape, form = array.shape, array.dtype
        names = form.names
        if names is not None and len(shape) in (1, 2):
            valid = next((one for one in (self.layout.mask, "valid", "mask") if one in names), "")
            for field in names:
                self._add(f"{name}.{field}", form[field], name, field, ("." + valid) if valid else "", len(shape) == 2)
        elif name == self.layout.words and form.kind == "U" and shape == (self.rows,):
            self.columns[name], self.place[name] = "value", (name, None, "")
        elif names is not None or form.kind not in "biuf":
            self.others[name] = f"{form} of shape {shape}"
        elif shape[:1] != (self.rows,):
            if len(shape) == 1 and self._is_count(mask) and self._counts(mask)[-1] == shape[0]:
                self._add(name, form, name, None, mask, True)
            else:
                self.others[name] = f"an array of shape {shape} beside {self.rows} events"
        elif len(shape) in (2, 3) and self._masked(name, shape, mask):
            for number, column in enumerate(self._axes(name, shape[2]) if len(shape) == 3 else [name]):
                self._add(column, form, name, number if len(shape) == 3 else None, mask or ZEROS, True)
        elif len(shape) == 2 and name in self.layout.axes:
            for number, column in enumerate(self._axes(name, shape[1])):
                self._add(column, form, name, number, "", False)
        elif len(shape) in (1, 2):
            self._add(name, form, name, None, "", False)
        else:
            self.others[name] = f"an array of shape {shape}"

    def _add(self, column: str, form: Any, array: str, part: Any, mask: str, listed: bool) -> None:
        if form.base.kind not in "biuf" or (listed and form.shape):
            self.others[column] = f"{form}"
            return
        self.columns[column] = "list" if listed else "value"
        self.place[column] = (array, part, mask)

    def _axes(self, name: str, width: int) -> list[str]:
        given = self.layout.axes.get(name, [f"{name}_{number}" for number in range(width)])
        if len(given) != width:
            key, axis = f"data.axes.{name}", f"the last axis of `{name}` has length {width} in {self.path}"
            raise self.error(f"{key} has {len(given)} names, but {axis}", key=key)
        return given

    def _masked(self, name: str, shape: tuple[int, ...], mask: str) -> bool:
        """Whether the second axis of an array holds padded lists."""
        if name == mask:
            return False
        if mask == ZEROS or (not mask and len(shape) == 3):
            return name not in self.layout.axes or len(shape) == 3
        if mask not in self.arrays:
            return False
        if self.arrays[mask].shape == shape[:2]:
            return True
        counted = self._is_count(mask) and name not in self.layout.axes
        return counted and int(np.diff(self._counts(mask)).max(initial=0)) <= shape[1]

    def _counts(self, mask: str) -> Array:
        if mask not in self.whole:
            counts = np.asarray(self.arrays[mask][:])
            if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts.astype(np.int64) < 0).any():
                found = f"{counts.dtype} of shape {counts.shape}"
                if counts.ndim == 1 and counts.dtype.kind in "iu":
                    found = "negative values"
                key = "data.mask" if mask == self.layout.mask else None
                message = f"`{mask}` of {self.path} must have one count per sample (integers, at least 0), not {found}"
                raise self.error(message, key=key)
            self.whole[mask] = np.concatenate([[0], counts.astype(np.int64).cumsum()])
        return self.whole[mask]

    def _is_count(self, mask: str) -> bool:
        array = self.arrays.get(mask)
        return array is not None and len(array.shape) == 1 and array.dtype.kind in "iu"

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        @cache
        def block(array: str) -> Array:
            return np.asarray(self.arrays[array][start:stop])

        table: dict[str, Column] = {}
        kept: dict[tuple[str, str, int], tuple[Array, Array]] = {}
        for name in names:
            array, part, mask = self.place[name]
            if self.columns[name] == "list" and self.arrays[array].shape[:1] != (self.rows,):
                starts = self._counts(mask)[start : stop + 1]
                flat = np.asarray(self.arrays[array][int(starts[0]) : int(starts[-1])])
                table[name] = Lists(flat, np.diff(starts))
                continue
            values = block(array)
            if part is not None:
                values = values[part] if isinstance(part, str) else values[..., part]
            if self.columns[name] == "value":
                table[name] = values
                continue
            own = mask == "" or mask.startswith(".") or (mask == ZEROS and self.arrays[array].ndim == 3)
            key = array if own else "", mask, values.shape[1]
            if key not in kept:
                real = self._real(array, mask, block, start, stop, values.shape)
                kept[key] = real, real.sum(1).astype(np.int64)
            real, lengths = kept[key]
            table[name] = Lists(values[real], lengths)
        return table

    def _real(self, array: str, mask: str, block: Any, start: int, stop: int, shape: tuple[int, ...]) -> Array:
        """Mask (rows, m) of an array, True for real entries and False for padding."""
        if not mask:
            return np.ones(shape, bool)
        if mask.startswith("."):
            return np.asarray(block(array)[mask[1:]], bool)
        if mask != ZEROS:
            found = block(mask)
            return found != 0 if found.ndim == 2 else np.arange(shape[1]) < found[:, None]
        if self.arrays[array].ndim == 3:
            return np.asarray((block(array) != 0).any(-1))
        real = np.zeros(shape, bool)
        for name, (other, _, kind) in self.place.items():
            if kind == ZEROS and self.arrays[other].shape[1:] == shape[1:] and self.columns[name] == "list":
                real |= block(other) != 0
        return real


# Awkward arrays as columns


def column(array: Any, name: str) -> Column:
    """Convert an awkward array to a column: numbers or lists."""
    ak = require("awkward", "ROOT files")
    layout = ak.to_layout(array)
    if type(layout).__name__ == "ListOffsetArray" and type(layout.content).__name__ == "NumpyArray":
        offsets, content = np.asarray(layout.offsets.data), np.asarray(layout.content.data)
        return Lists(_numbers(content[offsets[0] : offsets[-1]], name), np.diff(offsets).astype(np.int64))
    depth = array.ndim
    if depth > 2 or ak.fields(array):
        raise UserError(f"`{name}` must have numbers or lists of numbers, not {array.type}")
    if ak.any(ak.is_none(array)) or (depth == 2 and ak.any(ak.is_none(array, axis=1))):
        message = f"`{name}` has missing values (None): its type is {array.type}"
        raise UserError(message, hint="Fill them with awkward.fill_none.")
    if depth == 1 or type(layout).__name__ == "RegularArray":
        return _numbers(ak.to_numpy(array), name)
    lengths = ak.to_numpy(ak.num(array)).astype(np.int64)
    return Lists(_numbers(ak.to_numpy(ak.flatten(array)), name), lengths)


def _numbers(values: Any, name: str) -> Array:
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise UserError(f"`{name}` must have numbers, not {values.dtype}")
    return values


def events_table(arrays: Any) -> Table:
    """Convert events in memory to a table for `Run.predict`.

    arrays   mapping from names to NumPy arrays, awkward arrays, lists of lists or `Lists`; or an awkward array of
             records; or a NumPy array with named fields
    """
    if isinstance(arrays, Mapping):
        given = dict(arrays)
    else:
        names = getattr(getattr(arrays, "dtype", None), "names", None) or getattr(arrays, "fields", None)
        if not names:
            raise UserError(f"events must be a mapping or an array with named fields, not {type(arrays).__name__}")
        given = {name: arrays[name] for name in names}
    table = shared({str(name): _any(array, str(name)) for name, array in given.items()})
    rows_of(table)
    return Samples(table)


def _any(array: Any, name: str) -> Column:
    if isinstance(array, Lists):
        return array
    if isinstance(array, np.ndarray) and array.dtype.kind != "O":
        return array if array.dtype.kind in "US" else _numbers(array, name)
    if isinstance(array, (list, tuple, np.ndarray)):
        rows = list(array)
        if any(np.ndim(row) for row in rows):
            flat = [np.asarray(row).reshape(-1) for row in rows]
            lengths = np.array([len(row) for row in flat], np.int64)
            return Lists(_numbers(np.concatenate(flat), name), lengths)
        plain = np.asarray(rows)
        return plain if plain.dtype.kind == "U" else _numbers(plain, name)
    return column(array, name)


LENGTHS = "_lengths"


def flat_arrays(table: Table) -> dict[str, Array]:
    """Convert columns to plain arrays: lists become flat values and NAME_lengths."""
    made: dict[str, Array] = {}
    for name, column in table.items():
        made[name] = as_text(column.values if isinstance(column, Lists) else column)
        if isinstance(column, Lists):
            made[f"{name}{LENGTHS}"] = column.lengths
    return made
