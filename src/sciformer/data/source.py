"""Sources of samples: tables of columns, in one or several pieces."""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ..errors import UserError, one_of
from ..files.in_memory import MemoryFile
from ..recipe.options import annotation_at, parse_typed
from ..recipe.registry import Section
from .columns import Array, Lists, Table, rows_of, select

MAX_BYTES_HASHED_WHOLE, SAMPLED_BLOCK_BYTES, SAMPLED_BLOCKS = 256 << 20, 1 << 16, 64  # for fingerprints
GLOB_CHARACTERS = "*?["
FILE_NAME = re.compile(r"\S*\.(\{\}|[A-Za-z*?]\w{0,9})")
STANDARD_PARTS = ("train", "valid", "test")  # parts with keys in every reader


class Source(Protocol):
    """Protocol of sources: samples in pieces, loaded one at a time."""

    sizes: list[int]
    """Number of samples in each piece."""

    def load(self, piece: int) -> Table:
        """Load a piece as a table."""
        ...


def known_column(source: Source, name: str, lists: bool = False) -> Array | None:
    """Column of all samples, or lengths of its lists, from metadata; None if unknown."""
    asked = getattr(source, "known_column", None)
    return None if asked is None else asked(name, lists)


class Memory:
    """Source of samples in memory, as a single table.

    notes   notes for the user, for example on samples that were left out
    """

    def __init__(self, table: Table, notes: Sequence[str] = ()) -> None:
        self.notes = list(notes)
        self.table = {name: _as_column(name, column) for name, column in table.items()}
        self.sizes = [rows_of(self.table)]
        self.rows = np.arange(self.sizes[0])

    def load(self, piece: int) -> Table:
        return self.table


def _as_column(name: str, column: Any) -> Array | Lists:
    if isinstance(column, (Lists, np.ndarray)):
        return column
    if isinstance(column, (list, tuple)) and column and all(map(_is_list_of_words, column)):
        lengths = np.array([len(row) for row in column], np.int64)
        return Lists(np.array([word for row in column for word in row], str), lengths)
    try:
        return np.asarray(column)
    except ValueError as error:
        raise UserError(f"the entries of column `{name}` have different shapes") from error


