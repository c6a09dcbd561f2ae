"""Objects in lists (the jets of an event) as samples, with their members by index.

FatJet_pt               (event, jet)         a value for each jet
PFCands_pt              (event, particle)    a list for each jet, chosen by the two index columns:
FatJetPFCands_jetIdx    (event, pair)        number of the jet
FatJetPFCands_pFCandsIdx (event, pair)       number of the particle
event                   (event,)             a value for each jet, repeated
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from ....errors import nearest
from ....files.formats.base import Column, TableFile
from ...columns import Array, Lists, Table

ROW, OBJECT = "row", "object"  # columns computed here
PREFIX = re.compile(r".*[_.]")


class Objects(BaseModel):
    """Objects in the lists of events, such as jets; each object becomes a sample."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    of: str
    """Prefix of the list columns of the objects, for example FatJet_. Each object becomes a sample, and each of these
    columns has one value per sample."""
    index: str
    """Column with the number of the object of each member, from 0; members with a negative number are left out."""
    members: str = ""
    """Prefix of the columns of members, for example PFCands_ (default: the prefix of `index`). Each of these columns
    has one list per sample."""
    at: str = ""
    """Column with the position of each member in the lists of `members`; its lists must be of the same length as the
    lists of `index` (default: the position in `index`)."""

    def view(self, file: TableFile) -> TableFile:
        """View of the file with a row for each object instead of each event."""
        return ObjectFile(file, self)


def prefix_of(name: str) -> str:
    """Prefix of a column name, up to its last underscore or dot."""
    match = PREFIX.match(name)
    return match[0] if match else ""


