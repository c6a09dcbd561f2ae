"""Simulated supernovae in several bands, with redshift, dust and upper limits.

    f = A / (1 + exp(-(t - t0) / rise)) [(1 - s) (1 - beta (t - t0) / gamma) + s (1 - beta) exp(-(t - t1) / fall)],
    t1 = t0 + gamma,   s = 1 / (1 + exp(-(t - t1) / 3))

(Supernova Parametric Model: Villar 2019, with the smooth step s of ALeRCE). The flux f of amplitude A rises at the time
t0, declines on a plateau of length gamma to the fraction 1 - beta, and falls exponentially after t1. Times are in days.

Redder bands peak later and decline more slowly. Colours come from a redshifted black body; times are stretched by
1 + z. Redshifts are uniform in volume, up to the redshift at which the peak is as faint as the magnitude limit of a
survey.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....data.columns import Array, Lists, concatenate, select

CLASSES = ("Ia", "Ibc", "II", "SLSN")
BANDS = ("g", "r", "i", "z")
WAVELENGTHS = {"g": 0.477, "r": 0.623, "i": 0.762, "z": 0.913}  # micrometres
PARAMETER_RANGES = {  # rise, gamma, fall (days), beta
    "Ia": ((2, 5), (5, 20), (15, 40), (0.2, 0.8)),
    "Ibc": ((3, 7), (5, 25), (15, 45), (0.2, 0.8)),
    "II": ((1, 5), (60, 110), (20, 60), (0.0, 0.5)),
    "SLSN": ((3, 7), (5, 25), (15, 45), (0.2, 0.8)),  # all times are stretched by 2 to 4
}
# Absolute magnitudes at the peak, and their spread.
PEAK_MAGNITUDES = {"Ia": (-19.2, 0.35), "Ibc": (-17.6, 0.7), "II": (-17.2, 0.9), "SLSN": (-21.3, 0.6)}
PEAK_TEMPERATURES = {"Ia": 11000, "Ibc": 8500, "II": 9500, "SLSN": 13000}  # K at the peak
ZERO_POINT = 23.9  # magnitude of 1 microjansky
SURVEY_NIGHTS, NIGHTS_BEFORE = 320, 60  # observed nights, and nights before the explosion
PLATEAU_SMOOTHING = 3.0  # days, smoothing of the end of the plateau
DETECTION_SIGMA, MIN_DETECTIONS = 5.0, 5  # sigma of a detection; minimum detections per curve
LIMIT_DAYS = 25.0  # days with upper limits before the first detection
HUBBLE_CONSTANT, MATTER_DENSITY = 70.0, 0.3


@dataclass(frozen=True)
class LightModel:
    """Parameters of the light model: (n,) for one band, or (n, bands) for all bands."""

    start: Array
    rise: Array
    gamma: Array
    fall: Array
    beta: Array

    def at(self, time: Array) -> Array:
        since = time - self.start
        later = since - self.gamma
        s = _sigmoid(later / PLATEAU_SMOOTHING)
        plateau = (1 - s) * (1 - self.beta * since / self.gamma)
        tail = s * (1 - self.beta) * np.exp(np.minimum(-later / self.fall, 50))
        return _sigmoid(since / self.rise) * (plateau + tail)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(np.clip(-x, -60, 60)))


@lru_cache
def _modulus_table() -> tuple[Array, Array]:
    """Redshifts and their distance moduli in a flat universe."""
    z = np.linspace(0, 2, 2001)
    speed = 1 / np.sqrt(MATTER_DENSITY * (1 + z) ** 3 + 1 - MATTER_DENSITY)
    far = np.concatenate([[0], np.cumsum((speed[1:] + speed[:-1]) / 2) * z[1]]) * (1 + z) * 299792.458 / HUBBLE_CONSTANT
    return z[1:], 5 * np.log10(far[1:]) + 25


def distance_modulus(redshift: Array) -> Array:
    """Distance moduli of redshifts, by interpolation."""
    return np.interp(redshift, *_modulus_table())


def planck_brightness(wave: Array, heat: Array) -> Array:
    """Black-body brightness per frequency, for wavelengths in micrometres."""
    return 1 / (wave**3 * np.expm1(14387.77 / (wave * heat)))


def supernovae(label: Array, rng: np.random.Generator, bands: tuple[str, ...], unit: str) -> dict[str, Array | Lists]:
    """Simulate supernovae with at least five detections each.

    label   (n,) indices of CLASSES
    """
    tables, places, left = [], [], np.arange(len(label))
    while len(left):
        made, good = draw_candidates(label[left], rng, bands, unit)
        tables.append(select(made, np.flatnonzero(good)))
        places.append(left[good])
        left = left[~good]
    return select(concatenate(tables), np.argsort(np.concatenate(places)))


def draw_candidates(
    label: Array, rng: np.random.Generator, bands: tuple[str, ...], unit: str
) -> tuple[dict[str, Array | Lists], Array]:
    """Draw candidates of the classes `label`.

    Also returns a mask of the candidates with enough detections.
    """
    n = len(label)
    depth = rng.uniform(19.6, 21.5, n)
    mean, spread = _of_class(PEAK_MAGNITUDES, label).T
    peak = mean + spread * rng.standard_normal(n)
    farthest = np.interp(depth - 1.2 - peak, *_modulus_table()[::-1])
    redshift = np.maximum(farthest * rng.random(n) ** (1 / 3), 0.002)
    light, bright = _band_models(label, redshift, peak, bands, rng)
    begin = 58000 + rng.uniform(0, 1500, n)
    rows, night, band = _draw_visits(n, len(bands), rng)
    inside = (night - NIGHTS_BEFORE) + 0.3 * rng.random((n, SURVEY_NIGHTS))[rows, night] + 0.012 * band
    picked = LightModel(*(getattr(light, name)[rows, band] for name in ("start", "rise", "gamma", "fall", "beta")))
    flux = bright[rows, band] * picked.at(inside)
    poor = depth[rows] - 0.25 * np.abs(rng.standard_normal((n, SURVEY_NIGHTS)))[rows, night]  # depth varies by night
    sigma = np.hypot(10 ** (-0.4 * (poor - ZERO_POINT)) / DETECTION_SIGMA, 0.02 * flux)
    seen = flux + sigma * rng.standard_normal(len(flux))
    found = seen > DETECTION_SIGMA * sigma
    kept = _trim_window(rows, inside, found, n)
    lengths = np.bincount(rows[kept], minlength=n)
    if unit == "magnitude":
        value = ZERO_POINT - 2.5 * np.log10(np.where(found, seen, DETECTION_SIGMA * sigma))
        error = 2.5 / np.log(10) / np.where(found, seen / sigma, DETECTION_SIGMA)
        more = {"limit": Lists(~found[kept], lengths)}
    else:
        value, error = seen, sigma
        more = {"clean": Lists(flux[kept].astype(np.float32), lengths)}
    made: dict[str, Array | Lists] = {
        "time": Lists((begin[rows] + inside)[kept], lengths),
        "value": Lists(value[kept].astype(np.float32), lengths),
        "error": Lists(error[kept].astype(np.float32), lengths),
        "band": Lists(np.array(bands)[band[kept]], lengths),
        **more,
        "redshift": redshift,
        "explosion": begin,
    }
    return made, np.bincount(rows, found, n) >= MIN_DETECTIONS


def _of_class(table: dict[str, Any], label: Array) -> Array:
    return np.array([table[name] for name in CLASSES])[label]


def _band_models(
    label: Array, redshift: Array, peak: Array, bands: tuple[str, ...], rng: np.random.Generator
) -> tuple[LightModel, Array]:
    """Light models in each band, and their amplitudes A (n, bands) in microjansky."""
    n, wave = len(label), np.array([WAVELENGTHS[band] for band in bands])
    low, high = np.moveaxis(_of_class(PARAMETER_RANGES, label), -1, 0)  # (n, 4)
    rise, gamma, fall, beta = (low + (high - low) * rng.random((n, 4))).T
    slow = (1 + redshift) * np.where(label == CLASSES.index("SLSN"), rng.uniform(2, 4, n), 1)
    red = (wave - WAVELENGTHS["g"]) / (WAVELENGTHS["z"] - WAVELENGTHS["g"])
    start = red * (slow * rng.uniform(1, 4, n))[:, None] + (4 * slow * rise)[:, None]
    fall = (slow * fall)[:, None] * (1 + red * rng.uniform(0.1, 0.6, n)[:, None])
    rise, gamma, beta = (np.broadcast_to(x[:, None], (n, len(bands))) for x in (slow * rise, slow * gamma, beta))
    light = LightModel(start, rise, gamma, fall, beta)
    grid = np.linspace(-1, 1.5, 48)[:, None, None] * light.gamma + light.start
    heat = (_of_class(PEAK_TEMPERATURES, label) * np.exp(0.1 * rng.standard_normal(n)))[:, None]
    shift = (1 + redshift)[:, None]
    colour = planck_brightness(wave / shift, heat) / planck_brightness(np.array([0.55]), heat) * shift
    dust = rng.standard_exponential(n)[:, None] * 0.1 * 0.55 / wave
    magnitude = (peak + distance_modulus(redshift))[:, None] + dust - 2.5 * np.log10(colour)
    return light, 10 ** (-0.4 * (magnitude - ZERO_POINT)) / light.at(grid).max(0)


def _draw_visits(n: int, bands: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw curve, night and band of each visit.

    Each band has its own cadence; the weather is the same for all bands.
    """
    clear = rng.random((n, SURVEY_NIGHTS)) < rng.uniform(0.5, 0.9, (n, 1))
    rhythm = rng.choice([2, 3, 4, 5, 7], (n, 1, bands))
    beat = (np.arange(SURVEY_NIGHTS)[None, :, None] + rng.integers(0, 7, (n, 1, bands))) % rhythm == 0
    rows, night, band = np.nonzero(beat & clear[:, :, None])
    return rows, night, band


def _trim_window(rows: Array, time: Array, found: Array, n: int) -> Array:
    """Mask (T,) of points from `LIMIT_DAYS` before the first to the last detection."""
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, rows[found], time[found])
    np.maximum.at(last, rows[found], time[found])
    return (time >= first[rows] - LIMIT_DAYS) & (time <= last[rows])
