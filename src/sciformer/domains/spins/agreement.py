"""Agreement of generated lattices with simulated lattices, at each temperature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lattices import Floats, Spins, energy


class TemperatureRow(NamedTuple):
    """Energy and magnetisation of generated and simulated lattices at a temperature.

    energy         mean energy per spin
    magnetisation  mean absolute magnetisation per spin
    """

    temperature: float
    energy: float
    simulated_energy: float
    magnetisation: float
    simulated_magnetisation: float


def compare_lattices(
    generated: Spins, temperatures: Floats, simulated: Spins, at: Floats, boundary: str = "periodic"
) -> list[TemperatureRow]:
    """Compare generated with simulated lattices at the same temperatures.

    generated      (n, height, width) spins
    temperatures   (n,) temperature of each generated lattice
    simulated      (m, height, width) spins
    at             (m,) temperature of each simulated lattice
    boundary       boundary condition of the energy
    """
    rows = []
    for heat in np.unique(temperatures):
        parts = [generated[temperatures == heat], simulated[np.isclose(at, heat)]]
        means = [(energy(part, boundary).mean(), np.abs(part.mean((1, 2))).mean()) for part in parts]
        (e, m), (true_e, true_m) = means
        rows.append(TemperatureRow(float(heat), float(e), float(true_e), float(m), float(true_m)))
    return rows


def energy_error(rows: list[TemperatureRow]) -> float:
    """Error of the energy per spin: mean over temperatures of |e - e'|.

    e and e' are the mean energies of generated and of simulated lattices.
    """
    return float(np.mean([abs(row.energy - row.simulated_energy) for row in rows]))


def magnetisation_error(rows: list[TemperatureRow]) -> float:
    """Error of the magnetisation per spin: mean over temperatures of |m - m'|.

    m and m' are the mean absolute magnetisations of generated and of simulated lattices.
    """
    return float(np.mean([abs(row.magnetisation - row.simulated_magnetisation) for row in rows]))
