"""Solar-like oscillators: granulation and oscillation modes as functions of log g.

    nu_max = 3090 uHz (g / g_sun) (T / 5777 K)^-1/2,      Delta nu = 135.1 uHz sqrt(M / R^3)
    P(nu)  = sinc^2 [sum_i 2 sqrt(2)/pi a^2 / b_i / (1 + (nu / b_i)^4) + H exp(-(nu - nu_max)^2 4 ln 2 / w^2) comb(nu)]

Granulation follows Kallinger et al. 2014 (1408.0817); height and width of the oscillations follow Mosser et al. 2012
(1110.0980). The comb is a sum of Lorentzian lines of degree 0, 1 and 2 at equal distances, in closed form with mean 1,
without mixed modes or rotation. Frequencies above half the sampling rate are aliased, as in real data. Values are in
thousandths of the mean flux; cadence and noise are as in Kepler's long-cadence data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array, Lists
from ....data.readers.sequence import log_uniform
from .cadence import regular_epochs, regular_table

CLASSES = ("giant", "subgiant")
LOG_G_RANGES = {"giant": (1.5, 3.3), "subgiant": (3.3, 3.9)}  # log g
DEFAULT_POINTS, STEP_DAYS = 4000, 29.4 / 1440  # time step in days
SPECTRUM_FOLDS = {"giant": 1, "subgiant": 4}  # number of foldings of the spectrum at half the sampling rate (aliasing)
MODE_DEGREES = ((0.32, 0.0), (0.49, 0.48), (0.19, -0.13))  # share of the power, offset in units of Delta nu
TWO_PI, GRANULATION_FACTOR = 2 * np.pi, 2 * np.sqrt(2) / np.pi
NOISE_RANGE = (0.02, 0.3)  # thousandths
DAYS_BETWEEN_GAPS = 30.0  # interval between gaps in days


@dataclass(frozen=True)
class StellarSpectra:
    """Parameters (n, 1) of the power spectra of n stars; frequencies in microhertz."""

    logg: Array
    heat: Array
    numax: Array
    dnu: Array
    strength: Array

    def granulation(self, nu: Array) -> Array:
        """Granulation power density (n, F) at frequencies (F,), in ppm^2 per microhertz."""
        numax = self.numax.astype(np.float32)
        a2 = (self.strength * 3382 * self.numax**-0.609).astype(np.float32) ** 2
        total = np.zeros((len(numax), len(nu)), np.float32)
        for b in (0.317 * numax**0.970, 0.948 * numax**0.992):
            x = np.square(nu.astype(np.float32) / b)
            x *= x
            x += 1
            total += (np.float32(GRANULATION_FACTOR) * a2 / b) / x
        return total

    def modes(self, nu: Array, width: float, rows: Array) -> Array:
        """Oscillation power density (rows, F) at frequencies (F,).

        Lines narrower than `width` are widened to `width`.
        """
        numax, dnu, strength = (x[rows].astype(np.float32) for x in (self.numax, self.dnu, self.strength))
        nu = nu.astype(np.float32)
        tight = np.float32(np.pi) * np.maximum(0.12 * (numax / 50) ** 0.5, np.float32(width)) / dnu
        place = (nu / dnu - (0.634 + 0.546 * np.log10(dnu))) * np.float32(TWO_PI)
        comb = np.zeros_like(place)
        for share, at in MODE_DEGREES:
            line = np.cos(place - np.float32(TWO_PI * at))
            np.subtract(np.cosh(tight), line, out=line)
            comb += (np.float32(share) * np.sinh(tight)) / line
        height = strength**2 * np.float32(2.03e7) * numax ** np.float32(-2.38)
        away = (nu - numax) * np.float32(np.sqrt(4 * np.log(2))) / (0.66 * numax**0.88)
        comb *= height * np.exp(-np.square(away))
        return comb


def draw_stars(name: str, n: int, rng: np.random.Generator) -> StellarSpectra:
    """Draw stars of a class, with 0.9 to 2 solar masses and uniform log g."""
    logg = rng.uniform(*LOG_G_RANGES[name], (n, 1))
    mass = rng.uniform(0.9, 2.0, (n, 1))
    heat = np.where(logg < 3.3, 4750 + 300 * (logg - 2.5), 5000 + 1200 * (logg - 3.3))
    heat += 100 * rng.standard_normal((n, 1))
    gravity = 10 ** (logg - 4.438)
    radius = np.sqrt(mass / gravity)
    numax = 3090 * gravity * (heat / 5777) ** -0.5
    strength = np.exp(0.1 * rng.standard_normal((n, 1)))
    return StellarSpectra(logg, heat, numax, 135.1 * np.sqrt(mass / radius**3), strength)


def oscillators(label: Array, rng: np.random.Generator, points: int, gaps: bool) -> dict[str, Array | Lists]:
    """Simulate light curves of oscillating stars; `label` holds indices of CLASSES."""
    points, n = points or DEFAULT_POINTS, len(label)
    clean, known = np.empty((n, points), np.float32), {name: np.empty(n) for name in ("logg", "heat", "numax", "dnu")}
    for number, name in enumerate(CLASSES):
        rows = np.flatnonzero(label == number)
        if len(rows):
            stars = draw_stars(name, len(rows), rng)
            clean[rows] = simulate_series(stars, points, SPECTRUM_FOLDS[name], rng)
            for key, column in known.items():
                column[rows] = getattr(stars, key)[:, 0]
    sigma = log_uniform(rng, *NOISE_RANGE, n).astype(np.float32)
    time, kept = regular_epochs(n, points, STEP_DAYS, rng, DAYS_BETWEEN_GAPS if gaps else 0)
    return regular_table(time, kept, clean, sigma, rng) | {"teff": known.pop("heat"), **known}


def simulate_series(stars: StellarSpectra, points: int, folds: int, rng: np.random.Generator) -> Array:
    """Series (n, points) in thousandths of the flux, cut from longer periodic series."""
    n, long = len(stars.logg), 2 * round(points * 0.64)
    step = STEP_DAYS * 0.0864  # in 1 / microhertz
    nu = np.arange(long // 2 + 1) / (long * step)
    most = nu[-1]
    power = np.zeros((n, len(nu)), np.float32)
    for fold in range(folds):
        true = fold * most + (nu if fold % 2 == 0 else most - nu)
        more = stars.granulation(true)
        rows = np.flatnonzero(np.abs(stars.numax[:, 0] / most - fold - 0.5) < 1.5)  # stars with modes in this fold
        more[rows] += stars.modes(true, 1.5 / (long * step), rows)
        power += more * np.square(np.sinc(true / (2 * most)).astype(np.float32))
    wave = rng.standard_normal((n, len(nu), 2), np.float32)
    wave *= np.sqrt(power * np.float32(long / (4 * step)))[..., None]
    wave[:, 0] = 0
    wave[:, -1, 1] = 0
    made: Array = np.fft.irfft(wave.view(np.complex64)[..., 0], long)[:, :points].astype(np.float32)
    return made / np.float32(1000)
