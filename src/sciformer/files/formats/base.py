"""File formats: which one a file has, and what readers and writers of every format answer."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError, nearest
from ...recipe.registry import find, names
from ..packages import broken

MAX_OPEN_FILES = 64  # files kept open in each process
SNIFFED_BYTES = 512  # of the beginning of a file, by which its format is known
Column = Array | Lists


class TableWriter:
    """A file being written: opened for tables like the first one, then filled.

    Columns may be numbers or texts, arrays (n, ...) and `Lists`; a format that cannot hold one of them refuses it.
    """

    tabular = True
    """Whether readers of the format expect one value for each row and column, not arrays."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path = path

    def add(self, table: Table) -> None:
        """Write the rows of a table."""
        raise NotImplementedError

    def close(self, about: Mapping[str, Array]) -> None:
        """Finish the file; `about` are arrays on the whole table, where a format has room."""
        raise NotImplementedError

    def stop(self) -> None:
        """Release what the system lends, for a file that is given up."""
        self.close({})


@dataclass(frozen=True)
class Format:
    """A file format; `register("format", NAME)(Format(...))` adds another.

    name       as messages call it
    suffixes   ends of the names of its files, the usual one first
    packages   packages that it needs, imported on use
    writer     writes tables to a file; None: it is read only
    reader     opens a file, `reader(path, layout)`; None: it is written only
    magic      bytes that its files begin with
    sniff      whether a file that begins with these bytes has the format, where no fixed bytes tell
    """

    name: str
    suffixes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    writer: type[TableWriter] | None = None
    reader: Callable[[Path, Layout], TableFile] | None = None
    magic: tuple[bytes, ...] = ()
    sniff: Callable[[bytes], bool] | None = None

    def recognises(self, begin: bytes) -> bool:
        """Whether a file that begins with these bytes has the format."""
        return begin.startswith(self.magic) or (self.sniff is not None and self.sniff(begin))


def all_formats() -> list[Format]:
    """The formats of the library and of plugins."""
    return [find("format", name) for name in names("format")]


def format_of(path: Path) -> Format:
    """The format of a file to write, by its ending."""
    known = {suffix: one for one in all_formats() for suffix in one.suffixes}
    if path.suffix not in known:
        message = f"{path} has no ending of a known format, which are {', '.join(known)}"
        raise UserError(message, hint=nearest(path.suffix, known), file=path)
    return known[path.suffix]


