"""Stars that hide one another, and stars that show their spots: magnitudes as a function of phase.

    m = a2 (1 - cos 2x)/2 ... + d1 exp(-|phi / w1|^p) + d2 exp(-|(phi - phi2) / w2|^p),   x = 2 pi phi

The first term is that of stars drawn out by their tides, faint where they stand in line; the others are the eclipses. A
detached pair (ED) has eclipses alone, narrow ones; a semi-detached (ESD) both, and unequal dips; a contact pair (EC)
wide and nearly equal ones.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import log_uniform
from .cadence import Epochs

TWO_PI = 2 * np.pi


def random_phases(epochs: Epochs, period: Array, rng: np.random.Generator) -> Array:
    """Phases (T,) from -0.5 to 0.5, counted from a time of its own for each curve."""
    phase = epochs.time / epochs.spread(period) + epochs.spread(rng.random(len(period)))
    return phase - np.rint(phase)


def eclipse_dip(phase: Array, depth: Array, width: Array, power: Array) -> Array:
    """An eclipse around phase 0, zero where it is far."""
    away = np.abs(phase - np.rint(phase)) / width
    made = np.zeros(len(phase))
    near = np.flatnonzero(away < 3)
    made[near] = depth[near] * np.exp(-(away[near] ** power[near]))
    return made


def binaries(name: str, epochs: Epochs, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Magnitudes below the brightest (T,), periods and depths of the deeper minimum (n,)."""
    n = len(epochs.lengths)
    uniform = rng.uniform
    if name == "ED":
        period, deep = log_uniform(rng, 0.6, 30, n), log_uniform(rng, 0.12, 1.0, n)
        tide, second = uniform(0, 0.06, n), uniform(0.1, 1, n)
        width, power = uniform(0.02, 0.055, n) * (period / 3) ** -0.15, uniform(2, 4, n)
        apart = 0.5 + np.where(rng.random(n) < 0.3, uniform(-0.12, 0.12, n), 0)
    elif name == "ESD":
        period, deep = log_uniform(rng, 0.4, 10, n), log_uniform(rng, 0.12, 1.0, n)
        tide, second = uniform(0.1, 0.4, n), uniform(0.1, 0.7, n)
        width, power = uniform(0.045, 0.08, n), uniform(1.8, 2.6, n)
        apart = np.full(n, 0.5)
    else:
        period, deep = log_uniform(rng, 0.24, 0.8, n), log_uniform(rng, 0.2, 0.85, n)
        tide, second = uniform(0.45, 0.8, n), uniform(0.7, 1, n)
        width, power = uniform(0.055, 0.085, n), uniform(1.8, 2.4, n)
        apart = np.full(n, 0.5)
    phase = random_phases(epochs, period, rng)
    x = (TWO_PI * phase).astype(np.float32)
    wave, eclipse = deep * tide, deep * (1 - tide)
    smaller = np.maximum(deep * second - wave, 0.0)
    made = epochs.spread(wave / 2) * (1 + np.cos(2 * x))
    made += epochs.spread(uniform(-0.03, 0.03, n) * deep) * np.sin(x)  # one side is brighter, O'Connell's effect
    width, power = epochs.spread(width), epochs.spread(power)
    made += eclipse_dip(phase, epochs.spread(eclipse), width, power)
    made += eclipse_dip(phase - epochs.spread(apart), epochs.spread(smaller), width, power)
    return made, period, deep


def rotators(epochs: Epochs, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Stars with spots that stay (alpha2 Canum Venaticorum, ACV): one or two waves in a turn of half a day to weeks."""
    n = len(epochs.lengths)
    period, amplitude = log_uniform(rng, 0.6, 15, n), log_uniform(rng, 0.02, 0.12, n)
    second = np.where(rng.random(n) < 0.4, rng.uniform(0.3, 1.2, n), rng.uniform(0, 0.25, n))
    x = (TWO_PI * random_phases(epochs, period, rng)).astype(np.float32)
    made = np.cos(x) + epochs.spread(second) * np.cos(2 * x + epochs.spread(rng.uniform(0, TWO_PI, n)))
    return epochs.spread(amplitude / (2 + 1.4 * second)) * made, period, amplitude
