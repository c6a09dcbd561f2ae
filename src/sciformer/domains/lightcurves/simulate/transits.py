"""Transits of planets across limb-darkened, spotted stars; stars without planet.

The missing light is the share of the disk behind the planet (exact for two disks) times the brightness

    I(mu) / <I> = (1 - u1 (1 - mu) - u2 (1 - mu)^2) / (1 - u1/3 - u2/6),   mu = sqrt(1 - r^2)

at the middle of the covered part. This is accurate to 1 or 2 % of the depth for planets below a seventh of the star's
radius. Orbits are circular. Values are thousandths of the mean flux, in a regular series with gaps.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array, Lists
from ....data.readers.sequence import log_uniform
from .cadence import Epochs, regular_epochs, regular_table
from .stars import smooth_random_curve

CLASSES = ("none", "transit")
DEFAULT_POINTS, STEP_DAYS, DAYS_BETWEEN_GAPS = 1200, 30 / 1440, 13.7  # half an hour, and two orbits of TESS
NOISE_RANGE, SPOT_RANGE = (0.1, 1.5), (0.05, 3.0)  # thousandths


def transits(label: Array, rng: np.random.Generator, points: int, gaps: bool) -> dict[str, Array | Lists]:
    """Simulate curves with or without transits; `label` holds indices of CLASSES."""
    points, n = points or DEFAULT_POINTS, len(label)
    time, kept = regular_epochs(n, points, STEP_DAYS, rng, DAYS_BETWEEN_GAPS if gaps else 0)
    planet = label == CLASSES.index("transit")
    longest = min(12, 0.45 * points * STEP_DAYS)
    period = np.where(planet, log_uniform(rng, min(1, longest / 2), longest, n), np.nan)
    size = np.where(planet, log_uniform(rng, 0.012, 0.14, n), 0)
    orbit = 4.2 * period ** (2 / 3) * rng.uniform(0.7, 1.2, n)  # in stellar radii
    impact, epoch = rng.uniform(0, 0.85, n), rng.random(n) * period
    limb = rng.uniform(0.2, 0.5, n), rng.uniform(0.1, 0.35, n)
    lost = np.zeros((n, points))
    phase = (time - epoch[:, None]) / period[:, None]
    angle = 2 * np.pi * (phase - np.rint(phase))
    row, column = np.nonzero(np.abs(angle) < (1.3 / orbit)[:, None])
    x = orbit[row] * np.sin(angle[row, column])
    apart = np.hypot(x, impact[row] * np.cos(angle[row, column]))
    lost[row, column] = occulted_share(apart, size[row], limb[0][row], limb[1][row])
    turn, spots = log_uniform(rng, 2, 30, n), log_uniform(rng, *SPOT_RANGE, n)  # rotation and size of changing spots
    epochs = Epochs(np.tile(time, n), np.full(n, len(time)))
    star = (epochs.spread(spots / 2) * smooth_random_curve(epochs, turn, rng)).reshape(n, -1)
    clean = (star - 1000 * lost).astype(np.float32)
    sigma = log_uniform(rng, *NOISE_RANGE, n).astype(np.float32)
    made = regular_table(time, kept, clean, sigma, rng)
    duration = period / np.pi * np.arcsin(np.minimum(np.sqrt(np.maximum((1 + size) ** 2 - impact**2, 0)) / orbit, 1))
    made |= {"period": period, "depth": 1000 * lost.max(1)}
    return made | {"duration": np.where(planet, duration, 0), "epoch": epoch}


def occulted_share(apart: Array, size: Array, u1: Array, u2: Array) -> Array:
    """Share of a star's light behind the disk of a planet.

    apart    distance of the centres, in stellar radii
    size     radius of the planet, in stellar radii
    u1, u2   limb darkening
    """
    made = np.zeros(len(apart))
    near = np.flatnonzero(apart < 1 + size)
    d, k = apart[near], size[near]
    partly = d > 1 - k
    safe = np.where(partly, d, 1.0)
    a = np.arccos(np.clip((safe**2 + k**2 - 1) / (2 * safe * k), -1, 1))
    b = np.arccos(np.clip((safe**2 + 1 - k**2) / (2 * safe), -1, 1))
    kite = np.sqrt(np.maximum((-safe + k + 1) * (safe + k - 1) * (safe - k + 1) * (safe + k + 1), 0)) / 2
    area = np.where(partly, k**2 * a + b - kite, np.pi * k**2) / np.pi
    middle = np.where(partly, (np.maximum(d - k, 0) + 1) / 2, d)
    shade = 1 - np.sqrt(np.maximum(1 - middle**2, 0))
    bright = (1 - u1[near] * shade - u2[near] * shade**2) / (1 - u1[near] / 3 - u2[near] / 6)
    made[near] = area * bright
    return made
