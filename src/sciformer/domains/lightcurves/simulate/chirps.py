"""Chirps of massive black hole binaries in the noise of a space-based detector.

    (a|b) = 4 Re sum_f a~(f) b~(f)* / S(f) df,      snr^2 = (h|h)

S is the sky-averaged noise of LISA with the Galactic confusion noise of four years (Robson, Cornish & Liu, 1803.01944).
The noise is drawn in the frequency domain. A window is therefore periodic and the sum above is exact: the matched
filter of a signal has mean `snr` and variance 1. A signal is an inspiral to first post-Newtonian order, followed by a
damped ringdown. Frequency, growth and length of a signal are realistic, but it is not a template for a search. Strain
is in units of 1e-19.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array, Lists
from ....data.readers.sequence import log_uniform

CLASSES = ("noise", "signal")
DEFAULT_POINTS, STEP_SECONDS = 4096, 15.0  # time step in seconds
MIN_FREQUENCY = 1e-4  # Hz, lower end of the band
STRAIN_UNIT, SECONDS_PER_DAY = 1e-19, 86400.0
LOG_MASS_RANGE = (5.9, 7.0)  # log10 of the redshifted mass in solar masses
SUN_SECONDS = 4.925491e-6  # G M_sun / c^3
RINGDOWN_FREQUENCY, RINGDOWN_DAMPING = 0.5326, 0.0808  # M omega and M / tau of the ringdown, for spin 0.69
RINGDOWN_JOIN = 1.5  # ringdown frequency over the frequency where it starts
TAPER_SHARE = 0.05  # share of the window that is tapered


def noise_power(frequency: Array) -> Array:
    """One-sided noise power per Hz, in units of strain^2; infinite outside the band."""
    f = np.maximum(frequency, 1e-9)
    arm, bend = 2.5e9, 19.09e-3
    optical = (1.5e-11) ** 2 * (1 + (2e-3 / f) ** 4)
    pull = (3e-15) ** 2 * (1 + (4e-4 / f) ** 2) * (1 + (f / 8e-3) ** 4)
    forces = 2 * (1 + np.cos(f / bend) ** 2) * pull / (2 * np.pi * f) ** 4
    own = 10 / (3 * arm**2) * (optical + forces) * (1 + 0.6 * (f / bend) ** 2)
    shape = np.exp(-(f**0.138) - 221 * f * np.sin(521 * f)) * (1 + np.tanh(1680 * (1.13e-3 - f)))
    made = (own + 9e-45 * f ** (-7 / 3) * shape) / STRAIN_UNIT**2
    band = (frequency >= MIN_FREQUENCY) & (frequency < frequency.max())
    return np.where(band, made, np.inf)


def whiten_series(series: Array, step: float = STEP_SECONDS) -> Array:
    """Whiten series (..., N): the noise has variance 1 in the result.

    For a whitened signal h, the sum of h^2 over the points is snr^2.

    step  seconds between two points
    """
    points = series.shape[-1]
    spectrum = np.fft.rfft(series) * np.sqrt(2 * step / noise_power(np.fft.rfftfreq(points, step)))
    return np.fft.irfft(spectrum, points)


def chirp(time: Array, mass: Array, ratio: Array, merger: Array, phase: Array) -> Array:
    """Signals (n, N) of arbitrary amplitude at times (N,) in seconds.

    mass    (n,) total mass M in solar masses
    ratio   (n,) symmetric mass ratio eta
    merger  (n,) time of the merger in seconds
    phase   (n,) phase of the signal

    The inspiral has the phase 2 phi = -2/eta [u^5 + (3715/8064 + 55/96 eta) u^3], with u^8 = eta tau / (5 M) and the
    time tau to the merger. Its amplitude grows as f^(2/3).
    """
    second, eta = (mass * SUN_SECONDS)[:, None], ratio[:, None]
    extra = 743 / 2688 + 11 / 32 * eta
    target = 8 * RINGDOWN_FREQUENCY / RINGDOWN_JOIN / 2  # 8 M omega of the orbit where the ringdown starts
    low, high = np.zeros_like(eta), np.full_like(eta, 3.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = middle**3 + extra * middle**5 < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    spare = low**-8 * 5 * second / eta  # seconds to the merger when the ringdown starts
    left = merger[:, None] - time
    before = left > 0
    u = np.sqrt(np.sqrt(np.sqrt((np.maximum(left, 0) + spare) * (eta / (5 * second)))))
    turned = -2 / eta * u**3 * (u * u + (3715 / 8064 + 55 / 96 * eta))
    speed = (1 + extra / (u * u)) / u**3 / target  # 1 at the end
    height = np.cbrt(speed) ** 2
    gone, ring = np.maximum(-left, 0), RINGDOWN_FREQUENCY / second
    late = np.exp(-gone * (RINGDOWN_DAMPING / second))
    turn = np.expm1(-gone * RINGDOWN_DAMPING / second)
    after = ring * gone + (ring - ring / RINGDOWN_JOIN) * turn * (second / RINGDOWN_DAMPING)
    angle = np.remainder(np.where(before, turned, turned + after) + phase[:, None], 2 * np.pi).astype(np.float32)
    fade = np.clip((time - time[0]) / (TAPER_SHARE * (time[-1] - time[0])), 0, 1)
    return np.where(before, height, late) * np.cos(angle) * np.sin(np.pi / 2 * fade) ** 2


def signals(
    label: Array, rng: np.random.Generator, points: int, snr: tuple[float, float], white: bool
) -> dict[str, Array | Lists]:
    """Simulate windows with a signal or only noise; `label` holds indices of CLASSES."""
    points, n = points or DEFAULT_POINTS, len(label)
    points += points % 2
    time = np.arange(points) * STEP_SECONDS
    power = noise_power(np.fft.rfftfreq(points, STEP_SECONDS))
    size = np.sqrt(np.where(np.isfinite(power), power, 0) * points / (4 * STEP_SECONDS)).astype(np.float32)
    wave = rng.standard_normal((n, len(power), 2), np.float32)
    wave *= size[:, None]
    spectrum, loud = wave.view(np.complex64)[..., 0], label == CLASSES.index("signal")
    there = np.flatnonzero(loud)
    mass, eta = 10 ** rng.uniform(*LOG_MASS_RANGE, n), rng.uniform(0.1, 0.25, n)
    merger = rng.uniform(0.3, 0.95, n) * time[-1]
    wanted = log_uniform(rng, *snr, n) * loud
    phase = rng.uniform(0, 2 * np.pi, n)
    truth = np.zeros_like(spectrum)
    if len(there):
        heard = np.fft.rfft(chirp(time, mass[there], eta[there], merger[there], phase[there]))
        heard[:, ~np.isfinite(power)] = 0
        own = np.sqrt(4 * STEP_SECONDS / points * (np.abs(heard) ** 2 / power).sum(1))
        truth[there] = heard * (wanted[there] / own)[:, None]
    if white:
        flat = np.sqrt(2 * STEP_SECONDS / power).astype(np.float32)
        spectrum, truth = spectrum * flat, truth * flat
    clean = np.zeros((n, points), np.float32)
    clean[there] = np.fft.irfft(truth[there], points)
    value = (np.fft.irfft(spectrum, points) + clean).astype(np.float32)
    lengths = np.full(n, points)
    made: dict[str, Array | Lists] = {"time": Lists(np.tile(time / SECONDS_PER_DAY, n), lengths)}
    made |= {"value": Lists(value.ravel(), lengths), "clean": Lists(clean.ravel(), lengths), "snr": wanted}
    known = {"mass": mass, "eta": eta, "merger": merger / SECONDS_PER_DAY}
    return made | {name: np.where(loud, x, np.nan) for name, x in known.items()}