def _is_list_of_words(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and all(isinstance(word, str) for word in row)


class Chosen:
    """Subset of the samples of another source."""

    def __init__(self, source: Source, rows: Array) -> None:
        """`rows` are sorted sample numbers, counted over all pieces."""
        self.source = source
        stops = np.cumsum(source.sizes)
        piece = np.searchsorted(stops, rows, side="right")
        first = stops - np.asarray(source.sizes)
        self.pieces = [int(p) for p in np.unique(piece)]
        self.rows = [rows[piece == p] - first[p] for p in self.pieces]
        self.sizes = [len(kept) for kept in self.rows]

    def load(self, piece: int) -> Table:
        return select(self.source.load(self.pieces[piece]), self.rows[piece])


@dataclass(frozen=True)
class Splits:
    """Opened data: sources of train, valid, test, ..., file fingerprints, and notes.

    small_files   small files, with a common fingerprint for their folder
    learned       values learned from the training files, plain JSON; the reader of new files finds them in its `state`
    """

    sources: dict[str, Source]
    fingerprint: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    small_files: list[Path] = field(default_factory=list)
    learned: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """All data files."""
        return [*(path for path in map(Path, self.fingerprint) if path.is_file()), *self.small_files]


def order_parts(sources: dict[str, Source]) -> dict[str, Source]:
    """Sort parts: train, valid, test, then all further parts."""
    return {name: sources[name] for name in (*STANDARD_PARTS, *sources) if name in sources}


class Data(Section):
    """Base class of the `data:` section of a recipe: files or a simulation."""

    section = "data"
    column_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that name a column of the files; `with_columns` sets them."""
    renames_columns: ClassVar[bool] = False
    """Whether `read` renames further columns, by `state["renames"]`: {new name: name in the file}."""
    reading_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that may have other values for new files: `predict RUN FILES --data.errors replace`."""
    reads_tables: ClassVar[bool] = False
    """Whether `read` accepts tables in memory (`MemoryFile`)."""
    reads_texts: ClassVar[bool] = False
    """Whether a list of strings is a table of texts."""

    def want(
        self,
        names: Collection[str],
        truth: Collection[str] = (),
        wishes: Collection[str] = (),
        positive: Collection[str] = (),
    ) -> Self:
        """Copy of the section for these columns only, stored in `state`.

        names     columns that are always required
        truth     columns required for training and evaluation, but not for prediction
        wishes    optional columns
        positive  columns in which a negative entry is invalid
        """
        twin = self.fresh()
        twin.state.update(names=list(names), truth=list(truth), wishes=list(wishes), positive=list(positive))
        return twin

    def with_tables(self, tables: Mapping[str, MemoryFile]) -> Self:
        """Copy for tables in memory, one table per part, instead of files."""
        if not tables:
            return self
        if not self.reads_tables:
            message = f"data.kind {self.kind} cannot read tables in memory"
            raise UserError(
                message, hint="Choose another data.kind, such as events, series or arrays.", key="data.kind"
            )
        twin = self.fresh()
        twin.state.update({**self.state, "tables": dict(tables)})
        return twin

    def table_reader(self) -> Data:
        """Section for the same kind of samples in memory (default: this section)."""
        return self

    def without_files(self) -> dict[str, Any]:
        """Empty values of the file keys, for data in memory."""
        return {}

    def further_columns(self) -> Collection[str]:
        """Columns read by the section itself, besides the columns of `column_keys`."""
        return ()

    def with_columns(self, columns: Mapping[str, str]) -> Self:
        """Copy for files with renamed columns: {name in the recipe: name in the files}."""
        if not columns:
            return self
        known = [*self.column_keys]
        if self.renames_columns:
            wanted = (self.state.get(name, ()) for name in ("names", "truth", "wishes"))
            known = list(dict.fromkeys([*known, *chain(*wanted), *self.further_columns()]))
        for name in columns:
            if not known:
                raise UserError(f"files of data.kind {self.kind} have no columns to map", key="--map")
            one_of("the column to map", name, known, key="--map")
        classes: dict[Any, Any] = {(self.section,): type(self)}
        keys = {
            name: parse_typed(theirs, annotation_at(classes, (self.section, name)))
            for name, theirs in columns.items()
            if name in self.column_keys
        }
        renames = {name: theirs for name, theirs in columns.items() if name not in keys}
        twin = self.model_copy(update=keys).fresh()
        twin.state.update({**self.state, "renames": renames})
        return twin

    def open(self, log: Any = None) -> Splits:
        """Find, check and split the data; `log(text)` reports slow steps."""
        raise NotImplementedError

    def reopen(self, log: Any = None) -> Splits:
        """Open the data of a trained run, perhaps on another machine; write no files."""
        return self.open(log)

    def absolute_paths(self) -> Self:
        """Copy with absolute paths in `files`, if the section has this key."""
        names = getattr(self, "files", None)
        if not isinstance(names, list):
            return self
        return self.model_copy(update={"files": [locate(name) for name in names]})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Read files of the same format for a prediction, without splitting them."""
        raise UserError(f"data.kind {self.kind} simulates its data and cannot read files", key="data.kind")

    def aligned(self, files: Sequence[str | Path]) -> Source:
        """Like `read`, but keeps every sample, to align vectors with the input rows."""
        return self.read(files)

    def with_empty(self, files: Sequence[str | Path]) -> Source:
        """Like `read`, but keeps empty samples; their predictions are NaN."""
        return self.read(files)

    def with_gaps(self, table: Table, rows: Array) -> Table:
        """Rows of a table; the row number -1 gives an empty sample.

        An empty sample has empty lists, NaN for numbers, and "" for strings.
        """
        return {name: _with_gaps(name, column, rows) for name, column in table.items()}

    def empty_rows(self, table: Table) -> Array | None:
        """Mask of samples with too few entries for a prediction; None if there are none."""
        return None


def _with_gaps(name: str, column: Array | Lists, rows: Array) -> Array | Lists:
    gaps = rows < 0
    if isinstance(column, Lists):
        found = column.take(rows[~gaps])
        lengths = np.zeros(len(rows), np.int64)
        lengths[~gaps] = found.lengths
        return Lists(found.values, lengths)
    if not gaps.any():
        return column[rows]
    if column.ndim > 1:
        message = f"`{name}` has an array of shape {column.shape[1:]} for each sample, but is missing in some samples"
        raise UserError(message, hint="Save its values as lists, which may be empty.")
    empty: Any = "" if column.dtype.kind in "US" else None if column.dtype.kind == "O" else np.nan
    made = np.full(len(rows), empty, np.result_type(column.dtype, np.float32) if empty is np.nan else column.dtype)
    made[~gaps] = column[rows[~gaps]]
    return made


def fingerprint(path: Path) -> str:
    """Size and hash of a file, to detect changes.

    Files up to 256 MiB are hashed completely. Larger files are hashed in blocks of 64 KiB, at both ends and at 64
    evenly spaced positions: a change of a few bytes elsewhere goes unnoticed.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= MAX_BYTES_HASHED_WHOLE:
            digest = hashlib.file_digest(file, "sha256")
        else:
            digest = hashlib.sha256()
            for number in range(SAMPLED_BLOCKS + 2):
                file.seek((size - SAMPLED_BLOCK_BYTES) * number // (SAMPLED_BLOCKS + 1))
                digest.update(file.read(SAMPLED_BLOCK_BYTES))
    return f"{size} bytes, {digest.hexdigest()[:16]}"


def fingerprint_files(paths: Sequence[Path]) -> dict[str, str]:
    """Fingerprints of files by path, and of tables in memory by part."""
    return {
        path.key if isinstance(path, MemoryFile) else str(path): (
            path.fingerprint if isinstance(path, MemoryFile) else fingerprint(path)
        )
        for path in dict.fromkeys(paths)
    }


def are_files(names: Sequence[str | Path]) -> bool:
    """Whether the entries of a list are names of files, and not texts.

    A list has file names if an entry is a `Path` or an existing file, or if all entries look like file names: without
    blanks, and with a suffix at the end.
    """
    return any(isinstance(name, Path) or _exists(name) for name in names) or all(
        FILE_NAME.fullmatch(str(name)) for name in names
    )


def _exists(name: str) -> bool:
    try:
        return any(Path(one).expanduser().exists() for one in (name, name.partition(":")[2] or name) if one.strip())
    except (OSError, RuntimeError):  # too long for a name, or the home of an unknown user
        return False


def locate(name: str) -> str:
    """Absolute path of a file or glob; only links in the folder part are resolved."""
    path = Path(name).expanduser()
    marked = [number for number, part in enumerate(path.parts) if any(mark in part for mark in GLOB_CHARACTERS)]
    if path.exists() or not marked:
        return str(path.parent.resolve() / path.name)
    folder, pattern = path.parts[: marked[0]], path.parts[marked[0] :]
    return str(Path(glob.escape(str(Path(*folder).resolve())), *pattern))


def expand_glob(path: Path) -> list[Path]:
    """An existing path itself, or else the sorted paths of a glob."""
    if path.exists() or not any(mark in str(path) for mark in GLOB_CHARACTERS):
        return [path] if path.exists() else []
    return sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path)))


