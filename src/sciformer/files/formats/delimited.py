"""Tables in text files: TSV, CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...data.columns import Array, Lists, Table
from ...data.readers.text_parts import Errors, read_text, strings
from ...errors import UserError, printable
from ..limits import check_memory
from .base import Column, Layout, TablePart, TableWriter, as_text
from .base import Format as FileFormat
from .memory import MemoryTable

Format = Literal["auto", "tsv", "csv", "jsonl"]
DELIMITED_SUFFIXES = {".csv": "csv"} | dict.fromkeys((".tsv", ".tab"), "tsv")
DELIMITED_SUFFIXES |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
MAX_CELL_CHARACTERS = 1 << 30
BYTES_PER_ROW, BYTES_PER_CELL = 350, 120  # memory of a table while it is parsed
MAX_NAME_CHARACTERS = 100  # longer strings are stored as objects
INTEGER_PATTERN = re.compile(r"-?(0|[1-9][0-9]{0,17})")
NUMERIC_NAME_PATTERN = re.compile(r"-?(0[0-9]+|[1-9][0-9]{15,})")
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")
MISSING_WORDS = frozenset(("", "nan", "null", "none", "na", "n/a", "-", "--", "masked", "...", "inf", "-inf", "+inf"))
REAL_PATTERN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Grid:
    """Rows of cells, with line numbers and optional column names.

    plain   whether the file is plain text; each line is then one cell
    """

    rows: list[list[str]]
    lines: list[int]
    names: list[str] | None = None
    plain: bool = False

    @property
    def width(self) -> int:
        """Number of cells in each row."""
        return len(self.rows[0]) if self.rows else 0


def bare_suffix(path: Path) -> str:
    """Suffix of a file name in lower case, without .gz."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def form_of(path: Path, text: str) -> str:
    """Format of a text file, from its suffix or its first lines; "" for plain text."""
    if found := DELIMITED_SUFFIXES.get(bare_suffix(path)):
        return found
    lines = [line for line in text[:65536].split("\n")[:20] if line.strip()]
    if lines and all(line.startswith("{") for line in lines):
        return "jsonl"
    return "tsv" if lines and all("\t" in line for line in lines) else ""


def read_rows(path: Path, form: Format = "auto", errors: Errors = "strict") -> Grid:
    """Read the rows of a text file; plain text has one cell per line."""
    text = read_text(path, errors)
    found = form_of(path, text) if form == "auto" else form
    if found == "jsonl":
        return _json(path, text)
    if found == "csv":
        return _even(path, *_csv(path, text))
    lines = text.split("\n")[: None if text[-1:] not in ("", "\n") else -1]
    if not found:
        return Grid([[line] for line in lines], list(range(1, len(lines) + 1)), plain=True)
    kept = [number for number, line in enumerate(lines) if line.strip()]
    return _even(path, [lines[number].split("\t") for number in kept], [number + 1 for number in kept])


def _even(path: Path, rows: list[list[str]], lines: list[int]) -> Grid:
    for row, line in zip(rows, lines):
        if len(row) != len(rows[0]):
            must = f"must have {len(rows[0])} columns, as line {lines[0]} has, not {len(row)}"
            raise UserError(f"line {line} of {path} {must}: {' | '.join(row)[:80]!r}", file=path, line=line)
    return Grid(rows, lines)


def _csv(path: Path, text: str) -> tuple[list[list[str]], list[int]]:
    """Split CSV text at the most frequent separator of its first line.

    The separator is a comma, a semicolon or a tab.
    """
    head = re.sub(r'"[^"]*"', "", text[: text.find("\n") if "\n" in text else None])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    rows, lines, line = [], [], 1
    before = csv.field_size_limit(MAX_CELL_CHARACTERS)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "Quote the cell and write each quote in it twice; .tsv files need no quoting."
        raise UserError(f"line {line} of {path} is not valid CSV: {error}", hint=hint, file=path, line=line) from error
    finally:
        csv.field_size_limit(before)
    return rows, lines


