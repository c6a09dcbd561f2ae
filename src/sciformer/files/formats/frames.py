"""Tables in memory, of packages such as pandas, polars, pyarrow and astropy.

Awkward arrays, tensors and lists of samples are also read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists
from ...errors import UserError
from ..packages import require
from .base import Column, Layout, TableFile
from .memory import SINGLE_VALUES, MemoryTable, as_column, times_of, unmasked
from .padded import PaddedFile
from .parquet import arrow_package, from_arrow

MAX_NAME_CHARACTERS = 100  # longer strings are stored as objects
TEXT = (str, bytes)
UNNAMED = "array"  # column of an array or a list without names
NUMBERS = (int, float, np.number, np.bool_, Decimal)


@dataclass(frozen=True)
class Contents:
    """Columns of a table in memory, made by any package.

    columns   arrays (n, ...), `Lists`, or arrays of objects: long strings, or arrays of different shapes
    others    columns that cannot be read, with their type in words
    units     units of columns
    header    single values that describe the whole table
    """

    columns: dict[str, Any]
    others: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)


def is_frame(what: Any) -> bool:
    """Whether an object is a table: a mapping of columns, or a frame of a package."""
    return isinstance(what, Mapping) or any(hasattr(what, name) for name in ("colnames", "schema", "columns"))


def package_of(what: Any) -> str:
    """Name of the package of an object's class, such as `pandas`."""
    return type(what).__module__.partition(".")[0]


def has_own_type(what: Any) -> bool:
    """Whether predictions for an object are returned as a table of the same package."""
    return package_of(what) in ("pandas", "polars", "pyarrow") or hasattr(what, "colnames")


def to_frame(columns: Mapping[str, Array], like: Any, rows: Array | None = None) -> Any:
    """Make a table with the package of the table `like`.

    rows   row of `like` for each new row; a pandas table keeps the index of these rows
    """
    package = package_of(like)
    if hasattr(like, "colnames"):
        return require("astropy.table", "astropy tables").Table(dict(columns))
    plain = {name: column.tolist() if column.dtype.kind in "OU" else column for name, column in columns.items()}
    if package == "pyarrow":
        return arrow_package().table(plain)
    if package == "polars":
        return require("polars", "polars tables").DataFrame(plain)
    index = None if rows is None or len(rows) > len(like) or (rows >= len(like)).any() else like.index[rows]
    return require("pandas", "pandas tables").DataFrame(plain, index=index)


def read_contents(what: Any, name: str = "the table") -> Contents:
    """Read a table, or an array or list of samples, of any package.

    An array or a list without names becomes the column `array`, as from an NPY file.
    """
    found, units, header = _items(what, name), dict[str, str](), dict[str, Any]()
    if hasattr(what, "colnames"):
        units = {str(one): str(getattr(what[one], "unit", None) or "") for one in what.colnames}
        header = {str(key): value for key, value in dict(what.meta).items() if isinstance(value, SINGLE_VALUES)}
    columns, others = dict[str, Any](), dict[str, str]()
    for key, values in found.items():
        made = to_columns(str(key), values)
        columns |= {one: column for one, column in made.items() if not isinstance(column, str)}
        others |= {one: words for one, words in made.items() if isinstance(words, str)}
    sizes = {key: len(column) for key, column in columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"`{key}` has {size}" for key, size in list(sizes.items())[:8])
        raise UserError(f"the columns of {name} have different lengths: {listed}")
    return Contents(columns, others, units, header)


