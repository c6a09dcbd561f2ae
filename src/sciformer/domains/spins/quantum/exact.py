"""Exact ground states by the Lanczos method, for comparison: up to about 20 spins.

e = lowest(heisenberg((1, 12), j2=0.4)).energies[0] / 12
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....files.packages import require
from .hamiltonian import Floats, Hamiltonian, Keys, images

MAX_DENSE_STATES = 64  # smaller matrices are diagonalised at once


class GroundState(NamedTuple):
    """Lowest energies (ascending, total), states (n,), and the amplitudes (n,) of the ground state."""

    energies: Floats
    keys: Keys
    amplitudes: Floats


def matrix(hamiltonian: Hamiltonian, keys: Keys) -> Any:
    """Sparse matrix (n, n) of the Hamiltonian between sorted states."""
    sparse = require("scipy.sparse", "exact energies of quantum spins")
    masks, elements, sites = hamiltonian.moves()
    count = len(keys)
    rows, columns, values = [np.arange(count)], [np.arange(count)], [diagonal(hamiltonian, keys)]
    for mask, element, (i, j) in zip(masks.tolist(), elements.tolist(), sites.tolist()):
        moved = np.flatnonzero(((keys >> i) & 1) != ((keys >> j) & 1)) if i != j else np.arange(count)
        rows.append(moved)
        columns.append(np.searchsorted(keys, keys[moved] ^ mask))
        values.append(np.full(len(moved), element))
    every = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(every, shape=(count, count))


def diagonal(hamiltonian: Hamiltonian, keys: Keys) -> Floats:
    """Diagonal matrix elements (n,): sum_b z_b s_i s_j."""
    found = np.zeros(len(keys))
    for (i, j), strength in zip(hamiltonian.bonds.tolist(), hamiltonian.zz.tolist()):
        found += strength * (1.0 - 2.0 * (((keys >> i) ^ (keys >> j)) & 1))
    return found


def lowest(hamiltonian: Hamiltonian, count: int = 1) -> GroundState:
    """Lowest `count` energies and the ground state, by `scipy.sparse.linalg.eigsh`."""
    keys = hamiltonian.states()
    found = matrix(hamiltonian, keys)
    if len(keys) <= MAX_DENSE_STATES:
        energies, vectors = np.linalg.eigh(found.toarray())
        return GroundState(energies[:count], keys, vectors[:, 0])
    solver = require("scipy.sparse.linalg", "exact energies of quantum spins")
    start = np.random.default_rng(0).normal(size=len(keys))  # the same result in every call
    energies, vectors = solver.eigsh(found, k=max(2, count), which="SA", v0=start, ncv=max(40, 4 * count))
    order = np.argsort(energies)
    return GroundState(energies[order][:count], keys, vectors[:, order[0]])


def correlations(hamiltonian: Hamiltonian, keys: Keys, probability: Floats) -> Floats:
    """<S^z_0 S^z_d> (rows, columns) for displacements d, averaged over the lattice and weighted by probability."""
    weights = probability / probability.sum()
    return np.einsum("n,nij->ij", weights, correlations_of(images(keys, hamiltonian.shape)))


def correlations_of(spins: Any) -> Floats:
    """(1/N) sum_x S^z_x S^z_(x + d) (n, rows, columns) of spins +-1 (n, rows, columns), by a Fourier transform."""
    spectrum = np.fft.rfft2(spins.astype(np.float64) / 2)
    sites = spins.shape[1] * spins.shape[2]
    return np.asarray(np.fft.irfft2(np.abs(spectrum) ** 2, s=spins.shape[1:]) / sites)


def staggered(correlation: Any) -> float:
    """m^2 = 3 <(sum_i (-1)^i S^z_i)^2> / N^2 from correlations (rows, columns); (-1)^i is a checkerboard."""
    found = np.asarray(correlation, np.float64)
    sign = 1 - 2 * (np.add.outer(np.arange(found.shape[0]), np.arange(found.shape[1])) % 2)
    return float(3 * (sign * found).mean())