class ObjectFile(TableFile):
    """View of an event file as a table with one row per object, for example per jet.

    `row` is the number of the event in the file. `object` is the number of the object in its event.
    """

    def __init__(self, inner: TableFile, objects: Objects) -> None:
        super().__init__(inner.path, inner.layout)
        self.inner, self.objects, self.file = inner, objects, inner.file
        self.form, self.in_memory, self.header = inner.form, inner.in_memory, inner.header
        for key in ("index", "at"):
            self._need(key, getattr(objects, key))
        self.beside, self.members = prefix_of(objects.index), objects.members or prefix_of(objects.index)
        counted = [name for name, kind in inner.columns.items() if kind == "list" and name.startswith(objects.of)]
        if not counted:
            collections = {prefix_of(name) for name, kind in inner.columns.items() if kind == "list"} - {""}
            message = f"data.objects.of is {objects.of!r}, but no column of lists in {self.path} has this prefix"
            raise self.error(message, nearest(objects.of, sorted(collections)), "data.objects.of")
        lists = inner.read(counted[:1], 0, inner.rows)[counted[0]]
        assert isinstance(lists, Lists)
        self.firsts = np.concatenate([[0], lists.lengths.cumsum()])  # number of the first object of each event
        self.rows, self.edges = int(self.firsts[-1]), np.unique(self.firsts[inner.edges])
        self.others = dict(inner.others)
        for name, kind in inner.columns.items():
            if kind == "value" or name in counted:
                self.columns[name] = "value"
            elif name.startswith((self.beside, self.members)):
                self.columns[name] = "list"
            else:
                self.others[name] = f"a list of neither {objects.of}... nor {self.members}... (see data.objects)"
        for name in {ROW, OBJECT} - self.columns.keys():
            self.columns[name] = "value"

    def _need(self, key: str, name: str) -> None:
        if name and self.inner.columns.get(name) != "list":
            lists = [one for one, kind in self.inner.columns.items() if kind == "list"]
            message = f"data.objects.{key} is {name!r}, which is not a column of lists in {self.path}"
            raise self.error(message, nearest(name, lists), f"data.objects.{key}")

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        first = int(self.firsts.searchsorted(start, "right")) - 1
        last = max(first, int(self.firsts.searchsorted(stop, "left")))
        counts, cut = (
            np.diff(self.firsts[first : last + 1]),
            slice(start - self.firsts[first], stop - self.firsts[first]),
        )
        needed = [name for name in names if name in self.inner.columns]
        if any(self.columns[name] == "list" for name in names):
            needed += [name for name in (self.objects.index, self.objects.at) if name]
        table = self.inner.read(needed, first, last)
        if ROW in names and ROW not in table:
            table[ROW] = np.arange(first, last)
        events, made = np.repeat(np.arange(last - first), counts)[cut], dict[str, Column]()
        owners: tuple[Array, Array, Array] | None = None
        for name in names:
            if name == OBJECT and name not in table:
                made[name] = np.arange(start, stop) - self.firsts[first:last][events]
            elif isinstance(column := table[name], np.ndarray):
                made[name] = column[events]
            elif self.columns[name] == "value":
                self._check_lengths(name, column.lengths, counts, self.objects.of, first)
                made[name] = column.values[cut]
            else:
                owners = owners or self._owners(table, first, start, stop)
                order, places, lengths = owners
                made[name] = Lists(column.values[self._flat(name, column, table, places, first)[order]], lengths)
        return made

    def _owners(self, table: Table, first: int, start: int, stop: int) -> tuple[Array, Array, Array]:
        """Members of the objects start .. stop - 1, their events, and list lengths."""
        column = table[self.objects.index]
        assert isinstance(column, Lists)
        number, events = self._integers("index", column), np.repeat(np.arange(len(column)), column.lengths)
        firsts = self.firsts[first : first + len(column) + 1]
        if (wrong := number >= np.diff(firsts)[events]).any():
            event = int(events[wrong.argmax()])
            have = int(firsts[event + 1] - firsts[event])
            message = f"`{self.objects.index}` refers to object {number[wrong.argmax()]} in event {first + event} of"
            words = f"{message} {self.path}, but the event has only {have} objects (columns {self.objects.of}...)"
            raise self.error(words, key="data.objects.index")
        owner = np.where(number >= 0, firsts[events] + number, -1)
        order = np.argsort(owner, kind="stable")
        order = order[np.searchsorted(owner[order], start) : np.searchsorted(owner[order], stop)]
        return order, events, np.bincount(owner[order] - start, minlength=stop - start).astype(np.int64)

    def _flat(self, name: str, column: Lists, table: Table, events: Array, first: int) -> Array:
        """Index of each member's entry in the values of a column."""
        index, at = table[self.objects.index], table.get(self.objects.at)
        assert isinstance(index, Lists)
        if at is None or (name.startswith(self.beside) and not name.startswith(self.members)):
            self._check_lengths(name, column.lengths, index.lengths, self.objects.index, first)
            return np.arange(len(column.values))
        assert isinstance(at, Lists)
        self._check_lengths(self.objects.at, at.lengths, index.lengths, self.objects.index, first)
        inside = self._integers("at", at)
        wrong = (inside < 0) | (inside >= column.lengths[events])
        if (wrong & (self._integers("index", index) >= 0)).any():
            event = int(events[wrong.argmax()])
            message = (
                f"`{self.objects.at}` has the position {inside[wrong.argmax()]} in event {first + event} of {self.path}"
            )
            words = f"{message}, but `{name}` has {column.lengths[event]} entries"
            raise self.error(words, key="data.objects.at")
        starts = column.lengths.cumsum() - column.lengths
        return np.where(wrong, 0, starts[events] + inside)

    def _integers(self, key: str, column: Lists) -> Array:
        if column.values.dtype.kind not in "iu":
            message = f"data.objects.{key} must name a column of integers, not of {column.values.dtype}"
            raise self.error(message, key=f"data.objects.{key}")
        return column.values.astype(np.int64)

    def _check_lengths(self, name: str, lengths: Array, wanted: Array, like: str, first: int) -> None:
        if not np.array_equal(lengths, wanted):
            event = int((lengths != wanted).argmax())
            message = f"`{name}` has {lengths[event]} entries in event {first + event} of {self.path}, but {like}"
            raise self.error(f"{message} has {wanted[event]}", key="data.objects")
