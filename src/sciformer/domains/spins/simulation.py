"""Simulated Ising lattices below, above and across the phase transition."""

from __future__ import annotations

import hashlib
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...data.columns import Table
from ...data.readers.simulation import SimulatedTable, load_or_make
from ...data.source import Chosen, Memory, Source, Splits
from ...data.split import Split
from ...errors import UserError
from .lattices import check_coupling, critical_temperature, ising

VERSION = 1  # version of the simulation; cached states of other versions are ignored


class IsingLattices(SimulatedTable):
    """Simulated 2-D Ising lattices (column `image`).

    Other columns: `temperature`, `chain`, `energy`, `magnetisation`, `phase`, and `interval` of the temperature. States
    at temperatures inside `gap` are not used for training. They form the part `scan`, to estimate the critical
    temperature from the predictions. All other states are split by Markov chain.
    """

    noun: ClassVar[str] = "lattices"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)
    recipe_keys: ClassVar[tuple[str, ...]] = ("split", "gap", "cache")

    size: int = Field(default=32, ge=2, le=4096)
    """Number of spins per side (default: 32)."""
    lowest: float = Field(default=1.0, gt=0)
    """Lowest temperature, in units of the coupling (default: 1.0)."""
    highest: float = Field(default=3.6, gt=0)
    """Highest temperature, in units of the coupling (default: 3.6)."""
    number: int = Field(default=53, ge=2, le=10**6)
    """Number of temperatures (default: 53)."""
    spacing: Literal["even", "random"] = "even"
    """Temperatures between the lowest and the highest (default: even). even: evenly spaced, with both ends; random:
    drawn with uniform probability."""
    gap: tuple[float, float] | None = (2.0, 2.6)
    """Temperature range that is excluded from training (default: 2.0 to 2.6; null: no gap)."""
    intervals: list[float] = Field(default=[1.0, 2.0, 3.0], min_length=1)
    """Boundaries of the temperature intervals in the column `interval`, ascending (default: 1, 2, 3: four intervals of
    equal width between 0 and 4)."""
    chains: int = Field(default=20, ge=1, le=10**6)
    """Independent Markov chains per temperature (default: 20)."""
    samples: int = Field(default=4, ge=1, le=10**6)
    """States kept per chain (default: 4)."""
    boundary: Literal["periodic", "skewed", "open", "antiperiodic"] = "periodic"
    """Boundary condition (default: periodic): periodic, skewed (helical), open or antiperiodic."""
    coupling: float = 1.0
    """Coupling J (default: 1): 1 for a ferromagnet, -1 for an antiferromagnet."""
    split: Split = Split(valid=0.1, test=0.2, by="chain")
    """Split by Markov chain into train, valid and test (default: valid 0.1, test 0.2)."""
    cache: str = "runs/cache"
    """Cache folder of simulated states (default: runs/cache; empty: no cache)."""
    neutral_keys: ClassVar[tuple[str, ...]] = ("cache",)

    def check(self) -> None:
        check_coupling(self.coupling)
        if self.highest <= self.lowest:
            message = f"data.highest ({self.highest}) must be above data.lowest ({self.lowest})"
            raise UserError(message, key="data.highest")
        if sorted(set(self.intervals)) != self.intervals:
            message = f"data.intervals must ascend, but are {', '.join(map(str, self.intervals))}"
            raise UserError(message, key="data.intervals")
        if self.gap is not None and self.gap[0] > self.gap[1]:
            message = f"data.gap begins at {self.gap[0]:g}, but ends at {self.gap[1]:g}"
            raise UserError(message, hint="Use null for no gap.", key="data.gap")

    def file_size(self) -> int:
        return self.number * self.chains * self.samples

    def make(self) -> Table:
        options = self.model_dump(include={"chains", "samples", "boundary", "coupling", "seed"})
        found = ising(self.size, self.temperatures(), **options)
        critical = critical_temperature() * abs(self.coupling)
        phase = np.where(found["temperature"] < critical, "ordered", "disordered")
        return self._with_intervals({"image": found.pop("spins"), **found, "phase": phase})

    def temperatures(self) -> NDArray[np.float64]:
        """All temperatures, ascending."""
        if self.spacing == "even":
            return np.linspace(self.lowest, self.highest, self.number)
        rng = np.random.default_rng([self.seed, 1])  # independent of the random numbers of the chains
        return np.sort(rng.uniform(self.lowest, self.highest, self.number))

    def _with_intervals(self, table: Table) -> Table:
        """Table with the column `interval`: `below 1`, `1 to 2`, ..., `from 3`."""
        ends = [f"{end:g}" for end in self.intervals]
        inner = [f"{low} to {high}" for low, high in pairwise(ends)]
        names = np.array([f"below {ends[0]}", *inner, f"from {ends[-1]}"])
        place = np.searchsorted(self.intervals, np.asarray(table["temperature"]), side="right")
        return {**table, "interval": names[place]}

    def describe(self) -> str:
        fields = self.model_dump(exclude={"kind", "split", "cache", "gap", "intervals"})
        if self.spacing == "even":  # the digest of versions without this key
            del fields["spacing"]
        digest = hashlib.sha256(json.dumps([VERSION, fields], sort_keys=True).encode()).hexdigest()
        return f"lattices-{digest[:16]}"

    def open(self, log: Any = None, write: bool = True) -> Splits:
        self.check()
        path = Path(self.cache) / f"{self.describe()}.npz" if self.cache else None
        made = load_or_make(path, lambda: self._make_and_log(log or (lambda text: None)), write, packed=True)
        table = self._with_intervals(made)
        temperature = np.asarray(table["temperature"])
        low, high = self.gap or (np.inf, -np.inf)
        inside = (temperature >= low - 1e-9) & (temperature <= high + 1e-9)
        whole, outside = Memory(table), np.flatnonzero(~inside)
        if not len(outside):
            raise UserError(f"no temperatures for training: all are inside data.gap {self.gap}", key="data.gap")
        rows = self.split.of_table(table, len(outside), outside)
        sources: dict[str, Source] = {name: Chosen(whole, outside[kept]) for name, kept in rows.items()}
        if inside.any():
            sources["scan"] = Chosen(whole, np.flatnonzero(inside))
        return Splits(sources, {"simulation": self.describe()})

    def _make_and_log(self, log: Any) -> Table:
        began = time.monotonic()
        log(f"simulating {self.file_size():,} lattices of {self.size} x {self.size} spins")
        table = self.make()
        log(f"simulated in {time.monotonic() - began:.0f} s")
        return table
