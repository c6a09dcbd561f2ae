"""FITS files: tables, and values in their headers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..packages import broken, require
from .base import Column, Format, Layout, TableFile
from .memory import MemoryTable, as_column

STRUCTURE_KEYWORDS = re.compile(
    r"(NAXIS|T(TYPE|FORM|UNIT|DISP|NULL|DIM|SCAL|ZERO)|PCOUNT|GCOUNT|BITPIX|SIMPLE|XTENSION|EXTEND)"
)


class FITSTable(MemoryTable):
    """A table of a FITS file; `tables` returns all tables of the file."""

    siblings: Sequence[MemoryTable] = ()

    def tables(self) -> Sequence[TableFile]:
        return self.siblings


def read_fits(path: Path, layout: Layout) -> FITSTable:
    """Read the first table of a FITS file, or the table `layout.tree`."""
    fits, table = require("astropy.io.fits", "FITS files"), layout.tree
    with warnings.catch_warnings(record=True) as caught, path.open("rb") as raw:
        warnings.simplefilter("always")
        units = fits.open(raw, memmap=False)
        names = [f"{number} {unit.name}".strip() for number, unit in enumerate(units)]
        found = {n: unit for n, unit in zip(names, units) if isinstance(unit, (fits.BinTableHDU, fits.TableHDU))}
        chosen = [u for name, u in found.items() if not table or table in (u.name, name.partition(" ")[0])]
        made = [_unit(path, unit, units[0].header, layout) for unit in chosen]
    if cut := [str(one.message) for one in caught if "truncated" in str(one.message)]:
        raise broken(path, "FITS", ValueError(cut[0]))
    if not made:
        message = f"{path} has no {f'table {table!r}' if table else 'table'}: its HDUs are {', '.join(names)}"
        raise UserError(message, key="data.table" if table else None, file=path)
    made.sort(key=lambda one: not one.rows)
    made[0].siblings = made
    return made[0]


def _unit(path: Path, unit: Any, first: Any, layout: Layout) -> FITSTable:
    columns = {column.name: _column(unit.data[column.name], column.null) for column in unit.columns}
    header = {
        key: value
        for part in (first, unit.header)
        for key, value in part.items()
        if key and not STRUCTURE_KEYWORDS.match(key)
    }
    made = FITSTable(path, columns, layout, header)
    made.units = {column.name: str(column.unit or "") for column in unit.columns}
    return made


def _column(values: Any, null: Any) -> Column | None:
    if null is not None and values.ndim == 1 and values.dtype.kind in "iu":
        values = np.where(np.asarray(values) == null, np.nan, np.asarray(values, np.float64))
    return as_column(values)


FITS = Format("FITS", (".fits", ".fit"), ("astropy",), reader=read_fits, magic=(b"SIMPLE  =",))
