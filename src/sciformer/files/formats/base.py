"""Files of events in columns: what every format answers, and which format a file has."""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError, nearest
from ...recipe.registry import find, names
from ..packages import broken

MAX_OPEN_FILES = 64  # files kept open in each process
MAGIC_BYTES = {b"root": "ROOT", b"\x89HDF": "HDF5", b"PAR1": "Parquet", b"PK\x03\x04": "NPZ"}
MODULES = {
    "ROOT": "sciformer.files.formats.root:RootFile",
    "HDF5": "sciformer.files.formats.hdf5:HDF5File",
    "Parquet": "sciformer.files.formats.parquet:ParquetFile",
    "NPZ": "sciformer.files.formats.padded:NPZFile",
}
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
    """A file format.

    name       as messages call it
    suffixes   ends of the names of its files, the usual one first
    packages   packages that it needs, imported on use
    writer     writes tables to a file; None: it is read only
    """

    name: str
    suffixes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    writer: type[TableWriter] | None = None


def format_of(path: Path) -> Format:
    """The format of a file, by its ending."""
    known: dict[str, Format] = {}
    for name in names("format"):
        found: Format = find("format", name)
        known |= dict.fromkeys(found.suffixes, found)
    if path.suffix not in known:
        message = f"{path} has no ending of a known format, which are {', '.join(known)}"
        raise UserError(message, hint=nearest(path.suffix, known), file=path)
    return known[path.suffix]


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
    """What a file does not tell by itself; `words` is the one column that may hold words in place of numbers."""

    tree: str = ""
    mask: str = ""
    axes: dict[str, list[str]] = field(default_factory=dict)
    words: str = ""

    def __hash__(self) -> int:
        return hash((self.tree, self.mask, str(self.axes), self.words))


class EventFile:
    """An open file: `read` gives columns of some of its rows.

    rows     events in it
    columns  names of columns that can be read, and whether each is a `list` or a `value` of an event
    others   names of what cannot be read, and what it is
    edges    rows at which reading may begin without unpacking what comes before
    """

    form = ""
    rows: int
    columns: dict[str, str]
    others: dict[str, str]
    edges: Array

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self.columns, self.others = {}, {}

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """These columns of the rows start .. stop - 1."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the system lends."""

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
            raise UserError(
                f"{needed} cannot be read from {self.path}: it is {self.others[name]}",
                hint="Only plain numbers, and lists of them, are read.",
                key=key,
                file=self.path,
            )
        same = self._ends.get(name, [])
        if same:
            raise UserError(
                f"{needed} is ambiguous in {self.path}: {', '.join(same[:8])}",
                hint="Give the whole name.",
                key=key,
                file=self.path,
            )
        raise UserError(
            f"{needed} is missing in {self.path}",
            hint=f"{nearest(name, self.columns)} {hint}".strip(),
            key=key,
            file=self.path,
        )

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
                raise UserError(
                    f"`{name}` in {self.path} must have {stop - start} entries, not {len(column)}", file=self.path
                )
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


def form_of(path: Path) -> str:
    """The format of a file, by how it begins."""
    with path.open("rb") as file:
        begin = file.read(8)
    for mark, form in MAGIC_BYTES.items():
        if begin.startswith(mark):
            return form
    raise UserError(f"{path} is not a ROOT, HDF5, Parquet or NPZ file: it begins with {begin!r}", file=path)


def open_file(path: Path, layout: Layout) -> EventFile:
    """A file of any of the formats."""
    form = form_of(path)
    module, _, name = MODULES[form].partition(":")
    kind: type[EventFile] = getattr(importlib.import_module(module), name)
    try:
        opened = kind(path, layout)
    except UserError:
        raise
    except Exception as error:
        raise broken(path, form, error) from error
    if not opened.rows:
        opened.close()
        raise UserError(f"{path} has no events", file=path)
    return opened


Key = tuple[int, Path, Layout]
_OPENED: OrderedDict[Key, tuple[tuple[int, int], EventFile]] = OrderedDict()


def opened(path: Path, layout: Layout) -> EventFile:
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


def columns_of(path: Path | str, tree: str = "", mask: str = "") -> dict[str, str]:
    """The columns of a file that can be read: whether each is a `list` or a `value` of an event."""
    found = open_file(Path(path), Layout(tree, mask))
    try:
        return dict(found.columns)
    finally:
        found.close()
