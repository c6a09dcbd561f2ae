"""Simulated lattices of Ising spins on both sides of their phase transition, and across it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ...data.readers.arrays import Arrays, read_arrays, write_arrays
from ...data.source import Chosen, Data, Memory, Source, Splits
from ...data.split import Split
from ...errors import UserError
from . import lattices

VERSION = 1  # of what the simulator makes; another one is not taken from the cache


class IsingLattices(Data):
    """2-D Ising lattices (column `image`) with `temperature`, `chain`, `energy`, `magnetisation` and `phase`.

    Temperatures inside `gap` are not trained on: they are the part `scan`, on which a model shows where it sees the
    transition. The others are divided by Markov chain.
    """

    size: int = Field(default=32, ge=2)
    """Spins on a side."""
    lowest: float = Field(default=1.0, gt=0)
    """Lowest temperature, in units of the coupling."""
    highest: float = Field(default=3.6, gt=0)
    """Highest temperature."""
    number: int = Field(default=53, ge=2)
    """Temperatures, evenly spaced from the lowest to the highest."""
    gap: tuple[float, float] = (2.0, 2.6)
    """Temperatures from the first to the second number are left out of the training."""
    chains: int = Field(default=20, ge=1)
    """Independent Markov chains at each temperature."""
    samples: int = Field(default=4, ge=1)
    """States kept of each chain."""
    boundary: Literal["periodic", "skewed", "open", "antiperiodic"] = "periodic"
    """How the edges are joined."""
    coupling: float = 1.0
    """1: neighbours want to be alike; -1: to be opposite."""
    seed: int = 0
    """Of the simulation."""
    split: Split = Split(valid=0.1, test=0.2, by="chain")
    """Shares kept apart, by whole Markov chains."""
    cache: str = "runs/cache"
    """Folder where simulated states are kept for the next time; empty: nowhere."""

    def open(self, log: Any = None, write: bool = True) -> Splits:
        """Simulate, or take what was simulated before."""
        table = self._table(log or (lambda text: None), write)
        temperature = table["temperature"]
        inside = (temperature >= self.gap[0] - 1e-9) & (temperature <= self.gap[1] + 1e-9)
        whole, outside = Memory(table), np.flatnonzero(~inside)
        if not len(outside):
            raise UserError(f"there are no temperatures outside data.gap {self.gap} to train on", key="data.gap")
        rows = self.split.of_table(table, len(outside), outside)
        sources: dict[str, Source] = {name: Chosen(whole, outside[kept]) for name, kept in rows.items()}
        if inside.any():
            sources["scan"] = Chosen(whole, np.flatnonzero(inside))
        return Splits(sources, {"simulation": self._name()})

    def reopen(self, log: Any = None) -> Splits:
        """The same; what is simulated now is not kept."""
        return self.open(log, write=False)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Lattices from .npz files with a column `image`, such as `sciformer simulate lattices` writes."""
        return Arrays(kind="arrays").read(files)

    def _name(self) -> str:
        fields = self.model_dump(exclude={"kind", "split", "cache", "gap"})
        digest = hashlib.sha256(json.dumps([VERSION, fields], sort_keys=True).encode()).hexdigest()
        return f"lattices-{digest[:16]}"

    def _table(self, log: Any, write: bool) -> dict[str, Any]:
        path = Path(self.cache) / f"{self._name()}.npz" if self.cache else None
        if path is not None and path.exists():
            try:
                return read_arrays(path)
            except UserError as error:
                log(f"simulating again: {error}")
        began = time.monotonic()
        count = self.number * self.chains * self.samples
        log(f"simulating {count:,} lattices of {self.size} x {self.size} spins")
        table = simulate_lattices(self)
        log(f"simulated in {time.monotonic() - began:.0f} s")
        if path is not None and write:
            write_table(path, table)
        return table


def simulate_lattices(section: IsingLattices) -> dict[str, Any]:
    """The table of a section's lattices."""
    if section.highest <= section.lowest:
        raise UserError(
            f"data.highest must be above data.lowest, not {section.highest} and {section.lowest}", key="data.highest"
        )
    found = lattices.ising(
        section.size,
        np.linspace(section.lowest, section.highest, section.number),
        chains=section.chains,
        samples=section.samples,
        boundary=section.boundary,
        coupling=section.coupling,
        seed=section.seed,
    )
    critical = lattices.critical_temperature() * abs(section.coupling)
    phase = np.where(found["temperature"] < critical, "ordered", "disordered")
    return {"image": found.pop("spins"), **found, "phase": phase}


def write_table(path: Path, table: dict[str, Any]) -> None:
    """An .npz file, complete or not there."""
    write_arrays(path, table, "Free some space, or name another place.", packed=True)
