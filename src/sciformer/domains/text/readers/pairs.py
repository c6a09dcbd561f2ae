"""Parallel texts: one file per language, or tab-separated columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ....data.columns import Array, Table
from ....data.readers.text_parts import Parts, read_lines, strings
from ....data.source import find_files
from ....data.split import Rows
from ....errors import UserError, one_of
from ....files.in_memory import MemoryFile

COLUMN_MARK = "{}"
MAX_LINE_SHIFT = 3  # largest partial shift tested for missing lines, besides the full difference
MIN_AGREEING_LINES = 8  # lines that must agree better after the shift
TextColumns = dict[str, list[str]]


class Parallel(Parts):
    """Parallel lines: line n of one file is the translation of line n of another file.

    Lines are stripped of white space at both ends. All lines are held in memory.
    """

    what: ClassVar[str] = "parallel files"
    unit: ClassVar[str] = "pair"

    columns: list[str] = Field(default_factory=list)
    """Column names, such as [en, de]. They replace `{}` in file names (`train.{}.gz`). A file named without `{}` has
    one tab-separated pair per line, in this order."""
    longest: int | None = Field(default=None, ge=1)
    """Maximum number of words of a text; pairs with a longer text are left out of training (default: no limit)."""
    ratio: float | None = Field(default=None, ge=1)
    """Maximum ratio of the numbers of words in a pair; other pairs are left out of training (default: no limit)."""

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        """Read a column of texts per language; files for prediction may lack columns.

        The file name of a prediction file contains its column name (`test.en test.de`, or `test.{}` for all columns).
        A file without a column name in its file name has all columns, separated by tabs, or only the first column.
        """
        meant: dict[str, dict[str, str]] = {}
        tables: list[TextColumns] = []
        for path in self._check_names(names):
            if isinstance(path, MemoryFile):
                tables.append(self._in_memory(path, training))
                continue
            name = str(path)
            if training or COLUMN_MARK in name:
                meant[name] = self._fill_mark(name) if training else self._existing_files(self._fill_mark(name))
                continue
            for path in find_files([name], self.what):
                whole, column = _split_column_name(path, self.columns)
                meant.setdefault(whole, {})[column] = str(path)
        tables += [self._pairs(given, some=not training) for given in meant.values()]
        joined = _concatenate_columns(tables)
        return {column: strings(texts) for column, texts in joined.items()}

    def _in_memory(self, table: MemoryFile, training: bool) -> TextColumns:
        """Texts of a table in memory; a single column may have any name."""
        known = [column for column in self.columns if column in table.columns]
        for column in self.columns if training else ():
            one_of("data.columns, a column of the table,", column, table.columns, key="data.columns")
        if not known:
            return {self.columns[0]: [text.strip() for text in table.texts(*self.columns)]}
        return {column: [text.strip() for text in table.texts(column)] for column in known}

    def expand(self, names: Sequence[str | Path]) -> list[Path]:
        """Paths of all files of all columns; some columns may be missing for a prediction."""
        if tables := [name for name in names if isinstance(name, MemoryFile)]:
            return [*tables]
        found = [self._existing_files(self._fill_mark(str(name))) for name in names]
        return find_files([name for files in found for name in files.values()], self.what)

    def group(self, table: Table) -> Array | None:
        return np.asarray(table[self.columns[0]])

    def trained(self, table: Table, rows: Rows, notes: list[str]) -> Rows:
        """Rows to train on: no empty text, and within the limits `longest` and `ratio`."""
        texts: list[Array] = [table[column][rows] for column in self.columns]  # type: ignore[index]
        words = np.array([[len(text.split()) for text in column] for column in texts]).reshape(len(texts), -1)
        fewest, most = words.min(0), words.max(0)
        left = {"an empty text": fewest == 0}
        if self.longest is not None:
            left[f"a text of more than {self.longest:,} words"] = most > self.longest
        if self.ratio is not None:
            left[f"one text of more than {self.ratio:g} times the words of another"] = most > self.ratio * fewest
        kept = np.ones(len(rows), bool)
        for why, which in left.items():
            if count := int((which & kept).sum()):
                what = f"{count:,} of {len(rows):,} pairs are left out of training: {why}"
                notes.append(f"{what} (first: pair {int(rows[(which & kept).argmax()]) + 1:,}).")
            kept &= ~which
        return rows[kept]

    def _check_names(self, names: Sequence[str | Path]) -> Sequence[str | Path]:
        """File names, after a check of the file names and of `data.columns`.

        There must be at least one file name and two distinct column names.
        """
        different = {column for column in self.columns if column and column == column.strip()}
        if len(self.columns) < 2 or len(different) < len(self.columns):
            message = f"data.columns must be two or more different names, not {self.columns}"
            raise UserError(message, hint="For example --data.columns en de", key="data.columns")
        return names or find_files(names, self.what)

    def _fill_mark(self, name: str) -> dict[str, str]:
        """File name of each column, from a name with `{}`; otherwise {"": name}."""
        marked = COLUMN_MARK in name
        return {column: name.replace(COLUMN_MARK, column) for column in self.columns} if marked else {"": name}

    def _existing_files(self, given: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for column, name in given.items():
            try:
                find_files([name], self.what)
                found[column] = name
            except UserError as error:
                missing = error
        if not found:
            raise missing
        return found

    def _pairs(self, given: Mapping[str, str], some: bool = False) -> TextColumns:
        """Read the texts of each column.

        some   whether a file may have only the first column
        """
        files = {column: find_files([name], self.what) for column, name in given.items()}
        (one, first), *others = files.items()
        if not one:
            return _concatenate_columns([self._read_tab_separated(path, some) for path in first])
        for column, paths in others:
            if len(paths) != len(first):
                counts = f"{given[one]} matches {len(first)} and {given[column]} matches {len(paths)}"
                raise UserError(f"every column must have the same number of files, but {counts}")
        return _concatenate_columns([self._read_aligned(dict(zip(files, paths))) for paths in zip(*files.values())])

    def _read_aligned(self, paths: Mapping[str, Path]) -> TextColumns:
        texts = {column: [line.strip() for line in read_lines(path, self.errors)] for column, path in paths.items()}
        (one, lines), *others = texts.items()
        for column, found in others:
            if len(found) != len(lines):
                raise UserError(
                    f"{paths[column]} has {len(found):,} lines, but {paths[one]} has {len(lines):,}",
                    hint=find_misalignment(found, lines, str(paths[column]), str(paths[one])),
                    file=paths[column],
                )
        return texts

    def _read_tab_separated(self, path: Path, some: bool) -> TextColumns:
        lines = read_lines(path, self.errors)
        named = bool(lines) and [cell.strip() for cell in lines[0].split("\t")] == self.columns
        lines = lines[named:]  # without a header line
        most, marked = len(self.columns) - 1, COLUMN_MARK in "".join(self.files)
        if some and 2 * sum("\t" in line for line in lines) < sum(bool(line.strip()) for line in lines):
            return {self.columns[0]: [line.strip() for line in lines]}
        rows = []
        for number, line in enumerate(lines, 1 + named):
            tabs = line.count("\t")
            if tabs != most and line.strip():
                raise UserError(
                    f"line {number} of {path} must have {len(self.columns)} texts separated by tabs, "
                    f"{', '.join(self.columns)}, but has {tabs or 'no'} tab{'s' * (tabs > 1)}: {line[:60]!r}",
                    hint="" if marked else f"For one file per language, write {COLUMN_MARK} in the file name.",
                    file=path,
                    line=number,
                )
            rows.append([text.strip() for text in line.split("\t")] if tabs == most else [""] * (most + 1))
        return {column: [row[place] for row in rows] for place, column in enumerate(self.columns)}


def _concatenate_columns(tables: Sequence[TextColumns]) -> TextColumns:
    for table in tables:
        if list(table) != list(tables[0]):
            first, other = ", ".join(tables[0]), ", ".join(table)
            files = f"one file has {first} and another file has {other}"
            raise UserError(f"all files must have the same columns, but {files}")
    return {column: [text for table in tables for text in table[column]] for column in tables[0]}


def _split_column_name(path: Path, columns: Sequence[str]) -> tuple[str, str]:
    """File name with `{}` in place of the column, and the column or an empty string."""
    parts = re.split(r"([._-])", path.name)
    found = [number for number, part in enumerate(parts) if part in columns]
    if not found:
        return str(path), ""
    column, parts[found[-1]] = parts[found[-1]], COLUMN_MARK
    return str(path.with_name("".join(parts))), column


def find_misalignment(one: Sequence[str], other: Sequence[str], name: str, second: str) -> str:
    """Describe the place where two parallel files of different length go out of step.

    A translation is about as long as its source. The sum of (log a - log b)^2 over the line lengths a, b therefore
    grows slowly while lines are aligned, and fast after a line is missing in one file.
    """
    if len(one) < len(other):
        return find_misalignment(other, one, second, name)
    more = len(one) - len(other)
    long, short = (np.log1p([len(line) for line in lines]) for lines in (one, other))
    if len(short) < 2:
        return ""
    straight = np.square(long[: len(short)] - short)
    rng = float(np.square(long[: len(short)] - np.roll(short, len(short) // 2)).mean())  # of unrelated lines
    place, saved = len(short), 0.0
    for step in sorted({*range(1, min(more, MAX_LINE_SHIFT) + 1), more}):
        moved: NDArray[np.float64] = np.square(long[step : step + len(short)] - short)
        gain = np.concatenate([[0.0], (straight - moved).cumsum()])  # by shifting all lines up to here
        after = np.maximum.accumulate(gain[::-1])[::-1] - gain  # by shifting the lines from here up to the best end
        if after.max() > MIN_AGREEING_LINES * rng:
            place, saved = min(place, int(after.argmax())), max(saved, float(after.max()))
    if straight.sum() - saved > 0.7 * rng * len(short):
        return "Their lines do not seem to be translations of each other."
    if place == len(short):
        return f"They agree up to the end of {second}; {name} continues after line {len(short):,}."
    return f"{name} seems to have an extra line near line {place + 1:,}: {one[place][:60]!r}."
