"""Files of light curves, whatever their form: objects with their observations.

A table has one row for each object, with lists; or one for each observation, of objects told by a column; or it is one
object as a whole.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..source import Array, Lists
from .curve_names import NONE, POINTS, Kind, Names, find, on_disk, plain, resolve
from .curve_parquet import ParquetTable
from .curve_points import Column, words
from .curve_tables import Flat, read_columns, read_ecsv, read_fits
from .event_files import BEGINNINGS

HEADER = ("object", "ticid", "keplerid", "epic", "objname", "targname", "target", "name", "id", "label", "objectid")
MANY = 10  # rows, all of different objects, that do not look like observations
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
        if self.rows == len(ids) > MANY and not given.id:
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


NAMED = {".parquet": "Parquet", ".pq": "Parquet", ".fits": "FITS", ".fit": "FITS", ".ecsv": "ECSV"}


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
    other = next((form for mark, form in BEGINNINGS.items() if begin.startswith(mark)), "")
    if other == "Parquet":
        return other
    if other or begin.startswith(b"\x93NUMPY"):
        advice = "In Python: sciformer.data.curves(time, value, error, band)" if other != "ROOT" else ""
        raise UserError(f"{path} must be {FORMS}, not {other or 'a NumPy file'}", hint=advice, file=path)
    if b"\0" in begin or begin.lstrip().startswith((b"<?xml", b"<VOTABLE", b"%PDF", b"<!DOCTYPE", b"<html")):
        raise UserError(f"{path} is not {FORMS}: it begins with {begin[:12]!r}", file=path)
    said = NAMED.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix)
    if said is not None:
        raise UserError(
            f"{path} is not a {said} file: it begins with {begin[:12]!r}",
            hint="Is the file whole, and does its name end as it should?",
            file=path,
        )
    return "text"
