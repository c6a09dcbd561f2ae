"""Metrics of generated samples: two-sample test, nearest samples, diversity."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..data.columns import Array
from ..errors import UserError

ROWS_AT_ONCE = 256  # samples whose distances are computed at a time
SERIES_TERMS = 100


class TwoSamples(NamedTuple):
    """Result of a two-sample test: distance of the distributions, and p-value."""

    distance: float
    p_value: float


def kolmogorov_smirnov(one: Array, other: Array) -> TwoSamples:
    """Two-sample Kolmogorov-Smirnov test.

        p = 2 sum_k (-1)^(k - 1) exp(-2 k^2 l^2),   l = D sqrt(n m / (n + m))

    The distance D is the largest difference of the distribution functions of two samples of sizes n and m. The p-value
    is asymptotic: it is slightly too large for few values or equal values.
    """
    one, other = (np.sort(np.asarray(part, np.float64).ravel()) for part in (one, other))
    if not len(one) or not len(other):
        raise UserError("two samples with values are needed for a two-sample test")
    places = np.concatenate([one, other])
    shares = [np.searchsorted(part, places, side="right") / len(part) for part in (one, other)]
    distance = float(np.abs(shares[0] - shares[1]).max())
    length = distance * math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    if length < 0.2:  # the series converges slowly here, to 1
        return TwoSamples(distance, 1.0)
    k = np.arange(1, SERIES_TERMS + 1)
    series = 2 * ((-1.0) ** (k - 1) * np.exp(-2 * k**2 * length**2)).sum()
    return TwoSamples(distance, float(np.clip(series, 0, 1)))


def nearest_samples(samples: Array, reference: Array) -> tuple[Array, Array]:
    """Index and Euclidean distance (n,) of the nearest reference of each sample.

    samples, reference   arrays (n, ...) and (m, ...) of the same shape after the first axis
    """
    rows, known = (np.asarray(part, np.float64).reshape(len(part), -1) for part in (samples, reference))
    index, distance = np.zeros(len(rows), np.int64), np.zeros(len(rows))
    squares = (known**2).sum(1)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        apart = squares - 2 * part @ known.T
        best = apart.argmin(1)
        index[start : start + len(part)] = best
        distance[start : start + len(part)] = np.sqrt(((part - known[best]) ** 2).sum(1))
    return index, distance


def mean_distance(samples: Array) -> float:
    """Mean Euclidean distance between two different samples (n, ...).

    The result is nan for fewer than two samples.
    """
    if len(samples) < 2:
        return math.nan
    rows = np.asarray(samples, np.float64).reshape(len(samples), -1)
    squares = (rows**2).sum(1)
    apart = np.sqrt(np.maximum(0, squares[:, None] + squares - 2 * rows @ rows.T))
    return float(apart.sum() / (len(rows) * (len(rows) - 1)))
