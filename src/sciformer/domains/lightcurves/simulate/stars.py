"""Variable and constant stars in a survey: magnitudes in one band.

Amplitudes and periods follow the literature: pulsators have the percentiles of the OGLE-III catalogue, in V; binaries,
rotators and red variables have round ranges. With `cadence: asas`, cadence, errors, scatter and outliers were set by
hand to match percentiles of the 3,110 ASAS curves, which include all folds of the benchmark. A later comparison by
class (amplitude, skewness, brightness) changed only coarse numbers: typical magnitudes of classes, depths and widths of
eclipses, the factor from I to V of delta Scuti stars, the asymmetry of Miras. The simulation contains no ASAS curve
and uses no period of an ASAS star.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....data.columns import Array, Lists, Table, select
from ....data.readers.sequence import log_uniform
from .cadence import DAYS_PER_YEAR, MIN_POINTS, Epochs, asas_epochs, survey_epochs

CLASSES = ("RRAB", "RRC", "CEP_F", "CEP_1O", "DSCT", "MIRA", "SR", "ED", "ESD", "EC", "ACV", "DRW", "CONST")
PULSATORS, BINARIES = ("RRAB", "RRC", "CEP_F", "CEP_1O", "DSCT"), ("ED", "ESD", "EC")
# Magnitudes like those of ASAS, and of classes that differ from the mean.
MEAN_MAGNITUDE, MAGNITUDE_SPREAD, MIN_MAGNITUDE, MAX_MAGNITUDE = 12.0, 1.0, 8.0, 13.8
CLASS_MAGNITUDES = {"RRAB": 13.0, "RRC": 12.7, "ACV": 9.8, "ED": 11.1, "ESD": 11.4}
MIN_SEEN_RANGE = 0.35  # minimum share of the amplitude below the mean that is above the limit
TWO_PI = 2 * np.pi
CurveShape = tuple[Array, Array, Array]


def stars(label: Array, rng: np.random.Generator, cadence: str, points: int) -> Table:
    """Simulate light curves of stars; `label` (n,) holds indices of CLASSES."""
    order, n, like_asas = np.argsort(label, kind="stable"), len(label), cadence == "asas"
    label = label[order]
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
        limit, observe = np.full(n, ASAS_LIMIT), observe_asas
    else:
        mean, limit, observe = rng.uniform(14, 19.5, n), rng.uniform(20, 21.5, n), observe_survey
    limit = np.maximum(limit, mean + MIN_SEEN_RANGE * amplitude)  # most of each curve is above the limit
    clean += epochs.spread(mean)
    value, error = observe(clean, epochs, limit, rng)
    seen = clean < epochs.spread(limit)
    few = np.add.reduceat(seen, epochs.starts, dtype=np.int64) < np.minimum(MIN_POINTS, epochs.lengths)
    kept = seen | epochs.spread(few)  # all points of curves with too few detections
    lengths = np.add.reduceat(kept, epochs.starts, dtype=np.int64)

    made: dict[str, Array | Lists] = {"time": Lists(epochs.time[kept], lengths)}
    for name, column in (("value", value), ("error", error), ("clean", clean)):
        made[name] = Lists(column[kept].astype(np.float32), lengths)
    return select(made | {"period": period, "amplitude": amplitude}, np.argsort(order))


def curve_shape(name: str, epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Curves of a class of star: relative magnitudes, periods and amplitudes.

    The magnitudes (T,) are relative to their mean. Periods and amplitudes are (n,); a star without a period has NaN.
    """
    if name in PULSATORS:
        return pulsators(name, epochs, rng)
    if name in BINARIES:
        return binaries(name, epochs, rng)
    return {"ACV": rotators, "MIRA": miras, "SR": semiregular, "DRW": quasars, "CONST": constants}[name](epochs, rng)


def smooth_random_curve(epochs: Epochs, period: Array, rng: np.random.Generator) -> Array:
    """Smooth random curves (T,) with variance 1 and a time scale of a few periods."""
    total = np.zeros(len(epochs.time))
    for low, high in ((1.3, 2.5), (2.5, 5), (5, 12)):
        rate = TWO_PI / (period * log_uniform(rng, low, high, len(period)))
        x = epochs.time * epochs.spread(rate) + epochs.spread(rng.uniform(0, TWO_PI, len(period)))
        total += np.cos(np.remainder(x, TWO_PI).astype(np.float32))
    return total * np.sqrt(2 / 3)


