"""Files of light curves of any format: objects with their observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UserError
from ....files.formats.base import Format, Kind, Layout, TableFile, all_formats, open_file, opened, recognise
from ....files.formats.delimited import bare_suffix
from ....files.formats.memory import MemoryTable, words
from ....files.in_memory import MemoryFile
from ...columns import Array, Lists
from .clean import Column
from .names import LABEL, NONE, OBJECT, POINTS, TIME, Names, column_error, find, hits, plain, resolve

HEADER = ("object", "ticid", "keplerid", "epic", "objname", "targname", "target", "name", "id", "label", "objectid")
LAYOUT = Layout(nested=True, usual_names=("time", "value", "error"))
FORMATS = ("Parquet", "FITS", "ECSV")  # besides text tables
FORMS = "a Parquet, FITS, ECSV or CSV file"
MARKUP = (b"<?xml", b"<VOTABLE", b"%PDF", b"<!DOCTYPE", b"<html")
MAX_SINGLE_POINT_ROWS = 10  # in a longer table, a different id in every row is an error
DAYS = {"s": 1 / 86400, "sec": 1 / 86400, "second": 1 / 86400, "min": 1 / 1440, "h": 1 / 24, "hr": 1 / 24}
DAYS |= {"hour": 1 / 24, "yr": 365.25, "year": 365.25, "ms": 1 / 86400e3, "wk": 7.0, "week": 7.0}


def form_of(path: Path) -> Format:
    """Format of a file of light curves, recognised from its first bytes."""
    found, begin = recognise(path)
    if found is not None and found.name in FORMATS:
        return found
    if found is not None or begin.startswith(b"\x93NUMPY"):
        other = found.name if found else "a NumPy file"
        hint = "Use Python: sciformer.data.read_series(time, value, error, band)" if other != "ROOT" else ""
        raise UserError(f"{path} must be {FORMS}, not {other}", hint=hint, file=path)
    if b"\0" in begin or begin.lstrip().startswith(MARKUP):
        raise UserError(f"{path} is not {FORMS}: it begins with {begin[:12]!r}", file=path)
    known = {one.name: one for one in all_formats()}
    for name in FORMATS:
        if bare_suffix(path) in known[name].suffixes:
            hint = "Check that the file is complete and its suffix correct."
            raise UserError(f"{path} is not a {name} file: it begins with {begin[:12]!r}", hint=hint, file=path)
    return known["CSV"]


def open_curves(path: Path, given: Names, layout: Layout = LAYOUT, optional: Sequence[str] = ()) -> CurveFile:
    """Open the first table with times and values in a file of any format.

    optional   roles whose column, named by the recipe, may be missing in the file
    """
    if isinstance(path, MemoryFile):
        return CurveFile(path.open_table(layout, observations=True), given, optional)
    form, trouble = form_of(path), list[UserError]()
    file = opened(path, layout) if form.name == "Parquet" else open_file(path, layout, form)
    for table in file.tables():
        try:
            return CurveFile(table, given, optional)
        except UserError as error:
            trouble.append(error)
    raise trouble[0]


class Objects:
    """A separate table with a row for each object, looked up by id."""

    def __init__(self, path: Path, given: Names) -> None:
        file, self.path = open_file(path, LAYOUT, form_of(path)), path
        columns = file.read(list(file.kinds), 0, file.rows)
        self.columns = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        known = find(given.id, self.columns) if given.id != NONE else []
        known = known or hits(("id", *OBJECT), self.columns)
        if not known:
            message = f"{path} of data.objects has no column of object ids: its columns are {', '.join(self.columns)}"
            raise file.error(message, "Give its name: --data.id NAME", "data.objects")
        ids = words(self.columns[known[0]])
        self.rows = {name: row for row, name in enumerate(ids.tolist())}
        if len(self.rows) < len(ids):
            names, counts = np.unique(ids, return_counts=True)
            most = f"{counts.max():,} for {names[counts.argmax()]}"
            raise file.error(f"{path} must have one row for each object, not {most}", key="data.objects")
        found = find(given.label, self.columns) if given.label else hits(LABEL, self.columns)
        self.label = found[0] if found and given.label != NONE else ""

    def get(self, name: str, ids: Array) -> Array:
        """Values of a column for objects by id; NaN or "" for an unknown object."""
        column, place = self.columns[name], np.array([self.rows.get(one, -1) for one in ids.tolist()], np.int64)
        lacking = place < 0
        if not lacking.any():
            return column[place]
        if column.dtype.kind in "US":
            return np.where(lacking, "", words(column)[place])
        return np.where(lacking, np.nan, column[place].astype(np.float64))


class CurveFile:
    """An open file of light curves, read object by object.

    names    column of each role
    columns  types of the columns
    rows     number of objects
    edges    objects at which reading can start without decompressing earlier objects
    """

    def __init__(self, table: TableFile, given: Names, optional: Sequence[str] = ()) -> None:
        self.path, self.layout, self.columns, self._header = table.path, table.layout, table.kinds, table.header
        self._memory = table if isinstance(table, MemoryTable) else None
        if not table.rows:
            raise self.error(f"{self.path} has no rows")
        if self._memory is not None:
            _convert_to_days(self._memory)
        asked = {role: getattr(given, role) for role in ("id", "label")}
        header = {role: find(name, table.header) for role, name in asked.items() if not find(name, table.kinds)}
        self.header_roles = {role: found[0] for role, found in header.items() if found}
        """Roles given by the file header: role -> name of the header value."""
        missing = [role for role in optional if not find(getattr(given, role), [*table.kinds, *table.header])]
        given = replace(given, **{role: NONE for role in missing if getattr(given, role)})
        try:
            self.names = resolve(table.kinds, replace(given, **dict.fromkeys(self.header_roles, NONE)), table.path)
        except UserError as error:
            odd = [f"`{name}` has {where}." for name, where in getattr(table, "odd", {}).items()]
            raise error.with_fields(hint=" ".join([error.hint, *odd]).strip()) from error
        self.listed = table.kinds[self.names.time].listed
        self.starts: Array | None = None
        self.order: Array | None = None
        self._steady: dict[str, bool] = {}
        self._sorted: dict[str, Array] = {}  # columns sorted by object
        self.rows, self.edges = table.rows, table.edges
        if not self.listed:
            self._find_objects(given)
            if self.names.label and not given.label and not self.steady(self.names.label):
                self.names = replace(self.names, label="")  # a common name, but it varies within objects
        self.spelled = self._has_letter_bands()

    def error(self, message: str, hint: str = "", key: str | None = None) -> UserError:
        """A `UserError` with the path of the file."""
        return column_error(self.path, message, hint, key)

    @property
    def table(self) -> TableFile:
        """The file as a table; each process opens its own handle."""
        return opened(Path(self.path), self.layout) if self._memory is None else self._memory

    @property
    def in_memory(self) -> bool:
        """Whether the whole file is held in memory."""
        return self.order is not None or self._memory is not None

    @property
    def single(self) -> bool:
        """Whether the file has a single object."""
        return not self.listed and not self.names.id

    @property
    def kinds(self) -> dict[str, Kind]:
        """Types of the readable columns, and of the header values of a single object."""
        header = {name: Kind(False, isinstance(value, str)) for name, value in self.header.items()}
        return {**header, **self.columns}

    @property
    def header(self) -> dict[str, Any]:
        """Header values if the file has a single object; otherwise empty."""
        return self._header if self.single else {}

    # Objects in a long table

    def _find_objects(self, given: Names) -> None:
        """Find the first row of each object; sort the rows if objects are not contiguous."""
        if self.single:
            self.starts = np.array([0, self.table.rows])
            self.rows, self.edges = 1, np.array([0, 1])
            return
        ids = self.table.read([self.names.id], 0, self.table.rows)[self.names.id]
        assert isinstance(ids, np.ndarray)
        begin = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        different, first, place = np.unique(ids, return_index=True, return_inverse=True)
        if len(different) < len(begin):
            rank = np.empty(len(different), np.int64)
            rank[np.argsort(first, kind="stable")] = np.arange(len(different))  # in order of appearance
            self.order = np.argsort(rank[place], kind="stable")
            begin = np.concatenate([[0], np.cumsum(np.bincount(rank[place]))[:-1]])
        self.rows = len(begin)
        if self.rows == len(ids) > MAX_SINGLE_POINT_ROWS and not given.id:
            alone = f"every row of {self.path} has a different object id in `{self.names.id}`"
            hint = "Give the column of object ids: --data.id NAME. If there is none: --data.id none"
            raise self.error(alone, hint, "data.id")
        self.starts = np.append(begin, len(ids))
        self.edges = np.array([0, self.rows]) if self.in_memory else np.searchsorted(self.starts, self.table.edges)

    def _read_rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Array]:
        """Columns of a long table, for the rows of the objects start .. stop - 1."""
        assert self.starts is not None
        low, high = int(self.starts[start]), int(self.starts[stop])
        if self.order is None:
            found = self.table.read(names, low, high)
        else:  # unsorted rows are read all at once
            if lacking := [name for name in names if name not in self._sorted]:
                for name, column in self.table.read(lacking, 0, self.table.rows).items():
                    assert isinstance(column, np.ndarray)
                    self._sorted[name] = column[self.order]
            found = {name: self._sorted[name][low:high] for name in names}
        return {name: column for name, column in found.items() if isinstance(column, np.ndarray)}

    def of_object(self, name: str) -> bool:
        """Whether a column has one value for each object."""
        return not self.kinds[name].listed and (self.listed or name in self.header or self.steady(name))

    def steady(self, name: str) -> bool:
        """Whether a column of a long table is constant within each object."""
        if name not in self._steady:
            column = self._read_rows([name], 0, self.rows)[name]
            same = (column[1:] == column[:-1]) | ((column[1:] != column[1:]) & (column[:-1] != column[:-1]))
            assert self.starts is not None
            same[self.starts[1:-1] - 1] = True
            self._steady[name] = bool(same.all())
        return self._steady[name]

    # Reading

    def read(self, more: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Read the columns with a role, and `more` columns, of objects start .. stop - 1."""
        used = self.names.used()
        wanted = list(dict.fromkeys([*used.values(), *(name for name in more if name in self.columns)]))
        if not self.listed and (name := next((name for name in wanted if self.columns[name].listed), "")):
            where = f"in each row of {self.path}"
            raise self.error(f"`{name}` must have a value {where}, as `{self.names.time}` has, not a list")
        found = self.table.read(wanted, start, stop) if self.listed else self._read_long_table(wanted, start, stop)
        made = {role: found[name] for role, name in used.items()}
        made |= {name: found[name] for name in more if name in found}
        made |= {name: np.array([self.header[name]]) for name in more if name in self.header and name not in found}
        if "label" in self.header_roles and self.single:
            made["label"] = np.array([self.header[self.header_roles["label"]]])
        made["id"] = self._ids(made.get("id"), start, stop)
        if "band" in made:
            made["band"] = self._bands(made["band"], made["time"], start)
        return made

    def _read_long_table(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns of a long table: lists, or single values if constant within objects."""
        assert self.starts is not None
        rows = self._read_rows(names, start, stop)
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
            found = [sorted(set(map(str, part.tolist()))) for part in np.split(label.values, lengths.cumsum()[:-1])]
            row = next(number for number, seen in enumerate(found) if len(seen) > 1)
            which = f" {words(rows[self.names.id][firsts])[row]}" if self.names.id else ""
            several = f"`{self.names.label}` has several values for object{which} of {self.path}"
            hint = "Give the column of the class: --data.label NAME. If there is none: --data.label none"
            raise self.error(f"{several}: {', '.join(found[row][:4])}", hint, "data.label")
        return made

    def _ids(self, found: Column | None, start: int, stop: int) -> Array:
        if isinstance(found, np.ndarray):
            return words(found)
        name = Path(str(self.path)).name.partition(".")[0] or "object"
        if not self.single:
            return np.array([f"{name}-{row}" for row in range(start, stop)])
        if "id" in self.header_roles:
            return np.array([str(self.header[self.header_roles["id"]]).strip()])
        known = {plain(key): value for key, value in reversed(self.header.items())}
        given = next((value for key in HEADER if (value := known.get(key)) not in (None, "")), name)
        return np.array([str(given).strip()])

    def _bands(self, band: Column, time: Column, start: int) -> Column:
        """Band of each point, from any form of a band column.

        Forms: a list per object, a string with one letter per point, or one name per object.
        """
        assert isinstance(time, Lists)
        if isinstance(band, Lists):
            return Lists(words(band.values), band.lengths)
        names = words(band)
        if not self.spelled:
            return Lists(np.repeat(names, time.lengths), time.lengths)
        wrong = np.char.str_len(names) != time.lengths
        if wrong.any():
            row = int(np.argmax(wrong))
            found = f"`{self.names.band}` has {len(names[row]):,} letters, {names[row][:40]!r},"
            points = f"for the {time.lengths[row]:,} points of row {start + row} of {self.path}"
            raise self.error(f"{found} {points}; it must have one letter per point", key="data.band")
        return Lists(np.frombuffer("".join(names.tolist()).encode("utf-32-le"), "<U1"), time.lengths)

    def _has_letter_bands(self) -> bool:
        """Whether bands are strings with one letter per point, from the first rows."""
        if not (self.listed and self.names.band and not self.columns[self.names.band].listed):
            return False
        found = self.table.read([self.names.band, self.names.time], 0, min(self.rows, max(1, int(self.edges[1]))))
        time, band = found[self.names.time], found[self.names.band]
        assert isinstance(time, Lists)
        assert isinstance(band, np.ndarray)
        sizes = np.char.str_len(words(band))
        fits = sizes == time.lengths
        return bool(fits.all() or (fits.mean() > 0.5 and sizes.max() > 8))


def _convert_to_days(table: MemoryTable) -> None:
    for name, unit in table.units.items():
        scale, column = DAYS.get(unit.strip().lower()), table.data.get(name)
        if scale is None or column is None or plain(name) not in TIME:
            continue
        if isinstance(column, Lists):
            table.data[name] = Lists(column.values.astype(np.float64) * scale, column.lengths)
        else:
            table.data[name] = column.astype(np.float64) * scale
    table.units.clear()
