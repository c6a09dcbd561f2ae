"""What is found in the rows of a file of events: which are kept, how long their lists are, what is bad in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..source import Array, Lists
from .event_files import Column


@dataclass(frozen=True)
class Rows:
    """Some rows of a file: from `start` on, those numbered `kept`, or all up to `stop`."""

    path: Path
    tag: str
    start: int
    stop: int
    kept: Array | None = None

    def __len__(self) -> int:
        return self.stop - self.start if self.kept is None else len(self.kept)


@dataclass(frozen=True)
class Words:
    """A column of words of which few differ: the words, and for each sample the number of its own."""

    words: Array
    numbers: Array

    @classmethod
    def of(cls, column: Array) -> Words:
        """The same column in less memory."""
        words, numbers = np.unique(column, return_inverse=True)
        return cls(words, numbers.astype(np.min_scalar_type(len(words))))

    def __getitem__(self, rows: Any) -> Array:
        return np.asarray(self.words[self.numbers[rows]])


@dataclass(frozen=True)
class Scan:
    """What was found in a file: the numbers of its samples, columns that are needed to divide and to weigh them, the
    class, how long lists are, and how much was left out."""

    path: Path
    tag: str
    kept: Array
    columns: dict[str, Array | Words]
    counts: dict[str, int]
    edges: Array
    rows: int
    lacks: tuple[str, ...] = ()  # columns that may be missing, and are
    lengths: dict[str, Array] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()  # classes of samples without entries, which are left out


def stretches(edges: Array, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of at most `size` rows, ended where reading can begin anew if there is such a place in their last half."""
    start = 0
    while start < rows:
        stop = min(start + size, rows)
        if stop < rows:
            near = edges[(edges > start + size // 2) & (edges <= stop)]
            stop = int(near[-1]) if len(near) else stop
        yield start, stop
        start = stop


def lengths_of(table: Mapping[str, Column], rows: Array) -> dict[str, Array]:
    """How long the lists of these rows are; columns that share their lengths still do."""
    known: dict[int, Array] = {}
    return {
        name: known.setdefault(id(column.lengths), column.lengths[rows].astype(np.int32))
        for name, column in table.items()
        if isinstance(column, Lists)
    }


def finite(
    table: Mapping[str, Column], most: int | None, positive: Collection[str] = ()
) -> tuple[dict[str, Column], int, int]:
    """The table without entries of lists that are not finite in some column, or below 0 in a `positive` one, and
    without those beyond the first `most`; how many were not finite, and how many of the others were negative."""
    made, dropped, negative = dict(table), 0, 0
    groups: dict[int, list[str]] = {}
    for name, column in table.items():
        if isinstance(column, Lists):
            groups.setdefault(id(column.lengths), []).append(name)
    for names in groups.values():
        columns = {name: column for name in names if isinstance(column := table[name], Lists)}
        lengths = columns[names[0]].lengths
        good: Array | None = None
        for column in columns.values():
            if column.values.dtype.kind == "f":
                finite = np.isfinite(column.values)
                if not finite.all():
                    good = finite if good is None else good & finite
        dropped += 0 if good is None else int((~good).sum())
        for name in columns.keys() & set(positive):
            below = columns[name].values < 0
            if below.any():
                negative += int((below if good is None else below & good).sum())
                good = ~below if good is None else good & ~below
        if most is not None and (lengths > most).any():
            inside = np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths) < most
            good = inside if good is None else good & inside
        if good is not None:
            sample = np.repeat(np.arange(len(lengths)), lengths)
            left = np.bincount(sample[good], minlength=len(lengths)).astype(np.int64)
            made |= {name: Lists(column.values[good], left) for name, column in columns.items()}
    return made, dropped, negative