def miras(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Miras: nearly sinusoidal; amplitudes vary by 10 to 30 %, times by a few percent."""
    n = len(epochs.lengths)
    period = np.exp(np.log(320) + 0.32 * np.clip(rng.standard_normal(n), -2.2, 2.2))
    amplitude = np.clip(2.8 * np.exp(0.33 * rng.standard_normal(n)), 1.2, 6.0)
    x = TWO_PI * (epochs.time / epochs.spread(period) + epochs.spread(rng.random(n)))
    x += epochs.spread(rng.uniform(0.05, 0.25, n)) * smooth_random_curve(epochs, period, rng)
    skew = epochs.spread(rng.uniform(0, 0.3, n))
    height = 1 + epochs.spread(rng.uniform(0.05, 0.15, n)) * smooth_random_curve(epochs, period, rng)
    wave = np.cos(x) + skew * np.cos(2 * x + epochs.spread(rng.uniform(-1.4, 0.4, n)))
    made = height * wave + 0.1 * smooth_random_curve(epochs, 2 * period, rng)
    return epochs.spread(amplitude / 2) * made, period, amplitude


def semiregular(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Semiregular red giants with two or three varying periods.

    Returns the period of the strongest component.
    """
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
    """Quasars: damped random walks of 0.04 to 0.4 mag, time scales of 20 to 300 days."""
    n = len(epochs.lengths)
    scatter = log_uniform(rng, 0.04, 0.4, n)
    made = damped_random_walk(epochs, log_uniform(rng, 20, 300, n), rng)
    return epochs.spread(scatter) * made, np.full(n, np.nan), 4 * scatter


def damped_random_walk(epochs: Epochs, memory: Array, rng: np.random.Generator) -> Array:
    """Damped random walk (Ornstein-Uhlenbeck process) (T,) with variance 1.

    x(t + d) = r x(t) + sqrt(1 - r^2) g,     r = exp(-d / memory),     g ~ N(0, 1)
    """
    lengths, starts = epochs.lengths, epochs.starts
    keep = np.exp(-np.diff(epochs.time, prepend=epochs.time[:1]) / epochs.spread(memory))
    keep[starts] = 0
    kick = np.sqrt(1 - keep**2) * rng.standard_normal(len(keep))
    order = np.argsort(-lengths, kind="stable")  # longest first, so that the unfinished curves are a slice
    left = np.searchsorted(-lengths[order], -np.arange(1, lengths.max(initial=0) + 1), side="right")
    at, state = starts[order], np.zeros(len(lengths))
    made = np.empty(len(keep))
    for step, alive in enumerate(left):
        place = at[:alive] + step
        state = keep[place] * state[:alive] + kick[place]
        made[place] = state
    return made


def constants(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Constant stars; a third have a small instrumental drift: a line or red noise."""
    n = len(epochs.lengths)
    dice = rng.random(n)
    line = np.where(dice < 0.15, rng.uniform(-0.03, 0.03, n), 0)
    red = np.where(dice > 0.8, rng.uniform(0.005, 0.03, n), 0)
    years = (epochs.time - epochs.spread(epochs.time[epochs.starts])) / DAYS_PER_YEAR
    walk = damped_random_walk(epochs, log_uniform(rng, 20, 300, n), rng)
    return epochs.spread(line) * years + epochs.spread(red) * walk, np.full(n, np.nan), np.zeros(n)


# Pulsating stars, with amplitudes and phases of the OGLE catalogue


PERCENTILE_SIGMAS = (-2.0537, -0.6745, 0.0, 0.6745, 2.0537)  # of the percentiles 2, 25, 50, 75, 98
V_TO_I_AMPLITUDES = {**dict.fromkeys(PULSATORS, 1.6), "DSCT": 1.4}  # amplitudes in V over amplitudes in I
HARMONICS, GRID_POINTS = 8, 96
PERCENTILE_TABLES = {  # rows: period, amplitude (peak to peak), R21, phi21, R31, phi31
    "RRAB": (
        (0.428, 0.516, 0.568, 0.620, 0.766),
        (0.153, 0.396, 0.543, 0.677, 0.859),
        (0.251, 0.422, 0.468, 0.505, 0.566),
        (3.967, 4.188, 4.342, 4.558, 5.007),
        (0.000, 0.249, 0.318, 0.359, 0.405),
        (1.818, 2.289, 2.595, 3.005, 3.833),
    ),
    "RRC": (
        (0.247, 0.295, 0.322, 0.348, 0.430),
        (0.105, 0.234, 0.259, 0.287, 0.368),
        (0.000, 0.078, 0.115, 0.164, 0.277),
        (2.458, 4.701, 4.860, 5.049, 5.778),
        (0.000, 0.000, 0.065, 0.086, 0.144),
        (1.999, 3.204, 3.856, 4.267, 5.444),
    ),
    "CEP_F": (
        (1.115, 1.730, 2.988, 4.416, 22.555),
        (0.145, 0.380, 0.487, 0.605, 0.792),
        (0.131, 0.393, 0.443, 0.486, 0.540),
        (3.925, 4.264, 4.491, 4.682, 5.433),
        (0.024, 0.182, 0.240, 0.312, 0.375),
        (1.477, 2.323, 2.728, 3.039, 4.422),
    ),
    "CEP_1O": (
        (0.337, 1.064, 1.675, 2.254, 4.186),
        (0.061, 0.182, 0.229, 0.289, 0.423),
        (0.000, 0.099, 0.154, 0.210, 0.335),
        (3.011, 4.066, 4.364, 4.607, 5.250),
        (0.000, 0.018, 0.040, 0.078, 0.136),
        (0.239, 1.952, 2.731, 4.162, 6.120),
    ),
    "DSCT": (
        (0.049, 0.074, 0.087, 0.110, 0.225),
        (0.037, 0.142, 0.201, 0.278, 0.443),
        (0.048, 0.197, 0.293, 0.402, 0.609),
        (2.500, 3.606, 4.036, 4.409, 5.500),
        (0.000, 0.030, 0.060, 0.100, 0.200),
        (1.000, 2.000, 2.600, 3.200, 5.000),
    ),
}
CORRELATIONS = {  # of log P, A, R21, phi21, R31, phi31: upper triangle, row by row
    "RRAB": (-0.60, -0.30, 0.70, -0.34, 0.67, 0.57, -0.65, 0.68, -0.63, -0.23, 0.75, -0.25, -0.49, 0.89, -0.43),
    "RRC": (0.08, -0.31, -0.10, 0.13, 0.37, 0.51, 0.04, 0.36, -0.26, 0.02, 0.43, -0.67, -0.02, 0.07, -0.18),
    "CEP_F": (-0.21, -0.55, 0.58, -0.60, 0.55, 0.62, -0.20, 0.78, -0.32, -0.27, 0.83, -0.22, -0.42, 0.69, -0.46),
    "CEP_1O": (-0.43, -0.64, 0.22, -0.60, 0.32, 0.73, 0.03, 0.44, -0.16, -0.11, 0.64, -0.51, -0.48, 0.31, -0.49),
    "DSCT": (0.2, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.3, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0),
}
# Share of stars with a second period, ratio of periods.
SECOND_PERIODS = {"DSCT": (0.4, 0.77), "RRC": (0.05, 1 / 0.744), "CEP_1O": (0.05, 0.80)}


@lru_cache
def _correlation_root(name: str) -> Array:
    matrix = np.eye(6)
    matrix[np.triu_indices(6, 1)] = CORRELATIONS[name]
    values, vectors = np.linalg.eigh(matrix + matrix.T - np.eye(6))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return root / np.sqrt((root**2).sum(1, keepdims=True))


def draw_parameters(name: str, n: int, rng: np.random.Generator) -> Array:
    """Period, I-band amplitude, R21, phi21, R31, phi31 (6, n) of stars of a class."""
    normal = _correlation_root(name) @ np.clip(rng.standard_normal((6, n)), -3, 3)
    made = np.empty((6, n))
    for row, (z, table) in enumerate(zip(normal, PERCENTILE_TABLES[name])):
        made[row] = np.interp(z, PERCENTILE_SIGMAS, table if row else np.log(table))
    made[0] = np.exp(made[0])
    return made


def fourier_coefficients(drawn: Array) -> Array:
    """Coefficients c (n, HARMONICS) of m = Re sum_k c_k exp(i k x).

    From the fourth harmonic on, an amplitude is 0.7 times the amplitude of the previous harmonic, and the phases change
    in equal steps. The peak-to-peak range is 1.
    """
    _, _, r21, phi21, r31, phi31 = drawn
    order = np.arange(4, HARMONICS + 1)[:, None]
    high = r31 * 0.7 ** (order - 3) * np.exp(1j * (phi31 + (order - 3) * (phi31 - phi21)))
    first = np.stack([np.ones_like(r21) + 0j, r21 * np.exp(1j * phi21), r31 * np.exp(1j * phi31)])
    made: Array = np.concatenate([first, high]).T
    turns = np.exp(1j * TWO_PI * np.outer(np.arange(1, HARMONICS + 1), np.arange(GRID_POINTS) / GRID_POINTS))
    shape = (made @ turns).real
    return made / np.ptp(shape, axis=1)[:, None]


def sum_harmonics(coefficients: Array, x: Array, epochs: Epochs) -> Array:
    """Harmonic series Re sum_k c_k exp(i k x) at the points x (T,), by Horner's rule."""
    angle = np.remainder(x, TWO_PI).astype(np.float32)
    z = np.empty(len(x), np.complex64)
    z.real, z.imag = np.cos(angle), np.sin(angle)
    rows = coefficients.astype(np.complex64)
    total = np.zeros(len(z), np.complex64)
    for column in rows.T[::-1]:
        total += epochs.spread(column)
        total *= z
    return total.real.astype(np.float64)


def pulsators(name: str, epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Pulsators: magnitudes about their mean (T,), periods and amplitudes in V (n,).

        m = a1 [cos x + R21 cos(2x + phi21) + R31 cos(3x + phi31) + ...],   x = 2 pi (t - t0) / P

    The parameters of a star are correlated (a long period has a small amplitude). They come from a Gaussian copula with
    the correlations and the percentiles 2, 25, 50, 75, 98 of the OGLE-III catalogue (I band).
    """
    n = len(epochs.lengths)
    drawn = draw_parameters(name, n, rng)
    period, amplitude = drawn[0], np.maximum(drawn[1], 0.01) * V_TO_I_AMPLITUDES[name]
    x = TWO_PI * (epochs.time / epochs.spread(period) + epochs.spread(rng.random(n)))
    made = epochs.spread(amplitude) * sum_harmonics(fourier_coefficients(drawn), x, epochs)
    if name in SECOND_PERIODS:
        share, ratio = SECOND_PERIODS[name]
        size = np.where(rng.random(n) < share, rng.uniform(0.1, 0.5, n), 0) * amplitude / 2
        rate = TWO_PI / (period * ratio * np.exp(0.005 * rng.standard_normal(n)))
        made += epochs.spread(size) * np.cos(epochs.time * epochs.spread(rate) + epochs.spread(rng.random(n) * TWO_PI))
    return made, period, amplitude


# Eclipsing binaries and spotted stars


# Columns: period (days) and depth, uniform in the logarithm; uniform: tidal share of the depth, secondary over primary
# depth, width and exponent of an eclipse
BINARY_RANGES = {
    "ED": ((0.6, 30), (0.12, 1.0), (0, 0.06), (0.1, 1), (0.02, 0.055), (2, 4)),
    "ESD": ((0.4, 10), (0.12, 1.0), (0.1, 0.4), (0.1, 0.7), (0.045, 0.08), (1.8, 2.6)),
    "EC": ((0.24, 0.8), (0.2, 0.85), (0.45, 0.8), (0.7, 1), (0.055, 0.085), (1.8, 2.4)),
}


def random_phases(epochs: Epochs, period: Array, rng: np.random.Generator) -> Array:
    """Phases (T,) from -0.5 to 0.5, with a random epoch for each curve."""
    phase = epochs.time / epochs.spread(period) + epochs.spread(rng.random(len(period)))
    return phase - np.rint(phase)


def eclipse_dip(phase: Array, depth: Array, width: Array, power: Array) -> Array:
    """Dimming (T,) by an eclipse at phase 0; 0 outside the eclipse."""
    away = np.abs(phase - np.rint(phase)) / width
    made = np.zeros(len(phase))
    near = np.flatnonzero(away < 3)
    made[near] = depth[near] * np.exp(-(away[near] ** power[near]))
    return made


def binaries(name: str, epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Eclipsing binaries: magnitudes below maximum (T,), periods and depths (n,).

        m = a2 (1 - cos 2x)/2 ... + d1 exp(-|phi / w1|^p) + d2 exp(-|(phi - phi2) / w2|^p),   x = 2 pi phi

    The first term is the tidal deformation of the stars, the other terms are the eclipses. Detached pairs (ED) have
    narrow eclipses only. Semi-detached pairs (ESD) have both terms, with unequal eclipses. Contact pairs (EC) have wide
    and nearly equal eclipses.
    """
    n, ranges = len(epochs.lengths), BINARY_RANGES[name]
    period, deep = (log_uniform(rng, *own, n) for own in ranges[:2])
    tide, second, width, power = (rng.uniform(*own, n) for own in ranges[2:])
    apart = np.full(n, 0.5)
    if name == "ED":
        width *= (period / 3) ** -0.15
        apart += np.where(rng.random(n) < 0.3, rng.uniform(-0.12, 0.12, n), 0)
    phase = random_phases(epochs, period, rng)
    x = (TWO_PI * phase).astype(np.float32)
    wave, eclipse = deep * tide, deep * (1 - tide)
    smaller = np.maximum(deep * second - wave, 0.0)
    made = epochs.spread(wave / 2) * (1 + np.cos(2 * x))
    made += epochs.spread(rng.uniform(-0.03, 0.03, n) * deep) * np.sin(x)  # O'Connell effect: unequal maxima
    width, power = epochs.spread(width), epochs.spread(power)
    made += eclipse_dip(phase, epochs.spread(eclipse), width, power)
    made += eclipse_dip(phase - epochs.spread(apart), epochs.spread(smaller), width, power)
    return made, period, deep


def rotators(epochs: Epochs, rng: np.random.Generator) -> CurveShape:
    """Spotted rotators (alpha2 CVn, class ACV): a sinusoid and its second harmonic."""
    n = len(epochs.lengths)
    period, amplitude = log_uniform(rng, 0.6, 15, n), log_uniform(rng, 0.02, 0.12, n)
    second = np.where(rng.random(n) < 0.4, rng.uniform(0.3, 1.2, n), rng.uniform(0, 0.25, n))
    x = (TWO_PI * random_phases(epochs, period, rng)).astype(np.float32)
    made = np.cos(x) + epochs.spread(second) * np.cos(2 * x + epochs.spread(rng.uniform(0, TWO_PI, n)))
    return epochs.spread(amplitude / (2 + 1.4 * second)) * made, period, amplitude


# Observation: errors that grow with magnitude, noise, outliers, a faint limit


ERROR_AT_LIMIT = 0.2  # mag, error at the five-sigma limit of a survey
ASAS_LIMIT = 14.5  # mag, faint limit of ASAS
ASAS_QUOTED_ERROR, ASAS_ERROR_FLOOR = 0.036, 0.02  # see `observe_asas`
ASAS_TYPICAL_SCATTER, ASAS_SCATTER_MAGNITUDE, ASAS_SCATTER_SLOPE = 0.029, 11.5, 2.1


def observe_survey(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Magnitudes with the noise of a survey, and their errors.

    Errors are sigma^2 = s0^2 + (0.2 10^(0.4 (m - limit)))^2 times a log-normal factor; the noise is 0.9 to 1.3 sigma.
    """
    n, total = len(epochs.lengths), len(clean)
    least = epochs.spread(rng.uniform(0.005, 0.02, n))
    sigma = np.hypot(least, ERROR_AT_LIMIT * 10 ** (0.4 * np.minimum(clean - epochs.spread(limit), 1.0)))
    sigma *= np.exp(epochs.spread(rng.uniform(0.2, 0.3, n)) * rng.standard_normal(total, np.float32))
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    noise += draw_outliers(sigma, epochs, rng.uniform(0.005, 0.01, n), 0.6, rng)
    return clean + noise, sigma


def observe_asas(clean: Array, epochs: Epochs, limit: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Magnitudes with the noise of ASAS, and their errors.

    The quoted error of about 0.036 mag hardly depends on the magnitude, but the scatter does: 0.02 mag down to
    magnitude 10, 0.03 mag at 11.5, and twice as much for each further magnitude. About 0.8 % of the points are
    outliers, mostly too faint.
    """
    n, total = len(epochs.lengths), len(clean)
    told = ASAS_QUOTED_ERROR * np.exp(epochs.spread(0.1 * rng.standard_normal(n)))
    told *= np.exp(epochs.spread(rng.uniform(0.17, 0.28, n)) * rng.standard_normal(total, np.float32))
    fainter = np.minimum(clean - ASAS_SCATTER_MAGNITUDE, ASAS_LIMIT - ASAS_SCATTER_MAGNITUDE)
    sigma = np.hypot(ASAS_ERROR_FLOOR, ASAS_TYPICAL_SCATTER * ASAS_SCATTER_SLOPE**fainter)
    noise = sigma * epochs.spread(rng.uniform(0.9, 1.3, n)) * rng.standard_normal(total, np.float32)
    share = 0.008 * np.exp(0.8 * rng.standard_normal(n))
    noise += draw_outliers(np.clip(sigma, ASAS_QUOTED_ERROR, 2 * ASAS_QUOTED_ERROR), epochs, share, 0.95, rng)
    return clean + noise, np.clip(told, 0.005, 0.5)


def draw_outliers(sigma: Array, epochs: Epochs, share: Array, faint: float, rng: np.random.Generator) -> Array:
    """Outliers of 5 to 20 sigma for a share of the points, mostly too faint."""
    total = len(sigma)
    struck = np.flatnonzero(rng.random(total, np.float32) < epochs.spread(share))
    size = 5 + 15 * rng.random(len(struck)) ** 2
    made = np.zeros(total)
    made[struck] = sigma[struck] * size * np.where(rng.random(len(struck)) < faint, 1, -1)
    return made
