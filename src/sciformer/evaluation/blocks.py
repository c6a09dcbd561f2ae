"""Division of files into blocks of samples; a block is predicted as a whole.

Groups of files are opened one after the other, and their samples are divided into blocks. Groups and blocks depend only
on the files. A sample is thus always predicted in the same block of samples, and its predictions are the same bit
for bit in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..assembly import Assembly, data_with_columns
from ..data.fileset import FileSet
from ..data.source import Source
from ..tokens.protocols import Windowed

MAX_GROUP_BYTES = 1 << 30  # of files that are opened together, except for a larger file
MIN_BLOCK, MAX_BLOCK = 16, 4096  # samples in a block, except for pieces with fewer samples
USUAL_BLOCKS = 64  # in a group of files; many small blocks need more padding, as batches of equal length are smaller
USUAL_BATCH = 64  # samples, so that few batches of a block are smaller than others


class Group(NamedTuple):
    """Files opened together, and their byte range in the sequence of all files."""

    files: Sequence[str | Path]
    start: int
    stop: int


class Block(NamedTuple):
    """Samples start .. stop - 1 of a piece of a source, predicted together."""

    piece: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def group_files(assembly: Assembly, files: Sequence[str | Path]) -> list[Group]:
    """Divide files into groups; one group is open at a time.

    Most readers read all files together; the files are then one group.
    """
    reader = data_with_columns(assembly.recipe).with_columns(assembly.columns)
    if not (isinstance(reader, FileSet) and reader.separable):
        return [Group(list(files), 0, 1)]
    made: list[Group] = []
    stop = 0
    for tag, path in reader.find(files):
        start, stop = stop, stop + path.stat().st_size
        name: str | Path = f"{tag}:{path}" if tag else path
        if made and stop - made[-1].start <= MAX_GROUP_BYTES:
            made[-1] = Group([*made[-1].files, name], made[-1].start, stop)
        else:
            made.append(Group([name], start, stop))
    return made


def divide(assembly: Assembly, source: Source) -> list[Block]:
    """Divide the samples of a source into blocks; no block crosses the end of a piece."""
    size = max(MIN_BLOCK, sum(source.sizes) // USUAL_BLOCKS)
    size = size if size < USUAL_BATCH else min(MAX_BLOCK, -(-size // USUAL_BATCH) * USUAL_BATCH)
    if any(isinstance(one, Windowed) and one.concatenates for one in assembly.tokens.values()):
        size = max([1, *source.sizes])  # the samples of a piece are one text
    made = []
    for piece, count in enumerate(source.sizes):
        ends = np.linspace(0, count, -(-count // size) + 1).astype(int).tolist()
        made += [Block(piece, start, stop) for start, stop in pairwise(ends)]
    return made


class Inputs:
    """Input files of a prediction; one group of files is open at a time."""

    def __init__(self, assembly: Assembly, files: Sequence[str | Path]) -> None:
        self.assembly, self.files = assembly, list(files)
        self.groups = group_files(assembly, files)
        self.total = self.groups[-1].stop
        self._opened: tuple[int, Source, list[Block]] | None = None

    def open(self, number: int) -> tuple[Source, list[Block]]:
        """Open a group of files; return its source and its blocks."""
        if self._opened is None or self._opened[0] != number:
            self._opened = None  # frees the memory of the last one
            source = self.assembly.source(self.groups[number].files, empty=True)
            self._opened = number, source, divide(self.assembly, source)
        return self._opened[1:]


@dataclass(frozen=True)
class Share:
    """Share of all blocks: part `number` of `shares` equal, consecutive parts."""

    number: int = 0
    shares: int = 1

    def touches(self, group: Group, total: int) -> bool:
        """Whether blocks of a group of files may belong to the share.

        total   size of all groups in bytes
        """
        first, last = group.start * self.shares // total, (group.stop * self.shares - 1) // total
        return first <= self.number <= last

    def select(self, blocks: Sequence[Block], group: Group, total: int) -> list[Block]:
        """Blocks of this share, from the blocks of a group of files."""
        size, width = len(blocks), group.stop - group.start
        places = [(group.start * size + width * number) * self.shares // (total * size) for number in range(size)]
        return [block for block, place in zip(blocks, places) if place == self.number]

    def covered(self, group: Group, total: int) -> float:
        """Predicted fraction of the share after a group of files."""
        return min(1.0, (group.stop * self.shares - self.number * total) / total)


ALL = Share()
