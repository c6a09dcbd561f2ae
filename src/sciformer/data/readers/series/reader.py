"""Light curves and other series of irregular observations, in files of any usual form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from ....errors import UserError
from ...columns import Array
from ...fileset import (
    MAX_PIECES_IN_MEMORY,
    TaggedFiles,
    check_tags,
    find_tagged_files,
    note_missing_columns,
    note_overlaps,
    parts_of,
    scan_files,
)
from ...source import Source, Splits, find_files, fingerprint, locate
from ...split import Split, sample_per_class
from ..events.pieces import FilePieces
from ..text_parts import fingerprint_files, order_parts
from .clean import BadErrors, Counts, Rules, SameTime, describe_cleaning
from .names import Names
from .plan import Objects, Plan, Scan

WHAT = "files of light curves"


class SeriesFiles(TaggedFiles):
    """Observations of objects: times, values, and what there is of errors, bands and upper limits.

    Parquet (a row for each object with lists or nested columns, or a row for each observation), CSV or other text,
    ECSV, and FITS: a table of observations or of objects, or a file for each object as lightkurve has them. Columns are
    `time` (as in the file, in days and double precision), `value`, `error`, `band`, `limit`; of an object `id`,
    `label`, and others by their names.

    What is left out, sorted or merged is counted and said: points whose time or value is not finite, points without a
    band, errors that are not above zero, curves that are not sorted, points of the same time and band; in training
    also objects without the class or value that is learned.

    Parquet is read piece by piece (where the rows of objects stand together); others are held in memory.
    """

    files: list[str] = Field(default_factory=list)
    """Names or globs of the files to train on. A name before a colon is the class of all objects in them:
    [RRAB:rr/*.fits, MIRA:mira/*.fits]."""
    split: Split = Split()
    """Shares of `files` kept apart for those of `valid` and `test` that have no files of their own. Curves of one
    object stay together, unless `by` names another column."""
    objects: str = ""
    """A table with a row for each object (its class, redshift, ...), where the files of observations do not have it."""
    id: str = ""
    """Column that tells the object. For this and the next ones: the column of a usual name unless given; `none` where
    there is none; `outer.inner` of nested ones."""
    time: str = ""
    """Column of the times."""
    value: str = ""
    """Column of the magnitudes or fluxes."""
    error: str = ""
    """Column of the errors of values."""
    band: str = ""
    """Column of the bands: a name for each point, a word with a letter for each point, or one name for an object."""
    limit: str = ""
    """Column that is true where the value is an upper limit."""
    label: str = ""
    """Column with the class of an object."""
    quality: str = ""
    """Column of flags: points where it is not 0 are left out. None unless given."""
    meta: list[str] = Field(default_factory=list)
    """Further columns of objects (or of the header of a file with one) that are carried along to the answers; those
    that tokens or the objective use need not be named."""
    columns: list[str] = Field(default_factory=list)
    """Names of the columns in order, for text of numbers without; [time, value, error] unless given."""
    table: str = ""
    """Name or number of the table in FITS files with several; the first that has times and values unless given."""
    bands: list[str] = Field(default_factory=list)
    """Bands that are kept; all unless given."""
    min_points: int = Field(default=1, ge=1)
    """Points that a series must have (default: 1); those with fewer are left out."""
    same_time: SameTime = "mean"
    """Points of one object with the same time and band: their mean (weighted by 1 / error² where it is known), the
    first alone, or all kept."""
    bad_errors: BadErrors = "drop"
    """Points whose error is missing, not finite or not above zero: drop them, or keep them with an unknown error (NaN).
    Upper limits are kept."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Train on so many objects of each class only, drawn by split.seed; a larger number adds to a smaller."""
    bad_files: Literal["stop", "skip"] = "stop"
    """What to do about files that cannot be read: stop, or go on without them and say so."""
    chunk_size: int = Field(default=4096, ge=16)
    """Objects read at a time (default: 4096); a training keeps several such chunks in memory, and mixes some."""

    def open(self, log: Any = None) -> Splits:
        """Look at all files, and divide their objects."""
        self.split.less(self.valid, self.test)
        named = {part: find_series_files(names) for part, names in self.named().items()}
        plan, notes = self._plan(training=True), list[str]()
        scans = {part: self._scanned(plan, files, log, notes, part) for part, files in named.items()}
        every = [scan for some in scans.values() for scan in some]
        plan = self._agreed(plan, every, notes)
        rows = self._divided(scans["train"], notes)
        notes += note_overlaps({part: _all(some, "id") for part, some in scans.items()}, "objects")
        sources: dict[str, Source] = {
            part: FilePieces(plan, some, self.chunk_size) for part, some in parts_of(scans, rows).items()
        }
        notes += self._slow(sources["train"], scans["train"])
        found = fingerprint_files([scan.path for scan in every])
        if self.objects:
            found |= {str(path): fingerprint(path) for path in find_files([self.objects], "a table of objects")}
        return Splits(order_parts(sources), found, notes)

    def read(self, files: Sequence[str | Path]) -> Source:
        """The objects of other files in their order; classes and what else is asked may be missing there."""
        return self._others(files, self._plan(training=False))

    def aligned(self, files: Sequence[str | Path]) -> Source:
        """Every object of other files, also one without points."""
        plan = self._plan(training=False)
        return self._others(files, replace(plan, rules=replace(plan.rules, min_points=0)))

    def absolute_paths(self) -> Self:
        """The same section with absolute names of files."""
        return super().absolute_paths().model_copy(update={"objects": locate(self.objects) if self.objects else ""})

    @property
    def rules(self) -> Rules:
        """What is done about observations that are not as they should be."""
        return Rules(self.min_points, self.same_time, self.bad_errors, tuple(self.bands))

    def _plan(self, training: bool) -> Plan:
        state = self.state
        names: dict[str, str] | None = None
        wishes: list[str] = []
        if "names" in state:
            names = dict.fromkeys(state["names"], "for the tokens")
            truth = {name: "for the objective" for name in state["truth"] if name not in names}
            wishes = list(state["wishes"])
            names, wishes = (names | truth, wishes) if training else (names, [*wishes, *truth])
            meta = dict.fromkeys(self.meta, "for data.meta")
            names, wishes = ({**meta, **names}, wishes) if training else (names, [*wishes, *meta])
        divide = [name for name in (self.split.by, self.split.stratify) if name and training]
        roles = ("time", "value", "error", "band", "limit", "id", "label", "quality")
        given = Names(**{role: getattr(self, role) for role in roles})
        there = self.objects and (training or Path(self.objects).expanduser().exists())
        path = find_files([self.objects], "a table of objects")[0] if there else None
        return Plan(
            given,
            self.rules,
            names,
            tuple(dict.fromkeys(wishes)),
            tuple(divide) if training else (),
            None if path is None else Objects(path, given),
            self.table,
            tuple(self.columns),
            tuple(state.get("truth", ())) if training else (),
        )

    def _scanned(
        self, plan: Plan, files: Sequence[tuple[str, Path]], log: Any, notes: list[str], part: str
    ) -> list[Scan]:
        """What is in the files of a part; what was left out is told in the notes."""
        if log is not None and len(files) > 1:
            log(f"looking at {len(files):,} {WHAT}")
        scans = scan_files(plan.scan, files, part, notes, self.bad_files == "skip")
        self._tell(scans, notes, f" for {part}", "" if part == "train" else f" of {part}")
        return scans

    def _tell(self, scans: Sequence[Scan], notes: list[str], why: str = "", whose: str = "") -> None:
        """Tell in the notes how much is not used; refuse it if nothing is left."""
        counts, kept, mine = Counts(), sum(len(scan.kept) for scan in scans), list[str]()
        for scan in scans:
            counts.add(scan.counts)
        mine = describe_cleaning(counts, kept, self.rules, whose)
        if not kept:
            advice = " ".join(mine)
            if counts.found["bad errors"] and self.bad_errors == "drop":
                advice += " Keep points without: --data.bad_errors keep, or read no errors: --data.error none"
            raise UserError(f"all {counts.found['objects']:,} objects{why} are left out", hint=advice)
        notes += mine

    def _agreed(self, plan: Plan, scans: Sequence[Scan], notes: list[str]) -> Plan:
        """The plan for files that have the same columns; others are refused, or a column is left out and named."""
        for role in ("error", "band"):
            without = [scan for scan in scans if role not in scan.has]
            if without and len(without) < len(scans):
                one = next(scan for scan in scans if role in scan.has)
                raise UserError(
                    f"{without[0].path} has no column for data.{role}, but {one.path} has "
                    f"`{getattr(one.file.names, role)}`",
                    hint=f"Leave it out everywhere: --data.{role} none",
                    key=f"data.{role}",
                    file=without[0].path,
                )
        plan = plan.without(note_missing_columns(scans, self.meta, notes, but="limit"))
        return replace(plan, limits=any("limit" in scan.has for scan in scans))

    def _divided(self, scans: Sequence[Scan], notes: list[str]) -> dict[str, Array]:
        """The objects of each part that is drawn, counted over all files."""
        split = self.split.less(self.valid, self.test)
        groups = _all(scans, split.by or "id")
        strata = _all(scans, split.stratify) if split.stratify else None
        count = sum(len(scan.kept) for scan in scans)
        if not split.by and (again := count - len(np.unique(groups))):
            notes.append(f"{again:,} of {count:,} curves are of objects that have another: they stay in one part.")
        rows = dict(split.divide(count, groups, strata))
        if self.labels_per_class is not None:
            rows["train"] = sample_per_class(
                _all(scans, "label"), rows["train"], self.labels_per_class, split.lot, notes, "object"
            )
        return rows

    def _others(self, files: Sequence[str | Path], plan: Plan) -> Source:
        scans, notes = [plan.scan(path, tag) for tag, path in find_series_files(files)], list[str]()
        plan = self._agreed(plan, scans, notes)
        self._tell(scans, notes)
        return FilePieces(plan, [(scan, scan.kept) for scan in scans], self.chunk_size, mixed=False, notes=notes)

    def _slow(self, source: Source, scans: Sequence[Scan]) -> list[str]:
        """A note on what makes reading slow."""
        packed = [scan.edges for scan in scans if not scan.file.held]
        widest = max((int(np.diff(edges).max(initial=0)) for edges in packed), default=0)
        if len(source.sizes) <= MAX_PIECES_IN_MEMORY or widest <= 2 * self.chunk_size:
            return []
        return [
            f"Files are packed in runs of {widest:,} objects, of which {self.chunk_size:,} are used at a time: smaller "
            f"row groups or a larger data.chunk_size are read less often."
        ]


def find_series_files(names: Sequence[str | Path]) -> list[tuple[str, Path]]:
    """Files with the class of all their objects, or nothing."""
    found = find_tagged_files(names, WHAT)
    check_tags(found)
    return found


def _all(scans: Sequence[Scan], name: str) -> Array:
    """A column of all objects."""
    if lacking := [scan for scan in scans if name not in scan.columns]:
        raise UserError(
            f"{lacking[0].path} has no column `{name}`, which divides the objects",
            key="data.split",
            file=lacking[0].path,
        )
    return np.concatenate([scan.columns[name] for scan in scans])
