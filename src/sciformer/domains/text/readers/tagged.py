"""Tagged words in CoNLL format: a word and its tag per line.

Files for prediction may also be running text, see `Columns.form`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.readers.text_parts import Parts, read_lines, strings
from ....data.source import Memory, Source, Splits, find_files
from ....data.token_labels import END, LINE, START
from ....errors import UserError
from ....files.formats.delimited import DELIMITED_SUFFIXES, bare_suffix
from ....files.in_memory import MemoryFile
from .labelled import Lines
from .roles import NAMES
from .words import Range, WordRule

DOCUMENT_MARK = "-DOCSTART-"
BLANKS = " \t\u3000"
TAGGED_SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio")


def _as_lists(column: Any) -> Any:
    """Convert an array (n, m) of strings to n lists; return other columns unchanged."""
    if isinstance(column, Lists) or column.ndim != 2:
        return column
    return Lists(column.reshape(-1), np.full(len(column), column.shape[1], np.int64))


def _list_column(columns: Mapping[str, Any], role: str) -> str:
    """Column of lists of strings with a usual name for a role, or ""."""
    usual = (role, *NAMES[role.removesuffix("s")][0].split())
    listed = [name for name, one in columns.items() if isinstance(one, Lists) and one.values.dtype.kind in "UO"]
    return next((name for word in usual for name in listed if name.lower() == word), "")


class Sentence(NamedTuple):
    """Sentence with its words and tags.

    words    (word, line in the file, character range in the text) of each word
    tags     tags of the words; empty if the file has none
    """

    words: list[str]
    lines: list[int]
    ranges: list[Range]
    tags: list[str]


class Columns(Parts):
    """Sentences with a tag for each word: lists in the columns `words` and `tags`.

    A first line with the names of the columns (word, tag) is skipped.

    All sentences are held in memory. A random split keeps equal sentences in one part.
    """

    what: ClassVar[str] = "files of words in columns"
    unit: ClassVar[str] = "sentence"
    column_keys: ClassVar[tuple[str, ...]] = ("words", "tags")
    reading_keys: ClassVar[tuple[str, ...]] = ("errors", "form", "comments")

    words: int = Field(default=0, ge=0)
    """Index of the word column, counted from 0 (default: 0)."""
    tags: int | None = Field(default=None, ge=0)
    """Index of the tag column, counted from 0 (default: the last column)."""
    comments: bool = False
    """Skip comments: lines between sentences that begin with `#`, as in CoNLL-U (default: false). Otherwise `#` is a
    word."""
    form: Literal["auto", "columns", "text"] = "auto"
    """Form of files to predict (default: auto); training files always have columns. columns: a word per line, with its
    tag or without, and empty lines between sentences. text: running text, a text per line or per row of a table, split
    into words like the training files. auto: text, except in four cases that mean columns: the name ends in .conll,
    .conllu, .iob, .iob2 or .bio; each line has a single word; most lines end in a tag of the training; or tabs divide
    all lines into the same number of words."""

    def open(self, log: Any = None) -> Splits:
        """Split the training files; learn the tags, and the rule for splitting text."""
        found = super().open(log)
        table = found.sources["train"].load(0)
        words, tags = (table[name].values.tolist() for name in ("words", "tags"))  # type: ignore[union-attr]
        return replace(found, learned={"words": WordRule.learn(words).to_json(), "tags": sorted(set(tags))})

    def group(self, table: Table) -> Array | None:
        words = table["words"]
        assert isinstance(words, Lists)
        stops = words.lengths.cumsum()
        return strings(["\n".join(words.values[a:b]) for a, b in zip(stops - words.lengths, stops)])

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        """Sentences from files with a word and a tag per line, or from tables with lists."""
        read = {True: self._in_memory, False: self._tagged}
        paths = find_files(names, self.what)
        return self._table({path: read[isinstance(path, MemoryFile)](path, training) for path in paths})

    def _in_memory(self, table: Any, training: bool) -> list[Sentence]:
        """Sentences of a table with lists of words and of tags.

        For prediction, the table may also have texts, which are split into words.
        """
        columns = {name: _as_lists(column) for name, column in table.columns.items()}
        names = {role: _list_column(columns, role) for role in ("words", "tags")}
        if not names["words"]:
            if training:
                known = ", ".join(f"`{name}`" for name in table.columns)
                message = f"{table} has no column `words` with a list of words for each sentence"
                raise UserError(message, hint=f"Its columns are {known}.", key="data.words")
            return self._split(enumerate(table.texts("text"), 1), empty=True)
        words = columns[names["words"]]
        if training and not names["tags"]:
            raise UserError(f"{table} has no column `tags` with a tag for each word", key="data.tags")
        tags = columns[names["tags"]] if names["tags"] else None
        if tags is not None and not np.array_equal(tags.lengths, words.lengths):
            row = int((tags.lengths != words.lengths).argmax())
            counts = f"{words.lengths[row]} words and {tags.lengths[row]} tags"
            raise UserError(f"row {row} of {table} has {counts}", key="data.tags")
        found = []
        stops = words.lengths.cumsum()
        for number, (start, stop) in enumerate(zip((stops - words.lengths).tolist(), stops.tolist()), 1):
            some = [str(word).strip() for word in words.values[start:stop]]
            own = [] if tags is None else [str(tag).strip() for tag in tags.values[start:stop]]
            if not all(some) or not all(own):
                raise UserError(f"row {number - 1} of `{names['words']}` in {table} lacks a word or a tag")
            ends = np.cumsum([len(word) + 1 for word in some]).tolist()
            ranges = [(end - 1 - len(word), end - 1) for word, end in zip(some, ends)]
            if some or not training:
                found.append(Sentence(some, [number] * len(some), ranges, own))
        return found

    def read(self, files: Sequence[str | Path]) -> Source:
        """Read files with a word per line, with or without tags, or running text."""
        found: dict[Path, list[Sentence]] = {}
        running = []
        for path in find_files(files, self.what):
            if isinstance(path, MemoryFile):
                found[path] = self._in_memory(path, training=False)
            elif self._has_columns(path):
                found[path] = self._tagged(path, training=False)
            else:
                found[path] = self._running(path)
                running.append(path)
        notes = self.replaced([*found])
        if running:
            more = f" and {len(running) - 1:,} more files are" if len(running) > 1 else " is"
            other = "; --data.form columns reads a word per line" * (self.form == "auto")
            notes.append(f"{running[0]}{more} read as running text, a text per line{other}.")
        table = self._table(found)
        sentences = [one for some in found.values() for one in some]
        made: dict[str, Array | Lists] = {}
        if len(found) > 1:
            made["file"] = np.array([str(path) for path, some in found.items() for _ in some], str)
        made["sentence"] = np.array([number for some in found.values() for number in range(1, len(some) + 1)], np.int64)
        made |= {name: column for name, column in table.items() if name == "words" or len(column.values)}
        ranges = np.array([pair for one in sentences for pair in one.ranges], np.int64).reshape(-1, 2)
        lines = np.array([line for one in sentences for line in one.lines], np.int64)
        for name, values in ((LINE, lines), (START, ranges[:, 0]), (END, ranges[:, 1])):
            made[name] = Lists(values, table["words"].lengths)
        return Memory(made, notes)

    def _table(self, found: Mapping[Path, list[Sentence]]) -> dict[str, Lists]:
        sentences = [*chain(*found.values())]
        lengths = np.array([len(one.words) for one in sentences], np.int64)
        words, tags = (strings([*chain(*(getattr(one, name) for one in sentences))]) for name in ("words", "tags"))
        if 0 < len(tags) < len(words):
            message = f"only {len(tags)} of {len(words)} words have tags"
            raise UserError(message, hint="Either all files or no files must have tags.")
        return {"words": Lists(words, lengths), "tags": Lists(tags, lengths)}

    def _tagged(self, path: Path, training: bool) -> list[Sentence]:
        """Read the sentences of a file with a word per line.

        A file for prediction may lack tags.
        """
        rows, sizes, lines = self._rows(path)
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
        if training and 2 * sum(" " in row[place] for row in rows) > len(rows):
            message = f"column {place} of {path} has texts of several words, but each line must have a single word"
            hint = "For texts with a label use data.kind: lines, as in the recipe text/sentiment-scratch."
            raise UserError(message, hint=hint, key="data.kind", file=path)
        tagged, found, start = tags < width and tags != place, list[Sentence](), 0
        if tagged and not training and self.form == "auto" and bare_suffix(path) not in TAGGED_SUFFIXES:
            tagged = not self._known_tags or self._are_tags(row[tags] for row in rows)
        for size in sizes:
            some = rows[start : start + size]
            words, ends = [row[place] for row in some], np.cumsum([len(row[place]) + 1 for row in some]).tolist()
            ranges = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends)]  # a space between the words
            own = [row[tags] for row in some] if tagged else []
            found.append(Sentence(words, lines[start : start + size], ranges, own))
            start += size
        return found

    def _running(self, path: Path) -> list[Sentence]:
        """Read lines of running text or texts of a table, split into words.

        Texts without words are left out.
        """
        texts: Iterable[tuple[int, str]] = enumerate(read_lines(path, self.errors), 1)
        if bare_suffix(path) in DELIMITED_SUFFIXES:
            table = self._texts(path)
            texts = zip(table["line"].tolist(), table["text"].tolist())
        return self._split(texts)

    def _split(self, texts: Iterable[tuple[int, str]], empty: bool = False) -> list[Sentence]:
        """Split texts into words.

        empty   whether to keep texts without words
        """
        learned = self.state.get("learned", {}).get("words")
        rule = WordRule.from_json(learned) if learned else WordRule()
        split = [(number, text, rule.split(text)) for number, text in texts]
        return [
            Sentence([line[start:stop] for start, stop in ranges], [number] * len(ranges), ranges, [])
            for number, line, ranges in split
            if ranges or empty
        ]

    def _texts(self, path: Path) -> dict[str, Any]:
        """Read the texts of a table into the columns `text` and `line`."""
        try:
            return dict(Lines(kind="lines", errors=self.errors).table([path], training=False))
        except UserError as error:
            hint = "Write the texts into a file whose name ends in .txt, a text per line."
            raise error.with_fields(hint=hint, key=None) from error

    def _has_columns(self, path: Path) -> bool:
        """Whether a file for prediction has a word on each line, by the rule of `form`."""
        if self.form != "auto":
            return self.form == "columns"
        if bare_suffix(path) in TAGGED_SUFFIXES:
            return True
        if DELIMITED_SUFFIXES.get(bare_suffix(path), "tsv") != "tsv":
            return False
        lines, tabbed = self._cells(path)
        rows = [cells for _, cells in lines if cells]
        widths = {len(row) for row in rows}
        if widths == {1} or (len(widths) == 1 and not self._known_tags):
            return True
        if tabbed and len(widths) == 1 and 10 * sum(any(" " in cell for cell in row) for row in rows) < len(rows):
            return True
        return self._are_tags(
            row[-1 if self.tags is None else self.tags] for row in rows if max(1, self.tags or 0) < len(row)
        )

    @property
    def _known_tags(self) -> frozenset[str]:
        return frozenset(self.state.get("learned", {}).get("tags", ()))

    def _are_tags(self, cells: Iterable[str]) -> bool:
        """Whether most cells are tags of the training data."""
        found = [cell in self._known_tags for cell in cells]
        return 2 * sum(found) > len(found)

    def _is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first line of a file holds the names of the columns."""
        tag = cells[-1] if self.tags is None else cells[self.tags] if self.tags < len(cells) else ""
        word = cells[self.words] if self.words < len(cells) else ""
        return word.lower() in NAMES["word"][0].split() and tag.lower() in NAMES["tag"][0].split() and len(cells) > 1

    def _cells(self, path: Path) -> tuple[list[tuple[str, list[str]]], bool]:
        """Split the lines of a file into cells.

        Returns (line, cells), with no cells for lines between sentences, and whether cells are separated by tabs.
        """
        lines = read_lines(path, self.errors)
        filled = [line for line in lines if line.strip()]
        tabbed = 2 * sum("\t" in line for line in filled) > len(filled)
        found: list[tuple[str, list[str]]] = []
        begins = True
        for line in lines:
            between = not line.strip() or line.startswith(DOCUMENT_MARK)
            if between or (self.comments and begins and line.startswith("#")):
                found.append((line, []))
                begins = begins or between
                continue
            cells = line.split("\t") if tabbed else re.split(f"[{BLANKS}]+", line.strip(BLANKS))
            found.append((line, [cell.strip(BLANKS) for cell in cells]))
            begins = False
        return found, tabbed

    def _rows(self, path: Path) -> tuple[list[list[str]], list[int], list[int]]:
        """Cells of each word, number of words of each sentence, line of each word."""
        rows, sizes, numbers = list[list[str]](), list[int](), list[int]()
        begins = True
        for number, (line, cells) in enumerate(self._cells(path)[0], 1):
            if not cells or (not rows and self._is_header(cells)):
                begins = True
                continue
            if rows and len(cells) != len(rows[0]):
                raise UserError(
                    f"line {number} of {path} must have {len(rows[0])} columns like line {numbers[0]}, "
                    f"not {len(cells)}: {line[:80]!r}",
                    hint="" if self.comments or line[0] != "#" else "Skip comment lines with --data.comments true.",
                    file=path,
                    line=number,
                )
            places = (self.words, -1 if self.tags is None else self.tags)
            if not all(cells[place] for place in places if place < len(cells)):
                raise UserError(f"line {number} of {path} lacks a word or a tag: {line[:80]!r}", file=path, line=number)
            if begins:
                sizes.append(0)
            rows.append(cells)
            numbers.append(number)
            sizes[-1] += 1
            begins = False
        return rows, sizes, numbers
