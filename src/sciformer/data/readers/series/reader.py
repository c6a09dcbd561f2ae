"""Reader of light curves and other irregular time series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from ....errors import UserError, nearest
from ....files.formats.base import Layout
from ....files.formats.memory import words
from ...columns import Array, Lists, Table, select
from ...fileset import (
    Counts,
    FilePlan,
    FileSet,
    Rows,
    Scan,
    Seen,
    known_columns,
    note_missing_columns,
    note_overlaps,
    wanted_columns,
)
from ...source import find_files, fingerprint_files, locate
from ...split import Split
from .clean import BadErrors, Column, Rules, SameTime, clean, describe_cleaning
from .curves import LAYOUT, CurveFile, Objects, open_curves
from .names import INDEX, NONE, WORDS, Names, find, need, plain

ROLES = ("time", "value", "error", "band", "limit", "id", "label")
LISTS_ALWAYS_READ = ("clean",)  # list columns that are always read if present
OBJECTS_PER_SCAN = 1 << 16
SPLIT = "data.split"


class SeriesFiles(FileSet):
    """Time series of objects: times, values, optional errors, bands and limits.

    Formats: Parquet (a row for each object, with lists or nested columns, or a row for each observation), CSV and other
    text, ECSV, and FITS (a table of observations or of objects, or a file for each object, as from lightkurve). Columns
    of observations are `time` (in days, double precision), `value`, `error`, `band` and `limit`; columns of objects are
    `id`, `label`, and further columns by name.

    Points and objects that are left out, sorted or merged are counted in notes: points whose time or value is not
    finite, points without a band, errors that are not positive, unsorted curves, points of the same time and band; in
    training also objects without a label or target.

    Parquet is read in pieces (if the rows of an object are contiguous); other formats are held in memory.
    """

    what: ClassVar[str] = "files of light curves"
    unit: ClassVar[str] = "object"
    column_keys: ClassVar[tuple[str, ...]] = (*ROLES, "quality")
    renames_columns: ClassVar[bool] = True

    files: list[str] = Field(default_factory=list)
    """Training files: names or globs. CLASS:FILE sets the class of all objects in the files:
    [RRAB:rr/*.fits, MIRA:mira/*.fits]."""
    split: Split = Split()
    """Split of `files` into train, valid and test; parts with their own files are not split off. By
    default, all curves of an object stay in one part; `split.by` names another column for the groups."""
    objects: str = ""
    """File with a row for each object, for object columns (class, redshift, ...) that are not in `files` (default:
    none)."""
    id: str = ""
    """Column of the object id. For this and the next keys: `none` if there is no column, `outer.inner` for a nested
    column (default: the column with a common name)."""
    time: str = ""
    """Column of the times (default: a column with a common name)."""
    value: str = ""
    """Column of the magnitudes or fluxes (default: a column with a common name)."""
    error: str = ""
    """Column of the uncertainties of the values (default: a column with a common name)."""
    band: str = ""
    """Column of the bands: the band of each point, a string with one letter per point, or one band for the object
    (default: a column with a common name, such as `band` or `filter`)."""
    limit: str = ""
    """Column of flags, true for upper limits (default: a column with a common name)."""
    label: str = ""
    """Column of the class of an object (default: a column with a common name)."""
    quality: str = ""
    """Column of quality flags: points with a flag other than 0 are left out (default: none)."""
    meta: list[str] = Field(default_factory=list)
    """Further object columns (or FITS header values) copied to the predictions. Columns used by the tokens or the
    objective are read anyway (default: none)."""
    columns: list[str] = Field(default_factory=list)
    """Column names in order, for text files without a header (default: [time, value, error])."""
    table: str = ""
    """Name or number of the table in FITS files (default: the first table with times and values)."""
    bands: list[str] = Field(default_factory=list)
    """Bands to keep (default: all)."""
    min_points: int = Field(default=1, ge=1)
    """Minimum number of points of a curve; shorter curves are left out (default: 1)."""
    same_time: SameTime = "mean"
    """Treatment of points of one object with equal time and band. mean: their mean, weighted by 1 / error² if known;
    first: the first point; keep: all points (default: mean)."""
    bad_errors: BadErrors = "drop"
    """Treatment of points whose error is missing, not finite or not positive. drop: leave them out; keep: keep them
    with the error NaN. Upper limits are always kept (default: drop)."""
    missing_values: list[float] = Field(default_factory=list)
    """Numbers that stand for a missing measurement, for example [-99, 99.999] (default: none). A point with one of
    these values is left out; an error equal to one of them counts as missing."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Number of training objects of each class, drawn with split.seed. A larger number includes the objects of a
    smaller number (default: all objects)."""
    chunk_size: int = Field(default=4096, ge=16)
    """Objects per chunk; training shuffles across several chunks in memory (default: 4,096)."""

    def absolute_paths(self) -> Self:
        return super().absolute_paths().model_copy(update={"objects": locate(self.objects) if self.objects else ""})

    @property
    def rules(self) -> Rules:
        """Rules for cleaning observations."""
        return Rules(self.min_points, self.same_time, self.bad_errors, tuple(self.bands), tuple(self.missing_values))

    def plan(self, training: bool) -> Plan:
        names, wishes = wanted_columns(self.state, self.meta, "data.meta", training)
        given = Names(**{role: getattr(self, role) for role in (*ROLES, "quality")})
        there = self.objects and (training or Path(self.objects).expanduser().exists())
        return Plan(
            given,
            self.rules,
            names,
            wishes,
            tuple(name for name in (self.split.by, self.split.stratify) if name and training),
            Objects(find_files([self.objects], "a table of objects")[0], given) if there else None,
            replace(LAYOUT, tree=self.table, names=tuple(self.columns), renames=self.state.get("renames", {})),
            tuple(self.state.get("truth", ())) if training else (),
            optional=() if training else ("label",),
        )

    def rows_per_scan(self) -> int:
        return OBJECTS_PER_SCAN

    def fingerprint(self, scans: Sequence[Scan]) -> dict[str, str]:
        beside = find_files([self.objects], "a table of objects") if self.objects else []
        return super().fingerprint(scans) | fingerprint_files(beside)

    def describe_counts(self, counts: Counts, total: int, kept: int, whose: str) -> list[str]:
        notes = describe_cleaning(counts, total, kept, self.rules, whose)
        if not kept and counts["bad errors"] and self.bad_errors == "drop":
            notes.append("Keep points with bad errors: --data.bad_errors keep. Or ignore errors: --data.error none")
        return notes

    def agree(self, plan: Plan, scans: Sequence[Scan], notes: list[str], training: bool) -> Plan:
        """Adapt the plan to files with different columns.

        Errors and bands must be in all files or in none; other columns missing in some files are dropped.
        """
        for role in ("error", "band"):
            without = [scan for scan in scans if role not in scan.has]
            if without and len(without) < len(scans):
                one = next(scan for scan in scans if role in scan.has)
                own, path = getattr(one.file.names, role), without[0].path
                message = f"{path} has no column for data.{role}, but {one.path} has `{own}`"
                hint = f"Ignore the column in all files: --data.{role} none"
                raise UserError(message, hint=hint, key=f"data.{role}", file=path)
        plan = plan.without(note_missing_columns(scans, self.meta, notes, but="limit"))
        return replace(plan, limits=any("limit" in scan.has for scan in scans))

    def empty_rows(self, table: Table) -> Array | None:
        time = table.get("time")
        return time.lengths < self.min_points if isinstance(time, Lists) else None

    def groups(self, scans: Sequence[Scan], split: Split, notes: list[str]) -> tuple[Array | None, Array | None]:
        groups = known_columns(scans, split.by, "objects") if split.by else _object_ids(scans)
        if not split.by and (again := len(groups) - len(np.unique(groups))):
            share = f"{again:,} of {len(groups):,} curves"
            notes.append(f"{share} are of objects with another curve: they stay in one part.")
        return groups, known_columns(scans, split.stratify, "objects") if split.stratify else None

    def overlaps(self, scans: Mapping[str, Sequence[Scan]]) -> list[str]:
        return note_overlaps({part: _object_ids(some) for part, some in scans.items()}, "objects")


@dataclass(frozen=True)
class Plan(FilePlan):
    """Plan for reading each file of light curves.

    given    column names of the recipe
    rules    rules for cleaning observations
    names    required columns {name: purpose, for error messages} (None: all object columns)
    wishes   optional columns
    divide   columns for the split
    objects  separate table of objects
    truth    columns required for every object; an object without a value is left out
    limits   whether to return the column `limit`, also for files without it
    marks    whether curves with too few points are kept and counted
    optional roles whose column, named by the recipe, may be missing
    """

    given: Names
    rules: Rules
    names: dict[str, str] | None
    wishes: tuple[str, ...] = ()
    divide: tuple[str, ...] = ()
    objects: Objects | None = None
    layout: Layout = LAYOUT
    truth: tuple[str, ...] = ()
    limits: bool = False
    marks: bool = False
    optional: tuple[str, ...] = ()
    keeps_files: ClassVar[bool] = True

    def load(self, scan: Scan, rows: Rows) -> Table:
        table = self._table(scan.file, scan.tag, rows.start, rows.stop, Counts())
        if self.limits and "limit" not in table:
            time = table["time"]
            assert isinstance(time, Lists)
            table["limit"] = Lists(np.zeros(len(time.values), bool), time.lengths)
        return table if rows.kept is None else select(table, rows.kept)

    def open(self, path: Path) -> CurveFile:
        return open_curves(path, self.given, self.layout, self.optional)

    def scan_rows(self, file: CurveFile, tag: str, start: int, stop: int, counts: Counts) -> Seen:
        table = self._table(file, tag, start, stop, counts)
        time = table["time"]
        assert isinstance(time, Lists)
        keep = time.lengths >= self.rules.min_points
        if self.marks:
            counts["short"] += int((~keep).sum())
            keep[:] = True
        for name in self.truth:
            without = keep & _is_missing(table[name])
            counts["without", name] += int(without.sum())
            keep &= ~without
        rows, found = np.flatnonzero(keep), dict[str, Array]()
        for name in {"id", "label", *self.divide} & set(table):
            column = table[name]
            if isinstance(column, Lists):
                raise file.error(f"`{name}` of {file.path} must have one value for each object, not several")
            found[name] = column[rows]
        return Seen(rows, found, {}, set(table))

    def aligned(self) -> Plan:
        return replace(self, rules=replace(self.rules, min_points=0))

    def with_empty(self) -> Plan:
        return replace(self, marks=True)

    def _table(self, file: CurveFile, tag: str, start: int, stop: int, counts: Counts) -> dict[str, Column]:
        more = self._further_columns(file, tag)
        found = file.read([name for name in more.values() if name], start, stop)
        ids = found["id"]
        assert isinstance(ids, np.ndarray)
        raw = {role: found[role] for role in (*ROLES, "quality") if role in found}
        if self.objects is not None and self.objects.label:
            raw["label"] = self.objects.get(self.objects.label, ids)
        if tag:
            raw["label"] = np.full(len(ids), tag)
        if isinstance(label := raw.get("label"), np.ndarray) and label.dtype.kind != "f":
            raw["label"] = words(label)
        for name, own in more.items():
            column = found[own] if own else self.objects.get(name, ids) if self.objects else None
            assert column is not None
            raw[name] = words(column) if isinstance(column, np.ndarray) and column.dtype.kind in "OS" else column
        return clean(raw, self.rules, file.path, counts)

    def _further_columns(self, file: CurveFile, tag: str) -> dict[str, str]:
        """Further columns: {name: name in the file, or "" if in `objects`}."""
        kinds, roles = file.kinds, {*file.names.used(), *file.header_roles, "id"}
        outside = self.objects.columns if self.objects is not None else {}
        if tag or (self.objects is not None and self.objects.label):
            roles.add("label")
        if self.names is None:
            used = {*file.names.used().values(), *file.header}
            own = [name for name in kinds if name not in used and (name in LISTS_ALWAYS_READ or file.of_object(name))]
            made = {name: name for name in own if name not in ROLES and plain(name) != INDEX}
            made |= dict.fromkeys((name for name in outside if name not in ROLES), "")
            return made | {
                name: need(name, kinds, file.path, f"for {SPLIT}", SPLIT)
                for name in self.divide
                if name not in made and name not in roles
            }
        made = {}
        for name, why in {**self.names, **dict.fromkeys(self.wishes, ""), **dict.fromkeys(self.divide, "")}.items():
            if name in roles:
                continue
            if name in outside:
                made[name] = ""
            elif getattr(self.given, name, "") != NONE and find(name, kinds):
                made[name] = need(name, kinds, file.path, f"for {why or SPLIT}", _key(why or SPLIT))
            elif name in self.names or name in self.divide:
                raise self._missing_column_error(name, why or SPLIT, [*kinds, *outside], file)
        return made

    def _missing_column_error(self, name: str, why: str, known: Sequence[str], file: CurveFile) -> UserError:
        if name not in WORDS:
            return file.error(f"{file.path} has no column `{name}` for {why}", nearest(name, known), _key(why))
        hint = f"Give its name: --data.{name} NAME"
        if name == "label":
            hint += "; or give the class with the files, CLASS:FILE, or in a table of objects, --data.objects"
        message = f"{file.path} has no column with {WORDS[name]} for {why}: it has {', '.join(known[:16])}"
        return file.error(message, hint, f"data.{name}")


def _object_ids(scans: Sequence[Scan]) -> Array:
    """Ids of all objects.

    The id of a file with a single object includes the class: RRAB/1.csv and EC/1.csv differ.
    """
    ids = known_columns(scans, "id", "objects")
    tags = np.repeat([scan.tag if scan.file.single else "" for scan in scans], [len(scan.kept) for scan in scans])
    return np.char.add(np.char.add(tags, "/"), ids) if (tags != "").any() else ids


def _key(why: str) -> str | None:
    return why if why.startswith("data.") else None


def _is_missing(column: Column) -> Array:
    """Mask of missing entries: empty strings and non-finite numbers."""
    if isinstance(column, Lists) or column.dtype.kind in "biu":
        return np.zeros(len(column), bool)
    return ~np.isfinite(column) if column.dtype.kind == "f" else np.asarray(column == "")