def find_files(patterns: Sequence[str | Path], what: str = "files") -> list[Path]:
    """Expand file names and globs, in order; a missing file is an error.

    Tables in memory are returned unchanged.
    """
    if not patterns:
        raise UserError(f"no {what} are given", hint="Give them with --data.files NAME ...", key="data.files")
    found: list[Path] = []
    for pattern in patterns:
        if isinstance(pattern, MemoryFile):
            found.append(pattern)
            continue
        path = Path(pattern).expanduser()
        hits = expand_glob(path)
        if not hits:
            if path.is_relative_to(Path.cwd()):  # show the path as the user wrote it
                path = path.relative_to(Path.cwd())
            here = "Paths are relative to the current folder."
            advice = "Check whether it was moved." if path.is_absolute() else here
            raise UserError(f"cannot find {what} named {str(path)!r}: {_beside(path)}", hint=advice, file=path)
        for hit in hits:
            if hit.is_dir():
                raise UserError(f"{hit} is a folder, not a file", hint=f"Give its files: {hit}/*", file=hit)
            if hit.stat().st_size == 0:
                raise UserError(f"{hit} is empty", file=hit)
        found += hits
    return list(dict.fromkeys(found))  # read files that match two patterns once


def _beside(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path(".")
    near = difflib.get_close_matches(path.name, os.listdir(folder), n=1, cutoff=0.6)
    if near:
        return f"it does not exist, but {folder}/{near[0]} does"
    return f"the folder {folder.resolve()} has no file of this name"


def pieces(source: Source) -> Iterator[Table]:
    """Load all pieces in order."""
    for piece in range(len(source.sizes)):
        yield source.load(piece)
