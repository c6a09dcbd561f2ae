"""Events in columns: files of ROOT, HDF5, Parquet or NPZ, with a number or a list of numbers for each event."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ....errors import UserError
from ....files.formats.base import Layout, release
from ...columns import Array
from ...fileset import (
    MAX_PIECES_IN_MEMORY,
    TaggedFiles,
    check_tags,
    find_tagged_files,
    note_missing_columns,
    parts_of,
    scan_files,
    split_tag,
)
from ...source import Source, Splits
from ..formula import Formula
from ..text_parts import fingerprint_files, order_parts
from .pieces import EventPieces
from .plan import BY, FOR_OBJECTIVE, FOR_OBSERVERS, LABEL, WEIGHT, Plan, Scan, Words, X, Y
from .reweight import Reweight

__all__ = ["EventFiles", "split_tag"]

WHAT = "files of events"


class EventFiles(TaggedFiles):
    """Columns of numbers, and of lists of numbers, of events in files; only what is used is read, piece by piece.

    Entries of lists that are not finite in some column are left out, and so are samples without entries; both are
    counted. Formulas are those of `sciformer.data.readers.formula`: hypot(px, py), sum(energy) > 500, x[:, 0].
    """

    files: list[str] = Field(default_factory=list)
    """Names or globs of the files to train on. A name before a colon is the class of all events in them, as column
    `label`: [signal:data/signal_*.root, other:data/other_*.root]."""
    tree: str = ""
    """Name of the tree in ROOT files, or of the table that pandas wrote into HDF5 files; found where there is one."""
    mask: str = ""
    """Padded arrays in HDF5 and NPZ files: the array (n, m) that is true where something is, or the count (n,); `zeros`
    where zeros are padding. Unless given, one named mask, valid, lengths, counts, count or n."""
    axes: dict[str, list[str]] = Field(default_factory=dict)
    """Names of columns for the last axis of an array: {points: [x, y, z]} for (n, m, 3), or for (n, 3)."""
    new: dict[str, str] = Field(default_factory=dict)
    """New columns by formulas, which may use each other: {pt: "hypot(px, py)"}."""
    select: str = ""
    """A formula that is true for the samples to keep."""
    select_new: str | None = None
    """The same for other files, those that answers are asked for; as `select` unless given, empty: all are kept."""
    classes: dict[str, str] = Field(default_factory=dict)
    """Classes, each with the column or formula that is true for its samples, for a column `label` with their names:
    {one: is_one, other: is_two + is_three}. Exactly one must be true."""
    label: str = ""
    """Column that has the class, as a number or, in Parquet and NPZ files, by its name; copied to `label`."""
    observers: list[str] = Field(default_factory=list)
    """Columns that are carried along to the answers; `entry` is the number of the row in its file, `file` its name."""
    weight: str = ""
    """Formula of a weight for each sample, as column `weight`; it counts where objective.weight names it."""
    reweight: Reweight | None = None
    """Weights that make the spectra of two columns alike for all classes; they multiply `weight`."""
    bad_files: Literal["stop", "skip"] = "stop"
    """What to do about files that cannot be read: stop, or go on without them and say so."""
    empty: Literal["drop", "keep"] = "drop"
    """What to do about samples without entries in any list."""
    most: int | None = Field(default=None, ge=1)
    """Entries of a list that are read at most, in the order of the file; all unless given."""
    chunk_size: int = Field(default=16384, ge=16)
    """Samples read at a time (default: 16384); a training keeps several such chunks in memory, and mixes some."""

    def open(self, log: Any = None) -> Splits:
        """Look at all files, and divide their samples."""
        named = {part: self.find_event_files(names) for part, names in self.named().items()}
        plan, notes = self._plan(training=True), list[str]()
        scans = {part: self._scanned(plan, files, log, notes, part) for part, files in named.items()}
        rows = self._divided(scans["train"])
        if self.reweight is not None:
            train = rows["train"]
            columns = {name: _all(scans["train"], name)[train] for name in (LABEL, X, Y, WEIGHT)}
            learned = self.reweight.learn(*columns.values())
            plan = replace(plan, learned=learned)
            if learned.outside:
                share = f"{learned.outside:,} of {len(train):,} samples to train on"
                notes.append(f"{share} are outside the edges of data.reweight: their weight is 0.")
        if plan.weighs and WEIGHT not in self.state.get("truth", ()):
            notes.append("The weights of data.weight count where objective.weight is `weight`; it is not.")
        sources: dict[str, Source] = {
            part: EventPieces(plan, some, self.chunk_size) for part, some in parts_of(scans, rows).items()
        }
        notes += self._slow(sources["train"], scans["train"], [part for part in rows if part != "train"])
        paths = [scan.path for some in scans.values() for scan in some]
        return Splits(order_parts(sources), fingerprint_files(paths), notes)

    def read(self, files: Sequence[str | Path]) -> Source:
        """The samples of other files in their order; classes, weights and observers may be missing there."""
        return self._others(files, self._plan(training=False))

    def aligned(self, files: Sequence[str | Path]) -> Source:
        """Every event of other files."""
        return self._others(files, replace(self._plan(training=False), chosen=None, empty=True))

    def find_event_files(self, names: Sequence[str | Path]) -> list[tuple[str, Path]]:
        """Files with the class of all their events, or nothing."""
        found = find_tagged_files(names, WHAT)
        tags = {tag for tag, _ in found}
        if tags - {""} and (self.classes or self.label):
            key = "classes" if self.classes else "label"
            raise UserError(
                f"classes are given twice: by tags and by data.{key}",
                hint=f"Take out the tag {sorted(tags)[-1]}: or data.{key}.",
                key=f"data.{key}",
            )
        if self.classes and self.label:
            raise UserError(
                "data.classes and data.label are both given", hint="Take one of them out.", key="data.classes"
            )
        check_tags(found)
        return found

    def _plan(self, training: bool) -> Plan:
        asked, names, wishes = "names" in self.state, dict[str, str](), list[str]()
        if asked:
            names = dict.fromkeys(self.state["names"], "the tokens")
            wishes = list(self.state["wishes"])
            truth = {name: FOR_OBJECTIVE for name in self.state["truth"] if name not in names}
            truth |= dict.fromkeys(self.observers, FOR_OBSERVERS)
            names, wishes = (names | truth, wishes) if training else (names, [*wishes, *truth])
        select = self.select if training or self.select_new is None else self.select_new
        extra = {X: Formula(self.reweight.x), Y: Formula(self.reweight.y)} if self.reweight and training else {}
        if self.split.by and training:
            extra[BY] = Formula(self.split.by)
        return Plan(
            Layout(self.tree, self.mask, self.axes, self.label),
            names if asked else None,
            tuple(wishes),
            {name: Formula(text) for name, text in self.new.items()},
            Formula(select) if select else None,
            {name: Formula(text) for name, text in self.classes.items()},
            self.label,
            Formula(self.weight) if self.weight else None,
            bool(self.weight or self.reweight),
            extra,
            self.most,
            self.empty == "keep",
            training,
            positive=tuple(self.state.get("positive", ())),
        )

    def _scanned(
        self, plan: Plan, files: Sequence[tuple[str, Path]], log: Any, notes: list[str], part: str
    ) -> list[Scan]:
        """What is in the files of a part; what was left out is told in the notes."""
        if log is not None and len(files) > 1:
            log(f"looking at {len(files):,} {WHAT}")

        def look(path: Path, tag: str) -> Scan:
            try:
                return plan.scan(path, tag, self.chunk_size)
            except UserError:
                release([path])
                raise

        scans = scan_files(look, files, part, notes, self.bad_files == "skip")
        _left_out(scans, notes, plan.positive, f" for {part}", "" if part == "train" else f" of {part}")
        if LABEL in self.state.get("truth", ()):
            _all_there({tag for tag, _ in files}, scans, notes, part)
        return scans

    def _divided(self, scans: Sequence[Scan]) -> dict[str, Array]:
        """The samples of each part that is drawn, counted over all files."""
        split = self.split.less(self.valid, self.test)
        groups = _all(scans, BY) if split.by else None
        return dict(split.divide(sum(len(scan.kept) for scan in scans), groups))

    def _others(self, files: Sequence[str | Path], plan: Plan) -> Source:
        scans = [plan.scan(path, tag, self.chunk_size) for tag, path in self.find_event_files(files)]
        notes = list[str]()
        plan = plan.without(note_missing_columns(scans, self.observers, notes))
        _left_out(scans, notes, plan.positive)
        return EventPieces(plan, [(scan, scan.kept) for scan in scans], self.chunk_size, mixed=False, notes=notes)

    def _slow(self, source: Source, scans: Sequence[Scan], drawn: Sequence[str]) -> list[str]:
        """Notes on what makes reading slow."""
        notes = list[str]()
        if len(source.sizes) <= MAX_PIECES_IN_MEMORY:
            return notes
        if drawn:
            words = " and ".join(drawn)
            notes.append(
                f"{words} are drawn from all files, which are read for them too: files of their own are quicker."
            )
        assert isinstance(source, EventPieces)
        size = max(rows.stop - rows.start for rows in source.pieces[0])
        widest = max(int(np.diff(scan.edges).max(initial=0)) for scan in scans)
        if widest > 2 * size:
            notes.append(
                f"Files are packed in runs of {widest:,} rows, of which {size:,} are used at a time: "
                f"a larger data.chunk_size than {self.chunk_size:,} reads them less often."
            )
        return notes


def _left_out(
    scans: Sequence[Scan], notes: list[str], positive: Collection[str], why: str = "", whose: str = ""
) -> None:
    """Tell in the notes how much is not used; refuse it if nothing is left."""
    counts = {key: sum(scan.counts[key] for scan in scans) for key in scans[0].counts}
    total, kept = sum(scan.rows for scan in scans), sum(len(scan.kept) for scan in scans)
    if counts["selected"]:
        notes.append(f"{counts['selected']:,} of {total:,} samples{whose} are not selected.")
    if counts["dropped"]:
        every = counts["dropped"] + counts["entries"]
        notes.append(f"{counts['dropped']:,} of {every:,} entries of lists{whose} are not finite: left out.")
    if counts["negative"]:
        every = counts["negative"] + counts["entries"]
        names = ", ".join(f"`{name}`" for name in positive)
        notes.append(f"{counts['negative']:,} of {every:,} entries of lists{whose} are negative in {names}: left out.")
    if counts["empty"]:
        notes.append(f"{counts['empty']:,} of {total:,} samples{whose} have no entries: left out.")
    if not kept:
        raise UserError(f"all {total:,} samples{why} are left out", hint=" ".join(notes))


def _all_there(tags: Collection[str], scans: Sequence[Scan], notes: Sequence[str], part: str) -> None:
    """Refuse classes of which nothing is left, for their files or all their samples are left out."""
    kept = {str(name) for scan in scans if isinstance(words := scan.columns.get(LABEL), Words) for name in words.words}
    lost = sorted({*tags, *(name for scan in scans for name in scan.emptied)} - kept - {""})
    if lost:
        raise UserError(f"all samples of the class {lost[0]} for {part} are left out", hint=" ".join(notes[:4]))


def _all(scans: Sequence[Scan], name: str) -> Array:
    """A column of all samples; where none was asked for, as the weight, ones."""
    found = [scan.columns.get(name) for scan in scans]
    if name == LABEL and any(column is None for column in found):
        raise UserError(
            "data.reweight needs classes, but there are no classes",
            hint="Give them by tags, data.classes or data.label.",
            key="data.reweight",
        )
    return np.concatenate([np.ones(len(s.kept)) if c is None else c[:] for s, c in zip(scans, found)])
