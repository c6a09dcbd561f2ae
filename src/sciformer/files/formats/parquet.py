"""Parquet files: columns of numbers and of lists of numbers, read by row groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError
from ..packages import package
from .base import Column, EventFile, Format, Layout, TableWriter, as_text


def _parquet() -> Any:
    import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]

    return pyarrow.parquet


class ParquetFile(EventFile):
    """The columns of a Parquet file."""

    form = "Parquet"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.file = package(_parquet, "pyarrow", self.form).ParquetFile(path, memory_map=True)
        self.rows = int(self.file.metadata.num_rows)
        groups = [self.file.metadata.row_group(number).num_rows for number in range(self.file.num_row_groups)]
        self.edges = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
        for field in self.file.schema_arrow:
            kind = _kind(field.type) or ("value" if field.name == layout.words and _words(field.type) else "")
            if kind:
                self.columns[field.name] = kind
            else:
                self.others[field.name] = f"{field.type}"

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """These columns of the rows start .. stop - 1."""
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = int(np.searchsorted(self.edges, stop, side="left"))
        table = self.file.read_row_groups(list(range(first, last)), columns=list(names), use_threads=False)
        table = table.slice(start - int(self.edges[first]), stop - start)
        return {name: self._column(table.column(name), name) for name in names}

    def _column(self, chunked: Any, name: str) -> Column:
        array = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
        if hasattr(array, "chunks"):  # older versions combine into one chunk of many
            array = array.chunk(0) if array.num_chunks else array
        if _words(array.type):
            return np.array(["" if word is None else word for word in array.to_pylist()], str)
        if array.null_count:
            if self.columns[name] == "list":
                raise UserError(f"{array.null_count} events have no list in `{name}` of {self.path}", file=self.path)
            return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)
        if self.columns[name] == "value":
            return np.asarray(array.to_numpy(zero_copy_only=False))
        lengths = array.value_lengths() if hasattr(array, "value_lengths") else None
        flat = array.flatten()
        values = flat.to_numpy(zero_copy_only=False)
        if flat.null_count:
            values = np.asarray(values, np.float64)  # a gap is NaN, and dropped as such
        counts: Array
        if lengths is None:
            counts = np.full(len(array), array.type.list_size, np.int64)
        else:
            counts = np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
        return Lists(np.asarray(values), counts)


def _kind(kind: Any) -> str:
    """Whether a column has a list or a value for each row; nothing where it has neither."""
    import pyarrow.types as types  # type: ignore[import-untyped,unused-ignore]

    def number(one: Any) -> bool:
        return bool(types.is_integer(one) or types.is_floating(one) or types.is_boolean(one))

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if number(kind.value_type) else ""
    return "value" if number(kind) else ""


def _words(kind: Any) -> bool:
    """Whether a column has a word for each row, by itself or from a list of words."""
    import pyarrow.types as types  # type: ignore[import-untyped,unused-ignore]

    one = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(one) or types.is_large_string(one))


class ParquetWriter(TableWriter):
    """A row for each sample; lists and arrays are lists."""

    def __init__(self, path: Path, table: Table) -> None:
        import pyarrow
        import pyarrow.parquet

        self.arrow = pyarrow
        self.schema = self._rows(table).schema
        self.writer = pyarrow.parquet.ParquetWriter(path, self.schema)

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
        return self.arrow.array(as_text(column))

    def add(self, table: Table) -> None:
        self.writer.write_table(self._rows(table).select(self.schema.names).cast(self.schema))

    def close(self, about: Mapping[str, Array]) -> None:
        self.writer.close()


PARQUET = Format("Parquet", (".parquet",), ("pyarrow",), writer=ParquetWriter)
