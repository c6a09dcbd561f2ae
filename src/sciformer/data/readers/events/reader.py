"""Reader of events (numbers and lists) in ROOT, HDF5, Parquet or NPZ files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from ....errors import UserError
from ....files.formats.base import Column, Layout, TableFile, opened
from ...columns import Array, Lists, Table, rows_of, select
from ...fileset import (
    FOR_OBJECTIVE,
    FOR_TOKENS,
    LABEL,
    MAX_PIECES_IN_MEMORY,
    Counts,
    FilePieces,
    FilePlan,
    FileSet,
    Rows,
    Scan,
    Seen,
    Tagged,
    Words,
    known_columns,
    note_missing_columns,
    wanted_columns,
)
from ...split import Split
from ..formula import Formula
from .objects import Objects
from .reweight import Reweight, Weights

ENTRY, FILE, WEIGHT = "entry", "file", "weight"  # columns computed by the reader
FOR_OBSERVERS = "data.observers"  # user of a column, in messages
CLASSES = "Define classes by tags (CLASS:FILES), data.classes or data.label."
X, Y, BY = "reweight.x", "reweight.y", "split.by"  # extra columns
TRUE_CLASSES = "true classes"  # temporary column (n, classes)


class EventFiles(FileSet):
    """Events in files: numbers and lists of numbers, read in pieces.

    Only the columns in use are read. List entries with a non-finite value in any column are left out, and so are
    samples without entries; both are counted in notes. Formulas follow `sciformer.data.readers.formula`: hypot(px, py),
    sum(energy) > 500, x[:, 0].
    """

    what: ClassVar[str] = "files of events"
    separable: ClassVar[bool] = True
    neutral_keys: ClassVar[tuple[str, ...]] = ("observers",)
    column_keys: ClassVar[tuple[str, ...]] = (LABEL, WEIGHT)
    renames_columns: ClassVar[bool] = True

    files: list[str] = Field(default_factory=list)
    """Training files: names or globs. CLASS:FILE sets the column `label` of all events in the files:
    [signal:data/signal_*.root, other:data/other_*.root]."""
    tree: str = ""
    """Name of the tree in ROOT files, or of the pandas table in HDF5 files (default: the only tree)."""
    mask: str = ""
    """Name of the mask of padded arrays in HDF5 and NPZ files (default: an array named mask, valid, lengths, length,
    counts, count or n). The mask has shape (n, m), true for real entries, or (n,), the number of real entries. zeros:
    no mask, zeros are padding."""
    axes: dict[str, list[str]] = Field(default_factory=dict)
    """Column names for the last axis of an array: {points: [x, y, z]} for a shape (n, m, 3) or (n, 3)
    (default: NAME_0, NAME_1, ...)."""
    objects: Objects | None = None
    """Objects in lists that become samples, with their members by index, as in NanoAOD: {of: FatJet_, index:
    FatJetPFCands_jetIdx, members: PFCands_, at: FatJetPFCands_pFCandsIdx}. The new columns `row` and `object` hold the
    number of the event, and the number of the object in its event (default: each row is a sample)."""
    new: dict[str, str] = Field(default_factory=dict)
    """New columns by formulas, which may use each other: {pt: "hypot(px, py)"} (default: none)."""
    select: str = ""
    """Selection: a formula that is true for the samples to keep (default: keep all)."""
    select_new: str | None = None
    """Selection for prediction on other files; an empty formula keeps all samples (default: `select`)."""
    classes: dict[str, str] = Field(default_factory=dict)
    """Class names, each with a column or formula that is true for its samples: {one: is_one, other: is_two + is_three}.
    They set the column `label`. Each sample must have exactly one class (default: none)."""
    label: str = ""
    """Column of the class, copied to `label`: a number or, in Parquet and NPZ files, a name (default: none)."""
    observers: list[str] = Field(default_factory=list)
    """Columns copied to the predictions; `entry` is the row number in the file, `file` its name (default: none)."""
    weight: str = ""
    """Formula of the sample weight, for the column `weight`; used if objective.weight is `weight` (default: none)."""
    reweight: Reweight | None = None
    """Reweighting of all classes to a common spectrum in two columns; multiplies `weight` (default: none)."""
    empty: Literal["drop", "keep"] = "drop"
    """Treatment of samples whose lists are all empty: drop or keep. With drop, their predictions are NaN
    (default: drop)."""
    most: int | None = Field(default=None, ge=1)
    """Maximum number of list entries per sample, in file order (default: all)."""
    chunk_size: int = Field(default=16384, ge=16)
    """Samples per chunk; training shuffles across several chunks in memory (default: 16,384)."""

    def find(self, names: Sequence[str | Path]) -> list[Tagged]:
        found = super().find(names)
        tags = {tag for tag, _ in found}
        if tags - {""} and (self.classes or self.label):
            own = "data.classes" if self.classes else "data.label"
            hint = f"Remove the tags ({sorted(tags)[-1]}:...), or remove {own}."
            raise UserError(f"classes are given twice: by tags and by {own}", hint=hint, key=own)
        if self.classes and self.label:
            both = "data.classes and data.label are both given"
            raise UserError(both, hint="Remove data.classes or data.label.", key="data.classes")
        return found

    def further_columns(self) -> set[str]:
        texts = (*self.new.values(), *self.classes.values(), self.select, self.select_new, self.label)
        return {*self.observers, *(name for text in texts if text for name in Formula(text).names)}

    def with_columns(self, columns: Mapping[str, str]) -> Self:
        """Copy of the section for files with renamed columns.

        Formulas of renamed columns are dropped. If the column `label` is renamed, `classes` is dropped, too.
        """
        new = {name: formula for name, formula in self.new.items() if name not in columns}
        return (
            super()
            .with_columns(columns)
            .model_copy(update={"new": new, **({"classes": {}} if LABEL in columns else {})})
        )

    def plan(self, training: bool) -> Plan:
        names, wishes = wanted_columns(self.state, self.observers, FOR_OBSERVERS, training)
        select = self.select if training or self.select_new is None else self.select_new
        extra = {X: Formula(self.reweight.x), Y: Formula(self.reweight.y)} if self.reweight and training else {}
        if self.split.by and training:
            extra[BY] = Formula(self.split.by)
        return Plan(
            Layout(
                self.tree,
                self.mask,
                self.axes,
                self.label,
                renames=self.state.get("renames", {}),
                objects=self.objects,
            ),
            names,
            wishes,
            {name: Formula(text) for name, text in self.new.items()},
            Formula(select) if select else None,
            {name: Formula(text) for name, text in self.classes.items()},
            self.label,
            Formula(self.weight) if self.weight else None,
            bool(self.weight or self.reweight),
            extra,
            self.most,
            self.empty,
            training,
            positive=tuple(self.state.get("positive", ())),
        )

    def describe_counts(self, counts: Counts, total: int, kept: int, whose: str) -> list[str]:
        notes, entries = list[str](), counts["entries"]
        below = f"negative in {', '.join(f'`{name}`' for name in self.state.get('positive', ()))}"
        if counts["selected"]:
            notes.append(f"{counts['selected']:,} of {total:,} samples{whose} are not selected.")
        for key, what in (("dropped", "not finite"), ("negative", below)):
            if found := counts[key]:
                notes.append(f"{found:,} of {found + entries:,} entries of lists{whose} are {what}: left out.")
        for key, what in (("empty", "left out"), ("marked", "their predictions are NaN")):
            if found := counts[key]:
                notes.append(f"{found:,} of {total:,} samples{whose} have no entries: {what}.")
        return notes

    def empty_rows(self, table: Table) -> Array | None:
        lists = [column.lengths for column in table.values() if isinstance(column, Lists)]
        return np.max(lists, 0) == 0 if lists and self.empty == "drop" else None

    def check_part(self, files: Sequence[Tagged], scans: Sequence[Scan], notes: list[str], part: str) -> None:
        """Refuse a part without samples of one of the classes."""
        if LABEL not in self.state.get("truth", ()):
            return
        found = [words for scan in scans if isinstance(words := scan.columns.get(LABEL), Words)]
        emptied = {key[1] for scan in scans for key in scan.counts if isinstance(key, tuple)}
        left = {str(name) for one in found for name in one.words}
        if lost := sorted({*(tag for tag, _ in files), *emptied} - left - {""}):
            raise UserError(f"no samples of the class {lost[0]} are left in the part {part}", hint=" ".join(notes[:4]))

    def agree(self, plan: Plan, scans: Sequence[Scan], notes: list[str], training: bool) -> Plan:
        return plan if training else plan.without(note_missing_columns(scans, self.observers, notes))

    def groups(self, scans: Sequence[Scan], split: Split, notes: list[str]) -> tuple[Array | None, Array | None]:
        return (known_columns(scans, BY) if split.by else None), None

    def learn(self, plan: Plan, scans: Sequence[Scan], train: Array, notes: list[str]) -> Plan:
        own = next((key for key in ("label", "classes") if getattr(self, key)), "")
        if own and plan.names is not None and LABEL not in self.state.get("truth", ()):
            notes.append(
                f"The classes of data.{own} are not used, because the objective needs none. To classify, write the "
                "recipe again with `sciformer new`, or change `base` and objective.kind."
            )
        if self.reweight is not None:
            if any(LABEL not in scan.columns for scan in scans):
                message = "data.reweight needs classes, but the data have none"
                raise UserError(message, hint=CLASSES, key="data.reweight")
            learned = self.reweight.learn(*(known_columns(scans, name)[train] for name in (LABEL, X, Y, WEIGHT)))
            plan = replace(plan, learned=learned)
            if learned.outside:
                share = f"{learned.outside:,} of {len(train):,} samples to train on"
                notes.append(f"{share} are outside the edges of data.reweight: their weight is 0.")
        if plan.weighs and WEIGHT not in self.state.get("truth", ()):
            notes.append("The weights of data.weight are not used: objective.weight is not `weight`.")
        return plan

    def slow(self, source: FilePieces, scans: Sequence[Scan], drawn: Sequence[str]) -> list[str]:
        notes = super().slow(source, scans, drawn)
        if drawn and len(source.sizes) > MAX_PIECES_IN_MEMORY:
            quicker = "so evaluation reads all files: separate files would be faster."
            notes.insert(0, f"{' and '.join(drawn)} are drawn from all files, {quicker}")
        return notes


@dataclass(frozen=True)
class Plan(FilePlan):
    """Plan for reading each file of events.

    names      required columns {name: purpose, for error messages} (None: all columns)
    wishes     optional columns
    new        formulas of new columns
    chosen     formula of the selection
    classes    formula of each class
    label      column of the class
    weight     formula of the weights
    weighs     whether there is a column `weight`
    extra      formulas for the split and the reweighting, by the name of the result
    most       maximum number of list entries
    empty      samples without entries: drop, keep, or mark (keep and count)
    strict     whether every sample must have a class
    learned    fitted reweighting
    positive   columns of lists whose negative entries are left out
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
    empty: Literal["drop", "keep", "mark"] = "drop"
    strict: bool = True
    learned: Weights | None = None
    positive: tuple[str, ...] = ()

    def load(self, scan: Scan, rows: Rows) -> dict[str, Column]:
        file = self.open(scan.path)
        table = self._read(file, rows.tag, rows.start, rows.stop, scanning=False)
        made, *_ = finite(self._returned_columns(file, table), self.most, self.positive)
        made |= {name: table[name] for name in self.own(rows.tag) if name in table}
        return made if rows.kept is None else select(made, rows.kept)

    def open(self, path: Path) -> TableFile:
        return opened(path, self.layout)

    def scan_rows(self, file: TableFile, tag: str, start: int, stop: int, counts: Counts) -> Seen:
        path, own = file.path, self.own(tag)
        table = self._read(file, tag, start, stop, scanning=True)
        made, dropped, negative = finite(self._returned_columns(file, table), self.most, self.positive)
        kept = np.ones(stop - start, bool)
        if self.chosen is not None:
            kept = np.nan_to_num(_single(self.chosen.of(table), "data.select", path)) != 0
        for name, why in (self.names or {}).items():
            if why == FOR_OBSERVERS and name in table:
                _single(table[name], FOR_OBSERVERS, path, f"`{name}` of {FOR_OBSERVERS}")
        lists = [column.lengths for column in made.values() if isinstance(column, Lists)]
        counts["selected"] += int((~kept).sum())
        counts["entries"] += int(max((lengths.sum() for lengths in lists), default=0))
        counts["dropped"] += dropped
        counts["negative"] += negative
        if lists and self.empty != "keep":
            hollow = kept & (np.max(lists, 0) == 0)
            counts["empty" if self.empty == "drop" else "marked"] += int(hollow.sum())
            if self.empty == "drop":
                kept &= ~hollow
                if LABEL in own and LABEL in table:
                    counts.update(("emptied", str(name)) for name in np.unique(np.asarray(table[LABEL])[hollow]))
        rows = np.flatnonzero(kept)
        if TRUE_CLASSES in table and self.strict:
            self._one_class(table, rows, start, path)
        if self.strict and self.label:
            self._no_gaps(np.asarray(table[self.label])[rows], start + rows, path)
        found = {name: _single(one.of(table), f"data.{name}", path)[rows] for name, one in self.extra.items()}
        for name in (LABEL, WEIGHT) if X in self.extra else (LABEL,):
            if name in own and name in table:
                found[name] = _single(table[name], None, path, f"the column `{name}`")[rows]
        return Seen(rows, found, lengths_of(made, rows), set(table))

    def aligned(self) -> Plan:
        return replace(self, chosen=None, empty="keep")

    def with_empty(self) -> Plan:
        return replace(self, empty="keep" if self.empty == "keep" else "mark")

    def without(self, names: Collection[str]) -> Plan:
        kept = super().without(names)
        return replace(kept, classes={}, label="") if LABEL in names else kept

    def own(self, tag: str) -> set[str]:
        return ({LABEL} if tag or self.classes or self.label else set()) | ({WEIGHT} if self.weighs else set())

    # Which columns are read

    def _returned_columns(self, file: TableFile, table: Table) -> dict[str, Column]:
        """Columns for the samples, without the columns of class and weight."""
        names = [*file.columns, *self.new] if self.names is None else [*self.names, *self.wishes]
        return {name: table[name] for name in dict.fromkeys(names) if name in table}

    def _read(self, file: TableFile, tag: str, start: int, stop: int, scanning: bool) -> dict[str, Column]:
        """Read columns of the file; add new columns, the class and the weight."""
        needed, optional = self._needed_columns(file, tag, scanning)
        raw, order = dict[str, str](), list[str]()
        for name, why in needed.items():
            self._add_with_inputs(file, name, why, raw, order, ())
        for name in optional:
            if self._there(file, name, ()):
                self._add_with_inputs(file, name, "", raw, order, ())
        read = file.read(sorted(set(raw.values())), start, stop)
        table = {name: read[found] for name, found in raw.items()}
        if ENTRY not in table:
            table[ENTRY] = np.arange(start, stop)
        if FILE not in table and (FILE in needed or FILE in optional):
            table[FILE] = np.full(stop - start, file.path.name)
        for name in order:
            table[name] = self.new[name].of(table)
        self._classify(table, tag, file.path)
        self._weigh(table, file.path)
        return table

    def _needed_columns(self, file: TableFile, tag: str, scanning: bool) -> tuple[dict[str, str], list[str]]:
        """Required columns {name: purpose}, and names of optional columns."""
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
        made = self.own(tag) - set(truth)
        return {n: why for n, why in needed.items() if n not in made}, [n for n in optional if n not in made]

    def _there(self, file: TableFile, name: str, inside: tuple[str, ...]) -> bool:
        if name in self.new and name not in inside:
            return all(self._there(file, one, (*inside, name)) for one in self.new[name].names)
        return name in (ENTRY, FILE) or file.find(name) is not None

    def _add_with_inputs(
        self, file: TableFile, name: str, why: str, raw: dict[str, str], order: list[str], inside: tuple[str, ...]
    ) -> None:
        """Add a column of the file to `raw`; add a formula to `order`, after its inputs."""
        if name in raw or name in order:
            return
        if name in inside:
            if file.find(name) is None:
                message = f"data.new is circular: {' -> '.join([*inside, name])}"
                raise UserError(message, hint="Remove one of these formulas.", key="data.new")
        elif name in self.new:
            for one in self.new[name].names:
                self._add_with_inputs(file, one, f"data.new.{name}", raw, order, (*inside, name))
            order.append(name)
            return
        if name in (ENTRY, FILE) and file.find(name) is None:
            return
        hint = f"If it follows from other columns: --data.new.{name} FORMULA" if why == FOR_TOKENS else ""
        raw[name] = file.need(name, why, CLASSES if name == LABEL and why == FOR_OBJECTIVE else hint)

    # Classes and weights

    def _classify(self, table: dict[str, Column], tag: str, path: Path) -> None:
        rows = rows_of(table)
        if tag:
            table[LABEL] = np.full(rows, tag)
        elif self.label and self.label in table:
            table[LABEL] = table[self.label]
        elif self.classes and all(name in table for formula in self.classes.values() for name in formula.names):
            found = [_single(one.of(table), f"data.classes.{name}", path) for name, one in self.classes.items()]
            flags = np.stack([np.nan_to_num(one) != 0 for one in found])  # (classes, n)
            table[TRUE_CLASSES] = flags.T  # computed before `label` of the file is overwritten
            names = np.array([*self.classes, ""])
            table[LABEL] = names[np.where(flags.sum(0) == 1, flags.argmax(0), len(self.classes))]

    def _one_class(self, table: Table, rows: Array, start: int, path: Path) -> None:
        flags = np.asarray(table[TRUE_CLASSES])[rows].T
        wrong = flags.sum(0) != 1
        if wrong.any():
            first = int(wrong.argmax())
            true = " and ".join(name for name, flag in zip(self.classes, flags[:, first]) if flag) or "no class"
            message = f"entry {start + rows[first]} of {path} must have exactly one class of data.classes, not {true}"
            share = f"{int(wrong.sum()):,} of {len(rows):,} samples in this range of rows are wrong"
            hint = f"{share}; exclude them with data.select."
            raise UserError(message, hint=hint, key="data.classes", file=path)

    def _no_gaps(self, words: Array, rows: Array, path: Path) -> None:
        if words.dtype.kind == "U" and not (words != "").all():
            first, count = rows[words == ""][0], int((words == "").sum())
            message = f"entry {first} of {path} has no class in `{self.label}`"
            hint = f"{count:,} of {len(words):,} samples in this range of rows have no class."
            raise UserError(message, hint=hint, key="data.label", file=path)

    def _weigh(self, table: dict[str, Column], path: Path) -> None:
        if not self.weighs:
            return
        weight = np.ones(rows_of(table))
        if self.weight is not None:
            if any(name not in table for name in self.weight.names):
                return  # prediction needs no weights
            weight = _single(self.weight.of(table), "data.weight", path)
        if self.learned is not None:
            label = table[LABEL]
            assert isinstance(label, np.ndarray)
            x, y = (_single(self.extra[name].of(table), f"data.{name}", path) for name in (X, Y))
            weight = weight * self.learned.of(label, x, y)
        table[WEIGHT] = np.asarray(weight, np.float32)


