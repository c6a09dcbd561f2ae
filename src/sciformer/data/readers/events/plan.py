"""What is made of the rows of a file of events: columns, classes, weights, and which samples are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UserError
from ....files.formats.base import Column, EventFile, Layout, opened
from ...columns import Array, Lists, Table, rows_of, select
from ..formula import Formula
from .reweight import Weights

ENTRY, FILE, LABEL, WEIGHT = "entry", "file", "label", "weight"  # columns that are made here
FOR_OBSERVERS, FOR_OBJECTIVE = "data.observers", "the objective"  # what needs a column
CLASSES = "Classes can also be given by tags (NAME:FILES), data.classes or data.label."
X, Y, BY = "reweight.x", "reweight.y", "split.by"  # extra ones
TRUE_CLASSES = "true classes"  # (n, classes), in passing


@dataclass(frozen=True)
class Plan:
    """How to read any of the files.

    names      columns that are handed out, and what they are for; None: all
    wishes     those that are handed out where they are there
    new        formulas of columns that no file has
    chosen     which samples are kept
    classes    formulas that are true for the samples of a class
    label      column that has the class
    weight     formula of the weights
    weighs     whether there are weights
    extra      formulas that are needed to divide and to weigh the samples, by the name given to their values
    most       entries of a list that are kept
    empty      whether samples without entries are kept
    strict     whether every sample must have a class
    learned    weights of classes in bins, of which `extra` has the columns
    positive   columns of lists whose entries are left out below 0
    """

    layout: Layout
    names: dict[str, str] | None
    wishes: tuple[str, ...] = ()
    new: dict[str, Formula] = field(default_factory=dict)
    chosen: Formula | None = None
    classes: dict[str, Formula] = field(default_factory=dict)
    label: str = ""
    weight: Formula | None = None
    weighs: bool = False
    extra: dict[str, Formula] = field(default_factory=dict)
    most: int | None = None
    empty: bool = False
    strict: bool = True
    learned: Weights | None = None
    positive: tuple[str, ...] = ()

    def load(self, scan: Scan, rows: Rows) -> dict[str, Column]:
        """The samples of these rows."""
        file = opened(scan.path, self.layout)
        table = self._read(file, rows.tag, rows.start, rows.stop, scanning=False)
        made, *_ = finite(self._handed(file, table), self.most, self.positive)
        made |= {name: table[name] for name in self._own(rows.tag) if name in table}
        return made if rows.kept is None else select(made, rows.kept)

    def scan(self, path: Path, tag: str, chunk_size: int) -> Scan:
        """Look at all rows of a file."""
        file = opened(path, self.layout)
        parts: list[tuple[Array, dict[str, Array], dict[str, Array]]] = []
        counts, lacks = {"selected": 0, "empty": 0, "entries": 0, "dropped": 0, "negative": 0}, tuple[str, ...]()
        emptied = set[str]()
        for start, stop in stretches(file.edges, file.rows, chunk_size):
            table = self._read(file, tag, start, stop, scanning=True)
            lacks = tuple(name for name in (*self.wishes, *self._own(tag)) if name not in table)
            made, dropped, negative = finite(self._handed(file, table), self.most, self.positive)
            kept = np.ones(stop - start, bool)
            if self.chosen is not None:
                kept = np.nan_to_num(_single(self.chosen.of(table), "data.select", path, "data.select")) != 0
            for name, why in (self.names or {}).items():
                if why == FOR_OBSERVERS and name in table:
                    _single(table[name], f"`{name}` of data.observers", path, FOR_OBSERVERS)
            lists = [column.lengths for column in made.values() if isinstance(column, Lists)]
            counts["selected"] += int((~kept).sum())
            counts["entries"] += int(max((lengths.sum() for lengths in lists), default=0))
            counts["dropped"] += dropped
            counts["negative"] += negative
            if lists and not self.empty:
                hollow = kept & (np.max(lists, 0) == 0)
                counts["empty"] += int(hollow.sum())
                kept &= ~hollow
                if LABEL in self._own(tag) and LABEL in table:
                    emptied |= set(map(str, np.unique(np.asarray(table[LABEL])[hollow])))
            rows = np.flatnonzero(kept)
            if TRUE_CLASSES in table and self.strict:
                self._one_class(table, rows, start, path)
            if self.strict and self.label:
                self._no_gaps(np.asarray(table[self.label])[rows], start + rows, path)
            found = {
                name: _single(formula.of(table), f"data.{name}", path, f"data.{name}")[rows]
                for name, formula in self.extra.items()
            }
            for name in (LABEL, WEIGHT) if X in self.extra else (LABEL,):
                if name in self._own(tag) and name in table:
                    found[name] = _single(table[name], f"the column `{name}`", path)[rows]
            parts.append((rows + start, found, lengths_of(made, rows)))
        columns: dict[str, Array | Words] = {
            name: np.concatenate([found[name] for _, found, _ in parts]) for name in parts[0][1]
        }
        if LABEL in columns:
            columns[LABEL] = Words.of(columns[LABEL][:])
        lengths, alike = dict[str, Array](), dict[tuple[int, ...], Array]()
        for name in parts[0][2]:
            some = [long[name] for *_, long in parts]
            key = tuple(map(id, some))
            lengths[name] = alike[key] = alike[key] if key in alike else np.concatenate(some)
        kept = np.concatenate([rows for rows, *_ in parts])
        lacks, gone = tuple(dict.fromkeys(lacks)), frozenset(emptied)
        return Scan(path, tag, kept, columns, counts, file.edges, file.rows, lacks, lengths, gone)

    def without(self, names: Collection[str]) -> Plan:
        """The same without columns that may be missing."""
        kept = replace(self, wishes=tuple(name for name in self.wishes if name not in names))
        return replace(kept, classes={}, label="") if LABEL in names else kept

    def _own(self, tag: str) -> set[str]:
        """Columns that are made here, whether or not a file has some of that name."""
        return ({LABEL} if tag or self.classes or self.label else set()) | ({WEIGHT} if self.weighs else set())

    # Which columns are read

    def _handed(self, file: EventFile, table: Table) -> dict[str, Column]:
        """The columns that are handed out, without the class and the weight."""
        names = [*file.columns, *self.new] if self.names is None else [*self.names, *self.wishes]
        return {name: table[name] for name in dict.fromkeys(names) if name in table}

    def _read(self, file: EventFile, tag: str, start: int, stop: int, scanning: bool) -> dict[str, Column]:
        """Columns of the file, new ones, the class and the weight."""
        needed, optional = self._wanted(file, tag, scanning)
        raw: dict[str, str] = {}
        order: list[str] = []
        for name, why in needed.items():
            self._trace(file, name, why, raw, order, ())
        for name in optional:
            if self._there(file, name, ()):
                self._trace(file, name, "", raw, order, ())
        read = file.read(sorted(set(raw.values())), start, stop)
        table = {name: read[found] for name, found in raw.items()}
        if ENTRY not in table:
            table[ENTRY] = np.arange(start, stop)
        if FILE not in table and (FILE in needed or FILE in optional):
            table[FILE] = np.full(stop - start, file.path.name)
        for name in order:
            table[name] = self.new[name].of(table)
        self._classify(table, tag)
        self._weigh(table, file.path)
        return table

    def _wanted(self, file: EventFile, tag: str, scanning: bool) -> tuple[dict[str, str], list[str]]:
        """Names of columns with what they are for, and of those that may be missing."""
        needed = dict.fromkeys([*file.columns, *self.new], "") if self.names is None else dict(self.names)
        optional = list(self.wishes)
        truth: dict[str, str] = {}
        for formula in self.classes.values():
            truth |= dict.fromkeys(formula.names, "data.classes")
        if self.label:
            truth[self.label] = "data.label"
        if self.weight is not None:
            truth |= dict.fromkeys(self.weight.names, "data.weight")
        for name, formula in self.extra.items():
            if scanning or (self.learned is not None and name != BY):
                truth |= dict.fromkeys(formula.names, f"data.{name}")
        if self.chosen is not None and scanning:
            needed |= dict.fromkeys(self.chosen.names, "data.select")
        if self.strict:
            needed |= truth
        else:
            optional += truth
        made = self._own(tag) - set(truth)
        return {n: why for n, why in needed.items() if n not in made}, [n for n in optional if n not in made]

    def _there(self, file: EventFile, name: str, inside: tuple[str, ...]) -> bool:
        """Whether a column can be had."""
        if name in self.new and name not in inside:
            return all(self._there(file, one, (*inside, name)) for one in self.new[name].names)
        return name in (ENTRY, FILE) or file.find(name) is not None

    def _trace(
        self, file: EventFile, name: str, why: str, raw: dict[str, str], order: list[str], inside: tuple[str, ...]
    ) -> None:
        """What to read, and what to reckon in which order, to have a column."""
        if name in raw or name in order:
            return
        if name in inside:
            if file.find(name) is None:
                raise UserError(
                    f"data.new is circular: {' -> '.join([*inside, name])}",
                    hint="Remove one of these formulas.",
                    key="data.new",
                )
        elif name in self.new:
            for one in self.new[name].names:
                self._trace(file, one, f"data.new.{name}", raw, order, (*inside, name))
            order.append(name)
            return
        if name in (ENTRY, FILE) and file.find(name) is None:
            return
        raw[name] = file.need(name, why, CLASSES if name == LABEL and why == FOR_OBJECTIVE else "")

    # Classes and weights

    def _classify(self, table: dict[str, Column], tag: str) -> None:
        rows = rows_of(table)
        if tag:
            table[LABEL] = np.full(rows, tag)
        elif self.label and self.label in table:
            table[LABEL] = table[self.label]
        elif self.classes and all(name in table for formula in self.classes.values() for name in formula.names):
            flags = self._flags(table)
            table[TRUE_CLASSES] = flags.T  # before a column of the file is overwritten that a formula may ask for
            names = np.array([*self.classes, ""])
            table[LABEL] = names[np.where(flags.sum(0) == 1, flags.argmax(0), len(self.classes))]

    def _flags(self, table: Table) -> Array:
        """(classes, n)."""
        found = {name: formula.of(table) for name, formula in self.classes.items()}
        for name, column in found.items():
            if isinstance(column, Lists) or column.ndim != 1:
                raise UserError(
                    f"data.classes.{name} must be a single condition for each sample, not a list",
                    key=f"data.classes.{name}",
                )
        return np.stack([np.nan_to_num(np.asarray(column)) != 0 for column in found.values()])

    def _one_class(self, table: Table, rows: Array, start: int, path: Path) -> None:
        flags = np.asarray(table[TRUE_CLASSES])[rows].T
        wrong = flags.sum(0) != 1
        if wrong.any():
            first = int(wrong.argmax())
            true = [name for name, flag in zip(self.classes, flags[:, first]) if flag]
            raise UserError(
                f"entry {start + rows[first]} of {path} must have exactly one class of data.classes, not "
                f"{' and '.join(true) or 'no class'}",
                hint=f"This holds for {int(wrong.sum()):,} of {len(rows):,} samples there; "
                "leave them out with data.select.",
                key="data.classes",
                file=path,
            )

    def _no_gaps(self, words: Array, rows: Array, path: Path) -> None:
        if words.dtype.kind == "U" and not (words != "").all():
            first, count = rows[words == ""][0], int((words == "").sum())
            raise UserError(
                f"entry {first} of {path} has no class in `{self.label}`",
                hint=f"This holds for {count:,} of {len(words):,} samples there.",
                key="data.label",
                file=path,
            )

    def _weigh(self, table: dict[str, Column], path: Path) -> None:
        if not self.weighs:
            return
        weight = np.ones(rows_of(table))
        if self.weight is not None:
            if any(name not in table for name in self.weight.names):
                return  # of samples that are only to be answered
            weight = _single(self.weight.of(table), "data.weight", path, "data.weight")
        if self.learned is not None:
            label = table[LABEL]
            assert isinstance(label, np.ndarray)
            x, y = (_single(self.extra[name].of(table), f"data.{name}", path, f"data.{name}") for name in (X, Y))
            weight = weight * self.learned.of(label, x, y)
        table[WEIGHT] = np.asarray(weight, np.float32)


def _single(column: Column, what: str, path: Path, key: str | None = None) -> Array:
    if isinstance(column, Lists) or column.ndim != 1:
        raise UserError(
            f"{what} must have a single value for each sample of {path}, not a list of values", key=key, file=path
        )
    return column


# What is found in the rows of a file of events: which are kept, how long their lists are, what is bad in them


@dataclass(frozen=True)
class Rows:
    """Some rows of a file: from `start` on, those numbered `kept`, or all up to `stop`."""

    path: Path
    tag: str
    start: int
    stop: int
    kept: Array | None = None

    def __len__(self) -> int:
        return self.stop - self.start if self.kept is None else len(self.kept)


@dataclass(frozen=True)
class Words:
    """A column of words of which few differ: the words, and for each sample the number of its own."""

    words: Array
    numbers: Array

    @classmethod
    def of(cls, column: Array) -> Words:
        """The same column in less memory."""
        words, numbers = np.unique(column, return_inverse=True)
        return cls(words, numbers.astype(np.min_scalar_type(len(words))))

    def __getitem__(self, rows: Any) -> Array:
        return np.asarray(self.words[self.numbers[rows]])


@dataclass(frozen=True)
class Scan:
    """What was found in a file: the numbers of its samples, columns that are needed to divide and to weigh them, the
    class, how long lists are, and how much was left out."""

    path: Path
    tag: str
    kept: Array
    columns: dict[str, Array | Words]
    counts: dict[str, int]
    edges: Array
    rows: int
    lacks: tuple[str, ...] = ()  # columns that may be missing, and are
    lengths: dict[str, Array] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()  # classes of samples without entries, which are left out


def stretches(edges: Array, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of at most `size` rows, ended where reading can begin anew if there is such a place in their last half."""
    start = 0
    while start < rows:
        stop = min(start + size, rows)
        if stop < rows:
            near = edges[(edges > start + size // 2) & (edges <= stop)]
            stop = int(near[-1]) if len(near) else stop
        yield start, stop
        start = stop


def lengths_of(table: Mapping[str, Column], rows: Array) -> dict[str, Array]:
    """How long the lists of these rows are; columns that share their lengths still do."""
    known: dict[int, Array] = {}
    return {
        name: known.setdefault(id(column.lengths), column.lengths[rows].astype(np.int32))
        for name, column in table.items()
        if isinstance(column, Lists)
    }


def finite(
    table: Mapping[str, Column], most: int | None, positive: Collection[str] = ()
) -> tuple[dict[str, Column], int, int]:
    """The table without entries of lists that are not finite in some column, or below 0 in a `positive` one, and
    without those beyond the first `most`; how many were not finite, and how many of the others were negative."""
    made, dropped, negative = dict(table), 0, 0
    groups: dict[int, list[str]] = {}
    for name, column in table.items():
        if isinstance(column, Lists):
            groups.setdefault(id(column.lengths), []).append(name)
    for names in groups.values():
        columns = {name: column for name in names if isinstance(column := table[name], Lists)}
        lengths = columns[names[0]].lengths
        good: Array | None = None
        for column in columns.values():
            if column.values.dtype.kind == "f":
                finite = np.isfinite(column.values)
                if not finite.all():
                    good = finite if good is None else good & finite
        dropped += 0 if good is None else int((~good).sum())
        for name in columns.keys() & set(positive):
            below = columns[name].values < 0
            if below.any():
                negative += int((below if good is None else below & good).sum())
                good = ~below if good is None else good & ~below
        if most is not None and (lengths > most).any():
            inside = np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths) < most
            good = inside if good is None else good & inside
        if good is not None:
            sample = np.repeat(np.arange(len(lengths)), lengths)
            left = np.bincount(sample[good], minlength=len(lengths)).astype(np.int64)
            made |= {name: Lists(column.values[good], left) for name, column in columns.items()}
    return made, dropped, negative
