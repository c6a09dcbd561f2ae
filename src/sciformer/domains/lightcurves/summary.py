"""Summary features of series: moments, percentiles, shape of the folded curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...data.batch import Stream
from ...data.columns import Array
from .periods import (
    HARMONICS,
    MAX_FITTED_SERIES,
    POINTS_PER_HARMONIC,
    Points,
    cached_periods,
    fit_harmonics,
    period_search,
    visible_points,
)

if TYPE_CHECKING:
    from .tokens import Observations

MIN_POINTS = 5  # a series with fewer points has no summary
MOMENTS = (
    *("ln deviation", "skewness", "ln kurtosis", "5 %", "25 %", "75 %", "95 %", "lowest", "highest"),
    *("ln roughness", "ln error"),
)
FOLDED = (
    *("explained", "ln first harmonic", "second harmonic", "third harmonic", "fourth harmonic"),
    *("cos of second", "sin of second", "cos of third", "sin of third"),
    *("ln roughness", "range", "half a turn after the lowest", "lowest to highest", "time above the mean"),
)
PHASES = np.arange(100) / 100


def summary_names(periods: bool) -> list[str]:
    """Names of the summary features; with periods, also of the folded curve."""
    folded = [f"{what}, folded with {how}" for how in ("the period", "twice the period") for what in FOLDED]
    return [*MOMENTS, *(folded if periods else [])]


def add_summary(stream: Stream, tokens: Observations) -> Stream:
    """Add the column `summary` (T, S) of S features, if `tokens.summary` is set.

    The features are not standardised yet; unknown features are NaN.
    """
    if not tokens.summary:
        return stream
    found = summaries(visible_points(stream, tokens), tokens)[stream.sample]
    if "entry" in stream.columns:
        found[stream.columns["entry"] > 0] = np.nan
    return stream.with_columns(summary=found)


def learn_summary(points: Points, tokens: Observations) -> list[list[float]]:
    """Mean and standard deviation of each summary feature in the training data.

    At most MAX_FITTED_SERIES series are used.
    """
    found = summaries(points, tokens, MAX_FITTED_SERIES).astype(np.float64)
    known = np.isfinite(found)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, found, 0).sum(0) / count
    deviation = np.sqrt((np.where(known, found - mean, 0) ** 2).sum(0) / count)
    return [[float(a), float(b) or 1.0] for a, b in zip(mean, deviation)]


def summary_features(stream: Stream, usual: list[list[float]]) -> Array:
    """Standardised summary features (T, S), clipped to -5 and 5; 0 if unknown."""
    mean, deviation = np.array(usual).T
    return np.nan_to_num(np.clip((stream.columns["summary"] - mean) / deviation, -5, 5))


def summaries(points: Points, tokens: Observations, most: int | None = None) -> Array:
    """Summary features (B, S) of the first `most` series, before standardisation.

    Unknown features are NaN.
    """
    period = cached_periods(points, period_search(tokens), most)[0] if tokens.periods else None
    made = np.full((len(points.lengths[:most]), len(summary_names(bool(tokens.periods)))), np.nan, np.float32)
    for row, (time, value, error, band) in enumerate(points.each(most)):
        own = None if period is None or not np.isfinite(period[row, 0]) else float(period[row, 0])
        if (found := summarise(time, value, error, band, own)) is not None:
            made[row, : len(found)] = found
    if tokens.scale == "deviation":
        made[:, 0] = np.nan  # the values have no unit
    return made


def summarise(
    time: Array, value: Array, error: Array, band: Array | None = None, period: float | None = None
) -> list[float] | None:
    """Summary features of a series, in the order of `summary_names`.

    The result is None for a series with few points or without variation.
    """
    if len(value) < MIN_POINTS:
        return None
    groups = np.zeros(len(value), np.int64) if band is None else np.unique(band, return_inverse=True)[1]
    z = value.astype(np.float64)
    z = z - (np.bincount(groups, z) / np.bincount(groups))[groups]
    deviation = float(z.std())
    if not deviation > 1e-9 * max(1e-300, float(np.abs(value).max())):
        return None
    z /= deviation
    order = np.argsort(time, kind="stable")
    t, z, error = time[order] - time.min(), z[order], np.asarray(error, np.float64)[order]
    low, quarter, middle, upper, high = np.percentile(z, [5, 25, 50, 75, 95])
    known = error[np.isfinite(error) & (error > 0)]
    usual = float(np.median(known)) / deviation if len(known) else np.nan
    found = [np.log(deviation), (z**3).mean(), np.log((z**4).mean())]
    found += [*(np.array([low, quarter, upper, high]) - middle), middle - z.min(), z.max() - middle]
    found += [np.log(_roughness(z)), np.log(usual)]
    if period is not None:
        weight = 1 / (np.where(np.isfinite(error) & (error > 0), error / deviation, usual) ** 2 + usual**2)
        weight = weight if len(known) else np.ones(len(z))
        found += [*_folded(t, z, weight, 1 / period), *_folded(t, z, weight, 0.5 / period)]
    return [float(one) for one in found]


def _roughness(z: Array) -> float:
    """Mean square difference of neighbours, in units of the variance."""
    return float(max(1e-4, np.mean(np.diff(z) ** 2)))


def _folded(t: Array, z: Array, w: Array, frequency: float) -> list[float]:
    """Harmonics and shape of a series of standard deviation 1, folded at a frequency."""
    number = int(np.clip(len(t) // POINTS_PER_HARMONIC, 1, HARMONICS))
    amplitudes, share = fit_harmonics(t, z, w, np.array([frequency]), number)
    a = np.pad(amplitudes[0, 1:], (0, HARMONICS - number))
    size = np.abs(a)
    turns = [a[k] * np.conj(a[0]) ** (k + 1) for k in (1, 2)]
    turns = [turn / max(1e-12, abs(turn)) for turn in turns]
    shape = (np.exp(-2j * np.pi * np.outer(PHASES, np.arange(1, HARMONICS + 1))) @ a).real
    wide = max(1e-9, float(np.ptp(shape)))
    lowest = int(shape.argmin())
    return [
        float(share[0]),
        np.log(size[0] + 0.01),
        *np.minimum(size[1:] / max(1e-9, size[0]), 3),
        *(part for turn in turns for part in (turn.real, turn.imag)),
        np.log(_roughness(z[np.argsort((t * frequency) % 1, kind="stable")])),
        wide,
        (shape[(lowest + len(PHASES) // 2) % len(PHASES)] - shape[lowest]) / wide,
        ((int(shape.argmax()) - lowest) % len(PHASES)) / len(PHASES),
        float((shape > 0).mean()),
    ]


def describe_summary(tokens: Observations) -> str:
    """Description of the summary features in words, for programs without this library."""
    return (
        "; summary: features of the whole series without limits, each band minus its mean, in units of the deviation: "
        "moments, percentiles minus the median, ln of the mean square difference of neighbours (roughness), ln of the "
        "median error"
        + ("; a fit of four harmonics of period 1 and of twice period 1" if tokens.periods else "")
        + "; clip((feature - learned.summary[0]) / learned.summary[1], -5, 5), 0 if unknown"
    )
