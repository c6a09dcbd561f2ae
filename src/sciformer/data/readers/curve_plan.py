"""What is made of a file of light curves: which columns, of which objects, and what was left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import UserError, nearest
from ..source import Array, Lists, Table, select
from .curve_files import CurveFile, form_of, open_curves
from .curve_names import INDEX, LABEL, NONE, OBJECT, WORDS, Names, find, hits, need, on_disk, plain
from .curve_parquet import ParquetTable
from .curve_points import Column, Counts, Rules, clean, words
from .curve_tables import read_columns, read_ecsv, read_fits
from .event_scan import Rows, stretches

ROLES = ("time", "value", "error", "band", "limit", "id", "label")
ALWAYS = ("clean",)  # lists that are handed out wherever they are
SCANNED = 1 << 16  # objects looked at at a time
SPLIT = "for data.split"


class Objects:
    """A table with a row for each object, found by its name."""

    def __init__(self, path: Path, given: Names) -> None:
        form, self.path = form_of(path), path
        if form == "Parquet":
            file = ParquetTable(path)
            columns = file.get(list(file.kinds), 0, file.rows)
        else:
            read = {"FITS": lambda: read_fits(path)[0], "ECSV": lambda: read_ecsv(path)}
            columns = read.get(form, lambda: read_columns(path))().columns
        self.columns = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        known = find(given.id, self.columns) if given.id not in ("", NONE) else []
        known = known or hits(("id", *OBJECT), self.columns)
        if not known:
            raise UserError(
                f"{path} has no column with objects for data.objects: it has {', '.join(self.columns)}",
                hint="Say which: --data.id NAME",
                key="data.objects",
                file=path,
            )
        ids = words(self.columns[known[0]])
        self.rows = {name: row for row, name in enumerate(ids.tolist())}
        if len(self.rows) < len(ids):
            names, counts = np.unique(ids, return_counts=True)
            raise UserError(
                f"{path} must have a single row for each object, not {counts.max():,} for {names[counts.argmax()]}",
                key="data.objects",
                file=path,
            )
        wanted = given.label if given.label != NONE else ""
        found = find(wanted, self.columns) if wanted else [] if given.label else hits(LABEL, self.columns)
        self.label = found[0] if found else ""

    def get(self, name: str, ids: Array) -> Array:
        """A column for these objects; those that are not in the table have NaN, or an empty word."""
        column, place = self.columns[name], np.array([self.rows.get(one, -1) for one in ids.tolist()], np.int64)
        lacking = place < 0
        if not lacking.any():
            return column[place]
        if column.dtype.kind in "US":
            return np.where(lacking, "", words(column)[place])
        return np.where(lacking, np.nan, column[place].astype(np.float64))


@dataclass(frozen=True)
class Scan:
    """What was found in a file: the numbers of the objects that are kept, and columns that divide them."""

    path: Path
    tag: str
    file: CurveFile
    kept: Array
    columns: dict[str, Array]
    counts: Counts
    edges: Array
    has: frozenset[str]
    lacks: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Objects of the file."""
        return self.file.rows


