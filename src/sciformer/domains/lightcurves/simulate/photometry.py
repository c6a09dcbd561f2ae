"""What a telescope makes of brightness: errors that grow with magnitude, noise, outliers, a faint limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array
from .cadence import Epochs

ERROR_AT_LIMIT = 0.2  # mag, the error at the limit of a survey: five sigma
ASAS_LIMIT = 14.5  # mag, where ASAS sees no more
ASAS_QUOTED_ERROR, ASAS_ERROR_FLOOR, ASAS_TYPICAL_SCATTER, ASAS_SCATTER_MAGNITUDE, ASAS_SCATTER_SLOPE = (
    0.036,
    0.02,
    0.029,
    11.5,
    2.1,
)  # of ASAS: see `observe_asas`


@dataclass(frozen=True)
class ObservedMagnitudes:
    """Magnitudes as they are told, with the errors as they are told, and which points are above the limit (T,)."""

    value: Array
    error: Array
    seen: Array


def observe_survey(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> ObservedMagnitudes:
    """Errors sigma^2 = s0^2 + (0.2 10^(0.4 (m - limit)))^2 times a log-normal factor; noise 0.9 to 1.3 of them."""
    n, total = len(epochs.lengths), len(clean)
    least = epochs.spread(rng.uniform(0.005, 0.02, n))
    sigma = np.hypot(least, ERROR_AT_LIMIT * 10 ** (0.4 * np.minimum(clean - epochs.spread(limit), 1.0)))
    sigma *= np.exp(epochs.spread(rng.uniform(0.2, 0.3, n)) * rng.standard_normal(total, np.float32))
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    noise += draw_outliers(sigma, epochs, rng.uniform(0.005, 0.01, n), 0.6, rng)
    return ObservedMagnitudes(clean + noise, sigma, clean < epochs.spread(limit))


def observe_asas(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> ObservedMagnitudes:
    """As in ASAS, where the error that is told, about 0.036, hardly depends on the magnitude, and the scatter does.

    Points minutes apart scatter by some 0.01 mag down to magnitude 10 (0.02 is taken, for nights), 0.03 at 11.5, and
    twice as much for each magnitude more. Outliers, some 0.8 % of the points, are nearly all too faint.
    """
    n, total = len(epochs.lengths), len(clean)
    told = ASAS_QUOTED_ERROR * np.exp(epochs.spread(0.1 * rng.standard_normal(n)))
    told *= np.exp(epochs.spread(rng.uniform(0.17, 0.28, n)) * rng.standard_normal(total, np.float32))
    sigma = np.hypot(
        ASAS_ERROR_FLOOR,
        ASAS_TYPICAL_SCATTER
        * ASAS_SCATTER_SLOPE ** np.minimum(clean - ASAS_SCATTER_MAGNITUDE, ASAS_LIMIT - ASAS_SCATTER_MAGNITUDE),
    )
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    share = 0.008 * np.exp(0.8 * rng.standard_normal(n))
    noise += draw_outliers(np.clip(sigma, ASAS_QUOTED_ERROR, 2 * ASAS_QUOTED_ERROR), epochs, share, 0.95, rng)
    return ObservedMagnitudes(clean + noise, np.clip(told, 0.005, 0.5), clean < epochs.spread(limit))


def draw_outliers(sigma: Array, epochs: Epochs, share: Array, faint: float, rng: np.random.Generator) -> Array:
    """Zero, but for a share of the points 5 to 20 sigma (often less than more), most of them too faint."""
    total = len(sigma)
    struck = np.flatnonzero(rng.random(total, np.float32) < epochs.spread(share))
    size = 5 + 15 * rng.random(len(struck)) ** 2
    made = np.zeros(total)
    made[struck] = sigma[struck] * size * np.where(rng.random(len(struck)) < faint, 1, -1)
    return made
