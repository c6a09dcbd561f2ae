"""Tagged words in CoNLL format: a word and its tag per line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.readers.text_parts import Parts, read_lines, strings
from ....data.source import find_files
from ....errors import UserError

DOCUMENT_MARK = "-DOCSTART-"
BLANKS = " \t\u3000"


class Columns(Parts):
    """Sentences with a tag for each word: lists in the columns `words` and `tags`.

    All sentences are held in memory. A random split keeps equal sentences in one part.
    """

    what: ClassVar[str] = "files of words in columns"
    unit: ClassVar[str] = "sentence"

    words: int = Field(default=0, ge=0)
    """Index of the word column, counted from 0 (default: 0)."""
    tags: int | None = Field(default=None, ge=0)
    """Index of the tag column, counted from 0 (default: the last column)."""
    comments: bool = False
    """Skip lines between sentences that begin with `#`, as in CoNLL-U (default: false, `#` is a word)."""

    def group(self, table: Table) -> Array | None:
        words = table["words"]
        assert isinstance(words, Lists)
        stops = words.lengths.cumsum()
        return strings(["\n".join(words.values[a:b]) for a, b in zip(stops - words.lengths, stops)])

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        """Read the sentences of files; files for prediction may have no tags."""
        found: dict[str, list[str]] = {"words": [], "tags": []}
        lengths: list[int] = []
        for path in find_files(names, self.what):
            rows, sizes = self._rows(path)
            width = len(rows[0]) if rows else 0
            tags = width - 1 if self.tags is None else self.tags
            if training and rows and (self.words >= width or tags >= width or tags == self.words):
                last = "the last column" if self.tags is None else f"column {tags}"
                raise UserError(
                    f"{path} must have a word in column {self.words} and a tag in {last}, counted from 0, but has "
                    f"{width} column{'s' * (width != 1)}: {' '.join(rows[0])!r}",
                    hint="Choose other columns with data.words and data.tags.",
                    key="data.words" if self.words >= width else "data.tags",
                    file=path,
                )
            place = self.words if self.words < width else 0  # a file without tags
            found["words"] += [row[place] for row in rows]
            found["tags"] += [row[tags] for row in rows] if tags < width and tags != place else []
            lengths += sizes
        if found["tags"] and len(found["tags"]) != len(found["words"]):
            message = f"only {len(found['tags'])} of {len(found['words'])} words have tags"
            raise UserError(message, hint="Either all files or no files must have tags.")
        table = {name: Lists(strings(cells), np.array(lengths, np.int64)) for name, cells in found.items()}
        return table if training or found["tags"] else {"words": table["words"]}

    def _rows(self, path: Path) -> tuple[list[list[str]], list[int]]:
        """Cells of every word, and the number of words of each sentence."""
        lines = read_lines(path, self.errors)
        filled = [line for line in lines if line.strip()]
        tabbed = 2 * sum("\t" in line for line in filled) > len(filled)
        rows: list[list[str]] = []
        sizes, begun = [0], 0
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith(DOCUMENT_MARK):
                sizes.append(0)
                continue
            if self.comments and not sizes[-1] and line.startswith("#"):
                continue
            cells = line.split("\t") if tabbed else re.split(f"[{BLANKS}]+", line.strip(BLANKS))
            if not rows:
                begun = number
            elif len(cells) != len(rows[0]):
                raise UserError(
                    f"line {number} of {path} must have {len(rows[0])} columns, as line {begun} has, "
                    f"not {len(cells)}: {line[:80]!r}",
                    hint="" if self.comments or line[0] != "#" else "Skip comment lines with --data.comments true.",
                    file=path,
                    line=number,
                )
            rows.append([cell.strip(BLANKS) for cell in cells])
            sizes[-1] += 1
            places = (self.words, -1 if self.tags is None else self.tags)
            if not all(rows[-1][place] for place in places if place < len(cells)):
                raise UserError(f"line {number} of {path} lacks a word or a tag: {line[:80]!r}", file=path, line=number)
        return rows, [size for size in sizes if size]
