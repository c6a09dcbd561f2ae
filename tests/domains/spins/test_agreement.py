"""Generated lattices against simulated lattices."""

import numpy as np
import pytest

from sciformer.domains.spins.agreement import compare_lattices, energy_error, magnetisation_error
from sciformer.domains.spins.lattices import ising


def states(seed):
    return ising(8, [1.5, 3.0], chains=200, samples=1, boundary="periodic", coupling=1.0, seed=seed)


def test_two_simulations_agree_and_noise_does_not():
    one, two = states(0), states(1)
    rows = compare_lattices(one["spins"], one["temperature"], two["spins"], two["temperature"])
    assert [row.temperature for row in rows] == [1.5, 3.0]
    assert rows[0].energy < rows[1].energy
    assert energy_error(rows) < 0.05
    assert magnetisation_error(rows) < 0.05
    random = np.where(np.random.default_rng(0).random(one["spins"].shape) < 0.5, -1, 1).astype(np.int8)
    noise = compare_lattices(random, one["temperature"], two["spins"], two["temperature"])
    assert energy_error(noise) > 1
    assert magnetisation_error(noise) > 0.3


def test_ordered_lattices_by_hand():
    up = np.ones((3, 4, 4), np.int8)
    (row,) = compare_lattices(up, np.full(3, 2.0), -up, np.full(3, 2.0))
    assert (row.energy, row.simulated_energy, row.magnetisation, row.simulated_magnetisation) == (-2, -2, 1, 1)
    assert energy_error([row]) == magnetisation_error([row]) == pytest.approx(0)
