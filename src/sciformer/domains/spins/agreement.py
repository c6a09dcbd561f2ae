"""Agreement of generated lattices with simulated lattices, at each temperature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lattices import Floats, Spins, energy


class TemperatureRow(NamedTuple):
    """Mean energy and absolute magnetisation per spin at one temperature, generated and simulated."""

    temperature: float
    energy: float
    simulated_energy: float
    magnetisation: float
    simulated_magnetisation: float


def compare_lattices(
    generated: Spins, temperatures: Floats, simulated: Spins, at: Floats, boundary: str = "periodic"
) -> list[TemperatureRow]:
    """Compare generated lattices (n, H, W) with simulated lattices (m, H, W) of the same temperatures.

    temperatures   (n,) temperature of each generated lattice
    at             (m,) temperature of each simulated lattice
    """
    rows = []
    for heat in np.unique(temperatures):
        parts = [generated[temperatures == heat], simulated[np.isclose(at, heat)]]
        means = [(energy(part, boundary).mean(), np.abs(part.mean((1, 2))).mean()) for part in parts]
        (e, m), (true_e, true_m) = means
        rows.append(TemperatureRow(float(heat), float(e), float(true_e), float(m), float(true_m)))
    return rows


def energy_error(rows: list[TemperatureRow]) -> float:
    """Mean over temperatures of |e - e'|, for the energies per spin of generated and simulated lattices."""
    return float(np.mean([abs(row.energy - row.simulated_energy) for row in rows]))


def magnetisation_error(rows: list[TemperatureRow]) -> float:
    """Mean over temperatures of the difference of the mean absolute magnetisations per spin."""
    return float(np.mean([abs(row.magnetisation - row.simulated_magnetisation) for row in rows]))
