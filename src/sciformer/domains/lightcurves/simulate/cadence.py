"""When a survey looks: nights in seasons, bad weather, several visits in a night; or a regular grid with gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array, Lists

DAYS_PER_YEAR = 365.25
MEDIAN_POINTS, POINTS_SPREAD, MIN_POINTS = 120, 0.6, 8  # points of a curve of a survey: log-normal, and never fewer
ASAS_POINTS = 250  # points of a curve in the manner of ASAS
HALF_NIGHT, MAX_RUN_DAYS = 0.2, 0.3  # half of the hours of a night that are used; the longest run of visits (days)


@dataclass(frozen=True)
class Epochs:
    """Times (T,) of all curves end to end, sorted in each, and their `lengths` (n,)."""

    time: Array
    lengths: Array

    @property
    def starts(self) -> Array:
        return self.lengths.cumsum() - self.lengths

    def spread(self, values: Array) -> Array:
        """One value for each curve (n,) as one for each of its points (T,)."""
        return np.repeat(values, self.lengths)

    def rows(self, low: int, high: int) -> tuple[Epochs, slice]:
        """The curves `low` to `high`, and where their points stand."""
        first = int(self.lengths[:low].sum())
        points = slice(first, first + int(self.lengths[low:high].sum()))
        return Epochs(self.time[points], self.lengths[low:high]), points


def survey_epochs(n: int, rng: np.random.Generator, points: int = 0) -> Epochs:
    """Nights of 3 to 8 years: seasons of 130 to 260 days, each night by chance, spells of weather, 1 to some visits.

    The number of points is log-normal with the median `points` (120 unless given).
    """
    count = np.rint((points or MEDIAN_POINTS) * np.exp(POINTS_SPREAD * rng.standard_normal(n)))
    lengths = np.clip(count, MIN_POINTS, 8 * (points or MEDIAN_POINTS)).astype(np.int64)
    season, years = rng.uniform(130, 260, n), rng.uniform(3, 8, n)
    again = rng.choice([0.0, 0.3, 0.6], n)  # the share of points that are further visits of a night
    apart = np.repeat(years * season / lengths / (1 - again), lengths)
    total = len(apart)
    step = np.ceil(apart * rng.standard_exponential(total))
    step += np.where(rng.random(total) < 0.04, np.ceil(10 * rng.standard_exponential(total)), 0)
    return _night_times(step, lengths, season, again, 58000.0, rng)


def asas_epochs(n: int, rng: np.random.Generator, points: int = 0) -> Epochs:
    """As many as 250 points in a row, as in the sample of ASAS: every second or third night, 150 to 290 a year."""
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
    """Times from steps (T,) in nights of the seasons; a share `again` of the points stay in the night before."""
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
    where = passed / long - year  # 0 to 1 through the season: a star culminates earlier each night
    first = np.flatnonzero(~stay)
    night = np.cumsum(~stay) - 1
    drift = 1 - 2 * where[first]
    hour = HALF_NIGHT * (0.6 * drift + 0.3 * np.clip(rng.standard_normal(len(first)), -2, 2))
    later = np.where(stay, 0.003 + 0.03 * rng.standard_exponential(total), 0).cumsum()
    later = MAX_RUN_DAYS * -np.expm1((later[first][night] - later) / MAX_RUN_DAYS)
    calendar = np.floor(passed + year * (DAYS_PER_YEAR - long))
    begin = origin + np.floor(rng.random(n) * 700) + 0.1 * rng.random(n)
    return Epochs(np.repeat(begin, lengths) + calendar + hour[night] + later, lengths)


def regular_epochs(
    n: int, points: int, step: float, rng: np.random.Generator, every: float = 0.0
) -> tuple[Array, Array]:
    """A grid of `points` times (N,), `step` days apart, and which of them each curve has (n, N).

    Where `every` is given, some 1 to 2 days are missing after so many, and a share of a percent here and there.
    """
    time = np.arange(points) * step
    if not every:
        return time, np.ones((n, points), bool)
    kept = np.ones((n, points), bool)
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
    """Columns of series on a grid of times (N,): the points that are kept (n, N) of `clean` (n, N), with noise (n,)."""
    lengths = kept.sum(1)
    value = clean + sigma[:, None] * rng.standard_normal(clean.shape, np.float32)
    return {
        "time": Lists(np.broadcast_to(time, kept.shape)[kept], lengths),
        "value": Lists(value[kept], lengths),
        "error": Lists(np.repeat(sigma, lengths), lengths),
        "clean": Lists(clean[kept], lengths),
    }
