"""Source of neighbourhoods: boxes of (hours, rows, columns) cut out of fields.

A neighbourhood is a pure function of its number. Numbers run over members, segments of the time axis, first times, rows
and columns, columns fastest. No neighbourhood crosses the end of a segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ....data.columns import Array, Table
from ....data.random import key, mix
from ....data.windows import Windows
from .axes import dates, describe_time
from .climatology import Climatology
from .files import Maps

MAX_PIECE_BYTES = 32 << 20  # values of the neighbourhoods of a piece
MAX_SPARE = 4  # largest block that is read at once, in units of the neighbourhoods in it
TIME, DATE, LATITUDE, LONGITUDE = "hours", "date", "latitude", "longitude"  # columns of a table
NUMBER, START, MEMBER = "neighbourhood", "start", "member"
CLIMATOLOGY, DEVIATION, LEVEL = "{} climatology", "{} deviation", "{} level"  # columns of a field


class Box(NamedTuple):
    """Place of a neighbourhood: member, first time, first row, first column."""

    member: int
    time: int
    row: int
    column: int


@dataclass(frozen=True)
class Boxes:
    """Rule for the places of neighbourhoods.

    segments  (start, stop) of runs of the time axis
    size      time steps, rows and columns of a neighbourhood
    stride    distance of neighbourhoods along time, rows and columns
    grid      rows and columns of the map
    periodic  whether a neighbourhood may cross the end of the columns
    members   number of members
    random    whether rows and columns are shifted by a random part of the stride (training); otherwise the fewest
              neighbourhoods cover the map
    """

    segments: tuple[tuple[int, int], ...]
    size: tuple[int, int, int]
    stride: tuple[int, int, int]
    grid: tuple[int, int]
    periodic: bool
    members: int = 1
    random: bool = False

    @cached_property
    def times(self) -> list[int]:
        """Number of first times in each segment."""
        return [max(0, 1 + (stop - start - self.size[0]) // self.stride[0]) for start, stop in self.segments]

    @cached_property
    def _edges(self) -> list[int]:
        return list(accumulate(self.times, initial=0))

    @cached_property
    def windows(self) -> Windows:
        """Windows that place neighbourhoods along rows and columns."""
        return Windows(self.size[1:], self.stride[1:], "full" if self.random else "even")

    @cached_property
    def _shape(self) -> Array:
        rows, columns = self.grid
        return np.array([[rows, columns + (self.size[2] - 1 if self.periodic and self.random else 0)]])

    @cached_property
    def places(self) -> int:
        """Number of places on the map."""
        return int(self.windows.counts(self._shape).prod())

    def __len__(self) -> int:
        return self.members * self._edges[-1] * self.places

    def box(self, number: int) -> Box:
        """Place of a neighbourhood by its number."""
        turn, place = divmod(number, self.places)
        member, turn = divmod(turn, self._edges[-1])
        segment = bisect_right(self._edges, turn) - 1
        time = self.segments[segment][0] + (turn - self._edges[segment]) * self.stride[0]
        row, column = self.windows.starts(self._shape, np.array([place]))[0].tolist()
        if self.random:
            spare = np.maximum(0, self._shape[0] - self.size[1:])
            moves = (mix(key("place", number) + np.arange(2, dtype=np.uint64)) >> np.uint64(11)) * 2.0**-53
            row, column = np.minimum(
                spare, np.array([row, column]) + (moves * self.stride[1:]).astype(np.int64)
            ).tolist()
        return Box(member, time, row, column % self.grid[1])

    def pieces(self, sample_bytes: int) -> list[range]:
        """Divide the numbers of all neighbourhoods into pieces of one member and segment.

        A piece has about `MAX_PIECE_BYTES`.

        sample_bytes   bytes of the values of a neighbourhood
        """
        most = max(1, MAX_PIECE_BYTES // sample_bytes)
        made = []
        for member in range(self.members):
            for first, count in zip(self._edges, self.times):
                begin = (member * self._edges[-1] + first) * self.places
                total = count * self.places
                each = most // self.places * self.places if most >= self.places else most
                if total:
                    parts = -(-total // each)
                    cuts = [total * part // parts for part in range(parts + 1)]
                    if each >= self.places:
                        cuts = [round(cut / self.places) * self.places for cut in cuts]
                    made += [range(begin + low, begin + high) for low, high in pairwise(cuts) if high > low]
        return made


class Neighbourhoods:
    """Source of the neighbourhoods of fields, read piece by piece.

    catalog       the fields
    boxes         places of the neighbourhoods
    names         names of the columns -> names of the fields in the files
    climatology   climatology of each field
    notes         notes on the data
    """

    def __init__(
        self,
        catalog: Maps,
        boxes: Boxes,
        names: Mapping[str, str],
        climatology: Mapping[str, Climatology],
        notes: Sequence[str] = (),
    ) -> None:
        self.catalog, self.boxes, self.names, self.climatology = catalog, boxes, dict(names), dict(climatology)
        self.notes = list(notes)
        layers = sum(len(catalog.fields[name].levels) for name in self.names.values())
        self.sample_bytes = 4 * layers * int(np.prod(boxes.size))
        self.numbers = boxes.pieces(self.sample_bytes)
        self.sizes = [len(numbers) for numbers in self.numbers]

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """Numbers of all neighbourhoods, if `name` is the column `neighbourhood`."""
        return np.concatenate([np.asarray(some) for some in self.numbers]) if name == NUMBER and not lists else None

    def load(self, piece: int) -> Table:
        """Read the neighbourhoods of a piece."""
        numbers = self.numbers[piece]
        return self.read([self.boxes.box(number) for number in numbers], np.asarray(numbers, np.int64))

    def read(self, boxes: Sequence[Box], numbers: Array) -> Table:
        """Table of n neighbourhoods of L levels, T times, H rows and W columns.

        Columns: `hours` (n, T), `date` (n, T, 3), `latitude` (n, H), `longitude` (n, W), `neighbourhood`, `start`,
        `member` (n,), and for each field its values (n, L, T, H, W), NaN where missing, its climatology of the same
        shape, the deviation (n, L) of its anomalies and its levels (n, L).
        """
        catalog, (duration, height, width) = self.catalog, self.boxes.size
        times = np.array([box.time for box in boxes])[:, None] + np.arange(duration)
        rows = np.array([box.row for box in boxes])[:, None] + np.arange(height)
        columns = (np.array([box.column for box in boxes])[:, None] + np.arange(width)) % catalog.grid.shape[1]
        hours = catalog.hours[times]
        longitude = catalog.grid.longitude[columns]
        wraps = np.diff(longitude, axis=1, prepend=longitude[:, :1]) < 0
        table: dict[str, Array] = {
            TIME: hours,
            DATE: dates(hours, catalog.calendar),
            LATITUDE: catalog.grid.latitude[rows],
            LONGITUDE: longitude + 360.0 * wraps.cumsum(1),
            NUMBER: numbers,
            START: np.array([describe_time(first, catalog.calendar) for first in hours[:, 0]]),
            MEMBER: np.array([box.member for box in boxes], np.int64),
        }
        for block in self._blocks(times, rows, columns):
            self._fill(table, block, boxes, times, rows, columns)
        return table

    def _blocks(self, times: Array, rows: Array, columns: Array) -> list[Array]:
        """Groups of neighbourhoods that are read as one block of the files."""
        sides = [len(np.unique(index)) for index in (times, rows, columns)]
        count = len(times)
        return (
            [np.arange(count)]
            if np.prod(sides) <= MAX_SPARE * count * np.prod(self.boxes.size)
            else [np.array([number]) for number in range(count)]
        )

    def _fill(
        self, table: dict[str, Array], block: Array, boxes: Sequence[Box], times: Array, rows: Array, columns: Array
    ) -> None:
        """Read a block, and copy its neighbourhoods into the columns of the fields."""
        catalog, count = self.catalog, len(times)
        axes = [np.unique(index[block]) for index in (times, rows, columns)]
        places = [np.searchsorted(axis, index[block]) for axis, index in zip(axes, (times, rows, columns))]
        chosen = (places[0][:, :, None, None], places[1][:, None, :, None], places[2][:, None, None, :])
        date = dates(catalog.hours[axes[0]], catalog.calendar)
        for name, own in self.names.items():
            field, climate = catalog.fields[own], self.climatology[name]
            member = boxes[block[0]].member if field.members > 1 else 0
            values = field.read(axes[0], axes[1], axes[2], member)
            usual = climate.at(date, catalog.grid.latitude[axes[1]], catalog.grid.longitude[axes[2]])
            shape = (count, len(field.levels), *self.boxes.size)
            for column, found in ((name, values), (CLIMATOLOGY.format(name), usual)):
                made = table.setdefault(column, np.empty(shape, np.float32))
                made[block] = np.moveaxis(found[:, *chosen], 0, 1)
            table[DEVIATION.format(name)] = np.broadcast_to(climate.deviation.astype(np.float32), (count, shape[1]))
            table[LEVEL.format(name)] = np.broadcast_to(field.levels, (count, shape[1]))