def _items(what: Any, name: str) -> Mapping[Any, Any]:
    """Columns of a table by name, not yet converted."""
    package = package_of(what)
    if isinstance(what, Mapping):
        return what
    if isinstance(what, str):
        return {UNNAMED: [what]}
    if hasattr(what, "colnames"):
        return {one: what[one] for one in what.colnames}
    if package == "pandas":
        return _pandas_items(what)
    if package == "polars" and hasattr(what, "columns"):
        return {one: what.get_column(one) for one in what.collect_schema().names()}
    if package == "pyarrow" and hasattr(what, "column_names"):
        return {one: what.column(one) for one in what.column_names}
    if package == "awkward" and what.fields:
        return {one: what[one] for one in what.fields}
    if getattr(getattr(what, "dtype", None), "names", None):
        return {one: what[one] for one in what.dtype.names}
    if hasattr(what, "to_arrow"):
        return {one: what.to_arrow().column(one) for one in what.to_arrow().column_names}
    if isinstance(what, (list, tuple)) and what and all(isinstance(one, Mapping) for one in what):
        keys = dict.fromkeys(key for one in what for key in one)
        return {key: [one.get(key) for one in what] for key in keys}
    if isinstance(what, (list, tuple)) or hasattr(what, "__array__") or package in ("awkward", "polars", "pyarrow"):
        return {UNNAMED: what}
    kind = type(what).__name__
    hint = "Pass a data frame, a mapping of names to columns, an array or a list."
    raise UserError(f"{name} must be a table in memory, not {kind}", hint=hint)


def _pandas_items(what: Any) -> dict[Any, Any]:
    if not hasattr(what, "columns"):  # a Series
        return {UNNAMED if what.name is None else what.name: what}
    if len(set(what.columns)) < len(what.columns):
        double = next(one for one in what.columns if list(what.columns).count(one) > 1)
        raise UserError(f"the table has two columns named {str(double)!r}", hint="Rename one of them.")
    found = {one: what[one] for one in what.columns}
    named = [one for one in what.index.names if one is not None and one not in found]
    return {**{one: what.index.get_level_values(one) for one in named}, **found}


# One column


def to_columns(name: str, values: Any) -> dict[str, Any]:
    """Convert a column of any package to {name: column}.

    A nested column gives several columns. In place of an unreadable column, there is a string with its type.
    """
    package = package_of(values)
    if isinstance(values, Lists):
        return {name: values}
    if package == "torch":
        return {name: _tensor(values)} if not values.is_nested else {name: _objects(name, list(values.unbind()))[name]}
    if hasattr(values, "jd1"):  # Time or TimeDelta of astropy
        return {name: times_of(values)}
    if package == "awkward":
        return _awkward(name, values)
    if package in ("polars", "pyarrow"):
        return _arrow(name, values.to_arrow() if package == "polars" else values)
    if package == "pandas":
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
            return {name: values.to_numpy()}
        if hasattr(values.dtype, "pyarrow_dtype"):
            return _arrow(name, arrow_package().array(values, from_pandas=True))
        if values.dtype.kind in "biuf":  # with missing values
            missing = np.asarray(values.isna())
            return {name: values.to_numpy(np.float64, na_value=np.nan) if missing.any() else values.to_numpy()}
        if values.dtype.kind in "mM":
            return {name: f"{values.dtype}"}
        return _objects(name, values.astype(object).tolist())
    if isinstance(values, Mapping):
        hint = "Make each entry of the mapping a column of the table."
        raise UserError(f"`{name}` of the table must be a column, not a mapping", hint=hint)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        kind = type(values).__name__
        raise UserError(f"`{name}` of the table must have an entry for each sample, not the single {kind} {values!r}")
    if hasattr(values, "dtype"):
        array = unmasked(getattr(values, "value", values) if hasattr(values, "unit") else values)
        if not array.ndim:
            raise UserError(f"`{name}` of the table must have an entry for each sample, not a single value")
        if array.dtype.names:
            return {f"{name}.{one}": column for one in array.dtype.names for column in [native(array[one])]}
        if array.dtype.kind == "O":
            return _objects(name, array.tolist())
        return {name: native(array)}
    return _objects(name, list(values))


def native(array: Array) -> Array | str:
    """Convert bytes to strings, and numbers to native byte order.

    For an array of another type, return its type as a string.
    """
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind not in "biuf":
        return f"{array.dtype}"
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _tensor(values: Any) -> Array | str:
    values = values.detach().cpu()
    if str(values.dtype) == "torch.bfloat16":
        values = values.float()
    return native(np.asarray(values.resolve_conj().numpy() if values.is_complex() else values.numpy()))


