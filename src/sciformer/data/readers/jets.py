"""Simulated jets, made where they are needed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from ...errors import UserError
from ...simulate.decays import CLASSES
from ...simulate.jets import JET, MOST, VERSION, check_classes, jets, labels
from ..source import Array, Data, Lists, Source, Splits, Table
from .arrays import LENGTHS, Arrays, read_arrays

HELD = 200_000  # jets of a part that stay in memory once they are made, if there are no more: some 3 kB each


class Jets(Data):
    """Jets of the ten classes of JetClass, with the names of its branches and their class as column `label`.

    They are made piece by piece when they are asked for, the same ones each time, at some 20,000 in a second and on
    one core; what they are, and what they are not, says `sciformer.simulate.jets`.
    """

    number: int = Field(default=100_000, ge=1)
    """Jets to train on."""
    valid: int | None = Field(default=None, ge=0)
    """Jets to choose the best model with; a tenth of `number` unless given."""
    test: int | None = Field(default=None, ge=0)
    """Jets for the final judgement; a tenth of `number` unless given."""
    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of jets, alike often."""
    seed: int = Field(default=0, ge=0)
    """Another one gives other jets. Those of train, valid and test always differ."""
    most: int = Field(default=MOST, ge=1, le=MOST)
    """Particles kept of a jet, the hardest."""
    piece: int = Field(default=8192, ge=16)
    """Jets made at a time; a training keeps several such pieces in memory, and mixes some of them."""
    cache: str = ""
    """Folder where pieces are kept for the next time; empty: nowhere, they are made again."""

    def want(
        self,
        names: Collection[str],
        truth: Collection[str] = (),
        wishes: Collection[str] = (),
        positive: Collection[str] = (),
    ) -> Self:
        """The same section, told which columns are of use."""
        twin = self.fresh()
        twin.state.update(names=list(names), truth=list(truth), wishes=list(wishes), positive=list(positive))
        return twin

    def open(self, say: Any = None, write: bool = True) -> Splits:
        """Nothing is made yet."""
        check_classes(self.classes)
        tenth = max(1, self.number // 10)
        counts = {"train": self.number}
        counts |= {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        sources: dict[str, Source] = {
            part: Simulated(self, part, count, write) for part, count in counts.items() if count
        }
        what = f"{', '.join(self.classes)}; seed {self.seed}, version {VERSION}, at most {self.most} particles"
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        return Splits(sources, {"simulation": f"jets of {what}; {sizes}"})

    def reopen(self, say: Any = None) -> Splits:
        """The same; what is made now is not kept."""
        return self.open(say, write=False)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Jets in files, such as `sciformer simulate jets` writes."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        from .events import Events

        plain = Events(kind="events", most=self.most, classes={name: f"label_{name}" for name in CLASSES})
        if "names" in self.state:
            plain = plain.want(*(self.state[key] for key in ("names", "truth", "wishes", "positive")))
        return plain.read(files)


class Simulated:
    """The jets of a part, in pieces."""

    def __init__(self, section: Jets, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        told = section.state
        self.names = {*told["names"], *told["truth"], *told["wishes"], "label", *JET} if told else None
        whole, rest = divmod(count, section.piece)
        self.sizes = [section.piece] * whole + ([rest] if rest else [])
        self.held: dict[int, Table] | None = {} if count <= HELD else None

    def load(self, piece: int) -> Table:
        """Make a piece, or find it where it was kept."""
        if self.held is None:
            return self._load(piece)
        if piece not in self.held:
            self.held[piece] = self._load(piece)
        return self.held[piece]

    def known(self, name: str, lists: bool = False) -> Array | None:
        """The classes, which are drawn before the jets are made."""
        if lists or name != "label":
            return None
        return labels(sum(self.sizes), self.section.seed, self.section.classes, 0, self.part)

    def _load(self, piece: int) -> Table:
        path = self._path(piece)
        if path is not None and path.exists():
            with suppress(UserError):  # a damaged file is made again
                return self._wanted(_with_lists(read_arrays(path)))
        own = self.section
        made = jets(self.sizes[piece], own.seed, own.classes, piece * own.piece, self.part)
        table = shorten(made, own.most)
        if path is not None and self.write:
            _keep(path, table)
        return self._wanted(table)

    def _wanted(self, table: Table) -> Table:
        return {name: column for name, column in table.items() if self.names is None or name in self.names}

    def _path(self, piece: int) -> Path | None:
        own = self.section
        if not own.cache:
            return None
        kinds = "".join(str(number) for number in check_classes(own.classes))
        name = f"jets-{VERSION}-{own.seed}-{kinds}-{own.most}-{self.part}-{piece * own.piece}-{self.sizes[piece]}.npz"
        return Path(own.cache) / name


def shorten(table: Table, most: int) -> Table:
    """Jets with so many particles at most, the first ones."""
    lengths = next(column.lengths for column in table.values() if isinstance(column, Lists))
    if lengths.max(initial=0) <= most:
        return table
    fewer = np.minimum(lengths, most)
    kept = np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths) < most
    made = {
        name: Lists(column.values[kept], fewer) if isinstance(column, Lists) else column
        for name, column in table.items()
    }
    return made | {"jet_nparticles": fewer.astype(np.float32)}


def _with_lists(columns: dict[str, Array]) -> Table:
    """The way back from a kept file, in which all lists have the same lengths."""
    lengths = columns.pop(LENGTHS)
    return {name: Lists(value, lengths) if name.startswith("part_") else value for name, value in columns.items()}


def _keep(path: Path, table: Table) -> None:
    """A piece for the next time, whole or not at all."""
    columns = {name: column.values if isinstance(column, Lists) else column for name, column in table.items()}
    columns[LENGTHS] = next(column.lengths for column in table.values() if isinstance(column, Lists))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"room for {path}", f"{error}", "Name another place with data.cache, or none.") from error
