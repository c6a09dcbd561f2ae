"""What is made of a file of light curves: which columns, of which objects, and what was left out."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UserError, nearest
from ....files.formats.base import MAGIC_BYTES
from ...columns import Array, Lists, Table, select
from ..events.plan import Rows, stretches
from .clean import Column, Counts, Rules, clean, words
from .names import INDEX, LABEL, NONE, OBJECT, POINTS, WORDS, Kind, Names, find, hits, need, on_disk, plain, resolve
from .tables import Flat, ParquetTable, read_columns, read_ecsv, read_fits

ROLES = ("time", "value", "error", "band", "limit", "id", "label")
LISTS_ALWAYS_READ = ("clean",)  # lists that are handed out wherever they are
OBJECTS_PER_SCAN = 1 << 16  # objects looked at at a time
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
        for start, stop in stretches(file.edges, file.rows, OBJECTS_PER_SCAN):
            table, found = self._table(file, tag, start, stop)
            counts.add(found)
            time = table["time"]
            assert isinstance(time, Lists)
            keep = time.lengths >= self.rules.min_points
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
            own = [
                name
                for name in own
                if name in LISTS_ALWAYS_READ or (not kinds[name].listed and self._whole(file, name))
            ]
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


# Files of light curves, whatever their form: objects with their observations


HEADER = ("object", "ticid", "keplerid", "epic", "objname", "targname", "target", "name", "id", "label", "objectid")
MAX_SINGLE_POINT_ROWS = 10  # rows, all of different objects, that do not look like observations
FORMS = "a Parquet, FITS, ECSV or CSV file"
Opened = Flat | ParquetTable


class CurveFile:
    """An open file.

    names    which column is what
    rows     objects in it
    edges    objects at which reading may begin without unpacking what comes before
    """

    def __init__(self, table: Opened, given: Names) -> None:
        self.table, self.path = table, table.path
        if not table.rows:
            raise UserError(f"{self.path} has no rows", file=on_disk(self.path))
        asked = {role: getattr(given, role) for role in ("id", "label")}
        told = {role: find(name, table.header) for role, name in asked.items() if not find(name, table.kinds)}
        self.told = {role: found[0] for role, found in told.items() if found}  # by the header of the file
        try:
            self.names = resolve(table.kinds, replace(given, **dict.fromkeys(self.told, NONE)), table.path)
        except UserError as error:
            odd = [f"`{name}` has {where}." for name, where in getattr(table, "odd", {}).items()]
            raise error.with_fields(hint=" ".join([error.hint, *odd]).strip()) from error
        self.listed = table.kinds[self.names.time].listed
        self.starts: Array | None = None
        self.order: Array | None = None
        self._steady: dict[str, bool] = {}
        self.rows, self.edges = table.rows, table.edges
        if not self.listed:
            self._runs(given)
            if self.names.label and not given.label and not self.steady(self.names.label):
                self.names = replace(self.names, label="")  # a usual name, but nothing that an object has
        self.spelled = self._spelled()

    @property
    def held(self) -> bool:
        """Whether all of it is in memory."""
        return self.order is not None or isinstance(self.table, Flat)

    @property
    def single(self) -> bool:
        """Whether the file is one object as a whole."""
        return not self.listed and not self.names.id

    @property
    def kinds(self) -> dict[str, Kind]:
        """Columns that can be read, and for one object what its header says."""
        header = {name: Kind(False, isinstance(value, str)) for name, value in self.header.items()}
        return {**header, **self.table.kinds}

    @property
    def header(self) -> dict[str, Any]:
        """What is said of the one object."""
        return self.table.header if self.single else {}

    # Objects in a long table

    def _runs(self, given: Names) -> None:
        """Where objects begin, and the order of rows that puts each of them together, if they are not."""
        if self.single:
            self.starts = np.array([0, self.table.rows])
            self.rows, self.edges = 1, np.array([0, 1])
            return
        ids = self.table.get([self.names.id], 0, self.table.rows)[self.names.id]
        assert isinstance(ids, np.ndarray)
        begin = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        different, first, place = np.unique(ids, return_index=True, return_inverse=True)
        if len(different) < len(begin):
            rank = np.empty(len(different), np.int64)
            rank[np.argsort(first, kind="stable")] = np.arange(len(different))  # in the order they appear
            self.order = np.argsort(rank[place], kind="stable")
            begin = np.concatenate([[0], np.cumsum(np.bincount(rank[place]))[:-1]])
        self.rows = len(begin)
        if self.rows == len(ids) > MAX_SINGLE_POINT_ROWS and not given.id:
            advice = "Say which column tells the object: --data.id NAME, or that there is none: --data.id none"
            raise UserError(
                f"no two rows of {self.path} are of the same object: all values of `{self.names.id}` are different",
                hint=advice,
                key="data.id",
                file=on_disk(self.path),
            )
        self.starts = np.append(begin, len(ids))
        self.edges = np.array([0, self.rows]) if self.held else np.searchsorted(self.starts, self.table.edges)

    def _rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Array]:
        """Columns of the rows of objects start .. stop - 1 of a long table."""
        assert self.starts is not None
        low, high = int(self.starts[start]), int(self.starts[stop])
        if self.order is None:
            found = self.table.get(names, low, high)
        else:
            whole = self._memory(names)
            found = {name: whole.columns[name][low:high] for name in names}  # type: ignore[index]
        return {name: column for name, column in found.items() if isinstance(column, np.ndarray)}

    def _memory(self, names: Sequence[str]) -> Flat:
        """Columns whole and in the order of objects: rows that are anywhere in a file cannot be read piece by piece."""
        if not hasattr(self, "_kept"):
            self._kept = Flat(self.path, {})
        if lacking := [name for name in names if name not in self._kept.columns]:
            assert self.order is not None
            for name, column in self.table.get(lacking, 0, self.table.rows).items():
                assert isinstance(column, np.ndarray)
                self._kept.columns[name] = column[self.order]
        return self._kept

    def steady(self, name: str) -> bool:
        """Whether a column of a long table has one value for each object."""
        if name not in self._steady:
            column = self._rows([name], 0, self.rows)[name]
            same = (column[1:] == column[:-1]) | ((column[1:] != column[1:]) & (column[:-1] != column[:-1]))
            assert self.starts is not None
            same[self.starts[1:-1] - 1] = True
            self._steady[name] = bool(same.all())
        return self._steady[name]

    # Reading

    def read(self, more: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """What is known of the objects start .. stop - 1, and further columns by their own names."""
        used = self.names.used()
        wanted = list(dict.fromkeys([*used.values(), *(name for name in more if name in self.table.kinds)]))
        found = self.table.get(wanted, start, stop) if self.listed else self._folded(wanted, start, stop)
        made = {role: found[name] for role, name in used.items()}
        made |= {name: found[name] for name in more if name in found}
        made |= {name: np.array([self.header[name]]) for name in more if name in self.header and name not in found}
        if "label" in self.told and self.single:
            made["label"] = np.array([self.header[self.told["label"]]])
        made["id"] = self._ids(made.get("id"), start, stop)
        if "band" in made:
            made["band"] = self._bands(made["band"], made["time"], start)
        return made

    def _folded(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns of a long table as lists, or as single values where they are the same for an object."""
        assert self.starts is not None
        rows = self._rows(names, start, stop)
        lengths = np.diff(self.starts[start : stop + 1])
        firsts = self.starts[start:stop] - self.starts[start]
        of_points = {name for role, name in self.names.used().items() if role in POINTS}
        made: dict[str, Column] = {}
        for name, values in rows.items():
            if name in of_points or (name != self.names.id and not self.steady(name)):
                made[name] = Lists(values, lengths)
            else:
                made[name] = values[firsts]
        if isinstance(label := made.get(self.names.label), Lists):
            row = int(
                np.argmax([len(set(part.tolist())) > 1 for part in np.split(label.values, lengths.cumsum()[:-1])])
            )
            seen = sorted(set(map(str, label.take(np.array([row])).values.tolist())))
            which = f" {words(rows[self.names.id][firsts])[row]}" if self.names.id else ""
            raise UserError(
                f"`{self.names.label}` has several values for object{which} of {self.path}: {', '.join(seen[:4])}",
                hint="If it is no class of objects: --data.label NAME, or none",
                key="data.label",
                file=on_disk(self.path),
            )
        return made

    def _ids(self, found: Column | None, start: int, stop: int) -> Array:
        if isinstance(found, np.ndarray):
            return words(found)
        name = Path(str(self.path)).name.partition(".")[0] or "object"
        if not self.single:
            return np.array([f"{name}-{row}" for row in range(start, stop)])
        if "id" in self.told:
            return np.array([str(self.header[self.told["id"]]).strip()])
        known = {plain(key): value for key, value in reversed(self.header.items())}
        given = next((value for key in HEADER if (value := known.get(key)) not in (None, "")), name)
        return np.array([str(given).strip()])

    def _bands(self, band: Column, time: Column, start: int) -> Column:
        """The band of each point, where it is told by a letter of one word, or once for all points of an object."""
        assert isinstance(time, Lists)
        if isinstance(band, Lists):
            return Lists(words(band.values), band.lengths)
        names = words(band)
        if not self.spelled:
            return Lists(np.repeat(names, time.lengths), time.lengths)
        wrong = np.char.str_len(names) != time.lengths
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UserError(
                f"`{self.names.band}` has {len(names[row]):,} letters, {names[row][:40]!r}, for the "
                f"{time.lengths[row]:,} points of row {start + row} of {self.path}; other rows have a letter for each "
                "point",
                key="data.band",
                file=on_disk(self.path),
            )
        return Lists(letters(names), time.lengths)

    def _spelled(self) -> bool:
        """Whether a word has a letter for each observation: those of the first rows tell."""
        if not (self.listed and self.names.band and not self.table.kinds[self.names.band].listed):
            return False
        found = self.table.get([self.names.band, self.names.time], 0, min(self.rows, max(1, int(self.edges[1]))))
        time, band = found[self.names.time], found[self.names.band]
        assert isinstance(time, Lists)
        assert isinstance(band, np.ndarray)
        sizes = np.char.str_len(words(band))
        fits = sizes == time.lengths
        return bool(fits.all() or (fits.mean() > 0.5 and sizes.max() > 8))


