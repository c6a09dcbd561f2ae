"""JSON lines: a JSON object for each row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Lists, Table, rows_of
from .base import Column, Format, LineWriter, as_text


class JSONLinesWriter(LineWriter):
    """JSON lines writer: an object for each row; arrays become lists, NaN null."""

    tabular = False

    def __init__(self, path: Path, table: Table) -> None:
        self.file = path.open("w", encoding="utf-8")

    def add(self, table: Table) -> None:
        columns = [_values(column) for column in table.values()]
        for row in zip(*columns) if columns else [()] * rows_of(table):
            self.file.write(json.dumps(dict(zip(table, row)), ensure_ascii=False, allow_nan=False) + "\n")


def _values(column: Column) -> list[Any]:
    """Convert the entries of a column to values for JSON."""
    if isinstance(column, Lists):
        values, stops = _values(column.values), column.lengths.cumsum().tolist()
        return [values[stop - length : stop] for stop, length in zip(stops, column.lengths.tolist())]
    if column.dtype.kind in "OS":
        return as_text(column).tolist()
    if column.dtype == np.float32:
        column = np.array([float(str(value)) for value in column.ravel()]).reshape(column.shape)  # the fewest digits
    return [_without_nan(value) for value in column.tolist()]


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


JSONLINES = Format("JSON lines", (".jsonl",), writer=JSONLinesWriter)
