"""Tables in memory: mappings of arrays, astropy tables, and ECSV files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists
from ..packages import require
from .base import Column, Format, Kind, Layout, TableFile

BLANKS = tuple(map(ord, " \t\n\r\xa0"))
SINGLE_VALUES = (int, float, str, np.integer, np.floating)  # types of header values


class MemoryTable(TableFile):
    """Table in memory: columns of numbers, strings or lists by name.

    data    columns by name; None for a column that cannot be read
    units   units of columns, as strings
    odd     text and line of the first non-numeric cell, for each mostly numeric column
    """

    in_memory = True

    def __init__(
        self,
        path: Path | str,
        data: Mapping[str, Column | None],
        layout: Layout | None = None,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path, layout or Layout())
        self.data = {name: column for name, column in data.items() if column is not None}
        for name, column in self.data.items():
            values = column.values if isinstance(column, Lists) else column
            self.add_column(name, Kind(isinstance(column, Lists), values.dtype.kind in "OUS"), f"{values.dtype}")
        self.header = {name: value for name, value in (header or {}).items() if isinstance(value, SINGLE_VALUES)}
        self.units: dict[str, str] = {}
        self.odd: dict[str, str] = {}
        self.rows = len(next(iter(self.data.values()))) if self.data else 0
        self.edges = np.array([0, self.rows])

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        found = {name: self.data[name] for name in names}
        if start == 0 and stop == self.rows:
            return found
        rows = np.arange(start, stop)
        return {n: c.take(rows) if isinstance(c, Lists) else c[start:stop] for n, c in found.items()}


def words(values: Any) -> Array:
    """Convert names to strings: 1.0 becomes "1", and a missing name becomes ""."""
    values = np.asarray(values)
    if values.dtype.kind == "U":
        letters = np.ascontiguousarray(values).view(np.uint32)
        blank = len(values) and any((letters == blank).any() for blank in BLANKS)
        return np.char.strip(values) if blank else values
    if values.dtype.kind == "S":
        return np.char.strip(np.char.decode(values, "utf-8", "replace"))
    if values.dtype.kind in "biu":
        return values.astype(str)
    if values.dtype.kind == "O":
        return np.array([_word(one) for one in values.tolist()], str) if len(values) else np.zeros(0, "U1")
    different, place = np.unique(values, return_inverse=True)
    return np.array([_word(one) for one in different.tolist()], str)[place] if len(values) else np.zeros(0, "U1")


def _word(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def as_column(values: Any) -> Column | None:
    """Convert an array to a column of values or lists; None for other types."""
    if values.ndim > 1 or (values.dtype.kind == "O" and any(np.ndim(row) for row in values)):
        rows = [unmasked(row).reshape(-1) for row in values]
        filled = [row for row in rows if len(row)]
        flat = as_column(np.concatenate(filled)) if filled else np.zeros(0)
        return Lists(flat, np.array([len(row) for row in rows], np.int64)) if isinstance(flat, np.ndarray) else None
    values = np.asarray(values)
    if values.dtype.kind in "USO":
        return words(values)
    if values.dtype.kind not in "biuf":
        return None
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def unmasked(values: Any) -> Array:
    """Convert a masked array to a plain array, with NaN or "" for masked values."""
    mask = np.asarray(getattr(values, "mask", False))
    data = np.asarray(getattr(values, "unmasked", values.data if isinstance(values, np.ma.MaskedArray) else values))
    if not mask.any():
        return data
    if data.dtype.kind in "biuf":
        return np.where(mask, np.nan, data.astype(np.float64))
    return np.where(mask, "", data) if data.dtype.kind in "US" else data


def from_mapping(columns: Mapping[str, Any], path: Path | str) -> MemoryTable:
    """Convert a mapping of arrays, or of lists of arrays, to a table."""
    made: dict[str, Column | None] = {}
    for name, column in columns.items():
        array = column
        if not isinstance(column, Lists | np.ndarray):
            ragged = any(np.ndim(row) for row in column)
            array = np.empty(len(column), object) if ragged else np.asarray(column)
            if ragged:
                array[:] = [np.asarray(row) for row in column]
        made[str(name)] = array if isinstance(array, Lists) else as_column(array)
    return MemoryTable(path, made)


def times_of(column: Any) -> Array:
    """Convert a column of astropy Time or TimeDelta to days."""
    days = column.format in ("jd", "mjd", "btjd", "bkjd")
    return unmasked(column.jd if not hasattr(column, "mjd") else column.value if days else column.mjd)


def from_astropy(table: Any, path: Path | str, layout: Layout | None = None) -> MemoryTable:
    """Convert an astropy Table, QTable, TimeSeries or LightCurve.

    Times become days; masked values become NaN.
    """
    made, units = dict[str, Column | None](), dict[str, str]()
    for name in map(str, table.colnames):
        column = table[name]
        if hasattr(column, "jd1"):
            made[name] = times_of(column)
        elif hasattr(column, "dtype"):
            values = unmasked(getattr(column, "value", column))
            made[name] = as_column(values) if values.ndim else None
            units[name] = str(getattr(column, "unit", None) or "")
    found = MemoryTable(path, made, layout, {str(key): value for key, value in dict(table.meta).items()})
    found.units = units
    return found


def read_ecsv(path: Path, layout: Layout) -> MemoryTable:
    """Read an ECSV table with the units of its columns."""
    tables = require("astropy.table", "ECSV files")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return from_astropy(tables.Table.read(path, format="ascii.ecsv"), path, layout)


ECSV = Format("ECSV", (".ecsv",), ("astropy",), reader=read_ecsv, magic=(b"# %ECSV",))
