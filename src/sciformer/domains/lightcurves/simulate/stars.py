"""Variable stars and stars that are not, as a survey sees them: curves of magnitudes in one band.

Amplitudes and periods are those of the literature: pulsators after the percentiles of the OGLE-III catalogue, in V;
binaries, rotators and red variables in round ranges. In the manner of ASAS (`cadence: asas`) cadence, errors, scatter
and outliers were set by hand after a general look at percentiles of its 3,110 curves, all folds of the benchmark
among them. A second look, class by class (amplitude, skewness, brightness), moved gross numbers alone: typical
magnitudes of classes, depths and widths of eclipses, the factor from I to V of delta Scuti stars, the side to which
Miras lean. No curve of ASAS is in here, and no period of one was used.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array, Lists
from ....data.readers.sequence import log_uniform
from . import photometry
from .binaries import TWO_PI, binaries, rotators
from .cadence import DAYS_PER_YEAR, MIN_POINTS, Epochs, asas_epochs, survey_epochs
from .pulsators import pulsators

CLASSES = ("RRAB", "RRC", "CEP_F", "CEP_1O", "DSCT", "MIRA", "SR", "ED", "ESD", "EC", "ACV", "DRW", "CONST")
PULSATORS, BINARIES = ("RRAB", "RRC", "CEP_F", "CEP_1O", "DSCT"), ("ED", "ESD", "EC")
MEAN_MAGNITUDE, MAGNITUDE_SPREAD, MIN_MAGNITUDE, MAX_MAGNITUDE = (
    12.0,
    1.0,
    8.0,
    13.8,
)  # magnitudes in the manner of ASAS
CLASS_MAGNITUDES = {
    "RRAB": 13.0,
    "RRC": 12.7,
    "ACV": 9.8,
    "ED": 11.1,
    "ESD": 11.4,
}  # of classes that differ from `MEAN_MAGNITUDE` there
MIN_SEEN_RANGE = 0.35  # of the range below its middle that is seen at least
CurveShape = tuple[Array, Array, Array]


def stars(label: Array, rng: np.random.Generator, cadence: str, points: int) -> dict[str, Array | Lists]:
    """Curves of stars of these classes (n,), numbers of CLASSES in rising order: columns of a table."""
    n, like_asas = len(label), cadence == "asas"
    epochs = (asas_epochs if like_asas else survey_epochs)(n, rng, points)
    clean, period, amplitude = np.empty(len(epochs.time)), np.empty(n), np.empty(n)
    bounds = np.searchsorted(label, np.arange(len(CLASSES) + 1))
    for name, low, high in zip(CLASSES, bounds[:-1], bounds[1:]):
        if high > low:
            mine, there = epochs.rows(low, high)
            clean[there], period[low:high], amplitude[low:high] = curve_shape(name, mine, rng)
    if like_asas:
        typical = np.array([CLASS_MAGNITUDES.get(name, MEAN_MAGNITUDE) for name in CLASSES])
        mean = np.clip(typical[label] + MAGNITUDE_SPREAD * rng.standard_normal(n), MIN_MAGNITUDE, MAX_MAGNITUDE)
        limit, observe = np.full(n, photometry.ASAS_LIMIT), photometry.observe_asas
    else:
        mean, limit, observe = rng.uniform(14, 19.5, n), rng.uniform(20, 21.5, n), photometry.observe_survey
    limit = np.maximum(limit, mean + MIN_SEEN_RANGE * amplitude)  # so that most of each curve is seen
    clean += epochs.spread(mean)
    seen = observe(clean, epochs, limit, rng)
    kept = _keep_enough_points(seen.seen, epochs)
    lengths = np.add.reduceat(kept, epochs.starts, dtype=np.int64)

    def lists(values: Array, kind: type) -> Lists:
        return Lists(values[kept].astype(kind), lengths)

    made: dict[str, Array | Lists] = {"time": lists(epochs.time, np.float64), "value": lists(seen.value, np.float32)}
    made |= {"error": lists(seen.error, np.float32), "clean": lists(clean, np.float32)}
    return made | {"period": period, "amplitude": amplitude}


def _keep_enough_points(seen: Array, epochs: Epochs) -> Array:
    """Points that are seen; all of a curve of which nearly nothing would be left."""
    count = np.add.reduceat(seen, epochs.starts, dtype=np.int64)
    return seen | epochs.spread(count < np.minimum(MIN_POINTS, epochs.lengths))


def curve_shape(name: str, epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Magnitudes about their mean (T,), periods (NaN without) and amplitudes (n,) of stars of one class."""
    if name in PULSATORS:
        return pulsators(name, epochs, rng)
    if name in BINARIES:
        return binaries(name, epochs, rng)
    made: CurveShape = {"ACV": rotators, "MIRA": miras, "SR": semiregular, "DRW": quasars, "CONST": constants}[name](
        epochs, rng
    )
    return made


