"""Awkward arrays as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import UserError
from ..source import Array, Lists, Table, rows_of
from .event_files import Column, package, shared


def _awkward() -> Any:
    import awkward  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return awkward


def column(array: Any, name: str) -> Column:
    """Numbers, or lists of numbers, of an awkward array."""
    ak = package(_awkward, "awkward", "ROOT")
    layout = ak.to_layout(array)
    if type(layout).__name__ == "ListOffsetArray" and type(layout.content).__name__ == "NumpyArray":
        offsets, content = np.asarray(layout.offsets.data), np.asarray(layout.content.data)
        return Lists(_numbers(content[offsets[0] : offsets[-1]], name), np.diff(offsets).astype(np.int64))
    depth = array.ndim
    if depth > 2 or ak.fields(array):
        raise UserError(f"`{name}` must have numbers, or lists of numbers, not {array.type}")
    if ak.any(ak.is_none(array)) or (depth == 2 and ak.any(ak.is_none(array, axis=1))):
        raise UserError(f"`{name}` has gaps: {array.type} with None in it", hint="Fill them: awkward.fill_none")
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
    """Columns of events that are in memory, as `Run.predict` takes them.

    arrays   a mapping of names to NumPy arrays, awkward arrays, lists of lists or `Lists`; or an awkward array of
             records, or a NumPy array with named fields
    """
    if isinstance(arrays, Mapping):
        given = dict(arrays)
    else:
        names = getattr(getattr(arrays, "dtype", None), "names", None) or getattr(arrays, "fields", None)
        if not names:
            raise UserError(
                "columns must be given by name, as a mapping or an array with named fields, "
                f"not as {type(arrays).__name__}"
            )
        given = {name: arrays[name] for name in names}
    table = shared({str(name): _any(array, str(name)) for name, array in given.items()})
    rows_of(table)
    return table


def _any(array: Any, name: str) -> Column:
    if isinstance(array, Lists):
        return array
    if isinstance(array, np.ndarray) and array.dtype.kind != "O":
        if array.dtype.kind in "US":
            return array
        return _numbers(array, name)
    if isinstance(array, (list, tuple, np.ndarray)):
        rows = list(array)
        if any(np.ndim(row) for row in rows):
            flat = [np.asarray(row).reshape(-1) for row in rows]
            lengths = np.array([len(row) for row in flat], np.int64)
            return Lists(_numbers(np.concatenate(flat) if flat else np.zeros(0), name), lengths)
        plain = np.asarray(rows)
        return plain if plain.dtype.kind == "U" else _numbers(plain, name)
    return column(array, name)
