"""Base classes of file readers: find, scan and split files, and read pieces.

A new reader is a `FileSet`, the section of a recipe, with a `FilePlan` that converts rows of a file to a table. Skipped
samples are counted and reported in notes.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from ..errors import UserError
from ..files.formats.base import Column, release, shared
from ..files.in_memory import MemoryFile
from .columns import Array, Table, concatenate
from .random import key, mix
from .readers.part_names import note_test_files
from .source import STANDARD_PARTS, Data, Source, Splits, find_files, fingerprint_files, locate, order_parts
from .split import Split, sample_per_class

Tagged = tuple[str, Path]
"""Class of all samples of a file (empty if none), and the file."""
Counts = Counter[Hashable]
"""Number of samples or entries found and left out, by reason."""
LABEL = "label"  # column of the class
FOR_TOKENS, FOR_OBJECTIVE = "the tokens", "the objective"  # users of a column, in messages
TAG = re.compile(r"([^:/\\*?\[\]]+):(.+)", re.DOTALL)
MAX_PIECES_IN_MEMORY = 8  # pieces kept in memory by a dataset
MAX_FILES_PER_PIECE, MAX_TAGS_PER_PIECE = 16, 64


class TaggedFiles(Data):
    """Files with optional class tags, CLASS:FILE, for train, valid and test."""

    reads_tables: ClassVar[bool] = True

    files: list[str] = Field(default_factory=list)
    """Training files: names or globs; CLASS:FILE sets the class of all samples in the files."""
    valid: list[str] = Field(default_factory=list)
    """Validation files, to choose the best model (default: a part of `files`, by `split`)."""
    test: list[str] = Field(default_factory=list)
    """Test files, for the final evaluation (default: a part of `files`, by `split`)."""
    extra_parts: dict[str, list[str]] = Field(default_factory=dict)
    """Files of further test sets, by name, each evaluated separately: {test2017: [NAME, ...]} (default: none)."""
    split: Split = Split()
    """Split of `files` into train, valid and test; parts with their own files are not split off."""

    def named(self) -> dict[str, list[Any]]:
        """File names, or the table in memory, of `train` and of each part with data."""
        if tables := self.state.get("tables"):
            return {part: [table] for part, table in tables.items()}
        for part, names in self.extra_parts.items():
            if part in STANDARD_PARTS or not part.strip():
                standard = ", ".join(STANDARD_PARTS)
                message = f"data.extra_parts cannot have a part named {part!r}: {standard} have their own keys"
                raise UserError(message, key="data.extra_parts")
            if not names:
                raise UserError(f"data.extra_parts.{part} has no files", key=f"data.extra_parts.{part}")
        given = {"train": self.files, "valid": self.valid, "test": self.test, **self.extra_parts}
        return {part: names for part, names in given.items() if names or part == "train"}

    @property
    def own_split(self) -> Split:
        """The key `split`, with fraction 0 for parts with their own files."""
        named = self.named()
        return self.split.less("valid" in named, "test" in named)

    def without_files(self) -> dict[str, Any]:
        return {"files": [], "valid": [], "test": [], "extra_parts": {}}

    def absolute_paths(self) -> Self:
        """Copy with absolute paths of the files."""
        found: dict[str, Any] = {part: _located(getattr(self, part)) for part in ("files", "valid", "test")}
        found["extra_parts"] = {part: _located(names) for part, names in self.extra_parts.items()}
        return self.model_copy(update=found)


def key_of(part: str) -> str:
    """Key of the section `data:` for the files of a part."""
    return {"train": "files"}.get(part, part if part in STANDARD_PARTS else f"extra_parts.{part}")


def _located(names: Sequence[str]) -> list[str]:
    return [f"{tag}:{locate(name)}" if tag else locate(name) for tag, name in map(split_tag, names)]


def split_tag(name: str | Path) -> tuple[str, Any]:
    """Split CLASS:FILES into class ("" if missing) and file name.

    A table in memory has no class.
    """
    if isinstance(name, MemoryFile):
        return "", name
    match = None if Path(name).expanduser().exists() else TAG.fullmatch(str(name))
    if match and os.name == "nt" and len(match[1]) == 1:  # a drive
        match = None
    tag, rest = (match[1].strip(), match[2].strip()) if match else ("", str(name))
    if rest.startswith("//") or "://" in rest:
        raise UserError(f"{str(name)!r} is a remote file", hint="Download it first, for example with xrdcp.")
    return tag, rest


def find_tagged_files(names: Sequence[str | Path], what: str) -> list[Tagged]:
    """Expand names and globs, with optional class tags, to files with their class."""
    found: dict[Path, str] = {}
    for tag, name in map(split_tag, names):
        for path in find_files([name], what):
            if found.setdefault(path, tag) != tag:
                pair = " and ".join(f"with the class {one}" if one else "without a class" for one in (found[path], tag))
                raise UserError(f"{path} is given twice, {pair}", file=path)
    if not names:
        find_files([], what)
    return [(tag, path) for path, tag in found.items()]


def check_tags(files: Sequence[Tagged]) -> None:
    """Refuse a mixture of files with and without a class tag."""
    bare = [path for tag, path in files if not tag]
    if bare and len(bare) < len(files):
        hint = "Give a class to all files (CLASS:FILES), or to none."
        raise UserError(f"{bare[0]} has no class tag, but other files have one", hint=hint, file=bare[0])


# Scan of a file


@dataclass(frozen=True)
class Words:
    """Column of strings, stored as distinct strings and one index per sample."""

    words: Array
    numbers: Array

    @classmethod
    def of(cls, column: Array) -> Words:
        """Encode a column of strings to save memory."""
        words, numbers = np.unique(column, return_inverse=True)
        return cls(words, numbers.astype(np.min_scalar_type(len(words))))

    def __getitem__(self, rows: Any) -> Array:
        return np.asarray(self.words[self.numbers[rows]])


@dataclass(frozen=True)
class Scan:
    """Result of the scan of a file.

    rows      number of samples in the file
    kept      row numbers of the samples to use
    edges     rows at which reading can start
    columns   columns needed before loading: the class column, and columns for the split and the weights
    counts    number of samples and entries left out, by reason
    lacks     optional columns that are missing
    has       columns that are present
    lengths   list lengths of each sample, by column
    file      open file; None if the file is opened again for each piece
    """

    path: Path
    tag: str
    rows: int
    edges: Array
    kept: Array
    columns: dict[str, Array | Words] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counter)
    lacks: tuple[str, ...] = ()
    has: frozenset[str] = frozenset()
    lengths: dict[str, Array] = field(default_factory=dict)
    file: Any = None


@dataclass(frozen=True)
class Rows:
    """Rows start .. stop - 1 of a file, or only the rows start + `kept`."""

    path: Path
    tag: str
    start: int
    stop: int
    kept: Array | None = None

    def __len__(self) -> int:
        return self.stop - self.start if self.kept is None else len(self.kept)

    @property
    def numbers(self) -> Array:
        """Numbers of these rows in their file."""
        return self.start + (np.arange(self.stop - self.start) if self.kept is None else self.kept)


class Seen(NamedTuple):
    """Scan of a range of rows.

    kept      row numbers of the samples to use
    columns   columns needed before loading
    lengths   list lengths, by column
    has       columns that are present
    """

    kept: Array
    columns: dict[str, Array]
    lengths: dict[str, Array]
    has: Collection[str]


class FilePlan:
    """Base class of reading plans: convert rows of files to tables."""

    wishes: tuple[str, ...]
    """Names of optional columns."""
    keeps_files: ClassVar[bool] = False
    """Whether a scan keeps its file open; an open file must survive pickling and forking."""

    def open(self, path: Path) -> Any:
        """Open a file; return an object with attributes `rows` and `edges`."""
        raise NotImplementedError

    def scan_rows(self, file: Any, tag: str, start: int, stop: int, counts: Counts) -> Seen:
        """Scan the rows start .. stop - 1; count samples left out in `counts`."""
        raise NotImplementedError

    def load(self, scan: Any, rows: Rows) -> Table:
        """Read the given rows of a scanned file as a table."""
        raise NotImplementedError

    def aligned(self) -> Self:
        """Copy of the plan for all samples, also empty and unselected samples."""
        raise NotImplementedError

    def with_empty(self) -> Self:
        """Copy of the plan; empty samples are kept and counted."""
        raise NotImplementedError

    def without(self, names: Collection[str]) -> Self:
        """Copy of the plan without some optional columns."""
        return replace(self, wishes=tuple(name for name in self.wishes if name not in names))  # type: ignore[type-var]

    def own(self, tag: str) -> Collection[str]:
        """Names of computed columns; these replace columns of the file."""
        return ()

    def scan(self, path: Path, tag: str, size: int) -> Scan:
        """Scan all rows of a file, `size` rows at a time."""
        file, counts = self.open(path), Counts()
        runs = list(stretches(file.edges, file.rows, size))
        seen = [self.scan_rows(file, tag, start, stop, counts) for start, stop in runs]
        has = {name for one in seen for name in one.has}
        columns: dict[str, Array | Words] = {
            name: np.concatenate([one.columns[name] for one in seen]) for name in seen[0].columns
        }
        if LABEL in columns:
            columns[LABEL] = Words.of(columns[LABEL][:])
        lengths, alike = dict[str, Array](), dict[tuple[int, ...], Array]()
        for name in seen[0].lengths:
            some = [one.lengths[name] for one in seen]
            same = tuple(map(id, some))
            lengths[name] = alike[same] = alike[same] if same in alike else np.concatenate(some)
        kept = np.concatenate([one.kept + start for one, (start, _) in zip(seen, runs)])
        lacks = tuple(dict.fromkeys(name for name in (*self.wishes, *self.own(tag)) if name not in has))
        own = file if self.keeps_files else None
        return Scan(path, tag, file.rows, file.edges, kept, columns, counts, lacks, frozenset(has), lengths, own)


def stretches(edges: Array, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Divide rows into runs of at most `size` rows.

    If the second half of a run contains an edge, the run ends at the edge.
    """
    start = 0
    while start < rows:
        stop = min(start + size, rows)
        if stop < rows:
            near = edges[(edges > start + size // 2) & (edges <= stop)]
            stop = int(near[-1]) if len(near) else stop
        yield start, stop
        start = stop


def known_columns(scans: Sequence[Scan], name: str, unit: str = "samples") -> Array:
    """Values of a column for all samples, as read by the scans of the files."""
    if lacking := [scan.path for scan in scans if name not in scan.columns]:
        message = f"{lacking[0]} has no column `{name}`, which is needed to split the {unit}"
        raise UserError(message, key="data.split", file=lacking[0])
    return np.concatenate([scan.columns[name][:] for scan in scans])


def note_missing_columns(scans: Sequence[Scan], asked: Collection[str], notes: list[str], but: str = "") -> list[str]:
    """Optional columns missing in at least one file; the column `but` is ignored.

    A note is added for each column that only some files have, and for each missing column in `asked`.
    """
    names = list(dict.fromkeys(name for scan in scans for name in scan.lacks if name != but))
    for name in names:
        without = [scan.path for scan in scans if name in scan.lacks]
        if len(without) < len(scans) or name in asked:
            more = f" and {len(without) - 1:,} more files" if len(without) > 1 else ""
            notes.append(f"`{name}` is not in {without[0]}{more}: left out.")
    return names


def note_overlaps(groups: Mapping[str, Any], what: str) -> list[str]:
    """Notes on ids of validation or test samples also in the training files."""
    known = set(groups["train"].tolist())
    counts = {part: sum(one in known for one in own.tolist()) for part, own in groups.items() if part != "train"}
    shares = {part: f"{count:,} of {len(groups[part]):,} {what}" for part, count in counts.items() if count}
    return [f"{share} of {part} are also in the training files." for part, share in shares.items()]


def in_files(sizes: Iterable[int], rows: Array) -> list[Array]:
    """Convert sorted sample numbers over all files to row numbers within each file."""
    ends = np.cumsum([0, *sizes])
    cuts = np.searchsorted(rows, ends)
    return [rows[low:high] - first for (low, high), first in zip(pairwise(cuts), ends)]


# Section of a recipe


class FileSet(TaggedFiles):
    """Base class of readers of many files: scan first, then load in pieces.

    A subclass defines `plan`, which converts rows of a file to a table, and `describe_counts`, which reports samples
    left out. The other methods may be overridden.
    """

    what: ClassVar[str] = "files"
    """Plural noun for the files, in messages."""
    unit: ClassVar[str] = "sample"
    """Singular noun for a sample, in messages."""
    separable: ClassVar[bool] = False
    """Whether files read one by one give the same samples as files read together."""

    bad_files: Literal["stop", "skip"] = "stop"
    """Treatment of unreadable files. stop: raise an error; skip: leave out the file, with a note (default: stop)."""
    chunk_size: int = Field(default=4096, ge=16)
    """Samples per chunk; training shuffles across several chunks in memory (default: 4,096)."""

    def plan(self, training: bool) -> Any:
        """Plan for reading files, for training or for evaluation and prediction."""
        raise NotImplementedError

    def describe_counts(self, counts: Counts, total: int, kept: int, whose: str) -> list[str]:
        """Notes on samples left out.

        total   number of samples; `kept` of them are used
        whose   part in words, such as ` of valid`; empty for the training part
        """
        return []

    def find(self, names: Sequence[str | Path]) -> list[Tagged]:
        """Expand names and globs to files with their class."""
        found = find_tagged_files(names, self.what)
        check_tags(found)
        return found

    def rows_per_scan(self) -> int:
        """Number of samples per scan step."""
        return self.chunk_size

    def check_part(self, files: Sequence[Tagged], scans: Sequence[Scan], notes: list[str], part: str) -> None:
        """Check a part after the scan of its files; an unusable part is an error."""

    def agree(self, plan: Any, scans: Sequence[Scan], notes: list[str], training: bool) -> Any:
        """Adapt the plan to the common columns of the files."""
        return plan.without(note_missing_columns(scans, (), notes))

    def groups(self, scans: Sequence[Scan], split: Split, notes: list[str]) -> tuple[Array | None, Array | None]:
        """Columns (n,) `split.by` and `split.stratify`; None for a key not set."""
        by, strata = (known_columns(scans, name) if name else None for name in (split.by, split.stratify))
        return by, strata

    def learn(self, plan: Any, scans: Sequence[Scan], train: Array, notes: list[str]) -> Any:
        """Fit the plan to the training samples (row numbers `train`)."""
        return plan

    def overlaps(self, scans: Mapping[str, Sequence[Scan]]) -> list[str]:
        """Notes on samples in several parts."""
        return []

    def fingerprint(self, scans: Sequence[Scan]) -> dict[str, str]:
        """Fingerprint of each file, by path."""
        return fingerprint_files([scan.path for scan in scans])

    def small_files(self, scans: Sequence[Scan]) -> list[Path]:
        """Small files with a common fingerprint for their folder (default: none)."""
        return []

    def slow(self, source: FilePieces, scans: Sequence[Scan], drawn: Sequence[str]) -> list[str]:
        """Notes on causes of slow reading."""
        packed = [np.diff(scan.edges) for scan in scans if not getattr(scan.file, "in_memory", False)]
        widest = int(np.concatenate([[0], *packed]).max())
        size = max(rows.stop - rows.start for rows in source.pieces[0])
        if len(source.sizes) <= MAX_PIECES_IN_MEMORY or widest <= 2 * size:
            return []
        return [
            f"Files are compressed in blocks of {widest:,} {self.unit}s, but read {size:,} at a time. "
            f"With a data.chunk_size above {self.chunk_size:,}, each block is decompressed less often."
        ]

    def scan(self, plan: Any, log: Any, notes: list[str]) -> dict[str, list[Scan]]:
        """Scan the files of each part."""
        _ = self.own_split  # refuses a wrong combination of keys before the files are read
        named = {part: self.find(names) for part, names in self.named().items()}
        return {part: self._scan_part(plan, files, log, notes, part) for part, files in named.items()}

    def scan_others(self, plan: Any, files: Sequence[str | Path], notes: list[str]) -> list[Scan]:
        """Scan the files of an evaluation or prediction; an unreadable file is an error."""
        return [plan.scan(path, tag, self.rows_per_scan()) for tag, path in self.find(files)]

    def pieces(self, plan: Any, parts: Sequence[Part], mixed: bool = True, notes: Sequence[str] = ()) -> FilePieces:
        """Source of the selected rows of the files, in pieces."""
        return FilePieces(plan, parts, self.chunk_size, mixed, notes)

    def open(self, log: Any = None) -> Splits:
        """Scan all files and split their samples."""
        plan, notes = self.plan(training=True), list[str]()
        scans = self.scan(plan, log, notes)
        every = [scan for some in scans.values() for scan in some]
        plan = self.agree(plan, every, notes, training=True)
        train, split = scans["train"], self.split.less("valid" in scans, "test" in scans)
        rows = dict(split.divide(sum(len(scan.kept) for scan in train), *self.groups(train, split, notes)))
        if (few := getattr(self, "labels_per_class", None)) is not None:
            labels = known_columns(train, LABEL)
            rows["train"] = sample_per_class(labels, rows["train"], few, split.lot, notes, self.unit)
        plan = self.learn(plan, train, rows["train"], notes)
        notes += [*note_test_files(scan.path for scan in train), *self.overlaps(scans)]
        parts = {part: [(scan, scan.kept) for scan in some] for part, some in scans.items()}
        for part, drawn in rows.items():
            shares = in_files([len(scan.kept) for scan in train], drawn)
            parts[part] = [(scan, scan.kept[share]) for scan, share in zip(train, shares)]
        sources = {part: self.pieces(plan, some) for part, some in parts.items()}
        notes += self.slow(sources["train"], train, [part for part in rows if part != "train"])
        fingerprint, small = self.fingerprint(every), self.small_files(every)
        return Splits(order_parts(dict[str, Source](sources)), fingerprint, notes, small)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Samples of files for prediction, in order; labels may be missing."""
        return self._others(files, self.plan(training=False))

    def aligned(self, files: Sequence[str | Path]) -> Source:
        """All samples of files, in order, including empty and unselected samples."""
        return self._others(files, self.plan(training=False).aligned())

    def with_empty(self, files: Sequence[str | Path]) -> Source:
        """Samples of files for prediction, in order, including empty samples."""
        return self._others(files, self.plan(training=False).with_empty())

    def _others(self, files: Sequence[str | Path], plan: Any) -> Source:
        notes = list[str]()
        scans = self.scan_others(plan, files, notes)
        plan = self.agree(plan, scans, notes, training=False)
        self._note_counts(scans, notes)
        return self.pieces(plan, [(scan, scan.kept) for scan in scans], mixed=False, notes=notes)

    def _scan_part(self, plan: Any, files: Sequence[Tagged], log: Any, notes: list[str], part: str) -> list[Scan]:
        """Scan the files of a part; unreadable files are an error or a note."""
        if log is not None and len(files) > 1:
            log(f"scanning {len(files):,} {self.what}")
        scans: list[Scan] = []
        for tag, path in files:
            try:
                scans.append(plan.scan(path, tag, self.rows_per_scan()))
            except UserError as error:
                release([path])
                if self.bad_files == "stop":
                    hint = f"{error.hint} Or skip unreadable files: --data.bad_files skip".strip()
                    raise error.with_fields(hint=hint if len(files) > 1 else error.hint) from error
                notes.append(f"left out {path}: {error}" + "." * (not error.hint))
        if not scans:
            raise UserError(f"no file of the part {part} can be read", hint=" ".join(notes[:4]))
        self._note_counts(scans, notes, f" for {part}", "" if part == "train" else f" of {part}")
        self.check_part(files, scans, notes, part)
        return scans

    def _note_counts(self, scans: Sequence[Scan], notes: list[str], why: str = "", whose: str = "") -> None:
        """Add notes on skipped samples; raise an error if no sample remains."""
        counts = sum((scan.counts for scan in scans), Counts())
        total, kept = sum(scan.rows for scan in scans), sum(len(scan.kept) for scan in scans)
        notes += self.describe_counts(counts, total, kept, whose)
        if not kept:
            raise UserError(f"no {self.unit} is left{why}; all {total:,} were left out", hint=" ".join(notes))


def wanted_columns(
    state: Mapping[str, Any], carried: Sequence[str], key: str, training: bool
) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """Required and optional columns of a reader, as set by `Data.want`.

    The required columns are {name: purpose, for error messages}.

    carried   columns copied to the predictions; `key` is the recipe key that lists them
    """
    if "names" not in state:
        return None, ()
    names = dict.fromkeys(state["names"], FOR_TOKENS)
    truth = {name: FOR_OBJECTIVE for name in state["truth"] if name not in names} | dict.fromkeys(carried, key)
    if training:
        return names | truth, tuple(state["wishes"])
    return names, tuple(dict.fromkeys([*state["wishes"], *truth]))


# Pieces: each has an equal share of every class, or of many files, so that they are mixed


Part = tuple[Scan, Array]
"""A scanned file, and row numbers in it."""


class FilePieces:
    """Source of samples of many files in pieces; each process opens the files itself."""

    def __init__(
        self, plan: FilePlan, parts: Sequence[Part], chunk_size: int, mixed: bool = True, notes: Sequence[str] = ()
    ) -> None:
        self.plan, self.notes = plan, list(notes)
        self.scans = {scan.path: scan for scan, _ in parts}
        self.pieces = deal(parts, chunk_size, mixed)
        self.sizes = [sum(map(len, some)) for some in self.pieces]

    def load(self, piece: int) -> Table:
        """Read a piece: a table with its samples."""
        return concatenate_shared([self.plan.load(self.scans[rows.path], rows) for rows in self.pieces[piece]])

    @property
    def rows(self) -> Array | None:
        """Row numbers of the samples in a table in memory; None for files.

        Also None for a table without one row per sample.
        """
        scans = list(self.scans.values())
        if len(scans) != 1 or not isinstance(scans[0].path, MemoryFile) or scans[0].path.rows != scans[0].rows:
            return None
        return np.concatenate([rows.numbers for piece in self.pieces for rows in piece])

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """Class of each sample, or lengths of lists, from the scans; None if unknown."""
        sides = {path: scan.lengths if lists else scan.columns for path, scan in self.scans.items()}
        if (not lists and name != LABEL) or any(name not in side for side in sides.values()):
            return None
        runs = [rows for piece in self.pieces for rows in piece]
        places = [np.searchsorted(self.scans[rows.path].kept, rows.numbers) for rows in runs]
        return np.concatenate([sides[rows.path][name][place] for rows, place in zip(runs, places)])


def deal(parts: Sequence[Part], chunk_size: int, mixed: bool = True) -> list[list[Rows]]:
    """Divide samples into pieces of about `chunk_size`.

    Each piece has an equal share of every class tag; without tags, of every file or group of files.
    """
    parts = [part for part in parts if len(part[1])]
    groups = _groups(parts) if mixed else [list(parts)]
    count = -(-sum(len(rows) for _, rows in parts) // chunk_size)
    shares = [_split_group(group, count, chunk_size) for group in groups]
    return [some for own in zip(*shares) if (some := list(chain.from_iterable(own)))]


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    tagged = len({scan.tag for scan, _ in parts}) > 1
    groups: dict[str, list[Part]] = {}
    for scan, rows in parts:
        groups.setdefault(scan.tag if tagged else str(scan.path), []).append((scan, rows))
    names, most = list(groups), MAX_TAGS_PER_PIECE if tagged else MAX_FILES_PER_PIECE
    if len(names) > most:  # shuffle, because files of one class are often neighbours
        rng = mix(key("dealt") ^ mix(np.arange(len(names))))
        names = [names[number] for number in np.argsort(rng, kind="stable")]
    dealt: list[list[Part]] = [[] for _ in range(min(most, len(names)))]
    for number, name in enumerate(names):
        dealt[number % most] += groups[name]
    return dealt


def _split_group(group: Sequence[Part], count: int, longest: int) -> list[list[Rows]]:
    """Divide a group into `count` nearly equal shares, if possible at file edges."""
    *firsts, total = accumulate((len(rows) for _, rows in group), initial=0)
    ends = [0]
    for number in range(1, count):
        place = total * number // count
        file = bisect_right(firsts, place) - 1
        scan, rows = group[file]
        inside = place - firsts[file]
        at = scan.edges[np.argmin(np.abs(scan.edges - rows[min(inside, len(rows) - 1)]))]
        moved = int(np.searchsorted(rows, at))
        if abs(moved - inside) <= total // count // 8:
            place = firsts[file] + moved
        ends.append(max(place, ends[-1]))
    made = []
    for low, high in pairwise([*ends, total]):
        runs: list[Rows] = []
        for (scan, rows), first in zip(group, firsts):
            if len(some := rows[max(low - first, 0) : max(high - first, 0)]):
                runs += _runs(scan, some, longest)
        made.append(runs)
    return made


def _runs(scan: Scan, rows: Array, longest: int) -> list[Rows]:
    start, stop = int(rows[0]), int(rows[-1]) + 1
    pieces = max(1, round((stop - start) / longest))
    cuts = np.linspace(start, stop, pieces + 1).astype(np.int64)
    made = []
    for low, high in pairwise(cuts):
        some = rows[slice(*np.searchsorted(rows, [low, high]))]
        if len(some):
            first, last = int(some[0]), int(some[-1]) + 1
            kept = None if len(some) == last - first else (some - first).astype(np.int32)
            made.append(Rows(scan.path, scan.tag, first, last, kept))
    return made


def concatenate_shared(tables: Sequence[Table]) -> dict[str, Column]:
    """Concatenate tables; lists of equal length share one `lengths` array."""
    return dict(tables[0]) if len(tables) == 1 else shared(concatenate(tables))