def _single(column: Column, key: str | None, path: Path, what: str = "") -> Array:
    if isinstance(column, Lists) or column.ndim != 1:
        message = f"{what or key} must have a single value for each sample of {path}, not a list of values"
        raise UserError(message, key=key, file=path)
    return column


def lengths_of(table: Mapping[str, Column], rows: Array) -> dict[str, Array]:
    """Lengths of the lists in the selected rows, by column.

    Columns with a common array `lengths` keep a common array.
    """
    known: dict[int, Array] = {}
    return {
        name: known.setdefault(id(column.lengths), column.lengths[rows].astype(np.int32))
        for name, column in table.items()
        if isinstance(column, Lists)
    }


def finite(
    table: Mapping[str, Column], most: int | None, positive: Collection[str] = ()
) -> tuple[dict[str, Column], int, int]:
    """Remove invalid list entries from a table.

    An entry is invalid if it is not finite in at least one column, if it is negative in a `positive` column, or if it
    is after the first `most` entries. Also returns two counts: non-finite entries, and negative entries among the rest.
    """
    made, dropped, negative = dict(table), 0, 0
    groups: dict[int, dict[str, Lists]] = {}  # columns of lists that share their lengths
    for name, column in table.items():
        if isinstance(column, Lists):
            groups.setdefault(id(column.lengths), {})[name] = column
    for columns in groups.values():
        lengths = next(iter(columns.values())).lengths
        good: Array | None = None
        for column in columns.values():
            if column.values.dtype.kind == "f" and not (finite := np.isfinite(column.values)).all():
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
