"""Simulated jets, made where they are needed."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.readers.simulation import Simulation
from ....data.source import Data
from .decays import CLASSES
from .jets import JET_COLUMNS, MAX_PARTICLES, VERSION, check_classes, draw_labels, jets

MAX_HELD_JETS = 200_000  # jets of a part that stay in memory once they are made, if there are no more: some 3 kB each


class Jets(Simulation):
    """Jets of the ten classes of JetClass, with the names of its branches and their class as column `label`.

    They are made piece by piece when they are asked for, the same ones each time, at some 20,000 in a second and on
    one core; what they are, and what they are not, says `sciformer.domains.jets.simulate.jets`.
    """

    number: int = Field(default=100_000, ge=1)
    """Jets to train on."""
    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of jets, alike often."""
    most: int = Field(default=MAX_PARTICLES, ge=1, le=MAX_PARTICLES)
    """Particles kept of a jet, the hardest."""
    chunk_size: int = Field(default=8192, ge=16)
    """Jets made at a time (default: 8192); a training keeps several such chunks in memory, and mixes some of them."""

    def check(self) -> None:
        """Classes."""
        check_classes(self.classes)

    def make(self, count: int, first: int, part: str) -> Table:
        """Jets of a part."""
        return truncate_jets(jets(count, self.seed, self.classes, first, part), self.most)

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """The classes, which are drawn before the jets are made."""
        return draw_labels(count, self.seed, self.classes, 0, part) if name == "label" else None

    def describe(self) -> str:
        """Classes and options."""
        return f"jets of {', '.join(self.classes)}; seed {self.seed}, version {VERSION}, at most {self.most} particles"

    def cache_prefix(self) -> str:
        """Version, seed and options."""
        kinds = "".join(str(number) for number in check_classes(self.classes))
        return f"jets-{VERSION}-{self.seed}-{kinds}-{self.most}"

    def select_columns(self, table: Table) -> Table:
        """What was asked for, and what is known of whole jets."""
        if not self.state:
            return table
        names = {*self.state["names"], *self.state["truth"], *self.state["wishes"], "label", *JET_COLUMNS}
        return {name: column for name, column in table.items() if name in names}

    def stays_in_memory(self, count: int) -> bool:
        """All but very many."""
        return count <= MAX_HELD_JETS

    def file_reader(self) -> Data:
        """Events with the branches of JetClass."""
        from ....data.readers.events.reader import EventFiles

        found = EventFiles(kind="events", most=self.most, classes={name: f"label_{name}" for name in CLASSES})
        return found.want(**self.state) if self.state else found


def truncate_jets(table: Table, most: int) -> Table:
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
