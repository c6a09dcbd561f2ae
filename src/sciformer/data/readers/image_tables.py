"""Files of images by their names, and tables that name them: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..source import Array
from . import image_arrays, image_files
from .event_files import package
from .rows import SUFFIXES as TEXTS
from .rows import measured, read_rows

PATH = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "name")
TABLES = (*TEXTS, ".parquet", ".pq")


def suffix(path: Path) -> str:
    """The end of a name, without .gz."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return suffix(path) in TABLES


def is_image(path: Path) -> bool:
    """Whether a file has images, by its name."""
    return suffix(path) in (*image_files.SUFFIXES, *image_arrays.SUFFIXES) or "-ubyte" in path.name


def lists_images(path: Path) -> bool:
    """Whether a table has a column with names of images, of which the first is there."""
    try:
        columns = table_columns(path)
    except UserError:
        return False
    name = names_column(columns)
    first = path.parent / str(columns[name][0]).strip() if name else path
    return is_image(first) and first.exists()


def names_column(columns: Mapping[str, Array]) -> str:
    """The column with the names of images, where one has a usual name."""
    usual = [name for word in PATH for name in columns if name.lower() == word and columns[name].dtype.kind in "UO"]
    return next(iter(usual), "")


def table_columns(path: Path) -> dict[str, Array]:
    """The columns of a table, with numbers or words."""
    return _parquet(path) if suffix(path) in (".parquet", ".pq") else _text(path)


def _text(path: Path) -> dict[str, Array]:
    grid = read_rows(path)
    rows, names = grid.rows, grid.names
    if names is None:
        names, rows = [cell.strip() for cell in rows[0]] if rows else [], rows[1:]
    if not rows:
        raise UserError(f"{path} must have a line with the names of columns, and other lines with images", file=path)
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{path} has two columns with the name {double[0]!r}", file=path)
    return {name: measured([row[place].strip() for row in rows]) for place, name in enumerate(names)}


def _parquet(path: Path) -> dict[str, Array]:
    def load() -> Any:
        import pyarrow.parquet  # type: ignore[import-untyped]

        return pyarrow.parquet

    table = package(load, "pyarrow", "Parquet", "astro").read_table(path)
    made: dict[str, Array] = {}
    for name in table.column_names:
        column = table.column(name).to_numpy()
        if column.dtype.kind == "O":
            values = column.tolist()
            if all(value is None or isinstance(value, str) for value in values):
                made[name] = np.array(["" if value is None else value for value in values])
        else:
            made[name] = column
    return made