def letters(names: Array) -> Array:
    """All letters of words, one after the other."""
    return np.frombuffer("".join(names.tolist()).encode("utf-32-le"), "<U1")


def open_curves(path: Path, given: Names, table: str = "", columns: Sequence[str] = ()) -> CurveFile:
    """A file of any of the forms.

    table     name or number of the table in a FITS file
    columns   names for a text of numbers without
    """
    form = form_of(path)
    if form == "Parquet":
        return CurveFile(ParquetTable(path), given)
    if form == "FITS":
        return _first(read_fits(path, table), given)
    return CurveFile(read_ecsv(path) if form == "ECSV" else read_columns(path, columns), given)


def _first(tables: Sequence[Flat], given: Names) -> CurveFile:
    """The first of several tables that has times and values."""
    trouble: UserError | None = None
    for table in tables:
        try:
            return CurveFile(table, given)
        except UserError as error:
            trouble = trouble or error
    assert trouble is not None
    raise trouble


FORMAT_OF_SUFFIX = {".parquet": "Parquet", ".pq": "Parquet", ".fits": "FITS", ".fit": "FITS", ".ecsv": "ECSV"}


def form_of(path: Path) -> str:
    """The form of a file, by how it begins."""
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            begin = file.read(512)
    except (OSError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read as {FORMS}: {error}", hint="Was it cut off? Fetch it again.", file=path
        ) from error
    if begin.startswith(b"SIMPLE  ="):
        return "FITS"
    if begin.startswith(b"# %ECSV"):
        return "ECSV"
    other = next((form for mark, form in MAGIC_BYTES.items() if begin.startswith(mark)), "")
    if other == "Parquet":
        return other
    if other or begin.startswith(b"\x93NUMPY"):
        advice = "In Python: sciformer.data.read_series(time, value, error, band)" if other != "ROOT" else ""
        raise UserError(f"{path} must be {FORMS}, not {other or 'a NumPy file'}", hint=advice, file=path)
    if b"\0" in begin or begin.lstrip().startswith((b"<?xml", b"<VOTABLE", b"%PDF", b"<!DOCTYPE", b"<html")):
        raise UserError(f"{path} is not {FORMS}: it begins with {begin[:12]!r}", file=path)
    said = FORMAT_OF_SUFFIX.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix)
    if said is not None:
        raise UserError(
            f"{path} is not a {said} file: it begins with {begin[:12]!r}",
            hint="Is the file whole, and does its name end as it should?",
            file=path,
        )
    return "delimited"