def _json(path: Path, text: str) -> Grid:
    """Parse JSON lines, or a JSON list of objects; a missing key is an empty cell."""
    if text.lstrip().startswith("["):
        found = list(enumerate(_parsed(path, 1, text), 1))
    else:
        found = [(n, _parsed(path, n, line)) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    names: dict[str, None] = {}
    for line, value in found:
        if not isinstance(value, dict):
            message = f"line {line} of {path} must be a JSON object, not {json.dumps(value)[:60]}"
            raise UserError(message, file=path, line=line)
        names |= dict.fromkeys(value)
    rows = [[_cell(value.get(name)) for name in names] for _, value in found]
    return Grid(rows, [line for line, _ in found], list(names))


def _parsed(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        message = f"line {line} of {path} is not valid JSON: {error}: {text[:60]!r}"
        raise UserError(message, file=path, line=line) from error


def _cell(value: Any) -> str:
    if isinstance(value, str | None):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def typed(cells: Sequence[str]) -> Array:
    """Convert cells to integers, else floats (NaN if empty), else strings."""
    if cells and all(INTEGER_PATTERN.fullmatch(cell) for cell in cells):
        return np.array([int(cell) for cell in cells], np.int64)
    if any(cells) and all(not cell or REAL_PATTERN.fullmatch(cell) for cell in cells):
        return np.array([float(cell) if cell else np.nan for cell in cells])
    if max(map(len, cells), default=0) > MAX_NAME_CHARACTERS:
        return strings(cells)
    return np.array(cells, str) if cells else np.empty(0, "U1")


def measured(cells: Sequence[str]) -> Array:
    """Convert measurements to integers, else floats (NaN if missing), else strings.

    Numbers with leading zeros, or with more digits than a float holds, are identifiers and stay strings.
    """
    if any(NUMERIC_NAME_PATTERN.fullmatch(cell) for cell in cells):
        return np.array(cells, str)
    found = typed(cells)
    if found.dtype.kind in "if":
        return found
    known = [cell for cell in cells if cell.lower() not in MISSING_WORDS]
    if known and not any(map(is_number, known[:100])):
        return found
    try:
        return np.array([np.nan if cell.lower() in MISSING_WORDS else float(cell) for cell in cells])
    except ValueError:
        return found


def is_number(cell: str) -> bool:
    """Whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read_delimited(path: Path, layout: Layout) -> MemoryTable:
    """Read a text table with column names in its first line.

    Cells are separated by commas, semicolons, tabs, bars or blanks. Lines that begin with # are comments, but the last
    comment before the numbers may hold the column names. A file without names uses `layout.names`.
    """
    text = read_text(path)
    needed = text.count("\n") * BYTES_PER_ROW + sum(map(text.count, ",;\t| ")) * BYTES_PER_CELL
    check_memory(path, needed, "the table")
    every = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    lines = [(number, line) for number, line in every if not line.startswith("#")]
    if not lines:
        raise UserError(f"{path} has no lines of data", file=path)
    cells = _cells(path, [line for _, line in lines])
    names = [cell.strip().strip('"') for cell in cells[0]]
    if all(is_number(cell) for cell in names):
        comments = [line.lstrip("#").strip() for number, line in every if number < lines[0][0]]
        told = re.split(r"[,;|\s]+", comments[-1]) if comments else []
        width, names = len(names), list(layout.names) or (told if len(told) == len(names) else [])
        names = names or list(layout.usual_names[:width])
        if len(names) != width:
            message = f"{path} has {width} columns, but there are {len(names)} names for them"
            hint = "Give them in order: --data.columns time value error ..."
            raise UserError(message, hint=hint, key="data.columns", file=path)
    else:
        cells, lines = cells[1:], lines[1:]
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{path} has two columns named {double[0]!r}", file=path)
    for (number, line), row in zip(lines, cells):
        if len(row) != len(names):
            message = f"line {number} of {path} has {len(row)} cells, not {len(names)}: {line[:60]!r}"
            hint = "The file may be incomplete." if number == lines[-1][0] else ""
            raise UserError(message, hint=hint, file=path, line=number)
    columns = [[cell.strip() for cell in column] for column in zip(*cells)] or [[] for _ in names]
    made: dict[str, Column | None] = {name: measured(column) for name, column in zip(names, columns)}
    table = MemoryTable(path, made, layout)
    for name, column in zip(names, columns):
        if not table.kinds[name].words:
            continue
        strange = [n for n, cell in enumerate(column) if cell.lower() not in MISSING_WORDS and not is_number(cell)]
        if strange and 2 * len(strange) <= len(column):
            table.odd[name] = f"{column[strange[0]][:40]!r} in line {lines[strange[0]][0]}"
    return table


def _cells(path: Path, lines: Sequence[str]) -> list[list[str]]:
    bare = re.sub(r'"[^"]*"', "", lines[0])
    sign = max(",;\t|", key=bare.count)
    if not bare.count(sign):
        return [line.split() for line in lines]
    try:
        return list(csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=sign))
    except csv.Error as error:
        raise UserError(f"{path} cannot be split at {sign!r}: {error}", file=path) from error


class CSVWriter(TableWriter):
    """CSV writer: a row for each sample, or for each entry of its lists.

    Numbers have the fewest digits that restore them exactly. An array becomes one column per element. If there are
    lists, the single values of a sample are repeated in each of its rows. A quote is put before a string that a
    spreadsheet would run as a formula.
    """

    def __init__(self, path: Path, table: Table) -> None:
        names = [name for name, _ in _flat_columns(table)]
        self.file = path.open("w", newline="", encoding="utf-8")
        self.writer = csv.writer(self.file)
        self.writer.writerow(map(plain_cell, names))

    def add(self, table: Table) -> None:
        columns = [column for _, column in _flat_columns(table)]
        self.writer.writerows(
            zip(
                *(
                    map(plain_cell, one.tolist()) if one.dtype.kind in "OU" else one.astype(str).tolist()
                    for one in columns
                )
            )
        )

    @classmethod
    def merge(cls, path: Path, parts: Sequence[TablePart]) -> None:
        with path.open("wb") as out:
            for number, part in enumerate(parts):
                with part.path.open(newline="", encoding="utf-8") as text:
                    reader = csv.reader(text)
                    next(reader)
                    lines = reader.line_num  # of the names of columns
                with part.path.open("rb") as file:
                    head = b"".join(islice(file, lines))
                    out.write(b"" if number else head)
                    shutil.copyfileobj(file, out)


def plain_cell(cell: str) -> str:
    """Remove control characters from a cell; put a quote before a spreadsheet formula."""
    harmless = cell.lower() in MISSING_WORDS or is_number(cell)
    formula = cell[:1] in FORMULA_BEGINS and not harmless
    return printable(f"'{cell}" if formula else cell)


def _flat_columns(table: Table) -> Iterator[tuple[str, Array]]:
    """Yield the columns of a CSV file: one value per row."""
    lists = [column.lengths for column in table.values() if isinstance(column, Lists)]
    if any(not np.array_equal(lists[0], lengths) for lengths in lists[1:]):
        raise UserError("a CSV file cannot hold two columns of lists with different lengths", hint="Write .parquet.")
    for name, column in table.items():
        values = as_text(column.values if isinstance(column, Lists) else column)
        if lists and not isinstance(column, Lists):
            values = np.repeat(values, lists[0], axis=0)
        if values.ndim == 1:
            yield name, values
        else:
            cells = values.reshape(len(values), math.prod(values.shape[1:]))
            yield from ((f"{name}_{number}", part) for number, part in enumerate(cells.T))


CSV = FileFormat("CSV", (".csv",), writer=CSVWriter, reader=read_delimited)
