"""Reader of NumPy files: the arrays of .npz or .npy files as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from ...errors import UserError, nearest, one_of
from ...files.formats.npz import read_arrays
from ...files.formats.padded import LENGTHS
from ...files.in_memory import MemoryFile
from ..columns import Lists, Table, rows_of
from ..fileset import TaggedFiles
from ..source import Chosen, Memory, Source, Splits, find_files, fingerprint_files, order_parts
from ..split import sample_per_class


class Arrays(TaggedFiles):
    """Columns from arrays of .npz files, or the column `array` from .npy files.

    Samples of different length need two arrays: `hits` with the concatenated values of all samples, and `hits_lengths`
    with the number of values of each sample. They are read as one column of lists.
    """

    files: list[str] = Field(default_factory=list)
    """Files: names or globs; several files are concatenated along the sample axis."""
    rename: dict[str, str] = Field(default_factory=dict)
    """New column names, NEW: OLD; {image: pictures, label: y} renames pictures and y (default: none)."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Number of training samples of each class in the column `label`, drawn with split.seed and the fold. A larger
    number includes the samples of a smaller number (default: all samples)."""

    def with_columns(self, columns: Mapping[str, str]) -> Self:
        return self.model_copy(update={"rename": {**self.rename, **columns}}) if columns else self

    def open(self, log: Any = None) -> Splits:
        found = {part: self.read(find_files(names, "NumPy files")) for part, names in self.named().items()}
        source = found.pop("train")
        table, split = source.load(0), self.own_split
        rows, notes = split.of_table(table, rows_of(table)), list[str]()
        if self.labels_per_class is not None:
            if "label" not in table:
                message = f"data.labels_per_class needs a column `label`, but the columns are {', '.join(table)}"
                raise UserError(message, hint=nearest("label", table), key="data.labels_per_class")
            few = self.labels_per_class
            rows["train"] = sample_per_class(table["label"], rows["train"], few, self.split.lot, notes)
        parts: dict[str, Source] = {name: Chosen(source, kept) for name, kept in rows.items()}
        paths = [path for names in self.named().values() for path in find_files(names, "NumPy files")]
        return Splits(order_parts(parts | found), fingerprint_files(paths), notes)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Read all samples of the files into memory."""
        paths = find_files(files, "NumPy files")
        tables = [self._renamed(_columns_of(path), path) for path in paths]
        for table, path in zip(tables, paths):
            if set(table) != set(tables[0]):
                own, other = (", ".join(sorted(names)) for names in (table, tables[0]))
                message = f"{path} has the columns {own}, but {paths[0]} has {other}"
                raise UserError(message, hint="Every file must have the same columns.", file=path)
        return Memory({name: _joined(name, [table[name] for table in tables], paths) for name in tables[0]})

    def _renamed(self, table: dict[str, Any], path: Path) -> Table:
        for new, old in self.rename.items():
            one_of(f"data.rename.{new}, a column of {path},", old, table, key=f"data.rename.{new}")
        kept = {name: column for name, column in table.items() if name not in self.rename.values()}
        if both := sorted(set(kept) & set(self.rename)):
            message = f"data.rename uses the new name `{both[0]}`, but {path} already has a column of that name"
            hint = "Choose another name, or rename that column too."
            raise UserError(message, hint=hint, key=f"data.rename.{both[0]}", file=path)
        table = kept | {new: table[old] for new, old in self.rename.items()}
        for name, column in table.items():
            if not isinstance(column, Lists) and not column.ndim:
                message = f"`{name}` of {path} must have a value for every sample, not the single value {column}"
                raise UserError(message, file=path)
        table = _with_lists(table, path)
        rows_of(table)
        return table


def _columns_of(path: Path) -> dict[str, Any]:
    return dict(path.columns) if isinstance(path, MemoryFile) else read_arrays(path)


def _with_lists(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Combine arrays such as `hits` and `hits_lengths` into columns of lists."""
    for name in [name for name in table if f"{name}{LENGTHS}" in table]:
        values, lengths = table[name], table.pop(f"{name}{LENGTHS}")
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any() or lengths.sum() != len(values):
            must = f"must be integers with the sum {len(values)}, the number of values of `{name}`"
            found = f"{lengths.dtype} of shape {lengths.shape} with the sum {lengths.sum()}"
            raise UserError(f"`{name}{LENGTHS}` of {path} {must}, not {found}", file=path)
        table[name] = Lists(values, lengths.astype(np.int64))
    return table


def _joined(name: str, columns: list[Any], paths: list[Path]) -> Any:
    if isinstance(columns[0], Lists):
        values = _joined(name, [column.values for column in columns], paths)
        return Lists(values, np.concatenate([column.lengths for column in columns]))
    for path, column in zip(paths, columns):
        if column.shape[1:] != columns[0].shape[1:] or _sort(column) != _sort(columns[0]):
            shape = f"(n, {', '.join(map(str, columns[0].shape[1:]))}) and the type {columns[0].dtype}"
            found = f"as in {paths[0]}, not {column.shape} and {column.dtype}"
            raise UserError(f"`{name}` of {path} must have the shape {shape}, {found}", file=path)
    return np.concatenate(columns)


def _sort(column: Any) -> str:
    kind: str = column.dtype.kind
    return "number" if kind in "biuf" else kind
