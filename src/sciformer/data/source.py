"""Where samples come from: tables of columns, in one piece or in many."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from ..errors import UserError
from ..recipe.registry import Section
from .columns import Array, Lists, Table, rows_of, select

MAX_BYTES_HASHED_WHOLE, SAMPLED_BLOCK_BYTES, SAMPLED_BLOCKS = 256 << 20, 1 << 16, 64  # of fingerprints
GLOB_CHARACTERS = "*?["  # of a glob
STANDARD_PARTS = ("train", "valid", "test")  # parts that have keys of their own


class Source(Protocol):
    """Samples in pieces that fit into memory."""

    sizes: list[int]
    """Samples in each piece."""

    def load(self, piece: int) -> Table:
        """Read one piece."""
        ...


def known_column(source: Source, name: str, lists: bool = False) -> Array | None:
    """A column of all samples, or how long its `lists` are, where a source knows that without loading its pieces."""
    asked = getattr(source, "known_column", None)
    return None if asked is None else asked(name, lists)


class Memory:
    """A table that is in memory already."""

    def __init__(self, table: Table) -> None:
        self.table = {name: _as_column(name, column) for name, column in table.items()}
        self.sizes = [rows_of(self.table)]

    def load(self, piece: int) -> Table:
        return self.table


def _as_column(name: str, column: Any) -> Array | Lists:
    if isinstance(column, (Lists, np.ndarray)):
        return column
    try:
        return np.asarray(column)
    except ValueError as error:
        raise UserError(f"the entries of column `{name}` must have the same shape") from error


class Chosen:
    """Some samples of another source."""

    def __init__(self, source: Source, rows: Array) -> None:
        """`rows` are sorted numbers of samples, counted over all pieces."""
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
    """Opened data: a source for each part (train, valid, test and others), and what identifies the files."""

    sources: dict[str, Source]
    fingerprint: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def order_parts(sources: dict[str, Source]) -> dict[str, Source]:
    """Train, valid, test, then the others."""
    return {name: sources[name] for name in (*STANDARD_PARTS, *sources) if name in sources}


class Data(Section):
    """The `data:` section: which files or which simulation, and how they are divided."""

    section = "data"

    def want(
        self,
        names: Collection[str],
        truth: Collection[str] = (),
        wishes: Collection[str] = (),
        positive: Collection[str] = (),
    ) -> Self:
        """The same section, told which columns are of use, so that it need not read others; `state` remembers them.

        names     needed wherever samples are read
        truth     needed to train and to judge, but not where answers are asked for
        wishes    taken where there are such
        positive  those of them with entries of 0 or more
        """
        twin = self.fresh()
        twin.state.update(names=list(names), truth=list(truth), wishes=list(wishes), positive=list(positive))
        return twin

    def open(self, log: Any = None) -> Splits:
        """Find and check the data; `say(text)` hears what takes time."""
        raise NotImplementedError

    def reopen(self, log: Any = None) -> Splits:
        """The same for a run that was trained before, perhaps elsewhere: nothing may be written where it says."""
        return self.open(log)

    def absolute_paths(self) -> Self:
        """The same section with absolute names in `files`, if it has such a list."""
        names = getattr(self, "files", None)
        if not isinstance(names, list):
            return self
        return self.model_copy(update={"files": [locate(name) for name in names]})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Other files of the same form, undivided: what `predict` is given."""
        raise UserError(f"data.kind {self.kind} makes its own data and cannot read files", key="data.kind")

    def aligned(self, files: Sequence[str | Path]) -> Source:
        """The same with nothing left out that is empty, so that answers stand beside what they belong to."""
        return self.read(files)


def fingerprint(path: Path) -> str:
    """What tells whether a file changed: its size and a hash.

    Up to 256 MiB all of it is hashed. Of a longer one 64 KiB at either end and at 64 places evenly between: a change of
    a few bytes elsewhere in it goes unnoticed.
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
    """Fingerprints of files."""
    return {str(path): fingerprint(path) for path in dict.fromkeys(paths)}


def locate(name: str) -> str:
    """An absolute name of a file or glob; the last link of a file is not followed, for its name tells what it is."""
    path = Path(name).expanduser()
    marked = [number for number, part in enumerate(path.parts) if any(mark in part for mark in GLOB_CHARACTERS)]
    if path.exists() or not marked:
        return str(path.parent.resolve() / path.name)
    folder, pattern = path.parts[: marked[0]], path.parts[marked[0] :]
    return str(Path(glob.escape(str(Path(*folder).resolve())), *pattern))


def find_files(patterns: Sequence[str | Path], what: str = "files") -> list[Path]:
    """The files that names and globs mean, in order; none, or a missing one, is an error that says where it looked."""
    if not patterns:
        raise UserError(f"no {what} are named", hint="Give some with --data.files NAME ...", key="data.files")
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        hits = [path] if path.exists() else []
        if not hits and any(mark in str(pattern) for mark in GLOB_CHARACTERS):
            hits = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path)))
        if not hits:
            if path.is_relative_to(Path.cwd()):  # as it was written, before it was located
                path = path.relative_to(Path.cwd())
            advice = "Was it moved?" if path.is_absolute() else "Names are relative to this folder."
            raise UserError(f"cannot find {what} named {str(path)!r}: {_beside(path)}", hint=advice, file=path)
        for hit in hits:
            if hit.is_dir():
                raise UserError(f"{hit} is a folder, not a file", hint=f"Name its files: {hit}/*", file=hit)
            if hit.stat().st_size == 0:
                raise UserError(f"{hit} is empty", file=hit)
        found += hits
    return list(dict.fromkeys(found))  # a file that two patterns mean is read once


def _beside(path: Path) -> str:
    import difflib

    folder = path.parent if path.parent.is_dir() else Path(".")
    names = [entry.name for entry in folder.iterdir()]
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    place = f"there is no file of that name in {folder.resolve()}"
    return f"there is no file of that name, but {folder}/{near[0]} is there" if near else place


def pieces(source: Source) -> Iterator[Table]:
    """All pieces, one after the other."""
    for piece in range(len(source.sizes)):
        yield source.load(piece)
