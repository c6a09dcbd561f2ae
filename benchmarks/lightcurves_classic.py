"""Classical baselines of `lightcurves.py`: filters, spectral peaks, matched filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
TUNING, BREAKDOWN = 5.0, 1e-9  # of the biweight: deviations (MAD) beyond which a point has no weight


def windows(y: Array, width: int) -> Array:
    """Neighbours (B, N, width) of every point; series are mirrored at both ends.

    width   odd number of points
    """
    half = width // 2
    return np.lib.stride_tricks.sliding_window_view(np.pad(y, ((0, 0), (half, half)), "reflect"), width, axis=1)


def median(y: Array, width: int) -> Array:
    """Sliding median of series (B, N)."""
    return np.asarray(np.median(windows(y, width), axis=2))


def biweight(y: Array, width: int, steps: int = 5) -> Array:
    """Tukey's biweight in a sliding window, with c = 5 MAD.

    It is usual in searches for transits (arXiv 1906.00966).
    """
    near = windows(y, width)
    middle = np.median(near, axis=2)
    spread = np.median(np.abs(near - middle[..., None]), axis=2) + BREAKDOWN
    for _ in range(steps):
        u = (near - middle[..., None]) / (TUNING * spread[..., None])
        weight = np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0)
        middle = (weight * near).sum(2) / np.maximum(weight.sum(2), BREAKDOWN)
    return np.asarray(middle)


FILTERS: dict[str, Callable[[Array, int], Array]] = {"median": median, "biweight": biweight}


def best_width(name: str, noisy: Array, clean: Array, widths: Sequence[int]) -> int:
    """Width of a filter with the smallest error against the truth, over all curves."""
    errors = {width: rms(FILTERS[name](noisy, width) - clean) for width in widths if width < noisy.shape[1]}
    return min(errors, key=lambda width: errors[width])


def rms(x: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def spectrum(y: Array, step: float, count: int = 160) -> tuple[Array, Array, Array]:
    """Power spectrum of series (B, N), averaged in bins of frequency.

    Returns frequencies (K,) in microhertz, mean power densities (B, K), and the number of averaged values (K,).

    step    days between two values
    """
    size, apart = y.shape[1], step * 0.0864
    shape = np.hanning(size)
    power = np.abs(np.fft.rfft((y - y.mean(1, keepdims=True)) * shape, axis=1)) ** 2 * (2 * apart / (shape**2).sum())
    frequency = np.fft.rfftfreq(size, apart)
    edges = np.unique(np.geomspace(2, len(frequency), count).astype(int))  # the first hold the mean and the slope
    counts = np.diff(edges)
    means = [np.add.reduceat(x[..., : edges[-1]], edges[:-1], axis=-1) / counts for x in (frequency, power)]
    return means[0], means[1], counts


def peak_frequency(y: Array, step: float) -> Array:
    """Frequency of maximum oscillation power (B,) in microhertz.

    It maximises the likelihood over a grid. The model spectrum is A [two granulations + a hump] + white noise (arXiv
    1408.0817 and 1110.0980). Widths and relative heights follow from the frequency of the hump; A and the noise are
    free. The negative log likelihood of a spectrum is the sum of n (ln M + P / M).

    y       in millionths of the mean flux
    """
    nu, power, counts = spectrum(y, step)
    places = np.geomspace(2.5, 0.97 / (2 * step * 0.0864), 120)
    at = places[:, None]
    shape = sum((3382 * at**-0.609) ** 2 * 0.9 / b / (1 + (nu / b) ** 4) for b in (0.317 * at**0.97, 0.948 * at**0.992))
    shape = shape + 2.03e7 * at**-2.38 * np.exp(-(((nu - at) / (0.66 * at**0.88)) ** 2) * 4 * np.log(2))
    signal = np.geomspace(0.5, 2, 7)[:, None, None, None] * (shape * np.sinc(nu * step * 0.0864) ** 2)[:, None]
    found = np.empty(len(y))
    for row, seen in enumerate(power):
        noise = seen[-len(seen) // 8 :].mean() * np.geomspace(0.02, 1.1, 10)
        model = (signal + noise[:, None]).astype(np.float32)  # height, place, noise, frequency
        loss = ((np.log(model) + seen.astype(np.float32) / model) * counts).sum(-1, dtype=np.float64).min((0, 2))
        best = int(np.clip(loss.argmin(), 1, len(loss) - 2))
        low, here, high = loss[best - 1 : best + 2]
        shift = np.clip(0.5 * (low - high) / max(low - 2 * here + high, 1e-9), -1, 1)
        found[row] = places[best] * (places[1] / places[0]) ** shift
    return found


class Scaling:
    """log g from the frequency of maximum power: polynomial in its logarithm.

    It is fitted to known stars, without outliers. The relation nu_max ~ g / sqrt(T) is a straight line; the polynomial
    corrects for the finite length of a series.
    """

    def __init__(self, frequency: Array, gravity: Array, degree: int = 3) -> None:
        x = np.log10(frequency)
        left = np.abs(gravity - x - np.median(gravity - x))
        for _ in range(5):
            keep = left <= max(3 * 1.4826 * np.median(left), 1e-6)
            self.fit = np.polyfit(x[keep], gravity[keep], degree)
            left = np.abs(np.polyval(self.fit, x) - gravity)

    def __call__(self, frequency: Array) -> Array:
        return np.asarray(np.polyval(self.fit, np.log10(frequency)))


def threshold(noise: Array, alarms: float = 0.01) -> float:
    """Threshold of the statistic for a false-alarm probability, from noise alone."""
    return float(np.quantile(noise, 1 - alarms))


def efficiency(signal: Array, noise: Array, alarms: float = 0.01) -> float:
    """Share of signals above the threshold of the noise."""
    return float((signal > threshold(noise, alarms)).mean())


def matched(data: Array, template: Array) -> Array:
    """Matched-filter statistic (B,) with the true waveform: <d|h> / sqrt(<h|h>).

    The data are whitened, so in noise it is normal with standard deviation 1.
    """
    size = np.sqrt(np.square(template, dtype=np.float64).sum(1))
    return np.asarray((data * template).sum(1) / np.maximum(size, 1e-12))


def bank(data: Array, templates: Array, shifts: bool = True, block: int = 64) -> Array:
    """Largest |<d|h>| (B,) over unit templates (K, N).

    shifts  try every shift in time (default: True)
    """
    unit = templates / np.maximum(np.linalg.norm(templates, axis=1, keepdims=True), 1e-12)
    if not shifts:
        return np.asarray(np.abs(data @ unit.T).max(1))
    device, size = "cuda" if torch.cuda.is_available() else "cpu", 2 * data.shape[1]
    some, rows = (torch.as_tensor(x, dtype=torch.float32, device=device) for x in (unit, data))
    answers = torch.fft.rfft(some, size).conj()
    found = []
    for spectrum in torch.fft.rfft(rows, size):
        pieces = [torch.fft.irfft(spectrum * piece, size).abs().max() for piece in answers.split(block)]
        found.append(torch.stack(pieces).max())
    return np.asarray(torch.stack(found).cpu().numpy(), np.float64) if found else np.zeros(0)


def overlap(found: Array, truth: Array) -> Array:
    """Overlap (B,) <a|b> / sqrt(<a|a> <b|b>) of whitened waveforms."""
    size = np.linalg.norm(found, axis=1) * np.linalg.norm(truth, axis=1)
    return np.asarray((found * truth).sum(1) / np.maximum(size, 1e-12))
