"""What a telescope makes of brightness: errors that grow with magnitude, noise, outliers, a faint limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array
from .cadence import Epochs

DEEP = 0.2  # mag, the error at the limit of a survey: five sigma
FAINT = 14.5  # mag, where ASAS sees no more
QUOTED, FLOOR, TYPICAL, AT, STEEP = 0.036, 0.02, 0.029, 11.5, 2.1  # of ASAS: see `asas`


@dataclass(frozen=True)
class Observed:
    """Magnitudes as they are told, with the errors as they are told, and which points are above the limit (T,)."""

    value: Array
    error: Array
    seen: Array


def survey(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> Observed:
    """Errors sigma^2 = s0^2 + (0.2 10^(0.4 (m - limit)))^2 times a log-normal factor; noise 0.9 to 1.3 of them."""
    n, total = len(epochs.lengths), len(clean)
    least = epochs.spread(rng.uniform(0.005, 0.02, n))
    sigma = np.hypot(least, DEEP * 10 ** (0.4 * np.minimum(clean - epochs.spread(limit), 1.0)))
    sigma *= np.exp(epochs.spread(rng.uniform(0.2, 0.3, n)) * rng.standard_normal(total, np.float32))
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    noise += outliers(sigma, epochs, rng.uniform(0.005, 0.01, n), 0.6, rng)
    return Observed(clean + noise, sigma, clean < epochs.spread(limit))


def asas(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> Observed:
    """As in ASAS, where the error that is told, about 0.036, hardly depends on the magnitude, and the scatter does.

    Points minutes apart scatter by some 0.01 mag down to magnitude 10 (0.02 is taken, for nights), 0.03 at 11.5, and
    twice as much for each magnitude more. Outliers, some 0.8 % of the points, are nearly all too faint.
    """
    n, total = len(epochs.lengths), len(clean)
    told = QUOTED * np.exp(epochs.spread(0.1 * rng.standard_normal(n)))
    told *= np.exp(epochs.spread(rng.uniform(0.17, 0.28, n)) * rng.standard_normal(total, np.float32))
    sigma = np.hypot(FLOOR, TYPICAL * STEEP ** np.minimum(clean - AT, FAINT - AT))
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    share = 0.008 * np.exp(0.8 * rng.standard_normal(n))
    noise += outliers(np.clip(sigma, QUOTED, 2 * QUOTED), epochs, share, 0.95, rng)
    return Observed(clean + noise, np.clip(told, 0.005, 0.5), clean < epochs.spread(limit))


def outliers(sigma: Array, epochs: Epochs, share: Array, faint: float, rng: np.random.Generator) -> Array:
    """Zero, but for a share of the points 5 to 20 sigma (often less than more), most of them too faint."""
    total = len(sigma)
    struck = np.flatnonzero(rng.random(total, np.float32) < epochs.spread(share))
    size = 5 + 15 * rng.random(len(struck)) ** 2
    made = np.zeros(total)
    made[struck] = sigma[struck] * size * np.where(rng.random(len(struck)) < faint, 1, -1)
    return made