def recognise(path: Path) -> tuple[Format | None, bytes]:
    """The format of a file to read, by how it begins (unpacked, if it is a .gz file), and these bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin: bytes = file.read(SNIFFED_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="Was it cut off? Fetch it again.", file=path) from error
    return next((one for one in all_formats() if one.recognises(begin)), None), begin


def as_text(column: Array) -> Array:
    """A column with texts in place of bytes, lists and other objects; numbers stay."""
    if column.dtype.kind not in "OS":
        return column

    def word(value: object) -> str:
        if isinstance(value, np.ndarray | list | tuple):
            return " ".join(map(str, value))
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    made: Array = np.empty(len(column), object)
    made[:] = [word(value) for value in column.tolist()]
    return made


@dataclass(frozen=True)
class Layout:
    """What a file does not tell by itself.

    tree     the tree or table to read, by its name (or number)
    mask     the array that says how many entries of padded ones are real
    axes     names of columns for the last axis of an array
    words    the one column of events that may hold words in place of numbers
    nested   whether columns nested in others are read, and missing lists as empty ones
    names    of the columns of a text without names; `usual_names` where it does not tell them itself
    """

    tree: str = ""
    mask: str = ""
    axes: dict[str, list[str]] = field(default_factory=dict)
    words: str = ""
    nested: bool = False
    names: tuple[str, ...] = ()
    usual_names: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.tree, self.mask, str(self.axes), self.words))


class Kind(NamedTuple):
    """What a column has for each row: a list of them or one, words or numbers."""

    listed: bool
    words: bool


class TableFile:
    """An open file: `read` gives columns of some of its rows.

    rows     events, objects or observations in it
    columns  names of columns of numbers, and whether each is a `list` or a `value` of a row
    kinds    all columns that can be read, those of words too, in formats that tell
    others   names of what cannot be read as numbers, and what it is
    edges    rows at which reading may begin without unpacking what comes before
    header   single values that belong to the whole file
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

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """These columns of the rows start .. stop - 1."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the system lends: the handle `file`, where there is one."""
        if self.file is not None:
            self.file.close()

    def tables(self) -> Sequence[TableFile]:
        """The tables of a file that may have several."""
        return [self]

    def add_column(self, name: str, kind: Kind, form: str) -> None:
        """Take down a column that can be read; words are refused where numbers are expected."""
        self.kinds[name] = kind
        if kind.words and (kind.listed or name != self.layout.words):
            self.others[name] = form
        else:
            self.columns[name] = "list" if kind.listed else "value"

    def error(self, message: str, hint: str = "", key: str | None = None) -> UserError:
        """An error that names the file; a table in memory has none."""
        return UserError(message, hint=hint, key=key, file=self.path if isinstance(self.path, Path) else None)

    def find(self, name: str) -> str | None:
        """The column that a name means: its own, or its last part where no other ends alike."""
        if name in self.columns:
            return name
        if not hasattr(self, "_ends"):
            ends: dict[str, list[str]] = {}
            for full in self.columns:
                ends.setdefault(full.rpartition(".")[2], []).append(full)
            self._ends = ends
        found = self._ends.get(name.rpartition("/")[2], [])
        return found[0] if len(found) == 1 else None

    def need(self, name: str, why: str, hint: str = "") -> str:
        """The same, or an error that names what is like it; `why` is the key or the part that needs the column."""
        found = self.find(name)
        if found is not None:
            return found
        key = why if why.startswith("data.") else None
        needed = f"column `{name}`" + (f", needed for {why}," if why else "")
        if name in self.others:
            message = f"{needed} cannot be read from {self.path}: it is {self.others[name]}"
            raise self.error(message, "Only plain numbers, and lists of them, are read.", key)
        if same := self._ends.get(name, []):
            message = f"{needed} is ambiguous in {self.path}: {', '.join(same[:8])}"
            raise self.error(message, "Give the whole name.", key)
        near = f"{nearest(name, self.columns)} {hint}".strip()
        raise self.error(f"{needed} is missing in {self.path}", near, key)

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns by the names asked for; lists that are equally long share their lengths."""
        try:
            found = self.get(names, start, stop)
        except UserError:
            raise
        except Exception as error:  # damaged files make each library raise a dozen different ones
            raise broken(self.path, self.form, error) from error
        for name, column in found.items():
            if len(column) != stop - start:
                raise self.error(f"`{name}` in {self.path} must have {stop - start} entries, not {len(column)}")
        return shared(found)


def shared(table: dict[str, Column]) -> dict[str, Column]:
    """The same columns; lists that are equally long share one array of lengths."""
    known: list[Array] = []
    for name, column in table.items():
        if isinstance(column, Lists):
            for lengths in known:
                if lengths is column.lengths:
                    break
                if np.array_equal(lengths, column.lengths):
                    table[name] = Lists(column.values, lengths)
                    break
            else:
                known.append(column.lengths)
    return table


def open_file(path: Path, layout: Layout, form: Format | None = None) -> TableFile:
    """A file of any of the formats (default: as it begins)."""
    if form is None:
        form, begin = recognise(path)
        if form is None or form.reader is None:
            known = ", ".join(one.name for one in all_formats() if one.reader and (one.magic or one.sniff))
            raise UserError(f"{path} has none of the formats {known}: it begins with {begin[:8]!r}", file=path)
    assert form.reader is not None
    try:
        opened = form.reader(path, layout)
    except UserError:
        raise
    except Exception as error:
        raise broken(path, form.name, error) from error
    if not opened.rows:
        opened.close()
        raise UserError(f"{path} has no rows", file=path)
    return opened


Key = tuple[int, Path, Layout]
_OPENED: OrderedDict[Key, tuple[tuple[int, int], TableFile]] = OrderedDict()


def opened(path: Path, layout: Layout) -> TableFile:
    """A file that is open in this process; a worker opens its own, for handles do not survive a fork."""
    key, status = (os.getpid(), path, layout), path.stat()
    stamp = status.st_mtime_ns, status.st_size
    if key in _OPENED and _OPENED[key][0] != stamp:  # another file by the same name
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
    """Close files of this process: these, or all."""
    for key in [key for key in _OPENED if not paths or key[1] in paths]:
        _close(key)
