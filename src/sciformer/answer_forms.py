"""Forms of tables of answers, one class for each: CSV, NPZ, Parquet, ROOT."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .data.readers.event_files import package

Array = NDArray[Any]
TREE = "tree"


class Form:
    """How a table is written: opened for columns like the first ones, then rows are added."""

    whole = False
    """Whether columns may have more than one number for a sample."""
    about: Mapping[str, Array] = {}
    """What is said of the table as a whole, where a form has a place for it."""

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        raise NotImplementedError

    @staticmethod
    def check() -> None:
        """Refuse where a package is missing."""

    def add(self, columns: Mapping[str, Array]) -> None:
        """More rows."""

    def close(self) -> None:
        """Finish the file."""


class _Csv(Form):
    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.file = path.open("w", newline="", encoding="utf-8")
        self.writer, self.names = csv.writer(self.file), list(columns)
        self.writer.writerow(self.names)

    def add(self, columns: Mapping[str, Array]) -> None:
        self.writer.writerows(zip(*(columns[name].tolist() for name in self.names)))

    def close(self) -> None:
        self.file.close()


class _Npz(Form):
    """The arrays as they are; they are kept in memory until all are there."""

    whole = True

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.file = path.open("wb")
        self.parts: dict[str, list[Array]] = {name: [] for name in columns}

    def add(self, columns: Mapping[str, Array]) -> None:
        for name, parts in self.parts.items():
            parts.append(np.asarray(columns[name]))

    def close(self) -> None:
        with self.file:
            joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
            columns = {name: _text(value) for name, value in joined.items()}
            np.savez_compressed(self.file, allow_pickle=False, **columns, **self.about)


class _Parquet(Form):
    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.arrow, parquet = _arrow()
        self.schema = self._table(columns, None).schema
        self.writer = parquet.ParquetWriter(path, self.schema)

    @staticmethod
    def check() -> None:
        """Pyarrow."""
        _arrow()

    def add(self, columns: Mapping[str, Array]) -> None:
        self.writer.write_table(self._table(columns, self.schema))

    def _table(self, columns: Mapping[str, Array], schema: Any) -> Any:
        made = {name: self.arrow.array(_plain(name, column)) for name, column in columns.items()}
        table = self.arrow.table(made)
        return table if schema is None else table.select(schema.names).cast(schema)

    def close(self) -> None:
        self.writer.close()


class _Root(Form):
    """A TTree; names have letters, digits and underscores alone."""

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        uproot, self.awkward = _uproot()
        self.names = branches(columns)
        made = {self.names[name]: _plain(name, column) for name, column in columns.items()}
        self.types = {name: "string" if column.dtype.kind in "OU" else column.dtype for name, column in made.items()}
        self.handle = path.open("wb+")
        self.file = uproot.recreate(self.handle)
        self.tree = self.file.mktree(TREE, self.types)

    @staticmethod
    def check() -> None:
        """Uproot."""
        _uproot()

    def add(self, columns: Mapping[str, Array]) -> None:
        rows = {}
        for name, branch in self.names.items():
            column, kind = _plain(name, columns[name]), self.types[branch]
            rows[branch] = self.awkward.Array(column.tolist()) if isinstance(kind, str) else column.astype(kind)
        self.tree.extend(rows)

    def close(self) -> None:
        self.file.close()
        self.handle.close()


FORMS: dict[str, type[Form]] = {".csv": _Csv, ".npz": _Npz, ".parquet": _Parquet, ".root": _Root}


def branches(names: Mapping[str, Any]) -> dict[str, str]:
    """Names that a branch may have, no two alike."""
    made: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
        again = sum(plain == other or other.startswith(f"{plain}__") for other in made.values())
        made[name] = f"{plain}__{again + 1}" if again else plain
    return made


def _plain(name: str, column: Array) -> Array:
    """A column of numbers or of texts; scores in single precision, as the model gave them."""
    if column.dtype.kind in "OUS":
        return np.array([_word(value) for value in column.tolist()], object)
    return column.astype(np.float32) if name.startswith("score_") and column.dtype == np.float64 else column


def _word(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _text(column: Array) -> Array:
    return column.astype(str) if column.dtype.kind == "O" else column


def _arrow() -> tuple[Any, Any]:
    def load() -> tuple[Any, Any]:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]

        return pyarrow, pyarrow.parquet

    found: tuple[Any, Any] = package(load, "pyarrow", "Parquet")
    return found


def _uproot() -> tuple[Any, Any]:
    def load() -> tuple[Any, Any]:
        import awkward  # type: ignore[import-untyped]
        import uproot  # type: ignore[import-untyped]

        return uproot, awkward

    found: tuple[Any, Any] = package(load, "uproot", "ROOT")
    return found
