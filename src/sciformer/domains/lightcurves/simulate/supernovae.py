"""Supernovae in several bands: a rise, a plateau that falls, a fall; redshift, dust, and nights with limits alone.

    f = A / (1 + exp(-(t - t0) / rise)) [(1 - s) (1 - beta (t - t0) / gamma) + s (1 - beta) exp(-(t - t1) / fall)],
    t1 = t0 + gamma,   s = 1 / (1 + exp(-(t - t1) / 3))

(the Supernova Parametric Model: Villar 2019, smoothed as by ALeRCE). Redder bands are later and fall more slowly;
colours are those of a black body seen from its redshift; times are stretched by 1 + z. Redshifts are drawn by volume,
out to where a survey with a limit in magnitude would lose the peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....data.columns import Array, Lists, concatenate, select

CLASSES = ("Ia", "Ibc", "II", "SLSN")
BANDS, UNITS = ("g", "r", "i", "z"), ("magnitude", "flux")
WAVES = {"g": 0.477, "r": 0.623, "i": 0.762, "z": 0.913}  # micrometres
RANGES = {  # rise, gamma, fall (days), beta
    "Ia": ((2, 5), (5, 20), (15, 40), (0.2, 0.8)),
    "Ibc": ((3, 7), (5, 25), (15, 45), (0.2, 0.8)),
    "II": ((1, 5), (60, 110), (20, 60), (0.0, 0.5)),
    "SLSN": ((3, 7), (5, 25), (15, 45), (0.2, 0.8)),  # all times 2 to 4 fold
}
PEAKS = {"Ia": (-19.2, 0.35), "Ibc": (-17.6, 0.7), "II": (-17.2, 0.9), "SLSN": (-21.3, 0.6)}  # absolute magnitudes
HEAT = {"Ia": 11000, "Ibc": 8500, "II": 9500, "SLSN": 13000}  # K at the peak
ZERO = 23.9  # the magnitude of 1 microjansky
NIGHTS, BEFORE, AFTER = 320, 60, 3.0  # nights looked at, those before the explosion, sigma of a smooth change
LIMIT, LEAST = 5.0, 5  # sigma of a detection; detections of a curve at least
SHOWN = 25.0  # days of limits before the first detection
HUBBLE, MATTER = 70.0, 0.3


@dataclass(frozen=True)
class Light:
    """Times of one band or of all (n, ...) that together make the model."""

    start: Array
    rise: Array
    gamma: Array
    fall: Array
    beta: Array

    def at(self, time: Array) -> Array:
        """The flux, not yet scaled."""
        since = time - self.start
        later = since - self.gamma
        s = _sigmoid(later / AFTER)
        plateau = (1 - s) * (1 - self.beta * since / self.gamma)
        tail = s * (1 - self.beta) * np.exp(np.minimum(-later / self.fall, 50))
        made: Array = _sigmoid(since / self.rise) * (plateau + tail)
        return made


def _sigmoid(x: Array) -> Array:
    made: Array = 1 / (1 + np.exp(np.clip(-x, -60, 60)))
    return made


@lru_cache
def _moduli() -> tuple[Array, Array]:
    """Redshifts and their distance moduli in a flat universe."""
    z = np.linspace(0, 2, 2001)
    speed = 1 / np.sqrt(MATTER * (1 + z) ** 3 + 1 - MATTER)
    far = np.concatenate([[0], np.cumsum((speed[1:] + speed[:-1]) / 2) * z[1]]) * (1 + z) * 299792.458 / HUBBLE
    return z[1:], 5 * np.log10(far[1:]) + 25


def modulus(redshift: Array) -> Array:
    """Distance moduli."""
    made: Array = np.interp(redshift, *_moduli())
    return made


def planck(wave: Array, heat: Array) -> Array:
    """Brightness of a black body for each frequency, of wavelengths in micrometres."""
    made: Array = 1 / (wave**3 * np.expm1(14387.77 / (wave * heat)))
    return made


def supernovae(label: Array, rng: np.random.Generator, bands: tuple[str, ...], unit: str) -> dict[str, Array | Lists]:
    """Curves of supernovae of these classes (n,); a curve with fewer than five detections is drawn again."""
    tables, places, left = [], [], np.arange(len(label))
    while len(left):
        made, good = draw(np.array(CLASSES)[label[left]], rng, bands, unit)
        tables.append(select(made, np.flatnonzero(good)))
        places.append(left[good])
        left = left[~good]
    return select(concatenate(tables), np.argsort(np.concatenate(places)))


def draw(
    names: Array, rng: np.random.Generator, bands: tuple[str, ...], unit: str
) -> tuple[dict[str, Array | Lists], Array]:
    """Candidates of these classes, and which of them were detected often enough."""
    n = len(names)
    depth = rng.uniform(19.6, 21.5, n)
    peak = _each(PEAKS, names) @ np.array([1, 0]) + _each(PEAKS, names) @ np.array([0, 1]) * rng.standard_normal(n)
    farthest = np.interp(depth - 1.2 - peak, *_moduli()[::-1])
    redshift = np.maximum(farthest * rng.random(n) ** (1 / 3), 0.002)
    light, bright = _bands(names, redshift, peak, bands, rng)
    begin = 58000 + rng.uniform(0, 1500, n)
    rows, night, band = _nights(n, len(bands), rng)
    inside = (night - BEFORE) + 0.3 * rng.random((n, NIGHTS))[rows, night] + 0.012 * band
    picked = Light(*(getattr(light, name)[rows, band] for name in ("start", "rise", "gamma", "fall", "beta")))
    flux = bright[rows, band] * picked.at(inside)
    poor = depth[rows] - 0.25 * np.abs(rng.standard_normal((n, NIGHTS)))[rows, night]  # nights are not alike
    sigma = np.hypot(10 ** (-0.4 * (poor - ZERO)) / LIMIT, 0.02 * flux)
    seen = flux + sigma * rng.standard_normal(len(flux))
    found = seen > LIMIT * sigma
    kept = _window(rows, inside, found, n)
    lengths = np.bincount(rows[kept], minlength=n)
    if unit == "magnitude":
        value = ZERO - 2.5 * np.log10(np.where(found, seen, LIMIT * sigma))
        error = 2.5 / np.log(10) / np.where(found, seen / sigma, LIMIT)
        more = {"limit": Lists(~found[kept], lengths)}
    else:
        value, error = seen, sigma
        more = {"clean": Lists(flux[kept].astype(np.float32), lengths)}
    time = (begin[rows] + inside)[kept]
    made: dict[str, Array | Lists] = {"time": Lists(time, lengths)}
    made |= {"value": Lists(value[kept].astype(np.float32), lengths)}
    made |= {"error": Lists(error[kept].astype(np.float32), lengths)}
    made |= {"band": Lists(np.array(bands)[band[kept]], lengths), **more}
    return made | {"redshift": redshift, "explosion": begin}, np.bincount(rows, found, n) >= LEAST


def _each(table: dict[str, tuple[float, float]], names: Array) -> Array:
    """Rows of a table of pairs, by class (n, 2)."""
    return np.array([table[name] for name in CLASSES])[_numbers(names)]


def _numbers(names: Array) -> Array:
    return (names[:, None] == np.array(CLASSES)).argmax(1)


def _bands(
    names: Array, redshift: Array, peak: Array, bands: tuple[str, ...], rng: np.random.Generator
) -> tuple[Light, Array]:
    """The model in each band and what it is multiplied by (n, bands), in microjansky at its peak."""
    n, number = len(names), _numbers(names)
    wave = np.array([WAVES[band] for band in bands])
    ranges = np.array([RANGES[name] for name in CLASSES])[number]  # (n, 4, 2)
    rise, gamma, fall, beta = (ranges[..., 0] + (ranges[..., 1] - ranges[..., 0]) * rng.random((n, 4))).T
    slow = (1 + redshift) * np.where(names == "SLSN", rng.uniform(2, 4, n), 1)
    red = (wave - WAVES["g"]) / (WAVES["z"] - WAVES["g"])
    start = red * (slow * rng.uniform(1, 4, n))[:, None] + (4 * slow * rise)[:, None]
    fall = (slow * fall)[:, None] * (1 + red * rng.uniform(0.1, 0.6, n)[:, None])
    shape = (n, len(bands))
    rest = [np.broadcast_to(x[:, None], shape) for x in (slow * rise, slow * gamma, beta)]
    light = Light(start, rest[0], rest[1], fall, rest[2])
    grid = np.linspace(-1, 1.5, 48)[:, None, None] * light.gamma + light.start
    heat = (np.array([HEAT[name] for name in CLASSES])[number] * np.exp(0.1 * rng.standard_normal(n)))[:, None]
    colour = planck(wave / (1 + redshift)[:, None], heat) / planck(np.array([0.55]), heat) * (1 + redshift)[:, None]
    dust = rng.standard_exponential(n)[:, None] * 0.1 * 0.55 / wave
    magnitude = (peak + modulus(redshift))[:, None] + dust - 2.5 * np.log10(colour)
    return light, 10 ** (-0.4 * (magnitude - ZERO)) / light.at(grid).max(0)


def _nights(n: int, bands: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Curve, night and band of each look, in this order; each band has its own rhythm, weather takes all bands."""
    clear = rng.random((n, NIGHTS)) < rng.uniform(0.5, 0.9, (n, 1))
    rhythm = rng.choice([2, 3, 4, 5, 7], (n, 1, bands))
    beat = (np.arange(NIGHTS)[None, :, None] + rng.integers(0, 7, (n, 1, bands))) % rhythm == 0
    rows, night, band = np.nonzero(beat & clear[:, :, None])
    return rows, night, band


def _window(rows: Array, time: Array, found: Array, n: int) -> Array:
    """Points from some days before the first detection to the last one (T,)."""
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, rows[found], time[found])
    np.maximum.at(last, rows[found], time[found])
    kept: Array = (time >= first[rows] - SHOWN) & (time <= last[rows])
    return kept