def smooth_random_curve(epochs: Epochs, period: Array, rng: np.random.Generator) -> Array:
    """A smooth random function of time (T,), of variance 1, that changes within a few of these periods (n,)."""
    total = np.zeros(len(epochs.time))
    for low, high in ((1.3, 2.5), (2.5, 5), (5, 12)):
        rate = TWO_PI / (period * log_uniform(rng, low, high, len(period)))
        x = epochs.time * epochs.spread(rate) + epochs.spread(rng.uniform(0, TWO_PI, len(period)))
        total += np.cos(np.remainder(x, TWO_PI).astype(np.float32))
    return total * np.sqrt(2 / 3)


def miras(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Nearly sines of magnitudes, no two cycles alike: heights change by 10 to 30 %, times by some percent."""
    n = len(epochs.lengths)
    period = np.exp(np.log(320) + 0.32 * np.clip(rng.standard_normal(n), -2.2, 2.2))
    amplitude = np.clip(2.8 * np.exp(0.33 * rng.standard_normal(n)), 1.2, 6.0)
    x = TWO_PI * (epochs.time / epochs.spread(period) + epochs.spread(rng.random(n)))
    x += epochs.spread(rng.uniform(0.05, 0.25, n)) * smooth_random_curve(epochs, period, rng)
    skew = epochs.spread(rng.uniform(0, 0.3, n))
    height = 1 + epochs.spread(rng.uniform(0.05, 0.15, n)) * smooth_random_curve(epochs, period, rng)
    wave = np.cos(x) + skew * np.cos(2 * x + epochs.spread(rng.uniform(-1.4, 0.4, n)))
    return (
        epochs.spread(amplitude / 2) * (height * wave + 0.1 * smooth_random_curve(epochs, 2 * period, rng)),
        period,
        amplitude,
    )


def semiregular(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Red giants of two or three periods that come and go; the period told is that of the strongest."""
    n = len(epochs.lengths)
    period, amplitude = log_uniform(rng, 40, 350, n), log_uniform(rng, 0.1, 1.0, n)
    total = np.zeros(len(epochs.time))
    for size, ratio in ((1.0, None), (0.5, (0.45, 0.6)), (0.5, (1.6, 6.0))):
        own = period if ratio is None else period * rng.uniform(*ratio, n)
        height = np.full(n, size) if ratio is None else rng.uniform(0, size, n)
        x = TWO_PI * (epochs.time / epochs.spread(own) + epochs.spread(rng.random(n)))
        x += 0.4 * smooth_random_curve(epochs, own, rng)
        total += epochs.spread(height) * (1 + 0.25 * smooth_random_curve(epochs, own, rng)) * np.cos(x)
    return epochs.spread(amplitude / 2.6) * total, period, amplitude


def quasars(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Damped random walks: scatter 0.04 to 0.4 mag, forgotten within 20 to 300 days."""
    n = len(epochs.lengths)
    scatter = log_uniform(rng, 0.04, 0.4, n)
    made = damped_random_walk(epochs, log_uniform(rng, 20, 300, n), rng)
    return epochs.spread(scatter) * made, np.full(n, np.nan), 4 * scatter


def damped_random_walk(epochs: Epochs, memory: Array, rng: np.random.Generator) -> Array:
    """Ornstein-Uhlenbeck processes of variance 1 (T,): x(t + d) = r x(t) + sqrt(1 - r^2) g, r = exp(-d / memory)."""
    lengths, starts = epochs.lengths, epochs.starts
    keep = np.exp(-np.diff(epochs.time, prepend=epochs.time[:1]) / epochs.spread(memory))
    keep[starts] = 0
    kick = np.sqrt(1 - keep**2) * rng.standard_normal(len(keep))
    order = np.argsort(-lengths, kind="stable")  # the longest first, so that those that go on are a slice
    left = np.searchsorted(-lengths[order], -np.arange(1, lengths.max(initial=0) + 1), side="right")
    at, state = starts[order], np.zeros(len(lengths))
    made = np.empty(len(keep))
    for step, alive in enumerate(left):
        place = at[:alive] + step
        state = keep[place] * state[:alive] + kick[place]
        made[place] = state
    return made


def constants(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Stars that stay as they are; of a third the instrument drifts a little, in a line or as red noise."""
    n = len(epochs.lengths)
    dice = rng.random(n)
    line = np.where(dice < 0.15, rng.uniform(-0.03, 0.03, n), 0)
    red = np.where(dice > 0.8, rng.uniform(0.005, 0.03, n), 0)
    years = (epochs.time - epochs.spread(epochs.time[epochs.starts])) / DAYS_PER_YEAR
    made = epochs.spread(line) * years + epochs.spread(red) * damped_random_walk(
        epochs, log_uniform(rng, 20, 300, n), rng
    )
    return made, np.full(n, np.nan), np.zeros(n)
