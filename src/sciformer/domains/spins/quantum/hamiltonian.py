"""Hamiltonians of spins one half on any bonds, in the basis of S^z.

    H = sum_b z_b s_i s_j + sum_b x_b X_ij - h sum_i F_i          s_i = +-1

b runs over the bonds (i, j). X_ij exchanges two antiparallel spins and gives 0 for parallel spins; F_i flips a spin. A
Heisenberg bond J S_i . S_j has z = J / 4 and x = J / 2; the transverse-field Ising model in Pauli matrices has z = -1,
x = 0 and the field h.

A state is an integer: bit i is 1 if spin i is up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ....errors import UserError

Keys = NDArray[np.int64]
Floats = NDArray[np.float64]
MAX_SITES = 52  # integers up to 2^52 are exact in double precision
MAX_STATES = 1 << 20  # states to enumerate


class Hamiltonian(NamedTuple):
    """Bonds and couplings of N spins.

    shape      rows and columns of the lattice, N = rows times columns; sites are numbered row by row
    bonds      (M, 2) sites of each bond
    zz         (M,) coupling z of each bond
    exchange   (M,) coupling x of each bond
    field      transverse field h
    """

    shape: tuple[int, int]
    bonds: NDArray[np.int64]
    zz: Floats
    exchange: Floats
    field: float = 0.0

    @property
    def sites(self) -> int:
        """Number N of spins."""
        return self.shape[0] * self.shape[1]

    @property
    def conserves(self) -> bool:
        """Whether the sum of S^z is conserved, so that states with sum 0 are enough."""
        return self.field == 0

    @property
    def sublattice(self) -> NDArray[np.int64]:
        """Sublattice 0 or 1 (N,) of each site: a checkerboard."""
        row, column = np.divmod(np.arange(self.sites), self.shape[1])
        return np.asarray((row + column) % 2, np.int64)

    def moves(self, marshall: bool = False) -> tuple[Keys, Floats, NDArray[np.int64]]:
        """Off-diagonal elements: masks (K,) of flipped spins, matrix elements (K,), and sites (K, 2).

        An exchange of antiparallel spins flips both of them. For a flip of one spin, both sites are the same.

        marshall  multiply by the Marshall signs (-1)^(spins up on sublattice 0) of both states: exchanges between the
                  sublattices become negative
        """
        used = self.exchange != 0
        pairs, elements = self.bonds[used], self.exchange[used]
        if marshall:
            side = self.sublattice
            elements = np.where(side[pairs[:, 0]] != side[pairs[:, 1]], -elements, elements)
        masks = (1 << pairs).sum(1)
        if self.field:
            every = np.arange(self.sites)
            masks, elements = np.append(masks, 1 << every), np.append(elements, np.full(self.sites, -self.field))
            pairs = np.concatenate([pairs, np.stack([every, every], 1)])
        return masks.astype(np.int64), elements.astype(np.float64), pairs.astype(np.int64)

    def states(self) -> Keys:
        """All states in ascending order; with sum of S^z = 0 if it is conserved."""
        if self.sites > 26:
            message = f"the states of {self.sites} spins are too many to enumerate"
            raise UserError(message, hint="Use data.sampling: chains.", key="data.sampling")
        every = np.arange(1 << self.sites, dtype=np.int64)
        if not self.conserves:
            return every
        return every[spins_up(every, self.sites) == self.sites // 2]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for the state of an objective."""
        return {
            "shape": list(self.shape),
            "bonds": self.bonds.tolist(),
            "zz": self.zz.tolist(),
            "exchange": self.exchange.tolist(),
            "field": self.field,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        bonds = np.asarray(stored["bonds"], np.int64).reshape(-1, 2)
        zz, exchange = (np.asarray(stored[name], np.float64) for name in ("zz", "exchange"))
        return cls((stored["shape"][0], stored["shape"][1]), bonds, zz, exchange, float(stored["field"]))


def bits(keys: Keys, sites: int) -> NDArray[np.int64]:
    """Bits (n, N) of states: 1 for a spin up."""
    return np.asarray((keys[:, None] >> np.arange(sites)) & 1)


def spins_up(keys: Keys, sites: int) -> NDArray[np.int64]:
    """Number of spins up (n,) of each state."""
    found = np.zeros(len(keys), np.int64)
    for site in range(sites):
        found += (keys >> site) & 1
    return found


def images(keys: Keys, shape: tuple[int, int]) -> NDArray[np.int8]:
    """Spins +-1 (n, rows, columns) of states."""
    return (2 * bits(keys, shape[0] * shape[1]) - 1).astype(np.int8).reshape(-1, *shape)


def heisenberg(shape: tuple[int, int], j2: float = 0.0) -> Hamiltonian:
    """J1-J2 Heisenberg antiferromagnet, J1 = 1, on a periodic chain (one row) or square lattice.

    J1 couples nearest neighbours; J2 couples next-nearest neighbours: two sites apart on a chain, diagonal on a square.
    """
    near = [(0, 1)] if shape[0] == 1 else [(0, 1), (1, 0)]
    next_near = [(0, 2)] if shape[0] == 1 else [(1, 1), (1, -1)]
    pairs = [_bonds(shape, *step) for step in near] + [_bonds(shape, *step) for step in next_near if j2]
    strength = [1.0] * len(near) + [j2] * (len(next_near) if j2 else 0)
    coupling = np.repeat(strength, shape[0] * shape[1])
    return Hamiltonian(shape, np.concatenate(pairs), coupling / 4, coupling / 2)


def transverse_ising(shape: tuple[int, int], field: float) -> Hamiltonian:
    """Ferromagnetic Ising model in a transverse field, in Pauli matrices: H = -sum sz_i sz_j - h sum sx_i."""
    near = [(0, 1)] if shape[0] == 1 else [(0, 1), (1, 0)]
    pairs = np.concatenate([_bonds(shape, *step) for step in near])
    return Hamiltonian(shape, pairs, np.full(len(pairs), -1.0), np.zeros(len(pairs)), field)


def _bonds(shape: tuple[int, int], down: int, right: int) -> NDArray[np.int64]:
    """Bonds (N, 2) from every site to the site `down` rows and `right` columns further, around the border."""
    rows, columns = shape
    site = np.arange(rows * columns)
    row, column = np.divmod(site, columns)
    return np.stack([site, (row + down) % rows * columns + (column + right) % columns], 1).astype(np.int64)
