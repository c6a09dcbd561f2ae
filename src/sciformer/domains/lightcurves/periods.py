"""Periods of series from Lomb-Scargle periodograms, and phases as features."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ...data.batch import Stream
from ...data.columns import Array
from ...errors import UserError

if TYPE_CHECKING:
    from .tokens import Observations

MAX_FITTED_SERIES = 300  # series for the statistics of ln(period)
MAX_CACHED_SERIES = 200_000  # series in the cache
PERIOD_FEATURES = ("sin half", "cos half", "sin", "cos", "sin twice", "cos twice", "ln", "power")
PERIOD_COLUMNS = ("phase", "period", "power")
_cached: OrderedDict[tuple[bytes, PeriodSearch], Array] = OrderedDict()


def feature_names(number: int) -> list[str]:
    """Names of the features of `number` periods, in order."""
    return [f"{what} of period {one + 1}" for one in range(number) for what in PERIOD_FEATURES]


def period_search(tokens: Observations) -> PeriodSearch:
    """Options of the period search; for patches, periods are at least two time steps."""
    made = PeriodSearch(tokens.periods, tokens.shortest, tokens.longest)
    step = 2 * tokens.spacing
    return replace(made, shortest=max(made.shortest, step)) if tokens.patch > 1 else made


def refuse_hidden_values(tokens: Observations) -> None:
    """Refuse features of the whole series for objectives with hidden values."""
    for name, value in {"periods": tokens.periods, "summary": tokens.summary}.items():
        if value:
            raise UserError(
                f"tokens.{name}: {str(value).lower()} cannot be used with an objective that hides values: "
                "the features would reveal the hidden values",
                hint=f"Remove tokens.{name}, or use an objective that hides no values.",
                key=f"tokens.{name}",
            )


class Points(NamedTuple):
    """Visible points of B series, one series after another.

    lengths                   (B,) number of points of each series
    time, value, error, band  (T,) columns with the points of all series; `band` is None for series without bands
    """

    lengths: Array
    time: Array
    value: Array
    error: Array
    band: Array | None

    def each(self, most: int | None = None) -> Iterator[tuple[Array, Array, Array, Array | None]]:
        """Time, value, error and band of each of the first `most` series."""
        stops = np.cumsum(self.lengths)
        for start, stop in zip((stops - self.lengths)[:most], stops[:most]):
            band = None if self.band is None else self.band[start:stop]
            yield self.time[start:stop], self.value[start:stop], self.error[start:stop], band


def visible_points(stream: Stream, tokens: Observations) -> Points:
    """Times, values and errors of the points of all series, without upper limits."""
    columns = stream.columns
    value, error = (columns[name].reshape(-1, tokens.patch) for name in ("value", "error"))
    there = np.isfinite(value)
    if "limit" in columns:
        there &= ~columns["limit"][:, None]
    time = columns["at"][:, None] + tokens.slots
    band = np.broadcast_to(columns["band"][:, None], value.shape)[there] if "band" in columns else None
    lengths = np.bincount(stream.sample, there.sum(1), len(stream)).astype(np.int64)
    return Points(lengths, time[there], value[there], error[there], band)


def add_phases(stream: Stream, tokens: Observations) -> Stream:
    """Add the columns `phase`, `period`, `power` (T, K) of K periods per series.

    Without `tokens.periods`, nothing is added.

    The phase is (time - epoch) / (2 period), modulo 1. Periods come from all values of a sample except upper limits.
    All three columns are 0 for a sample without a period.
    """
    if not tokens.periods:
        return stream
    columns = stream.columns
    found = cached_periods(visible_points(stream, tokens), period_search(tokens))
    period, epoch, power = (part[stream.sample] for part in found)
    own = np.isfinite(period)
    if "entry" in columns:
        own &= (columns["entry"] == 0)[:, None]
    phase = (columns["at"][:, None] - epoch) / (2 * np.where(own, period, 1)) % 1.0
    made = {"phase": phase, "period": period, "power": power}
    return stream.with_columns(**{name: np.where(own, part, 0).astype(np.float32) for name, part in made.items()})


def learn_period(points: Points, search: PeriodSearch) -> list[float]:
    """Learn mean and standard deviation of ln(period) from the first series."""
    period = cached_periods(points, search, MAX_FITTED_SERIES)[0]
    logs = np.log(period[np.isfinite(period)])
    return [float(logs.mean()), float(max(logs.std(), 0.1))] if len(logs) else [0.0, 1.0]


def period_features(stream: Stream, usual: tuple[float, float]) -> Array:
    """Features (T, 8 K) of K periods, in the order of `feature_names`.

    usual   mean and standard deviation of ln(period) in the training data

    All features of a series without a period are 0.
    """
    phase, period, power = (stream.columns[name].astype(np.float64) for name in PERIOD_COLUMNS)
    there = period > 0
    turn = 2 * np.pi * phase
    logs = np.clip((np.log(np.where(there, period, 1)) - usual[0]) / usual[1], -5, 5)
    waves = [wave(times * turn) for times in (1, 2, 4) for wave in (np.sin, np.cos)]
    made = np.stack([np.where(there, part, 0) for part in (*waves, logs, power)], -1)
    return made.reshape(len(made), made.shape[1] * len(PERIOD_FEATURES))


def describe_features(tokens: Observations) -> str:
    """Description of the period features in words, for programs without this library."""
    search = period_search(tokens)
    longest = "the span of the series" if search.longest is None else f"{search.longest:g}"
    return (
        f"; period 1 to {tokens.periods}, found from all values of the whole series except limits: the periods P of "
        "the highest peaks of its generalised Lomb-Scargle periodogram (floating mean, each band minus its mean, "
        "weights 1 / (error^2 + median error^2)), "
        f"from {search.shortest:g} to {longest}, {search.oversampling:g} frequencies per 1 / span, refined to the best "
        "fit of two harmonics, ranked by the variance explained by four harmonics plus 0.3 times that of a sine; half: "
        "sin and cos of 2 pi x, x = (time - E) / 2P, where E is the time of maximum of a fit of four harmonics of "
        "1 / 2P; then sin and cos of 4 pi x; twice: of 8 pi x; ln: clip((ln P - learned.period[0]) / "
        "learned.period[1], -5, 5); power: share of the variance explained by a sine of P; all 0 without a period "
        "(fewer than five points, or no variation)"
    )


def cached_periods(points: Points, search: PeriodSearch, most: int | None = None) -> tuple[Array, Array, Array]:
    """Period, epoch and power (B, K) of K periods of the first `most` series, cached.

    The key of the cache is a hash of each series.
    """
    made = np.zeros((len(points.lengths[:most]), 3, search.number))
    for row, mine in enumerate(points.each(most)):
        digest = hashlib.blake2b(digest_size=16)
        for column in mine:
            digest.update(b"" if column is None else column.tobytes())
        key = digest.digest(), search
        if key not in _cached:
            _cached[key] = np.stack(find_periods(*mine, search))
            if len(_cached) > MAX_CACHED_SERIES:
                _cached.popitem(last=False)
        made[row] = _cached[key]
    return made[:, 0], made[:, 1], made[:, 2]


# Generalised Lomb-Scargle periodogram for irregular times (arXiv 0901.2573: weights, floating mean)


ArrayPair = tuple[Array, Array]
FREQUENCIES_AT_ONCE = 2048  # frequencies per transform
GRID_CELLS = 2 * FREQUENCIES_AT_ONCE
KERNEL_CELLS = 6  # width of the kernel
PHASOR_BLOCKS = 16
MAX_FREQUENCIES = 4_000_000
MIN_POINTS = 5  # a series with fewer points has no period
POINTS_PER_HARMONIC = 8  # points per fitted harmonic
HARMONICS = 4
SINE_WEIGHT = 0.3  # weight of the variance explained by a sine, relative to all harmonics
COMPARED_PEAKS = 6  # compared peaks; two more for each further period
MIN_RELATIVE_VARIANCE = 1e-12  # variance over mean square, below which there is no period


@dataclass(frozen=True)
class PeriodSearch:
    """Options of the period search.

    number        number of periods, from the best peaks
    shortest      shortest period, in units of time
    longest       longest period (default: the span of the series)
    oversampling  number of frequencies in the width of a peak (1 / span)
    """

    number: int = 1
    shortest: float = 0.05
    longest: float | None = None
    oversampling: float = 3.0

    def grid(self, span: float) -> tuple[float, int, int]:
        """Frequencies k * step for first <= k < stop, as (step, first, stop)."""
        step = 1 / (self.oversampling * span)
        stop = int(1 / (self.shortest * step)) + 1
        if stop > MAX_FREQUENCIES:
            where = f"for tokens.shortest {self.shortest:g} and a series that spans {span:g}"
            message = f"the period search needs {stop:,} frequencies {where}; the maximum is {MAX_FREQUENCIES:,}"
            raise UserError(message, hint="Increase tokens.shortest.")
        longest = span if self.longest is None else self.longest
        return step, max(1, int(np.ceil(1 / (longest * step) - 1e-6))), stop


class FoundPeriods(NamedTuple):
    """Periods (k,) of a series, best first; a missing period is NaN with power 0.

    epoch  time of a maximum of the series, folded with twice the period
    power  share of the variance explained by a sine of this period
    """

    period: Array
    epoch: Array
    power: Array


def trigonometric_sums(x: Array, weights: Array, counts: tuple[int, ...]) -> list[Array]:
    """Nonuniform FFT: sum_n w_n exp(2 pi i k x_n) for 0 <= k < count.

    x        (n,) cycles per frequency step, from -1/2 to 1/2
    weights  (R, n) rows w
    counts   number of frequencies for each row

    The error is about 1e-5 of sum |w_n|.
    """
    blocks = [-(-count // FREQUENCIES_AT_ONCE) for count in counts]
    coarse = np.arange(-(-max(blocks) // PHASOR_BLOCKS)) * PHASOR_BLOCKS * FREQUENCIES_AT_ONCE
    fine = (np.arange(PHASOR_BLOCKS) + 0.5) * FREQUENCIES_AT_ONCE
    high, low = (_phasors(np.outer(part, x)).astype(np.complex64) for part in (coarse, fine))
    turned = (high[:, None] * low).reshape(-1, len(x))
    values = np.concatenate([turned[:number] * row.astype(np.float32) for number, row in zip(blocks, weights)])
    place = x * GRID_CELLS
    first = np.ceil(place - KERNEL_CELLS / 2).astype(np.int64)
    flat = torch.zeros(len(values), GRID_CELLS, dtype=torch.complex64)
    moved = torch.from_numpy(values)
    for cell in range(KERNEL_CELLS):
        weight = torch.from_numpy(_kernel_values(first + cell - place).astype(np.float32))
        flat.index_add_(1, torch.from_numpy((first + cell) % GRID_CELLS), moved * weight)
    found = torch.fft.ifft(flat, norm="forward").numpy()
    half = FREQUENCIES_AT_ONCE // 2
    made = np.concatenate([found[:, -half:], found[:, :half]], 1) / _kernel_transform()
    parts = np.split(made, np.cumsum(blocks)[:-1])
    return [part.ravel()[:count] for part, count in zip(parts, counts)]


def _phasors(cycles: Array) -> Array:
    """exp(2 pi i x), computed from cosine and sine for speed."""
    angle = 2 * np.pi * cycles
    made = np.empty(angle.shape, np.complex128)
    made.real, made.imag = np.cos(angle), np.sin(angle)
    return made


def _kernel_values(far: Array) -> Array:
    """Kernel of the nonuniform FFT at a distance of z half-widths (arXiv 1808.06736).

    exp(b (sqrt(1 - z^2) - 1)),     b = 2.3 KERNEL_CELLS
    """
    inside = np.maximum(0, 1 - (2 * far / KERNEL_CELLS) ** 2)
    return np.exp(2.3 * KERNEL_CELLS * (np.sqrt(inside) - 1))


@cache
def _kernel_transform() -> Array:
    """Fourier transform of the kernel at all frequencies, the divisor of the spectrum."""
    far = (np.arange(400) + 0.5) / 400 * KERNEL_CELLS - KERNEL_CELLS / 2
    mode = np.arange(FREQUENCIES_AT_ONCE) - FREQUENCIES_AT_ONCE // 2
    made = np.cos(2 * np.pi * np.outer(mode, far) / GRID_CELLS) @ _kernel_values(far) * KERNEL_CELLS / 400
    return np.asarray(made, np.float32)


def periodogram(time: Array, value: Array, error: Array | None = None, search: PeriodSearch | None = None) -> ArrayPair:
    """Frequencies, and the share of the weighted variance explained by each sine."""
    search = search or PeriodSearch()
    span = float(np.ptp(time)) if len(time) else 0.0
    if not span > 0:
        return np.zeros(0), np.zeros(0)
    step, first, stop = search.grid(span)
    w = np.ones(len(time)) if error is None else 1 / np.asarray(error, np.float64) ** 2
    w = w / w.sum()
    z = value - (w * value).sum()
    whole = (w * z**2).sum()
    x = (time - (time.min() + span / 2)) * step
    z = z / np.sqrt(whole) if whole > 0 else z
    y, both = trigonometric_sums(x, np.stack([w * z, w]), (stop, 2 * stop - 1))
    one, two = both[first:stop], both[2 * first : 2 * stop - 1 : 2]
    (yc, ys), (c, s) = ((part.real, part.imag) for part in (y[first:], one))
    cc = (1 + two.real) / 2 - c * c
    ss = (1 - two.real) / 2 - s * s
    cs = two.imag / 2 - c * s
    below = np.maximum(cc * ss - cs * cs, 1e-4)
    power = (ss * yc * yc + cc * ys * ys - 2 * cs * yc * ys) / below
    return np.arange(first, stop) * step, np.clip(power, 0, 1)


def find_peaks(frequency: Array, power: Array, number: int, apart: float) -> Array:
    """Indices of the highest maxima, highest first, at least `apart` indices apart."""
    padded = np.concatenate([[-1], power, [-1]])
    inner = np.flatnonzero((power >= padded[:-2]) & (power > padded[2:]))
    if len(inner) > (most := 40 * number):
        inner = np.sort(inner[np.argpartition(-power[inner], most)[:most]])
    found: list[int] = []
    for place in inner[np.argsort(-power[inner], kind="stable")]:
        if all(abs(frequency[place] - frequency[other]) > apart for other in found):
            found.append(int(place))
        if len(found) == number:
            break
    return np.array(found, np.int64)


def fit_harmonics(time: Array, value: Array, w: Array, frequency: Array, number: int) -> ArrayPair:
    """Fit m + Re sum_h a_h exp(-2 pi i h f t), h <= `number`, at frequencies f (K,).

    Returns m and the complex amplitudes (K, 1 + number), and the explained share of the weighted variance (K,).
    """
    turn = power = _phasors(frequency[:, None] * time)
    design = np.ones((len(frequency), 1 + 2 * number, len(time)))
    for h in range(1, number + 1):
        design[:, h], design[:, number + h] = power.real, power.imag
        power = power * turn if h < number else power
    mean = (w * value).sum() / w.sum()
    z, weighted = value - mean, design * (w / w.sum())
    matrix = weighted @ design.swapaxes(1, 2) + 1e-9 * np.eye(1 + 2 * number)
    right = weighted @ z
    found = np.linalg.solve(matrix, right[..., None])[..., 0]
    whole = (w * z**2).sum() / w.sum()
    share = (found * right).sum(1) / max(whole, 1e-300)
    amplitudes = found[:, 1 : 1 + number] + 1j * found[:, 1 + number :]
    return np.concatenate([mean + found[:, :1], amplitudes], 1), np.clip(share, 0, 1)


def find_periods(
    time: Array, value: Array, error: Array, band: Array | None = None, search: PeriodSearch | None = None
) -> FoundPeriods:
    """Periods of a series, from refined peaks of its periodogram.

    error  errors of the points, NaN if unknown. The median error of the series is added in quadrature, so that no
           single point dominates
    band   band number of each point; each band has its own mean, and all bands share the period

    Peaks are ranked by the variance explained by four harmonics and by a sine. For two similar minima (eclipses), the
    result is usually half of the period.
    """
    search = search or PeriodSearch()
    none = FoundPeriods(np.full(search.number, np.nan), np.zeros(search.number), np.zeros(search.number))
    time, value = np.asarray(time, np.float64), np.asarray(value, np.float64)
    span = float(np.ptp(time)) if len(time) else 0.0
    if len(time) < MIN_POINTS or not span > 0 or (search.longest is not None and search.longest < search.shortest):
        return none
    known = np.isfinite(error) & (np.asarray(error) > 0)
    usual = float(np.median(error[known])) if known.any() else 1.0
    soft = np.sqrt(np.where(known, error, usual).astype(np.float64) ** 2 + usual**2)
    w = 1 / soft**2
    groups = np.zeros(len(time), np.int64) if band is None else np.asarray(band, np.int64)
    mean = np.bincount(groups, w * value) / np.maximum(np.bincount(groups, w), 1e-300)
    z = value - mean[groups]
    if not (w * z**2).sum() > MIN_RELATIVE_VARIANCE * (w * value**2).sum():
        return none
    frequency, power = periodogram(time, z, soft, search)
    if not len(frequency):
        return none
    best = find_peaks(frequency, power, COMPARED_PEAKS + 2 * (search.number - 1), 1 / span)
    middle, number = time.min() + span / 2, int(np.clip(len(time) // POINTS_PER_HARMONIC, 1, HARMONICS))
    chosen = _refine_frequencies(time - middle, z, w, frequency[best], 1 / (search.oversampling * span), min(2, number))
    share, power = (fit_harmonics(time - middle, z, w, chosen, many)[1] for many in (number, 1))
    order = np.argsort(-share - SINE_WEIGHT * power, kind="stable")[: search.number]
    epoch = middle + _times_of_maximum(time - middle, z, w, chosen[order] / 2, number)
    for column, part in zip(none, (1 / chosen[order], epoch, power[order])):
        column[: len(order)] = part
    return none


def _refine_frequencies(time: Array, z: Array, w: Array, frequency: Array, step: float, number: int) -> Array:
    """Refine frequencies to nearby maxima of the variance explained by harmonics."""
    for wide in (0.75, 0.15):
        near = frequency[:, None] + np.linspace(-wide, wide, 7) * step
        share = fit_harmonics(time, z, w, near.ravel(), number)[1].reshape(near.shape)
        frequency = near[np.arange(len(near)), share.argmax(1)]
    return frequency


def _times_of_maximum(time: Array, z: Array, w: Array, frequency: Array, number: int) -> Array:
    """Times of maximum of the series, folded at each frequency.

    The times are within half a cycle of 0.
    """
    amplitudes, _ = fit_harmonics(time, z, w, frequency, number)
    phase = np.arange(-64, 64) / 128
    turn = np.exp(-2j * np.pi * np.outer(np.arange(1, number + 1), phase))
    shape = (amplitudes[:, 1:] @ turn).real
    return phase[shape.argmax(1)] / frequency
