"""Tables of other packages in memory: pandas, polars, pyarrow and astropy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .memory import MemoryTable, from_astropy, from_mapping
from .parquet import arrow_package, from_arrow


def is_frame(what: Any) -> bool:
    """Whether an object is a mapping of columns, a data frame or another table."""
    return isinstance(what, Mapping) or any(hasattr(what, name) for name in ("colnames", "schema", "columns"))


def read_frame(what: Any, path: Path | str) -> MemoryTable:
    """Convert a mapping, an astropy table, or a pandas, polars or pyarrow table."""
    if isinstance(what, Mapping):
        return from_mapping(what, path)
    if hasattr(what, "colnames"):
        return from_astropy(what, path)
    if hasattr(what, "to_arrow"):
        what = what.to_arrow()
    elif not hasattr(what, "column_names"):
        what = arrow_package().Table.from_pandas(what)
    return MemoryTable(path, from_arrow(what))
