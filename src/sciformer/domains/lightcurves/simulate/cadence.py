"""Observing times: clear nights in seasons, or a regular grid with gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array, Lists

DAYS_PER_YEAR = 365.25
MEDIAN_POINTS, POINTS_SPREAD, MIN_POINTS = 120, 0.6, 8  # points per survey curve: log-normal distribution, and minimum
ASAS_POINTS = 250  # maximum points per ASAS-like curve
HALF_NIGHT, MAX_RUN_DAYS = 0.2, 0.3  # days: half of the observed part of a night; longest run of visits


@dataclass(frozen=True)
class Epochs:
    """Observing times (T,) of n curves, sorted within each curve, and lengths (n,)."""

    time: Array
    lengths: Array

    @property
    def starts(self) -> Array:
        return self.lengths.cumsum() - self.lengths

    def spread(self, values: Array) -> Array:
        """Repeat a value per curve (n,) for each point of the curve (T,)."""
        return np.repeat(values, self.lengths)

    def rows(self, low: int, high: int) -> tuple[Epochs, slice]:
        """Times of the curves from `low` to `high` - 1, and slice of their points."""
        first = int(self.lengths[:low].sum())
        points = slice(first, first + int(self.lengths[low:high].sum()))
        return Epochs(self.time[points], self.lengths[low:high]), points


def survey_epochs(n: int, rng: np.random.Generator, points: int = 0) -> Epochs:
    """Epochs of a survey of 3 to 8 years with seasons of 130 to 260 days.

    Nights with observations are random, with spells of bad weather between them. A night has one or more visits. The
    number of points is log-normal with the median `points` (default: 120).
    """
    count = np.rint((points or MEDIAN_POINTS) * np.exp(POINTS_SPREAD * rng.standard_normal(n)))
    lengths = np.clip(count, MIN_POINTS, 8 * (points or MEDIAN_POINTS)).astype(np.int64)
    season, years = rng.uniform(130, 260, n), rng.uniform(3, 8, n)
    again = rng.choice([0.0, 0.3, 0.6], n)  # share of points that are repeated visits in a night
    apart = np.repeat(years * season / lengths / (1 - again), lengths)
    total = len(apart)
    step = np.ceil(apart * rng.standard_exponential(total))
    step += np.where(rng.random(total) < 0.04, np.ceil(10 * rng.standard_exponential(total)), 0)
    return _night_times(step, lengths, season, again, 58000.0, rng)


def asas_epochs(n: int, rng: np.random.Generator, points: int = 0) -> Epochs:
    """Epochs as in ASAS: every second or third night, with a maximum number of points.

    points   maximum number of points of a curve (default: 250)
    """
    most = points or ASAS_POINTS
    lengths = np.where(rng.random(n) < 0.8, most, rng.uniform(0.5 * most, most, n)).astype(np.int64)
    lengths = np.maximum(lengths, min(MIN_POINTS, most))
    season, again = rng.uniform(150, 290, n), 0.45 * rng.random(n) ** 3
    habit, often = np.repeat(rng.choice([2.0, 3.0], n, p=[0.4, 0.6]), lengths), np.repeat(rng.random(n), lengths)
    total = len(habit)
    dice = rng.random(total)
    late = 4 + np.floor(4 * rng.standard_exponential(total))
    step = np.where(dice < 0.2 * often, 1.0, np.where(dice < 0.68, habit, late))
    return _night_times(step, lengths, season, again, 1900.0, rng)


def _night_times(
    step: Array, lengths: Array, season: Array, again: Array, origin: float, rng: np.random.Generator
) -> Epochs:
    """Times of visits from steps in nights.

    step     (T,) nights since the previous visit
    season   (n,) length of the season in days
    again    (n,) share of visits in the night of the previous visit
    """
    n, total = len(lengths), len(step)
    starts = lengths.cumsum() - lengths
    stay = rng.random(total) < np.repeat(again, lengths)
    stay[starts] = False
    step = np.where(stay, 0, step)
    step[starts] = 0
    passed = step.cumsum()
    passed += np.repeat(np.floor(rng.random(n) * season) - passed[starts], lengths)
    long = np.repeat(season, lengths)
    year = np.floor(passed / long)
    where = passed / long - year  # 0 to 1 through the season: stars culminate earlier each night
    first = np.flatnonzero(~stay)
    night = np.cumsum(~stay) - 1
    drift = 1 - 2 * where[first]
    hour = HALF_NIGHT * (0.6 * drift + 0.3 * np.clip(rng.standard_normal(len(first)), -2, 2))
    later = np.where(stay, 0.003 + 0.03 * rng.standard_exponential(total), 0).cumsum()
    later = MAX_RUN_DAYS * -np.expm1((later[first][night] - later) / MAX_RUN_DAYS)
    calendar = np.floor(passed + year * (DAYS_PER_YEAR - long))
    begin = origin + np.floor(rng.random(n) * 700) + 0.1 * rng.random(n)
    return Epochs(np.repeat(begin, lengths) + calendar + hour[night] + later, lengths)


def regular_epochs(n: int, points: int, step: float, rng: np.random.Generator, every: float) -> tuple[Array, Array]:
    """Regular times (N,), `step` days apart, and mask (n, N) of observed points.

    If `every` is above 0, there is a gap of 1 to 2 days every `every` days, and 0.3 % of the points are missing.
    """
    time, kept = np.arange(points) * step, np.ones((n, points), bool)
    if not every:
        return time, kept
    begin, long = rng.uniform(0, every, (n, 1)), rng.uniform(1, 2, (n, 1))
    place = np.arange(points, dtype=np.float32)
    for turn in range(int(points * step / every) + 1):
        low = (begin + turn * every) / step
        kept &= (place < low.astype(np.float32)) | (place > (low + long / step).astype(np.float32))
    kept.ravel()[rng.integers(0, kept.size, round(0.003 * kept.size))] = False
    kept[:, :MIN_POINTS] = True
    return time, kept


def regular_table(
    time: Array, kept: Array, clean: Array, sigma: Array, rng: np.random.Generator
) -> dict[str, Array | Lists]:
    """Table of series with noise, at the observed times of a regular grid.

    time    (N,) times of the grid
    kept    (n, N) mask of observed points
    clean   (n, N) values without noise
    sigma   (n,) standard deviation of the noise
    """
    lengths = kept.sum(1)
    value = clean + sigma[:, None] * rng.standard_normal(clean.shape, np.float32)
    return {
        "time": Lists(np.broadcast_to(time, kept.shape)[kept], lengths),
        "value": Lists(value[kept], lengths),
        "error": Lists(np.repeat(sigma, lengths), lengths),
        "clean": Lists(clean[kept], lengths),
    }
