"""Labelled texts: a text per row of TSV, CSV or JSON, or a file per class."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.fileset import split_tag
from ....data.readers.text_parts import Parts, place_columns, read_lines, strings
from ....data.source import find_files, locate
from ....data.split import Rows, Split, sample_per_class
from ....errors import UserError, nearest, one_of
from ....files.formats.delimited import Format, Grid, read_rows, typed
from ....files.in_memory import MemoryFile, describe, is_text
from .pairs import COLUMN_MARK
from .roles import find_header, find_role

MIN_GUESS_ROWS = 10  # minimum rows to find the label column by its number of different values


def _rows_of(path: MemoryFile) -> Grid:
    """Cells of a table in memory as a `Grid`, like the cells of a file."""
    columns = [path.texts(name) if is_text(column) else _cells(name, column) for name, column in path.columns.items()]
    rows = [list(row) for row in zip(*columns)]
    return Grid(rows, list(range(1, len(rows) + 1)), list(path.columns))


def _cells(name: str, column: Any) -> list[str]:
    if isinstance(column, Lists) or column.ndim > 1 or column.dtype.kind == "O":
        raise UserError(f"`{name}` of the table must have one value for each text, not {describe(column)}")
    values = column.astype(np.int64) if column.dtype.kind == "b" else column
    return ["" if value != value else str(value) for value in values.tolist()]


class Lines(Parts):
    """Labelled texts: columns `text` and `label`, and further columns by name.

    A file with texts of a single class is given as CLASS:FILE. All texts are held in memory. A random split keeps equal
    texts in one part.
    """

    what: ClassVar[str] = "files of labelled lines"
    unit: ClassVar[str] = "text"
    column_keys: ClassVar[tuple[str, ...]] = ("text", "label")
    reading_keys: ClassVar[tuple[str, ...]] = ("errors", "format", "columns")
    renames_columns: ClassVar[bool] = True

    split: Split = Split()
    """Fractions of `files` for validation and test. Not used for a part with files of its own (`valid`, `test`). Equal
    texts stay in one part."""
    format: Format = "auto"
    """File format (default: auto, from the suffix .tsv, .csv or .jsonl, also with .gz, or from the first lines)."""
    columns: list[str] = Field(default_factory=list)
    """Column names in order, for files without a header line: [label, text] (default: from the header)."""
    text: str = ""
    """Column with the text (default: found by its name, such as text, sentence, review)."""
    label: str = ""
    """Column with the label (default: found by its name, such as label, class, sentiment)."""
    classes: dict[str, list[str]] = Field(default_factory=dict)
    """Training files of each class, with one text per line: {neg: [rt.neg.gz], pos: [rt.pos.gz]} (default: none). In
    `files`, `valid` and `test`, `{}` is replaced by each class name."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Training samples per class (default: all), drawn with split.seed and the fold. A larger number keeps the
    samples of a smaller number and adds more."""

    def named(self) -> dict[str, list[str]]:
        """File names by part; the files of `classes` belong to the training part."""
        found = super().named()
        return {**found, "train": [*found["train"], *itertools.chain(*self.classes.values())]}

    def expand(self, names: Sequence[str | Path]) -> list[Path]:
        return find_files([name for _, name in self._labelled(names)], self.what)

    def absolute_paths(self) -> Self:
        classes = {label: [locate(name) for name in names] for label, names in self.classes.items()}
        return super().absolute_paths().model_copy(update={"classes": classes})

    def group(self, table: Table) -> Array | None:
        return np.asarray(table["text"])

    def trained(self, table: Table, rows: Rows, notes: list[str]) -> Rows:
        """Rows to train on: not empty, and at most `labels_per_class` of each class."""
        filled = np.array([bool(text) for text in table["text"]])[rows]  # type: ignore[union-attr]
        if count := int((~filled).sum()):
            first = int(rows[filled.argmin()]) + 1
            notes.append(f"{count:,} empty texts are left out of training (first: sample {first:,}).")
        rows = rows[filled]
        if self.labels_per_class is None:
            return rows
        if "label" not in table:
            message = f"data.labels_per_class needs a column `label`, but the columns are {', '.join(table)}"
            raise UserError(message, hint=nearest("label", table), key="data.labels_per_class")
        return sample_per_class(table["label"], rows, self.labels_per_class, self.split.lot, notes, self.unit)

    def _labelled(self, names: Sequence[str | Path]) -> list[tuple[str, Any]]:
        """Pairs (class, file name); the class is "" for a file without a class."""
        own = {locate(name): label for label, given in self.classes.items() for name in given}
        found = []
        for tag, name in map(split_tag, names):
            if isinstance(name, MemoryFile):
                found.append(("", name))
                continue
            labels = list(self.classes) if COLUMN_MARK in name else [tag or own.get(locate(name), "")]
            found += [(label, name.replace(COLUMN_MARK, label)) for label in labels]
        return found

    def without_files(self) -> dict[str, Any]:
        return {**super().without_files(), "classes": {}}

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        tables: list[tuple[Path, dict[str, list[str]], list[int]]] = []
        for label, name in self._labelled(names or find_files(names, self.what)):
            for path in find_files([name], self.what):
                if label:
                    numbered = {
                        n: line.strip() for n, line in enumerate(read_lines(path, self.errors), 1) if line.strip()
                    }
                    columns = {"text": [*numbered.values()], "label": [label] * len(numbered)}
                    tables.append((path, columns, [*numbered]))
                else:
                    tables.append((path, *self._columns(path, training)))
        first, found, _ = tables[0]
        for path, columns, _ in tables:
            if set(columns) != set(found):
                message = f"{path} has the columns {', '.join(columns)}, but {first} has {', '.join(found)}"
                raise UserError(message, hint="Every file must have the same columns.", file=path)
        joined = {name: [cell for _, columns, _ in tables for cell in columns[name]] for name in found}
        made = {name: strings(cells) if name == "text" else typed(cells) for name, cells in joined.items()}
        if training or all(isinstance(path, MemoryFile) for path, _, _ in tables):
            return made
        places = [(path, line) for path, _, lines in tables for line in lines]
        return place_columns([path for path, _ in places], [line for _, line in places], made) | made

    def _columns(self, path: Path, training: bool) -> tuple[dict[str, list[str]], list[int]]:
        """Read the columns of a file, with text and label renamed, and the line numbers."""
        grid = _rows_of(path) if isinstance(path, MemoryFile) else read_rows(path, self.format, self.errors)
        names, rows, lines = self._names(grid, path)
        unnamed = grid.names is None and len(rows) == len(grid.rows)
        if training and len(names) < 2 and unnamed:
            raise UserError(
                f"each line of {path} must have a text and a label, but has only {grid.width} column",
                hint="For texts without labels use data.kind: text. For one file per class use data.classes.",
                file=path,
            )
        found = {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}
        for ours, theirs in self.state.get("renames", {}).items():
            one_of(f"--map {ours}, a column of {path},", theirs, found, key="--map")
            found[ours] = found.pop(theirs)
        for line, cell in zip(lines, found.get("label", [])):
            if training and not cell and "label" in self.state.get("truth", ["label"]):
                raise UserError(f"line {line} of {path} has no label", file=path, line=line)
        return found, lines

    def _names(self, grid: Grid, path: Path) -> tuple[list[str], list[list[str]], list[int]]:
        """Column names, rows without the header, and the line number of each row."""
        rows, lines, names = grid.rows, grid.lines, grid.names
        if self.columns and names is None and grid.width > 1:
            if len(self.columns) != grid.width:
                given = f"data.columns has {len(self.columns)} names, {', '.join(self.columns)}"
                raise UserError(f"{given}, but {path} has {grid.width} columns", key="data.columns", file=path)
            names, here = self.columns, rows[0] == self.columns
            rows, lines = rows[here:], lines[here:]
        if names is None and rows and not grid.plain and (cells := find_header(rows, {self.text, self.label} - {""})):
            names, rows, lines = cells, rows[1:], lines[1:]
        if names is None:
            return self._guessed(rows, path), rows, lines
        if double := [name for place, name in enumerate(names) if name in names[:place]]:
            raise UserError(f"{path} has two columns named {double[0]!r}", hint="Rename one of them.", file=path)
        text, label = self._text_and_label(names, path)
        new = {name: f"{name}_" for name in ("text", "label") if name not in (text, label)}
        new |= {text: "text"} | ({label: "label"} if label else {})
        return [new.get(name, name) for name in names], rows, lines

    def _text_and_label(self, names: Sequence[str], path: Path) -> tuple[str, str]:
        """Columns of the text and of the label; the label is empty if there is none."""
        text = self._one(self.text, names, "text", path)
        return text, self._one(self.label, [one for one in names if one != text], "label", path)

    def named_rows(self, name: str | Path) -> tuple[list[str], list[list[str]]]:
        """Column names of a file (empty without a header line), and its rows."""
        (path,) = find_files([name], self.what)
        grid = read_rows(path, self.format, self.errors)
        if grid.names is not None or grid.plain:
            return grid.names or [], grid.rows
        head = self.columns or find_header(grid.rows, {self.text, self.label} - {""})
        return head, grid.rows[bool(head and grid.rows[0] == head) :]

    def _one(self, given: str, names: Sequence[str], what: str, path: Path) -> str:
        if given:
            one_of(f"data.{what}, a column of {path},", given, names, key=f"data.{what}")
            return given
        hits = find_role(what, names)
        if len(hits) == 1:
            return hits[0]
        if not hits and (len(names) == 1 or what == "label"):  # an objective may want another column
            return names[0] if len(names) == 1 and what == "text" else ""
        message = (
            f"{path} has several columns that may be the {what}: {', '.join(f'`{name}`' for name in hits or names)}"
        )
        raise UserError(message, hint=f"Choose it with --data.{what} NAME.", key=f"data.{what}", file=path)

    def _guessed(self, rows: Sequence[Sequence[str]], path: Path) -> list[str]:
        """Guess the columns of a file without a header.

        Of two columns, the column with few different values is the label.
        """
        width = len(rows[0]) if rows else 1
        if width == 1:
            return ["text"]
        values = [{row[place].strip() for row in rows} for place in range(width)]
        few = [place for place in range(width) if len(rows) < MIN_GUESS_ROWS or 2 * len(values[place]) <= len(rows)]
        if len(few) > 1:
            few = [place for place in few if not any(" " in value for value in values[place])]
        if width != 2 or len(few) != 1:
            shown = " | ".join(cell[:30] for cell in rows[0])
            raise UserError(
                f"the text and label columns of {path} cannot be guessed: it has {width} columns, no header line, and "
                f"the first row {shown!r}",
                hint="Name the columns in order: --data.columns label text",
                key="data.columns",
                file=path,
            )
        return ["label", "text"] if few == [0] else ["text", "label"]
