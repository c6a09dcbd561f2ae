"""Tables in memory: text with columns, FITS, ECSV, and the tables of astropy."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UserError
from ....files.formats.delimited import MISSING_WORDS, is_number, measured
from ....files.packages import broken, package
from ...columns import Array, Lists
from ..text_parts import read_text
from .clean import Column, words
from .names import TIME, Kind, plain

DAYS = {"s": 1 / 86400, "sec": 1 / 86400, "second": 1 / 86400, "min": 1 / 1440, "h": 1 / 24, "hr": 1 / 24}
DAYS |= {"hour": 1 / 24, "yr": 365.25, "year": 365.25, "ms": 1 / 86400e3, "wk": 7.0, "week": 7.0}
DEFAULT_COLUMNS = ("time", "value", "error")  # columns of a text of numbers alone
STRUCTURE_KEYWORDS = re.compile(
    r"(NAXIS|T(TYPE|FORM|UNIT|DISP|NULL|DIM|SCAL|ZERO)|PCOUNT|GCOUNT|BITPIX|SIMPLE|XTENSION|EXTEND)"
)


@dataclass
class Flat:
    """Columns by name, each with a number, a word or a list for every row; and single values that belong to all.

    The numbers of rows at which reading may begin anew are `edges`; in memory, any.
    """

    path: Path | str
    columns: dict[str, Column]
    header: dict[str, Any] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    """What keeps a column of numbers from being one."""

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def edges(self) -> Array:
        """Beginning and end."""
        return np.array([0, self.rows])

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column has for a row."""
        return {name: kind_of(column) for name, column in self.columns.items()}

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns of the rows start .. stop - 1."""
        whole = start == 0 and stop == self.rows
        return {n: c if whole else _cut(c, start, stop) for n, c in ((name, self.columns[name]) for name in names)}


def kind_of(column: Column) -> Kind:
    """What a column has for a row."""
    listed = isinstance(column, Lists)
    values = column.values if isinstance(column, Lists) else column
    return Kind(listed, values.dtype.kind in "OUS")


def _cut(column: Column, start: int, stop: int) -> Column:
    return column.take(np.arange(start, stop)) if isinstance(column, Lists) else column[start:stop]


# Text


def read_columns(path: Path, names: Sequence[str] = ()) -> Flat:
    """A table of text, with commas, semicolons, tabs, bars or blanks between cells, and names in its first line.

    Lines with # are left out, but the last of them before the numbers may have the names. A text of two or three
    numbers in each line without names has times, values and errors.
    """
    text = read_text(path)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    notes = [
        line.lstrip("#").strip() for _, line in lines[: next((i for i, (_, x) in enumerate(lines) if x[0] != "#"), 0)]
    ]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        raise UserError(f"{path} has no table: it has no lines", file=path)
    cells = _cells(path, [line for _, line in lines])
    head = [cell.strip().strip('"') for cell in cells[0]]
    if all(is_number(cell) for cell in head):
        told = re.split(r"[,;|\s]+", notes[-1]) if notes else []
        found = list(names) or (told if len(told) == len(head) else list(DEFAULT_COLUMNS[: len(head)]))
        if len(found) != len(head):
            advice = "Name them in order: --data.columns time value error ..."
            raise UserError(
                f"{path} has {len(head)} columns, but {len(found)} names for them",
                hint=advice,
                key="data.columns",
                file=path,
            )
    else:
        found, cells, lines = head, cells[1:], lines[1:]
    if double := [name for place, name in enumerate(found) if name in found[:place]]:
        raise UserError(f"{path} has two columns with the name {double[0]!r}", file=path)
    for (number, line), row in zip(lines, cells):
        if len(row) != len(found):
            advice = "Was the file cut off?" if number == lines[-1][0] else ""
            raise UserError(
                f"line {number} of {path} has {len(row)} cells, not {len(found)}: {line[:60]!r}",
                hint=advice,
                file=path,
                line=number,
            )
    columns = [[cell.strip() for cell in column] for column in zip(*cells)] or [[] for _ in found]
    made: dict[str, Any] = {name: measured(column) for name, column in zip(found, columns)}
    odd = {name: _odd(cells, lines) for name, cells in zip(found, columns) if made[name].dtype.kind in "OU"}
    return Flat(path, made, odd={name: where for name, where in odd.items() if where})


def _odd(cells: Sequence[str], lines: Sequence[tuple[int, str]]) -> str:
    """The first cell that is no number, and its line, where most are numbers."""
    strange = [place for place, cell in enumerate(cells) if cell.lower() not in MISSING_WORDS and not is_number(cell)]
    if not strange or 2 * len(strange) > len(cells):
        return ""
    return f"{cells[strange[0]][:40]!r} in line {lines[strange[0]][0]}"


def _cells(path: Path, lines: Sequence[str]) -> list[list[str]]:
    bare = re.sub(r'"[^"]*"', "", lines[0])
    sign = max(",;\t|", key=bare.count)
    if not bare.count(sign):
        return [line.split() for line in lines]
    try:
        return list(csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=sign))
    except csv.Error as error:
        raise UserError(f"{path} cannot be read as cells between {sign!r}: {error}", file=path) from error


# FITS, ECSV and what astropy has in memory


def _astropy(form: str) -> Any:
    def load() -> Any:
        import astropy.io.fits  # type: ignore[import-untyped,unused-ignore]
        import astropy.table  # type: ignore[import-untyped,unused-ignore]

        return astropy

    return package(load, "astropy", form, "astro")


def read_fits(path: Path, table: str = "") -> list[Flat]:
    """The tables of a FITS file, or the one of this name or number; with the values of its headers."""
    fits = _astropy("FITS").io.fits
    try:
        with warnings.catch_warnings(record=True) as caught, path.open("rb") as raw:
            warnings.simplefilter("always")
            units = fits.open(raw, memmap=False)
            names = [f"{number} {unit.name}".strip() for number, unit in enumerate(units)]
            found = {n: unit for n, unit in zip(names, units) if isinstance(unit, (fits.BinTableHDU, fits.TableHDU))}
            chosen = [u for name, u in found.items() if not table or table in (u.name, name.partition(" ")[0])]
            made = [_unit(path, unit, units[0].header) for unit in chosen]
            cut = [str(one.message) for one in caught if "truncated" in str(one.message)]
    except UserError:
        raise
    except Exception as error:  # damaged files make astropy raise a dozen different ones
        raise broken(path, "FITS", error) from error
    if cut:
        raise broken(path, "FITS", ValueError(cut[0]))
    if not made:
        shown = ", ".join(names)
        what = f"table {table!r}" if table else "table"
        raise UserError(
            f"{path} has no {what}: it has the units {shown}", key="data.table" if table else None, file=path
        )
    return made


def _unit(path: Path, unit: Any, first: Any) -> Flat:
    columns: dict[str, Column] = {}
    for column in unit.columns:
        values = _fits(unit.data[column.name], column.null)
        if values is not None:
            scale = _days(column.name, column.unit)
            columns[column.name] = values if scale is None else _scaled(values, scale)
    header = {
        key: value
        for part in (first, unit.header)
        for key, value in part.items()
        if isinstance(value, (int, float, str)) and key and not STRUCTURE_KEYWORDS.match(key)
    }
    return Flat(path, columns, header)


def _fits(values: Any, null: Any) -> Column | None:
    """A column of a FITS table; None where it has neither numbers nor words."""
    if values.dtype.kind == "O" or values.ndim > 1:
        return _lists([_unmasked(row).reshape(-1) for row in values])
    values = np.asarray(values)
    if null is not None and values.dtype.kind in "iu":
        values = np.where(values == null, np.nan, values.astype(np.float64))
    return _native(values)


def _native(values: Array) -> Array | None:
    if values.dtype.kind in "USO":
        return words(values)
    if values.dtype.kind not in "biuf":
        return None
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def _lists(rows: Sequence[Array]) -> Lists | None:
    lengths = np.array([len(row) for row in rows], np.int64)
    filled = [row for row in rows if len(row)]
    values = _native(np.concatenate(filled)) if filled else np.zeros(0)
    return None if values is None else Lists(values, lengths)


def _days(name: str, unit: Any) -> float | None:
    """By what times are multiplied to be days; None where they are, or are no times."""
    return DAYS.get(str(unit or "").strip().lower()) if plain(name) in TIME else None


def _scaled(column: Column, scale: float) -> Column:
    if isinstance(column, Lists):
        return Lists(column.values.astype(np.float64) * scale, column.lengths)
    return column.astype(np.float64) * scale


def read_ecsv(path: Path) -> Flat:
    """A table in ECSV, with its units."""
    tables = _astropy("ECSV").table
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tables.Table.read(path, format="ascii.ecsv")
    except Exception as error:
        raise broken(path, "ECSV", error) from error
    return from_astropy(found, path)


def from_astropy(table: Any, path: Path | str = "the table") -> Flat:
    """The columns of an astropy Table, QTable, TimeSeries or LightCurve; times in days, what is masked is NaN."""
    columns: dict[str, Column] = {}
    for name in table.colnames:
        made = _mixin(name, table[name])
        if made is not None:
            columns[str(name)] = made
    single = (int, float, str, np.integer, np.floating)
    header = {str(key): value for key, value in dict(table.meta).items() if isinstance(value, single)}
    return Flat(path, columns, header)


def _mixin(name: str, column: Any) -> Column | None:
    if hasattr(column, "jd1"):  # Time or TimeDelta
        if not hasattr(column, "mjd"):
            return _unmasked(column.jd)
        return _unmasked(column.value if column.format in ("jd", "mjd", "btjd", "bkjd") else column.mjd)
    if not hasattr(column, "dtype"):
        return None
    scale = _days(name, getattr(column, "unit", None))
    values = _unmasked(getattr(column, "value", column))
    made = _fits(values, None) if values.ndim else None
    return made if scale is None or made is None else _scaled(made, scale)


def _unmasked(values: Any) -> Array:
    """A plain array: masked numbers are NaN, masked words empty."""
    mask = np.asarray(getattr(values, "mask", False))
    data = np.asarray(getattr(values, "unmasked", getattr(values, "data", values)))
    if not mask.any():
        return data
    if data.dtype.kind in "biuf":
        return np.where(mask, np.nan, data.astype(np.float64))
    return np.where(mask, "", data) if data.dtype.kind in "US" else data


def from_mapping(columns: Mapping[str, Any], path: Path | str = "the table") -> Flat:
    """Columns by name: arrays, or lists of arrays."""
    made: dict[str, Column] = {}
    for name, column in columns.items():
        if isinstance(column, Lists):
            made[str(name)] = column
            continue
        array = column if isinstance(column, np.ndarray) else None
        if array is None and any(np.ndim(row) for row in column):
            array = np.empty(len(column), object)
            array[:] = [np.asarray(row) for row in column]
        array = np.asarray(column) if array is None else array
        ragged = array.dtype.kind == "O" and any(np.ndim(row) for row in array)
        found = _fits(array, None) if ragged or array.dtype.kind != "O" else _native(array)
        if found is not None:
            made[str(name)] = found
    return Flat(path, made)


# Parquet files of light curves: list columns, nested ones, and long tables, read by row groups


def _arrow() -> Any:
    def load() -> Any:
        import pyarrow  # type: ignore[import-untyped,unused-ignore]
        import pyarrow.compute  # type: ignore[import-untyped,unused-ignore]
        import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]

        return pyarrow

    return package(load, "pyarrow", "Parquet", "astro")


@lru_cache(maxsize=32)
def _handle(process: int, path: Path, changed: int) -> Any:
    """An open file of this process."""
    return _arrow().parquet.ParquetFile(path, memory_map=True)


class ParquetTable:
    """The columns of a Parquet file; those nested in another one are called `outer.inner`.

    Only what describes it is kept, so that another process can read on.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, dict[str, Any]()
        self.changed = path.stat().st_mtime_ns
        try:
            file = self._file()
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            self.edges = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
            self.rows = int(self.edges[-1])
            self.kinds: dict[str, Kind] = {}
            self.others: dict[str, str] = {}
            for field in file.schema_arrow:
                for name, kind in _leaves(field.name, field.type):
                    if (found := _kind(kind)) is None:
                        self.others[name] = f"{kind}"
                    else:
                        self.kinds[name] = found
        except UserError:
            raise
        except Exception as error:  # damaged files make pyarrow raise a dozen different ones
            raise broken(path, "Parquet", error) from error

    def _file(self) -> Any:
        return _handle(os.getpid(), self.path, self.changed)

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns of the rows start .. stop - 1."""
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self.edges, stop, side="left")))
        roots = list(dict.fromkeys(name if name in self._tops else name.partition(".")[0] for name in names))
        try:
            file = self._file()
            table = file.read_row_groups(list(range(first, last)), columns=roots, use_threads=False)
            table = table.slice(start - int(self.edges[first]), stop - start)
            arrays = {root: _whole(table.column(root)) for root in roots}
            return {name: _column(*_leaf(arrays, name)) for name in names}
        except UserError:
            raise
        except Exception as error:
            raise broken(self.path, "Parquet", error) from error

    @property
    def _tops(self) -> set[str]:
        return {field.name for field in self._file().schema_arrow}


def _leaf(arrays: dict[str, Any], name: str) -> tuple[Any, Any]:
    """The values of a column, and the lists they are in, if those are lists of records."""
    if name in arrays:
        return arrays[name], None
    arrow, (root, _, inner) = _arrow(), name.partition(".")
    array = arrays[root]
    if _is_list(array.type):
        array = _as_list(array)
        return arrow.compute.struct_field(array.flatten(), inner), array
    return arrow.compute.struct_field(array, inner), None


def from_arrow(table: Any) -> dict[str, Column]:
    """The columns of a table of pyarrow, those that are nested too."""
    made: dict[str, Column] = {}
    for name, kind in ((one.name, one.type) for one in table.schema):
        array = _whole(table.column(name))
        for leaf, one in _leaves(name, kind):
            if _kind(one) is not None:
                made[leaf] = _column(*_leaf({name: array}, leaf))
    return made


def _leaves(name: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """A column, or those nested in it."""
    types, arrow = _arrow().types, _arrow()
    if types.is_struct(kind):
        for place in range(kind.num_fields):
            yield f"{name}.{kind.field(place).name}", kind.field(place).type
    elif _is_list(kind) and types.is_struct(kind.value_type):
        record = kind.value_type
        for place in range(record.num_fields):
            yield f"{name}.{record.field(place).name}", arrow.list_(record.field(place).type)
    else:
        yield name, kind


def _is_list(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _kind(kind: Any) -> Kind | None:
    """What a column has for a row; None where it has neither numbers nor words."""
    listed = _is_list(kind)
    one = kind.value_type if listed else kind
    types = _arrow().types
    one = one.value_type if types.is_dictionary(one) else one
    if types.is_integer(one) or types.is_floating(one) or types.is_boolean(one) or types.is_decimal(one):
        return Kind(listed, False)
    return Kind(listed, True) if types.is_string(one) or types.is_large_string(one) or types.is_binary(one) else None


def _whole(chunked: Any) -> Any:
    """One array of a column in chunks."""
    array = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
    if hasattr(array, "chunks"):  # older versions combine into one chunk of many
        array = array.chunk(0) if array.num_chunks else _arrow().array([], chunked.type)
    return array


def _as_list(array: Any) -> Any:
    """Lists of any length in place of those of a fixed one."""
    types, arrow = _arrow().types, _arrow()
    return array.cast(arrow.list_(array.type.value_type)) if types.is_fixed_size_list(array.type) else array


def _column(array: Any, outer: Any) -> Column:
    """Numbers, words or lists; a missing number is NaN, a missing word empty, and a missing list has no entries."""
    if outer is not None:
        return Lists(_values(array), _lengths(outer))
    if not _is_list(array.type):
        return _values(array)
    array = _as_list(array)
    return Lists(_values(array.flatten()), _lengths(array))


def _lengths(array: Any) -> Array:
    lengths = array.value_lengths()
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _values(array: Any) -> Array:
    types, arrow = _arrow().types, _arrow()
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_decimal(array.type):
        array = array.cast(arrow.float64())
    if types.is_binary(array.type):
        array = array.cast(arrow.string())
    if types.is_string(array.type) or types.is_large_string(array.type):
        coded = array.fill_null("").dictionary_encode()
        names = np.array([str(one) for one in coded.dictionary.to_pylist()] or [""], str)
        return names[coded.indices.to_numpy(zero_copy_only=False)] if len(array) else np.zeros(0, "U1")
    if array.null_count and not types.is_floating(array.type):
        array = array.cast(arrow.float64())
    values = array.to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64) if values.dtype.kind == "O" else np.asarray(values)
