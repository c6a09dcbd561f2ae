"""What is known exactly of the Ising model: Onsager's infinite lattice with J = 1, and all states of a small one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ...errors import UserError
from .lattices import Floats, check_temperatures, energy


def critical_temperature() -> float:
    """T_c = 2 / ln(1 + sqrt 2) of the infinite square lattice with J = 1."""
    return 2 / math.log1p(math.sqrt(2))


def onsager_energy(temperatures: ArrayLike) -> Floats:
    """The energy per spin of the infinite lattice with J = 1 (Onsager, Phys. Rev. 65, 117).

    e = -coth(2 / T) (1 + q / agm(1, |q|)) with q = 2 tanh(2 / T)^2 - 1 and agm the arithmetic-geometric mean, which is
    the complete elliptic integral K(k) = pi / (2 agm(1, q)) of the usual form.
    """
    slope = np.tanh(2 / check_temperatures(temperatures))
    ratio = 2 * slope**2 - 1
    arithmetic, geometric = np.ones_like(ratio), np.abs(ratio)
    for _ in range(12):  # the error squares at each step
        arithmetic, geometric = (arithmetic + geometric) / 2, np.sqrt(arithmetic * geometric)
    return -(1 + ratio / arithmetic) / slope


def onsager_magnetisation(temperatures: ArrayLike) -> Floats:
    """The magnetisation |m| = (1 - sinh(2 / T)^-4)^(1/8) of the infinite lattice with J = 1, and 0 above T_c."""
    heat = check_temperatures(temperatures)
    # 1 / sinh in a form that does not overflow when it is cold.
    inverse = 2 * np.exp(-2 / heat) / -np.expm1(-4 / heat)
    return np.maximum(0, 1 - inverse**4) ** 0.125


def enumerate_states(
    size: int | tuple[int, int], temperature: float, boundary: str = "periodic", coupling: float = 1.0
) -> dict[str, float]:
    """Exact averages over all 2^N states of a lattice of up to 16 spins: `energy`, `magnetisation`, `heat_capacity`.

    Per spin: <e>, <|m|> and C = N (<e^2> - <e>^2) / T^2.
    """
    height, width = (size, size) if isinstance(size, int) else size
    count = height * width
    if count > 16:
        message = f"at most 16 spins can be enumerated, not {height} x {width}"
        raise UserError(message, hint="Sample larger lattices with ising().")
    heat = float(check_temperatures(temperature))
    bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
    spins = (2 * bits - 1).astype(np.int8).reshape(-1, height, width)
    energies = energy(spins, boundary, coupling)
    weights = np.exp(-(energies - energies.min()) * count / heat)
    weights /= weights.sum()
    mean = float(weights @ energies)
    return {
        "energy": mean,
        "magnetisation": float(weights @ np.abs(spins.mean((1, 2)))),
        "heat_capacity": float(weights @ (energies - mean) ** 2) * count / heat**2,
    }
