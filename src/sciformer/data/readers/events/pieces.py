"""Samples of many files in pieces: each piece has its share of every class, or of many files, so that all are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np

from ....files.formats.base import Column, shared
from ... import columns
from ...columns import Array, Table
from ...fileset import Found
from ...random import key, mix
from .plan import LABEL, Rows, Scan

MAX_FILES_PER_PIECE, MAX_TAGS_PER_PIECE = 16, 64  # in a piece, at most
AnyScan = TypeVar("AnyScan", bound=Found)
OneScan = TypeVar("OneScan", bound=Found, contravariant=True)
Part = tuple[Found, Array]
"""A file, and the numbers of its rows."""


class Plans(Protocol[OneScan]):
    """How to read the rows of any of the files."""

    def load(self, scan: OneScan, rows: Rows) -> Table:
        """The samples of these rows."""
        ...


class FilePieces(Generic[AnyScan]):
    """Samples of files, read a piece at a time; a process that loads one opens the files itself."""

    def __init__(
        self,
        plan: Plans[AnyScan],
        parts: Sequence[tuple[AnyScan, Array]],
        chunk_size: int,
        mixed: bool = True,
        notes: Sequence[str] = (),
    ) -> None:
        self.plan, self.notes = plan, list(notes)
        self.scans = {scan.path: scan for scan, _ in parts}
        self.pieces = deal(parts, chunk_size, mixed)
        self.sizes = [sum(map(len, some)) for some in self.pieces]

    def load(self, piece: int) -> Table:
        """The samples of a piece."""
        return concatenate_events([self.plan.load(self.scans[rows.path], rows) for rows in self.pieces[piece]])


class EventPieces(FilePieces[Scan]):
    """Events of files, of which classes and lengths are known before they are read."""

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """The classes of all samples, or how long lists are, which was seen when the files were looked at."""
        sides = {path: scan.lengths if lists else scan.columns for path, scan in self.scans.items()}
        if (not lists and name != LABEL) or any(name not in side for side in sides.values()):
            return None
        found = []
        for rows in (run for piece in self.pieces for run in piece):
            inside = np.arange(rows.stop - rows.start) if rows.kept is None else rows.kept
            found.append(sides[rows.path][name][np.searchsorted(self.scans[rows.path].kept, rows.start + inside)])
        return np.concatenate(found)


def deal(parts: Sequence[Part], chunk_size: int, mixed: bool = True) -> list[list[Rows]]:
    """Pieces of about `chunk_size` samples, with an even share of every tag; where there are none, of every file, or of
    groups of files."""
    parts = [part for part in parts if len(part[1])]
    if not parts:
        return []
    groups = _groups(parts) if mixed else [list(parts)]
    total = sum(len(rows) for _, rows in parts)
    count = -(-total // chunk_size)
    pieces: list[list[Rows]] = [[] for _ in range(count)]
    for group in groups:
        for number, runs in enumerate(_shares(group, count, chunk_size)):
            pieces[number] += runs
    return [some for some in pieces if some]


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    tagged = len({scan.tag for scan, _ in parts}) > 1
    groups: dict[str, list[Part]] = {}
    for scan, rows in parts:
        groups.setdefault(scan.tag if tagged else str(scan.path), []).append((scan, rows))
    names, most = list(groups), MAX_TAGS_PER_PIECE if tagged else MAX_FILES_PER_PIECE
    if len(names) > most:  # files of a class often stand together: they are dealt by chance
        rng = mix(key("dealt") ^ mix(np.arange(len(names))))
        names = [names[number] for number in np.argsort(rng, kind="stable")]
    dealt: list[list[Part]] = [[] for _ in range(min(most, len(names)))]
    for number, name in enumerate(names):
        dealt[number % most] += groups[name]
    return dealt


def _shares(group: Sequence[Part], count: int, longest: int) -> list[list[Rows]]:
    """The samples of a group in `count` shares, nearly even: an end moves to where a file can be read from anew, if
    that is near."""
    sizes = [len(rows) for _, rows in group]
    firsts = np.cumsum([0, *sizes])
    total = int(firsts[-1])
    ends = [0]
    for number in range(1, count):
        place = total * number // count
        file = int(np.searchsorted(firsts, place, side="right")) - 1
        if file < len(group):
            scan, rows = group[file]
            inside = place - int(firsts[file])
            at = scan.edges[np.argmin(np.abs(scan.edges - rows[min(inside, len(rows) - 1)]))]
            moved = int(np.searchsorted(rows, at))
            if abs(moved - inside) <= total // count // 8:
                place = int(firsts[file]) + moved
        ends.append(max(place, ends[-1]))
    made = []
    for low, high in pairwise([*ends, total]):
        runs: list[Rows] = []
        for (scan, rows), first in zip(group, firsts):
            a, b = max(low - int(first), 0), min(high - int(first), len(rows))
            if b > a:
                runs += _runs(scan, rows[a:b], longest)
        made.append(runs)
    return made


def _runs(scan: Found, rows: Array, longest: int) -> list[Rows]:
    """Rows of a file, cut where they reach over more than are read at a time."""
    start, stop = int(rows[0]), int(rows[-1]) + 1
    pieces = max(1, round((stop - start) / longest))
    cuts = np.linspace(start, stop, pieces + 1).astype(np.int64)
    made = []
    for low, high in pairwise(cuts):
        some = rows[slice(*np.searchsorted(rows, [low, high]))]
        if len(some):
            first, last = int(some[0]), int(some[-1]) + 1
            kept = None if len(some) == last - first else (some - first).astype(np.int32)
            made.append(Rows(scan.path, scan.tag, first, last, kept))
    return made


def concatenate_events(tables: Sequence[Table]) -> dict[str, Column]:
    """Tables of the same columns, one after the other; lists that are equally long share one array of lengths."""
    return dict(tables[0]) if len(tables) == 1 else shared(columns.concatenate(tables))
