"""Parquet files: numbers, strings, lists and nested columns, read by row groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Table
from ..packages import require
from .base import Column, Format, Kind, Layout, TableFile, TablePart, TableWriter, as_text


def arrow_package() -> Any:
    """Import pyarrow with its modules for Parquet and computation."""
    for module in ("pyarrow.compute", "pyarrow.parquet"):
        require(module, "Parquet files")
    return require("pyarrow", "Parquet files")


class ParquetFile(TableFile):
    """Columns of a Parquet file; a nested column is named `outer.inner`."""

    form = "Parquet"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.file = arrow_package().parquet.ParquetFile(path, memory_map=True)
        groups = [self.file.metadata.row_group(number).num_rows for number in range(self.file.num_row_groups)]
        if min(groups, default=0) < 0:
            raise ValueError(f"a row group has {min(groups):,} rows")
        self.edges = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
        self.rows = int(self.edges[-1])
        self.tops = {field.name: field.type for field in self.file.schema_arrow}
        for top, whole in self.tops.items():
            for name, kind in _leaves(top, whole) if layout.nested else [(top, whole)]:
                if (found := _kind(kind)) is None:
                    self.others[name] = f"{kind}"
                else:
                    self.add_column(name, found, f"{kind}")

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self.edges, stop, side="left")))
        roots = list(dict.fromkeys(name if name in self.tops else name.partition(".")[0] for name in names))
        table = self.file.read_row_groups(list(range(first, last)), columns=roots, use_threads=False)
        table = table.slice(start - int(self.edges[first]), stop - start)
        arrays = {root: _whole(table.column(root)) for root in roots}
        for name, array in arrays.items():
            if array.null_count and not self.layout.nested and _is_list(array.type):
                raise self.error(f"`{name}` of {self.path} is null in {array.null_count} rows instead of an empty list")
        return {name: _column(arrays, name) for name in names}


def from_arrow(table: Any) -> dict[str, Column]:
    """Columns of a pyarrow table; nested columns become columns of their own."""
    arrays = {name: _whole(table.column(name)) for name in table.column_names}
    leaves = (leaf for field in table.schema for leaf in _leaves(field.name, field.type))
    return {name: _column(arrays, name) for name, kind in leaves if _kind(kind) is not None}


def _leaves(name: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and type of a column, or of each column inside a nested column."""
    arrow, listed = arrow_package(), _is_list(kind)
    record = kind.value_type if listed else kind
    if not arrow.types.is_struct(record):
        yield name, kind
        return
    for field in (record.field(place) for place in range(record.num_fields)):
        yield f"{name}.{field.name}", arrow.list_(field.type) if listed else field.type


def _is_list(kind: Any) -> bool:
    types = arrow_package().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _kind(kind: Any) -> Kind | None:
    """Type of a column, or None if it has neither numbers nor strings."""
    types, listed = arrow_package().types, _is_list(kind)
    one = kind.value_type if listed else kind
    one = one.value_type if types.is_dictionary(one) else one
    if types.is_integer(one) or types.is_floating(one) or types.is_boolean(one) or types.is_decimal(one):
        return Kind(listed, False)
    return Kind(listed, True) if types.is_string(one) or types.is_large_string(one) or types.is_binary(one) else None


def _whole(chunked: Any) -> Any:
    """Combine the chunks of a column."""
    array = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
    if hasattr(array, "chunks"):  # older versions return a chunked array
        array = array.chunk(0) if array.num_chunks else arrow_package().array([], chunked.type)
    return array


def _column(arrays: Mapping[str, Any], name: str) -> Column:
    """Convert a column to numbers, strings or lists.

    Missing values become NaN, "" or [].
    """
    arrow, (root, _, inner) = arrow_package(), name.partition(".")
    array = arrays[name] if name in arrays else arrays[root]
    if name not in arrays and not _is_list(array.type):
        array = arrow.compute.struct_field(array, inner)
    if not _is_list(array.type):
        return _values(array)
    if arrow.types.is_fixed_size_list(array.type):
        array = array.cast(arrow.list_(array.type.value_type))
    flat, lengths = array.flatten(), array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    if arrow.types.is_struct(flat.type):
        flat = arrow.compute.struct_field(flat, inner)
    return Lists(_values(flat), np.asarray(lengths, np.int64))


def _values(array: Any) -> Array:
    types, arrow = arrow_package().types, arrow_package()
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


class ParquetWriter(TableWriter):
    """Parquet writer: a row for each sample; lists and arrays are stored as lists."""

    def __init__(self, path: Path, table: Table) -> None:
        self.arrow = arrow_package()
        self.schema = self._rows(table).schema
        self.writer = self.arrow.parquet.ParquetWriter(path, self.schema)

    def _rows(self, table: Table) -> Any:
        return self.arrow.table({name: self._array(column) for name, column in table.items()})

    def _array(self, column: Column) -> Any:
        if isinstance(column, Lists):
            stops = np.concatenate([[0], column.lengths.cumsum()]).astype(np.int32)
            return self.arrow.ListArray.from_arrays(stops, self.arrow.array(column.values))
        if column.dtype.kind == "O" and any(np.ndim(value) for value in column[:1]):
            return self.arrow.array([np.asarray(value).tolist() for value in column])
        if column.ndim > 1:
            width = math.prod(column.shape[1:])
            return self.arrow.FixedSizeListArray.from_arrays(self.arrow.array(column.ravel()), width)
        return self.arrow.array(as_text(column), self.arrow.string() if column.dtype.kind in "OU" else None)

    def add(self, table: Table) -> None:
        self.writer.write_table(self._rows(table).select(self.schema.names).cast(self.schema))

    def close(self, about: Mapping[str, Array]) -> None:
        self.writer.close()

    @classmethod
    def merge(cls, path: Path, parts: Sequence[TablePart]) -> None:
        arrow = arrow_package()
        files = [arrow.parquet.ParquetFile(part.path) for part in parts]
        read = next(file for file, part in zip(files, parts) if sum(part.rows)).schema_arrow
        schema = arrow.schema([(field.name, _written_type(field.type)) for field in read])
        with arrow.parquet.ParquetWriter(path, schema) as writer:
            for file in files:
                with file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group).cast(schema))


def _written_type(kind: Any) -> Any:
    """Type for writing a column again, from its type in a Parquet file.

    Parquet renames the field of the values in a list; the result has Arrow's default name.
    """
    arrow = arrow_package()
    if not _is_list(kind):
        return kind
    return arrow.list_(kind.value_type, kind.list_size if arrow.types.is_fixed_size_list(kind) else -1)


PARQUET = Format(
    "Parquet", (".parquet", ".pq"), ("pyarrow",), writer=ParquetWriter, reader=ParquetFile, magic=(b"PAR1",)
)
