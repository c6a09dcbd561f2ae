"""Registry of file formats, and the base classes of their readers and writers."""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError, nearest
from ...recipe.registry import find, names
from ..in_memory import MemoryFile
from ..packages import reading

MAX_OPEN_FILES = 64  # files kept open in each process
SNIFFED_BYTES = 512  # bytes at the beginning of a file that identify its format
Column = Array | Lists


class TablePart(NamedTuple):
    """Complete file of a writer, to be merged with other files.

    columns   names of the columns, in their order
    rows      number of rows of each call of `add`
    about     names of the arrays that describe the whole table
    """

    path: Path
    columns: Sequence[str]
    rows: Sequence[int]
    about: Sequence[str] = ()


class TableWriter:
    """Base class of table writers: created with the first table, then filled by `add`.

    Columns are numbers or strings, arrays (n, ...) or `Lists`. A format refuses a column that it cannot hold.
    """

    file: Any
    tabular = True
    """Whether a cell of the format usually holds a single value, not an array."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path = path

    def add(self, table: Table) -> None:
        """Append the rows of a table."""
        raise NotImplementedError

    def close(self, about: Mapping[str, Array]) -> None:
        """Finish the file (default: close `file`).

        about   arrays that describe the whole table
        """
        self.file.close()

    def stop(self) -> None:
        """Close the handles of an incomplete file, after an error."""
        self.close({})

    @classmethod
    def merge(cls, path: Path, parts: Sequence[TablePart]) -> None:
        """Write the rows of several files into one file, as a single writer would.

        By default the files are read back with `read_part`.
        """
        writer: TableWriter | None = None
        about: dict[str, Array] = {}
        try:
            for part in sorted(
                parts, key=lambda part: not sum(part.rows)
            ):  # a part with rows first: it has the right types
                tables, about = cls.read_part(part)
                for table in tables:
                    writer = writer or cls(path, table)
                    writer.add(table)
            assert writer is not None
            writer.close(about)
        except BaseException:
            if writer is not None:
                writer.stop()
            raise

    @classmethod
    def read_part(cls, part: TablePart) -> tuple[Iterable[Table], dict[str, Array]]:
        """Read back the tables given to `add`, and the arrays given to `close`."""
        message = f"files of this format cannot be merged: {part.path}"
        raise UserError(message, hint="Use the files separately, or predict in another format.", file=part.path)


class LineWriter(TableWriter):
    """Base class of writers of lines without a header; merging concatenates files."""

    file: TextIO

    @classmethod
    def merge(cls, path: Path, parts: Sequence[TablePart]) -> None:
        with path.open("wb") as out:
            for part in parts:
                with part.path.open("rb") as file:
                    shutil.copyfileobj(file, out)


@dataclass(frozen=True)
class Format:
    """File format; `register("format", NAME)(Format(...))` adds a format.

    name       name of the format in messages
    suffixes   file name suffixes, the usual suffix first
    packages   required packages, imported on use
    writer     class that writes tables to a file (None: read only)
    reader     function that opens a file, `reader(path, layout)` (None: write only)
    magic      possible first bytes of a file
    sniff      test on the first bytes of a file, for formats without fixed first bytes
    """

    name: str
    suffixes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    writer: type[TableWriter] | None = None
    reader: Callable[[Path, Layout], TableFile] | None = None
    magic: tuple[bytes, ...] = ()
    sniff: Callable[[bytes], bool] | None = None

    def recognises(self, begin: bytes) -> bool:
        """Whether the first bytes of a file fit the format."""
        return begin.startswith(self.magic) or (self.sniff is not None and self.sniff(begin))


def all_formats() -> list[Format]:
    """All registered formats, of the library and of plugins."""
    return [find("format", name) for name in names("format")]


def format_of(path: Path) -> Format:
    """Output format of a file, chosen by the suffix."""
    known = {suffix: one for one in all_formats() for suffix in one.suffixes}
    if path.suffix not in known:
        message = f"the suffix of {path} is not one of {', '.join(known)}"
        raise UserError(message, hint=nearest(path.suffix, known), file=path)
    return known[path.suffix]


def recognise(path: Path) -> tuple[Format | None, bytes]:
    """Detect the format of a file; return it (None if unknown) and the first bytes.

    The first bytes of a .gz file are decompressed.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin: bytes = file.read(SNIFFED_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        hint = "It may be incomplete: download or copy it again."
        raise UserError(f"{path} cannot be read: {error}", hint=hint, file=path) from error
    return next((one for one in all_formats() if one.recognises(begin)), None), begin


def as_text(column: Array) -> Array:
    """Convert bytes, lists and other objects of a column to strings; keep numbers."""
    if column.dtype.kind not in "OS":
        return column

    def word(value: object) -> str:
        if isinstance(value, np.ndarray | list | tuple):
            return " ".join(map(str, value))
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    made: Array = np.empty(len(column), object)
    made[:] = [word(value) for value in column.tolist()]
    return made


class View(Protocol):
    """View of a table file with different rows, such as objects instead of events."""

    def view(self, file: TableFile) -> TableFile:
        """View of the file for a reader."""


@dataclass(frozen=True)
class Layout:
    """User settings for reading a file with an ambiguous layout.

    tree          name (or number) of the tree or table to read
    mask          array that marks or counts the real entries of padded arrays
    axes          column names for the last axis of an array
    words         name of the only column of strings to read from files of events
    nested        whether to read nested columns, and to read missing lists as empty lists
    names         column names of a text file without a header
    usual_names   column names to assume if neither the file nor `names` gives names
    renames       aliases of columns, {alias: name in the file}
    objects       view with a row for each object in lists (default: none)
    """

    tree: str = ""
    mask: str = ""
    axes: dict[str, list[str]] = field(default_factory=dict)
    words: str = ""
    nested: bool = False
    names: tuple[str, ...] = ()
    usual_names: tuple[str, ...] = ()
    renames: dict[str, str] = field(default_factory=dict)
    objects: View | None = None

    def __hash__(self) -> int:
        return hash((self.tree, self.mask, str(self.axes), self.words, str(self.renames), self.objects))


class Kind(NamedTuple):
    """Type of a column: lists or single values, of strings or numbers."""

    listed: bool
    words: bool


class TableFile:
    """Open table file; `read` returns columns of a range of rows.

    rows     number of rows (events, objects or observations)
    columns  columns that can be read, by name: `list` or `value` for each row
    kinds    all readable columns with their types, including strings, for formats that know them
    others   columns that cannot be read as numbers, with a description of their type
    edges    rows at which reading can start without decompressing earlier rows
    header   single values that describe the whole file
    """

    form = ""
    in_memory = False
    rows: int
    edges: Array
    path: Any  # or the name of a table in memory
    file: Any = None

    def __init__(self, path: Path | str, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self.columns: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self.kinds: dict[str, Kind] = {}
        self.header: dict[str, Any] = {}
        self.renamed: dict[str, str] = {}

    def rename(self, renames: Mapping[str, str]) -> None:
        """Add second names for columns: {second name: name in the file}."""
        for ours, theirs in renames.items():
            known: tuple[dict[str, Any], ...] = (self.columns, self.kinds, self.others, self.header)
            if not any(theirs in columns for columns in known):
                message = f"{self.path} has no column `{theirs}` to use as `{ours}`"
                raise self.error(message, nearest(theirs, {**self.columns, **self.others}), "--map")
            for columns in known:
                columns.pop(ours, None)
                if theirs in columns:
                    columns[ours] = columns[theirs]
            self.renamed[ours] = theirs

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Read columns of the rows start .. stop - 1."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file handle, if there is one."""
        if self.file is not None:
            self.file.close()

    def tables(self) -> Sequence[TableFile]:
        """All tables of the file (default: only the table itself)."""
        return [self]

    def add_column(self, name: str, kind: Kind, form: str) -> None:
        """Register a column; list strings, except `layout.words`, in `others`."""
        self.kinds[name] = kind
        if kind.words and (kind.listed or name != self.layout.words):
            self.others[name] = form
        else:
            self.columns[name] = "list" if kind.listed else "value"

    def error(self, message: str, hint: str = "", key: str | None = None) -> UserError:
        """A `UserError` with the file as a field (None for a table in memory)."""
        return UserError(message, hint=hint, key=key, file=self.path if isinstance(self.path, Path) else None)

    @cached_property
    def _ends(self) -> dict[str, list[str]]:
        """Full names of columns, by the last part of the name."""
        ends: dict[str, list[str]] = {}
        for full in self.columns:
            ends.setdefault(full.rpartition(".")[2], []).append(full)
        return ends

    def find(self, name: str) -> str | None:
        """Full name of a column, from the name or a unique last part; None if unknown."""
        if name in self.columns:
            return name
        found = self._ends.get(name.rpartition("/")[2], [])
        return found[0] if len(found) == 1 else None

    def need(self, name: str, why: str, hint: str = "") -> str:
        """Like `find`, but a missing column is an error.

        why   recipe key or purpose that needs the column, for the message
        """
        if (found := self.find(name)) is not None:
            return found
        key = why if why.startswith("data.") else None
        needed = f"column `{name}`" + (f", needed for {why}," if why else "")
        if name in self.others:
            message = f"{needed} cannot be read from {self.path}: it is {self.others[name]}"
            raise self.error(message, "Only numbers and lists of numbers can be read.", key)
        if same := self._ends.get(name, []):
            message = f"{needed} is ambiguous in {self.path}: {', '.join(same[:8])}"
            raise self.error(message, "Give the full name.", key)
        near = f"{nearest(name, self.columns)} {hint}".strip()
        raise self.error(f"{needed} is missing in {self.path}", near, key)

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns of the rows start .. stop - 1; lists of equal lengths share `lengths`."""
        with reading(self.path, self.form):
            read = self.get(list(dict.fromkeys(self.renamed.get(name, name) for name in names)), start, stop)
            found = {name: read[self.renamed.get(name, name)] for name in names} if self.renamed else read
        for name, column in found.items():
            if len(column) != stop - start:
                raise self.error(f"`{name}` in {self.path} must have {stop - start} entries, not {len(column)}")
        return shared(found)


def shared(table: dict[str, Column]) -> dict[str, Column]:
    """Let columns of lists with equal lengths share a single `lengths` array."""
    known: list[Array] = []
    for name, column in table.items():
        if isinstance(column, Lists):
            own = column.lengths
            same = next((one for one in known if one is own or np.array_equal(one, own)), None)
            if same is None:
                known.append(own)
            else:
                table[name] = Lists(column.values, same)
    return table


def open_file(path: Path, layout: Layout, form: Format | None = None) -> TableFile:
    """Open a file of any format (default: detected from its first bytes)."""
    if form is None:
        form, begin = recognise(path)
        if form is None or form.reader is None:
            known = ", ".join(one.name for one in all_formats() if one.reader and (one.magic or one.sniff))
            raise UserError(f"{path} is not a file of the formats {known}: it begins with {begin[:8]!r}", file=path)
    assert form.reader is not None
    with reading(path, form.name):
        opened = form.reader(path, layout)
        opened = opened if layout.objects is None else layout.objects.view(opened)
        for table in opened.tables() if layout.renames else ():
            table.rename(layout.renames)
    if not opened.rows:
        opened.close()
        raise UserError(f"{path} has no rows", file=path)
    return opened


Key = tuple[int, Path, Layout]
_OPENED: OrderedDict[Key, tuple[tuple[int, int], TableFile]] = OrderedDict()


def opened(path: Path, layout: Layout) -> TableFile:
    """Open a file, or reuse its open handle; a forked process opens its own handle."""
    if isinstance(path, MemoryFile):
        return path.open_table(layout)
    key, status = (os.getpid(), path, layout), path.stat()
    stamp = status.st_mtime_ns, status.st_size
    if key in _OPENED and _OPENED[key][0] != stamp:  # the file was replaced
        _close(key)
    if key not in _OPENED:
        while len(_OPENED) >= MAX_OPEN_FILES:
            _close(next(iter(_OPENED)))
        _OPENED[key] = stamp, open_file(path, layout)
    _OPENED.move_to_end(key)
    return _OPENED[key][1]


def _close(key: Key) -> None:
    _, old = _OPENED.pop(key)
    if key[0] == os.getpid():
        old.close()


def release(paths: Sequence[Path] = ()) -> None:
    """Close open files of this process (default: all)."""
    for key in [key for key in _OPENED if not paths or key[1] in paths]:
        _close(key)
