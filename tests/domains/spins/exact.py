"""The Ising model where it is known exactly: Onsager's infinite lattice with J = 1, and all states of a small one."""

import numpy as np
from scipy.special import ellipk

from sciformer.domains.spins.lattices import energy


def onsager_energy(temperatures):
    """Energy per spin (Onsager, Phys. Rev. 65, 117)."""
    slope = np.tanh(2 / np.asarray(temperatures))
    q = 2 * slope**2 - 1
    return -(1 + 2 / np.pi * q * ellipk(1 - q**2)) / slope


def onsager_magnetisation(temperature):
    """|m| below T_c."""
    return (1 - np.sinh(2 / temperature) ** -4) ** 0.125


def enumerate_states(height, width, temperature, boundary="periodic", coupling=1.0):
    """<e>, <|m|> and the heat capacity N (<e^2> - <e>^2) / T^2 per spin."""
    count = height * width
    bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
    spins = (2 * bits - 1).astype(np.int8).reshape(-1, height, width)
    energies = energy(spins, boundary, coupling)
    weights = np.exp(-(energies - energies.min()) * count / temperature)
    weights /= weights.sum()
    mean = weights @ energies
    magnetisation = weights @ np.abs(spins.mean((1, 2)))
    return mean, magnetisation, weights @ (energies - mean) ** 2 * count / temperature**2