def _arrow(name: str, values: Any) -> dict[str, Any]:
    """Columns of an arrow array; arrays of equal shape become one array (n, ...)."""
    arrow = arrow_package()
    kind, shape = values.type, list[int]()
    while arrow.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    if len(shape) > 1:  # images
        whole = arrow.chunked_array([values]) if not hasattr(values, "chunks") else values
        flat = whole.combine_chunks()
        flat = flat.chunk(0) if hasattr(flat, "chunks") else flat
        for _ in shape:
            flat = flat.flatten()
        return {name: native(flat.to_numpy(zero_copy_only=False).reshape(len(values), *shape))}
    found = from_arrow(arrow.table({name: values}))
    if found:
        return dict(found)
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):  # lists of lists
        return _objects(name, values.to_pylist())
    if arrow.types.is_null(kind):
        return {name: np.full(len(values), np.nan)}
    return {name: f"{values.type}"}


def _awkward(name: str, values: Any) -> dict[str, Any]:
    ak = require("awkward", "awkward arrays")
    if values.fields:
        return {key: one for part in values.fields for key, one in _awkward(f"{name}.{part}", values[part]).items()}
    text = str(ak.type(values))
    if "string" in text or "bytes" in text or "union" in text or values.ndim > 2:
        return _objects(name, ak.to_list(values))
    if "?" in text or "option" in text:
        values = ak.fill_none(values, np.nan, axis=-1)
        values = ak.fill_none(values, [], axis=0) if values.ndim > 1 else values
    from .padded import column

    return {name: column(values, name)}


def _is_none(value: Any) -> bool:
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def _objects(name: str, cells: Sequence[Any]) -> dict[str, Any]:
    """Columns from Python objects: numbers, strings, lists, arrays, records or frames."""
    filled = [cell for cell in cells if not _is_none(cell)]
    if all(isinstance(cell, NUMBERS) for cell in filled):
        if len(filled) == len(cells) and cells and not any(isinstance(cell, Decimal) for cell in cells):
            array = np.asarray(cells)
            return {name: array} if array.dtype.kind in "biuf" else {name: np.array([float(c) for c in cells])}
        return {name: np.array([np.nan if _is_none(cell) else float(cell) for cell in cells], np.float64)}
    if all(isinstance(cell, TEXT) for cell in filled):
        return {name: to_strings(["" if _is_none(cell) else _decode(cell) for cell in cells])}
    if all(isinstance(cell, Mapping) or hasattr(cell, "columns") for cell in filled):
        return _nested(name, cells, filled)
    if all(hasattr(cell, "__len__") and not _is_text(cell) for cell in filled):
        return {name: _arrays(name, cells)}
    kinds = sorted({type(cell).__name__ for cell in filled})
    return {name: f"objects of the types {', '.join(kinds[:4])}"}


def _is_text(cell: Any) -> bool:
    return isinstance(cell, TEXT)


def _decode(cell: str | bytes) -> str:
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def to_strings(texts: Sequence[str]) -> Array:
    """Make a column of strings; long strings are stored as Python objects."""
    if max(map(len, texts), default=0) <= MAX_NAME_CHARACTERS and not any(text.endswith("\0") for text in texts):
        return np.array(texts, str) if len(texts) else np.zeros(0, "U1")
    column = np.empty(len(texts), object)
    column[:] = texts
    return column


def _nested(name: str, cells: Sequence[Any], filled: Sequence[Any]) -> dict[str, Any]:
    """Columns `name.inner`, from the records or from the frames of the samples."""
    keys = dict.fromkeys(key for cell in filled for key in (cell if isinstance(cell, Mapping) else cell.columns))
    listed = not isinstance(filled[0], Mapping) if filled else False
    made: dict[str, Any] = {}
    for key in keys:
        inner: list[Any] = [
            [] if listed and _is_none(cell) else None if _is_none(cell) else _item(cell, key) for cell in cells
        ]
        made |= _objects(f"{name}.{key}", inner)
    return made


