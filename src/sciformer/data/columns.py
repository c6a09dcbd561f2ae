"""Tables of columns: a column is an array or a `Lists` with one entry per sample."""

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
    """A column of lists: concatenated `values` (t, ...) and `lengths` (n,)."""

    values: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Array) -> Lists:
        """Lists at the row numbers `rows`."""
        return Lists(self.values[self.places(rows)], self.lengths[rows])

    def places(self, rows: Array) -> Array:
        """Indices into `values` of all entries in the lists at the row numbers `rows`."""
        starts, lengths = (self.lengths.cumsum() - self.lengths)[rows], self.lengths[rows]
        return np.repeat(starts - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum()))


Table = Mapping[str, Array | Lists]
"""Columns by name, with one entry (number, array, string or list) per sample."""


class Samples(dict[str, Array | Lists]):
    """Table of samples already returned by a reader, for `Run.predict`."""


def sum_lists(values: Array, lengths: Array, dtype: Any = np.float64) -> Array:
    """Sums (n, ...) of the values (t, ...) of each list; 0 for an empty list."""
    made, some = np.zeros((len(lengths), *values.shape[1:]), dtype), lengths > 0
    if some.any():
        made[some] = np.add.reduceat(values, (lengths.cumsum() - lengths)[some], dtype=dtype)
    return made


def rows_of(table: Table) -> int:
    """Number of samples in a table; columns of different length are refused."""
    sizes = {name: len(column) for name, column in table.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"`{name}` has {size}" for name, size in sizes.items())
        raise UserError(f"the columns have different lengths: {found}")
    return next(iter(sizes.values()), 0)


def select(table: Table, rows: Array) -> dict[str, Array | Lists]:
    """Select rows of all columns of a table."""
    known: dict[int, tuple[Array, Array]] = {}  # indices for each shared `lengths` array
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
    """Concatenate tables; columns missing in some tables are dropped."""
    if len(tables) == 1:
        return dict(tables[0])
    known: dict[tuple[int, ...], Array] = {}  # keeps `lengths` arrays shared
    made: dict[str, Array | Lists] = {}
    for name in [name for name in tables[0] if all(name in table for table in tables)]:
        columns = [table[name] for table in tables]
        lists = [column for column in columns if isinstance(column, Lists)]
        if not lists:
            made[name] = np.concatenate([np.asarray(column) for column in columns])
            continue
        if len(lists) < len(columns):
            raise UserError(f"column `{name}` has lists in some files, but single values in others")
        alike = tuple(id(column.lengths) for column in lists)
        if alike not in known:
            known[alike] = np.concatenate([column.lengths for column in lists])
        made[name] = Lists(np.concatenate([column.values for column in lists]), known[alike])
    return made
