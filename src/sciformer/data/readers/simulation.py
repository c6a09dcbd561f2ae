"""Samples that are simulated where they are needed: piece by piece, the same ones each time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ...errors import UserError
from ..columns import Array, Lists, Table
from ..source import Data, Source, Splits
from .arrays import LENGTHS, Arrays, read_arrays, write_arrays

LISTS = "lists"  # of a kept piece: the names of its columns of lists, which all have the same lengths


class Simulation(Data):
    """Samples of a part are a pure function of their numbers, so that a piece can be made by anyone at any time."""

    number: int = Field(default=20_000, ge=1)
    """Samples to train on."""
    valid: int | None = Field(default=None, ge=0)
    """Samples to choose the best model with; a tenth of `number` unless given."""
    test: int | None = Field(default=None, ge=0)
    """Samples for the final judgement; a tenth of `number` unless given."""
    seed: int = Field(default=0, ge=0)
    """Another one gives other samples. Those of train, valid and test always differ."""
    chunk_size: int | None = Field(default=None, ge=16)
    """Samples made at a time; a training keeps several such chunks in memory, and mixes some of them."""
    cache: str = ""
    """Folder where pieces are kept for the next time; empty: nowhere, they are made again."""

    def check(self) -> None:
        """Refuse what makes no sense, before anything is made."""
        raise NotImplementedError

    def make(self, count: int, first: int, part: str) -> Table:
        """Samples of a part, from one number on."""
        raise NotImplementedError

    def describe(self) -> str:
        """What is made, in words, but for how many."""
        raise NotImplementedError

    def cache_prefix(self) -> str:
        """The beginning of the names of pieces that are kept: others for other samples."""
        raise NotImplementedError

    def file_reader(self) -> Data:
        """What reads samples like these from files."""
        raise NotImplementedError

    def samples_per_chunk(self) -> int:
        """Samples of a piece."""
        assert self.chunk_size is not None
        return self.chunk_size

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """A column of all samples of a part, where it is known before they are made."""
        return None

    def select_columns(self, table: Table) -> Table:
        """The columns that are of use."""
        return table

    def stays_in_memory(self, count: int) -> bool:
        """Whether so many samples stay in memory once they are made."""
        return False

    def counts(self) -> dict[str, int]:
        """Samples of each part."""
        tenth = max(1, self.number // 10)
        others = {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        return {"train": self.number, **others}

    def open(self, log: Any = None, write: bool = True) -> Splits:
        """Nothing is made yet."""
        self.check()
        counts = self.counts()
        sources: dict[str, Source] = {
            part: Simulated(self, part, count, write) for part, count in counts.items() if count
        }
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        return Splits(sources, {"simulation": f"{self.describe()}; {sizes}"})

    def reopen(self, log: Any = None) -> Splits:
        """The same; what is made now is not kept."""
        return self.open(log, write=False)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Samples in .npz files, such as `sciformer simulate` writes, or in others."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        return self.file_reader().read(files)


class Simulated:
    """The samples of a part, in pieces."""

    def __init__(self, section: Simulation, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        whole, rest = divmod(count, section.samples_per_chunk())
        self.sizes = [section.samples_per_chunk()] * whole + ([rest] if rest else [])
        self.in_memory: dict[int, Table] | None = {} if section.stays_in_memory(count) else None

    def load(self, piece: int) -> Table:
        """Make a piece, or find it where it was kept."""
        if self.in_memory is None:
            return self._load(piece)
        if piece not in self.in_memory:
            self.in_memory[piece] = self._load(piece)
        return self.in_memory[piece]

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """What is drawn before samples are made."""
        return None if lists else self.section.known_column(name, sum(self.sizes), self.part)

    def _load(self, piece: int) -> Table:
        own, first, count = self.section, piece * self.section.samples_per_chunk(), self.sizes[piece]
        path = Path(own.cache) / f"{own.cache_prefix()}-{self.part}-{first}-{count}.npz" if own.cache else None
        if path is not None and path.exists():
            with suppress(UserError):  # a damaged file is made again
                return own.select_columns(_unpacked(read_arrays(path), path))
        table = own.make(count, first, self.part)
        if path is not None and self.write:
            write_arrays(path, _packed(table), "Name another place with data.cache, or none.")
        return own.select_columns(table)


def _packed(table: Table) -> dict[str, Array]:
    """The columns of a piece as plain arrays: of lists the values, and their lengths once."""
    columns = {name: column.values if isinstance(column, Lists) else column for name, column in table.items()}
    lists = {name: column.lengths for name, column in table.items() if isinstance(column, Lists)}
    return columns | ({LENGTHS: next(iter(lists.values())), LISTS: np.array(list(lists))} if lists else {})


def _unpacked(columns: dict[str, Array], path: Path) -> Table:
    """The way back."""
    if LENGTHS not in columns:
        return columns
    if LISTS not in columns:
        raise UserError(f"{path} lacks the names of its columns of lists", file=path)
    lengths, lists = columns.pop(LENGTHS), set(columns.pop(LISTS).tolist())
    return {name: Lists(value, lengths) if name in lists else value for name, value in columns.items()}
