"""Parquet files of light curves: list columns, nested ones, and long tables, read by row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..source import Array, Lists
from .curve_names import Kind
from .curve_points import Column
from .event_files import broken, package


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
    for name, kind in ((field.name, field.type) for field in table.schema):
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
