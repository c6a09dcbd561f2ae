"""Stars that swell and shrink: Fourier series of a period, amplitudes and phases as the OGLE catalogue has them.

    m = a1 [cos x + R21 cos(2x + phi21) + R31 cos(3x + phi31) + ...],   x = 2 pi (t - t0) / P

The numbers of a star belong together (a long period has a small amplitude): they are drawn from a Gaussian copula with
the correlations of the catalogue, and each from its percentiles 2, 25, 50, 75, 98 (OGLE-III, I band).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....data.columns import Array
from .cadence import Epochs

TWO_PI = 2 * np.pi
PERCENTILE_SIGMAS = (-2.0537, -0.6745, 0.0, 0.6745, 2.0537)  # sigma, of the percentiles
V_TO_I_AMPLITUDES = {"RRAB": 1.6, "RRC": 1.6, "CEP_F": 1.6, "CEP_1O": 1.6, "DSCT": 1.4}  # amplitudes in V to those in I
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
CORRELATIONS = {  # of log P, A, R21, phi21, R31, phi31: above the diagonal, row by row
    "RRAB": (-0.60, -0.30, 0.70, -0.34, 0.67, 0.57, -0.65, 0.68, -0.63, -0.23, 0.75, -0.25, -0.49, 0.89, -0.43),
    "RRC": (0.08, -0.31, -0.10, 0.13, 0.37, 0.51, 0.04, 0.36, -0.26, 0.02, 0.43, -0.67, -0.02, 0.07, -0.18),
    "CEP_F": (-0.21, -0.55, 0.58, -0.60, 0.55, 0.62, -0.20, 0.78, -0.32, -0.27, 0.83, -0.22, -0.42, 0.69, -0.46),
    "CEP_1O": (-0.43, -0.64, 0.22, -0.60, 0.32, 0.73, 0.03, 0.44, -0.16, -0.11, 0.64, -0.51, -0.48, 0.31, -0.49),
    "DSCT": (0.2, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.3, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0),
}
SECOND_PERIODS = {
    "DSCT": (0.4, 0.77),
    "RRC": (0.05, 1 / 0.744),
    "CEP_1O": (0.05, 0.80),
}  # share of stars, ratio of periods


@lru_cache
def _correlation_root(name: str) -> Array:
    matrix = np.eye(6)
    matrix[np.triu_indices(6, 1)] = CORRELATIONS[name]
    values, vectors = np.linalg.eigh(matrix + matrix.T - np.eye(6))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return root / np.sqrt((root**2).sum(1, keepdims=True))


def draw_parameters(name: str, n: int, rng: np.random.Generator) -> Array:
    """Period, amplitude in I, R21, phi21, R31 and phi31 of `n` stars of a class (6, n)."""
    normal = _correlation_root(name) @ np.clip(rng.standard_normal((6, n)), -3, 3)
    made = np.empty((6, n))
    for row, (z, table) in enumerate(zip(normal, PERCENTILE_TABLES[name])):
        made[row] = (
            np.exp(np.interp(z, PERCENTILE_SIGMAS, np.log(table)))
            if row == 0
            else np.interp(z, PERCENTILE_SIGMAS, table)
        )
    return made


def fourier_coefficients(drawn: Array) -> Array:
    """Coefficients (n, HARMONICS) of stars with these numbers (6, n): magnitudes are Re sum_k c_k exp(i k x).

    Harmonics above the third shrink by 0.7 each, with phases that go on in equal steps; peak to peak is 1.
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
    """Re sum_k c_k exp(i k x) at the points (T,), by Horner's rule."""
    angle = np.remainder(x, TWO_PI).astype(np.float32)
    z = np.empty(len(x), np.complex64)
    z.real, z.imag = np.cos(angle), np.sin(angle)
    rows = coefficients.astype(np.complex64)
    total = np.zeros(len(z), np.complex64)
    for column in rows.T[::-1]:
        total += epochs.spread(column)
        total *= z
    return total.real.astype(np.float64)


def pulsators(name: str, epochs: Epochs, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Magnitudes about their mean (T,), periods and amplitudes in V (n,) of stars of a class."""
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