@dataclass(frozen=True)
class Plan:
    """How to read any of the files.

    names    columns that are handed out, and what they are for; None: all that objects have
    wishes   those that are handed out where they are there
    divide   columns that are needed to divide the objects
    truth    those of which every object must have a class or value; others are left out
    limits   whether it is said of every point if it is an upper limit
    """

    given: Names
    rules: Rules
    names: dict[str, str] | None
    wishes: tuple[str, ...] = ()
    divide: tuple[str, ...] = ()
    objects: Objects | None = None
    table: str = ""
    columns: tuple[str, ...] = ()
    truth: tuple[str, ...] = ()
    limits: bool = False

    def load(self, scan: Scan, rows: Rows) -> Table:
        """The objects of these rows."""
        table, _ = self._table(scan.file, scan.tag, rows.start, rows.stop)
        if self.limits and "limit" not in table:
            time = table["time"]
            assert isinstance(time, Lists)
            table["limit"] = Lists(np.zeros(len(time.values), bool), time.lengths)
        return table if rows.kept is None else select(table, rows.kept)

    def scan(self, path: Path, tag: str) -> Scan:
        """Look at all objects of a file."""
        file = open_curves(path, self.given, self.table, self.columns)
        counts, parts, has = Counts(), list[tuple[Array, dict[str, Array]]](), set[str]()
        for start, stop in stretches(file.edges, file.rows, SCANNED):
            table, found = self._table(file, tag, start, stop)
            counts.add(found)
            time = table["time"]
            assert isinstance(time, Lists)
            keep = time.lengths >= self.rules.least
            for name in self.truth:
                without = keep & _unknown(table[name])
                counts.without[name] += int(without.sum())
                keep &= ~without
            rows = np.flatnonzero(keep)
            has |= set(table)
            wanted = {"id", "label", *self.divide} & set(table)
            parts.append((rows + start, {name: _single(table[name], name, path)[rows] for name in wanted}))
        columns = {name: np.concatenate([found[name] for _, found in parts]) for name in parts[0][1]}
        kept = np.concatenate([rows for rows, _ in parts])
        lacks = tuple(name for name in self.wishes if name not in has)
        return Scan(path, tag, file, kept, columns, counts, file.edges, frozenset(has), lacks)

    def without(self, names: Collection[str]) -> Plan:
        """The same without columns that may be missing."""
        return replace(self, wishes=tuple(name for name in self.wishes if name not in names))

    def _table(self, file: CurveFile, tag: str, start: int, stop: int) -> tuple[dict[str, Column], Counts]:
        more = self._more(file, tag)
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
        return clean(raw, self.rules, file.path)

    def _more(self, file: CurveFile, tag: str) -> dict[str, str]:
        """Further columns that are handed out: each with its name in the file, or nothing where `objects` has it."""
        kinds, roles = file.kinds, {*file.names.used(), *file.told, "id"}
        outside = self.objects.columns if self.objects is not None else {}
        if tag or (self.objects is not None and self.objects.label):
            roles.add("label")
        if self.names is None:
            own = [n for n, kind in kinds.items() if n not in file.names.used().values() and n not in file.header]
            own = [name for name in own if name in ALWAYS or (not kinds[name].listed and self._whole(file, name))]
            made = {name: name for name in own if name not in ROLES and plain(name) != INDEX}
            made |= dict.fromkeys((name for name in outside if name not in ROLES), "")
            for name in self.divide:
                if name not in made and name not in roles:
                    made[name] = need(name, kinds, file.path, SPLIT, _key(SPLIT))
            return made
        made = {}
        for name, why in {**self.names, **dict.fromkeys(self.wishes, ""), **dict.fromkeys(self.divide, "")}.items():
            if name in roles:
                continue
            if name in outside:
                made[name] = ""
            elif own := find(name, kinds):
                made[name] = own[0] if len(own) == 1 else need(name, kinds, file.path, why or SPLIT, _key(why or SPLIT))
            elif name in self.names or name in self.divide:
                raise self._lacking(name, why or SPLIT, [*kinds, *outside], file)
        return made

    def _whole(self, file: CurveFile, name: str) -> bool:
        return file.listed or name in file.header or file.steady(name)

    def _lacking(self, name: str, why: str, known: Sequence[str], file: CurveFile) -> UserError:
        if name in WORDS:
            advice = f"Say which: --data.{name} NAME"
            if name == "label":
                advice += "; or name the class before the files, CLASS:NAME, or a table of objects, --data.objects"
            return UserError(
                f"{file.path} has no column with {WORDS[name]} {why}: it has {', '.join(known[:16])}",
                hint=advice,
                key=f"data.{name}",
                file=on_disk(file.path),
            )
        return UserError(
            f"{file.path} has no column `{name}` {why}",
            hint=nearest(name, known),
            key=_key(why),
            file=on_disk(file.path),
        )


def _key(why: str) -> str | None:
    """The key that asks for a column, if it is one: `for data.meta`."""
    return why.removeprefix("for ") if why.startswith("for data.") else None


def _unknown(column: Column) -> Array:
    """Which objects have no class, or a value that is not finite."""
    if isinstance(column, Lists) or column.dtype.kind in "biu":
        return np.zeros(len(column), bool)
    return ~np.isfinite(column) if column.dtype.kind == "f" else np.asarray(column == "")


def _single(column: Column, name: str, path: Path) -> Array:
    if isinstance(column, Lists):
        raise UserError(f"`{name}` of {path} must have a single value for each object, not several", file=path)
    return column
