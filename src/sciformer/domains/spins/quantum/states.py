"""States of quantum spins as data: enumerated, or Markov chains; and simulated ground states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Table
from ....data.readers.arrays import Arrays
from ....data.readers.simulation import SimulatedTable
from ....data.source import Data, Memory, Source, Splits
from ....errors import UserError
from .exact import lowest
from .hamiltonian import MAX_SITES, MAX_STATES, Hamiltonian, heisenberg, images, transverse_ising

VERSION = 1  # version of the states drawn at the start of chains


class StateTable(Memory):
    """Source of states, with the Hamiltonian for which they are meant.

    enumerated   whether they are all states of the Hamiltonian
    """

    def __init__(self, table: Table, hamiltonian: Hamiltonian, enumerated: bool) -> None:
        super().__init__(table)
        self.hamiltonian, self.enumerated = hamiltonian, enumerated


class SpinLattice(Data):
    """Keys of the Hamiltonian: base class of `States` and `GroundStates`."""

    lattice: Literal["chain", "square"] = "chain"
    """Periodic lattice: chain (default) or square."""
    size: int = Field(default=12, ge=3, le=1024)
    """Number of spins of a chain, or per side of a square (default: 12)."""
    interaction: Literal["heisenberg", "ising"] = "heisenberg"
    """Interaction of neighbours (default: heisenberg). heisenberg: J1-J2 antiferromagnet with J1 = 1, in spins one
    half, for states with sum of S^z = 0; ising: ferromagnet in a transverse field, in Pauli matrices."""
    j2: float = Field(default=0.0, allow_inf_nan=False)
    """Coupling J2 of next-nearest neighbours in units of J1, only for heisenberg (default: 0)."""
    field: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Transverse field h, only for ising (default: 1, the critical point of the chain)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the lattice."""
        return (1, self.size) if self.lattice == "chain" else (self.size, self.size)

    def hamiltonian(self) -> Hamiltonian:
        """Hamiltonian of these keys, after a check of the size."""
        self.check()
        if self.interaction == "ising":
            return transverse_ising(self.shape, self.field)
        return heisenberg(self.shape, self.j2)

    def check(self) -> None:
        """Refuse lattices that are too large, or odd for an antiferromagnet."""
        sites = self.shape[0] * self.shape[1]
        if sites > MAX_SITES:
            message = f"a lattice of {sites} spins is too large, the limit is {MAX_SITES}"
            raise UserError(message, hint="Lower data.size.", key="data.size")
        if self.interaction == "heisenberg" and self.size % 2:
            what = "the number of spins" if self.lattice == "chain" else "the side of the square"
            why = "the sum of S^z of an odd number of spins is never 0, and an antiferromagnet does not close around it"
            hint = f"Use data.size: {self.size + 1}, or data.interaction: ising."
            raise UserError(f"{what} is odd ({self.size}): {why}", hint=hint, key="data.size")
        if self.interaction == "ising" and self.j2:
            message = f"data.j2 is {self.j2:g}, but data.interaction: ising has no next-nearest neighbours"
            raise UserError(message, hint="Remove data.j2.", key="data.j2")

    def describe(self) -> str:
        """Lattice and couplings, for the fingerprint."""
        rule = f"h {self.field:g}" if self.interaction == "ising" else f"J2 {self.j2:g}"
        return f"{self.lattice} of {self.size}, {self.interaction}, {rule}"


class States(SpinLattice):
    """States of quantum spins (columns `image` and `state`), for `objective.kind: energy`.

    The training and the validation part are the same states, because an energy is a property of all states together.
    """

    sampling: Literal["all", "chains"] = "all"
    """Which states are summed (default: all). all: every state, for exact energies and gradients; chains: states of
    Markov chains, for larger lattices."""
    chains: int = Field(default=512, ge=1, le=1 << 20)
    """Number of Markov chains, only for sampling: chains (default: 512)."""
    seed: int = Field(default=0, ge=0)
    """Random seed of the states of the dataset, only for sampling: chains (default: 0)."""

    def open(self, log: Any = None) -> Splits:
        hamiltonian = self.hamiltonian()
        if self.sampling == "all":
            keys = hamiltonian.states()
            if len(keys) > MAX_STATES:
                message = f"{len(keys):,} states are too many to sum"
                raise UserError(message, hint="Use data.sampling: chains.", key="data.sampling")
        else:
            keys = random_states(hamiltonian, self.chains, self.seed)
        table: Table = {"image": images(keys, hamiltonian.shape), "state": keys}
        source: Source = StateTable(table, hamiltonian, self.sampling == "all")
        drawn = "" if self.sampling == "all" else f", {self.chains} chains, seed {self.seed}, version {VERSION}"
        return Splits({"train": source, "valid": source}, {"states": self.describe() + drawn})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Read states from files, for predictions: an array `image` of spins +-1."""
        return self.table_reader().read(files)

    def table_reader(self) -> Data:
        return Arrays(kind="arrays").want(self.state.get("names", ["image"]))


def random_states(hamiltonian: Hamiltonian, count: int, seed: int) -> Any:
    """Random states (count,), with sum of S^z = 0 if it is conserved."""
    rng, sites = np.random.default_rng(seed), hamiltonian.sites
    order = rng.random((count, sites)).argsort(1)
    up = order < sites // 2 if hamiltonian.conserves else rng.random((count, sites)) < 0.5
    return (up.astype(np.int64) << np.arange(sites)).sum(1)


class GroundStates(SpinLattice, SimulatedTable):
    """Measurements of S^z in the exact ground state of quantum spins, by the Lanczos method (columns `image`,
    `state`).

    Other columns: `amplitude` of each state, and `energy` and `gap`, the exact energy per spin and the distance to the
    next energy, equal in all rows. Up to about 20 spins.
    """

    noun: ClassVar[str] = "measurements"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    number: int = Field(default=1000, ge=1, le=10**8)
    """Number of measurements: states drawn with their probability (default: 1,000)."""

    def make(self) -> Table:
        hamiltonian = self.hamiltonian()
        if len(hamiltonian.states()) > MAX_STATES:
            message = f"the exact ground state of {hamiltonian.sites} spins needs too much memory"
            raise UserError(message, hint="Lower data.size.", key="data.size")
        found = lowest(hamiltonian, 2)
        drawn = np.random.default_rng(self.seed).choice(len(found.keys), self.number, p=found.amplitudes**2)
        per_spin = found.energies / hamiltonian.sites
        return {
            "image": images(found.keys[drawn], hamiltonian.shape),
            "state": found.keys[drawn],
            "amplitude": found.amplitudes[drawn],
            "energy": np.full(self.number, per_spin[0]),
            "gap": np.full(self.number, found.energies[1] - found.energies[0]),
        }

    def describe(self) -> str:
        return f"ground state of a {super().describe()}, {self.number} measurements, seed {self.seed}"
