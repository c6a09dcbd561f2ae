"""Tables of columns: a column is an array with an entry for each sample, or lists of different length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Array = NDArray[Any]


@dataclass(frozen=True)
class Lists:
    """A column of lists of different length: all `values` end to end, and the `lengths` (n,)."""

    values: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Array) -> Lists:
        """The lists of these rows."""
        return Lists(self.values[self.places(rows)], self.lengths[rows])

    def places(self, rows: Array) -> Array:
        """Where the values of these rows stand."""
        starts, lengths = (self.lengths.cumsum() - self.lengths)[rows], self.lengths[rows]
        return np.repeat(starts - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum()))


Table = Mapping[str, Array | Lists]
"""Columns by name, each with one entry (a number, an array, a string, a list) for every sample."""


def rows_of(table: Table) -> int:
    """How many samples a table has."""
    sizes = {name: len(column) for name, column in table.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"`{name}` has {size}" for name, size in sizes.items())
        raise UserError(f"the columns differ in length: {told}")
    return next(iter(sizes.values()), 0)


def select(table: Table, rows: Array) -> dict[str, Array | Lists]:
    """The samples of these rows."""
    known: dict[int, tuple[Array, Array]] = {}  # columns that share their lengths are cut at the same places
    made: dict[str, Array | Lists] = {}
    for name, column in table.items():
        if isinstance(column, Lists):
            if id(column.lengths) not in known:
                known[id(column.lengths)] = column.places(rows), column.lengths[rows]
            places, lengths = known[id(column.lengths)]
            made[name] = Lists(column.values[places], lengths)
        else:
            made[name] = column[rows]
    return made


def concatenate(tables: Sequence[Table]) -> dict[str, Array | Lists]:
    """Tables of the same columns, one after the other; a column that some of them have not is left out."""
    if len(tables) == 1:
        return dict(tables[0])
    known: dict[tuple[int, ...], Array] = {}  # columns that share their lengths still do
    made: dict[str, Array | Lists] = {}
    for name in tables[0]:
        columns = [table[name] for table in tables if name in table]
        lists = [column for column in columns if isinstance(column, Lists)]
        if len(columns) < len(tables):
            continue
        if not lists:
            made[name] = np.concatenate([np.asarray(column) for column in columns])
            continue
        if len(lists) < len(columns):
            raise UserError(f"column `{name}` has lists in some files and single values in others")
        alike = tuple(id(column.lengths) for column in lists)
        if alike not in known:
            known[alike] = np.concatenate([column.lengths for column in lists])
        made[name] = Lists(np.concatenate([column.values for column in lists]), known[alike])
    return made