def _item(cell: Any, key: Any) -> Any:
    if isinstance(cell, Mapping):
        return cell.get(key)
    return np.asarray(cell[key]) if key in list(cell.columns) else []


def _arrays(name: str, cells: Sequence[Any]) -> Any:
    """Column of lists, or of arrays with two or more axes.

    If the cells cannot be read, a sentence about the cells is returned instead.
    """
    rows: list[Array] = []
    for cell in cells:
        if _is_none(cell):
            rows.append(np.zeros(0))
            continue
        try:
            row = _tensor(cell) if package_of(cell) == "torch" else unmasked(np.asarray(cell))
        except ValueError:  # ragged inside
            return f"lists of lists of different lengths, as in `{str(cell)[:40]}`"
        if isinstance(row, str):
            return row
        if row.dtype.kind == "O":
            row = _objects(name, row.tolist()).get(name, "objects")
            if isinstance(row, (str, Lists)):
                return f"lists of {row if isinstance(row, str) else 'lists'}"
        if row.dtype.kind not in "biufU":
            return f"lists of {row.dtype}"
        rows.append(row)
    depths = {row.ndim for row in rows if row.size or row.ndim > 1}
    if depths <= {1}:
        filled = [row for row in rows if len(row)]
        if len({row.dtype.kind == "U" for row in filled}) > 1:
            return "lists of numbers and of strings"
        values: Array = np.concatenate(filled) if filled else np.zeros(0)
        return Lists(values, np.array([len(row) for row in rows], np.int64))
    if len(depths) > 1:
        return f"arrays of {' and '.join(map(str, sorted(depths)))} axes"
    if any(row.dtype.kind == "U" for row in rows):
        return "arrays of strings"
    if len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    column = np.empty(len(rows), object)
    column[:] = rows
    return column


# Tables


class MemoryArrays(PaddedFile):
    """Arrays (n, ...) and lists in memory, with the padding rules of NPZ files."""

    in_memory = True

    def __init__(self, path: Path | str, columns: Mapping[str, Any], layout: Layout) -> None:
        super().__init__(path, layout)
        self.lists = {name: column for name, column in columns.items() if isinstance(column, Lists)}
        self.fill({name: _fixed(column) for name, column in columns.items() if name not in self.lists})
        for name, column in self.lists.items():
            words = column.values.dtype.kind in "OUS"
            (self.others if words else self.columns)[name] = f"lists of {column.values.dtype}" if words else "list"
        self.edges = np.array([0, self.rows])

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        found = super().get([name for name in names if name not in self.lists], start, stop)
        rows = np.arange(start, stop)
        found |= {name: self.lists[name].take(rows) for name in names if name in self.lists}
        return {name: found[name] for name in names}


def _fixed(column: Array) -> Array:
    return column.astype(str) if column.dtype.kind == "O" and all(map(_is_text, column.tolist())) else column


def _flat(column: Any) -> Column | None:
    if isinstance(column, Lists):
        return column
    fixed = _fixed(column)
    return fixed if fixed.dtype.kind == "U" and fixed.ndim == 1 else as_column(column)


def open_contents(contents: Contents, path: Path | str, layout: Layout, observations: bool = False) -> TableFile:
    """Table of the columns for readers of events and series.

    observations   whether arrays (n, m) are lists of length m, which are never padded
    """
    found: TableFile
    columns = contents.columns
    if not observations and any(getattr(column, "ndim", 1) > 1 for column in columns.values()):
        found = MemoryArrays(path, columns, layout)
    else:
        flat = {name: _flat(column) for name, column in columns.items()}
        found = MemoryTable(path, flat, layout, contents.header)
        found.units = dict(contents.units)
    found.others |= contents.others
    return found


def read_frame(what: Any, path: Path | str) -> MemoryTable:
    """Convert a mapping, an astropy table, or a pandas, polars or pyarrow table."""
    found = open_contents(read_contents(what, str(path)), path, Layout(), observations=True)
    assert isinstance(found, MemoryTable)
    return found
