"""Crossing of a level by a model output, e.g. 50 % of a phase classifier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, finite_floats, floats, numbers

MAX_LOST_SHARE = 0.1  # largest share of bootstrap draws without a crossing; above it the error is nan


class Crossing(NamedTuple):
    """Position of a crossing and its standard error; both nan without a crossing."""

    value: float
    error: float


def crossing(
    x: ArrayLike, p: ArrayLike, level: float = 0.5, *, group: ArrayLike | None = None, draws: int = 200, seed: int = 0
) -> Crossing:
    """Crossing x* of a level by the mean output p: ⟨p⟩(x*) = level.

    x      (n,) column of the samples
    p      (n,) output of the model
    group  (n,) groups of samples with a common origin (a simulation, a patient), for the bootstrap

    ⟨p⟩ is the mean over samples of equal x, interpolated linearly. The curve must pass through the level: a curve that
    only touches the level, or ends on it, does not cross. If the curve stays on the level over an interval before it
    passes through, x* is the middle of the interval.

    A noisy curve may cross several times. Then x* is the crossing that separates the samples best: the crossing
    with the largest |Σ_{x > x*} (p − level) − Σ_{x < x*} (p − level)| over all samples (the first of equal crossings).

    The error is the standard deviation of x* over `draws` bootstrap draws of samples or groups. It is nan if more than
    one draw in ten has no crossing, or if there is only one group. Value and error are nan if p never crosses or is not
    finite.
    """
    place, output = finite_floats("x", x), floats("p", p)
    if place.ndim != 1 or place.shape != output.shape:
        raise UserError(f"`x` and `p` must have the same shape (n,), not {place.shape} and {output.shape}")
    if not np.isfinite(level) or draws < 2:
        found = f"not level = {level} and draws = {draws}"
        raise UserError(f"`level` must be finite, and `draws` must be 2 or more, {found}")
    units, unit = place.size, np.arange(place.size)
    if group is not None:
        names, unit = np.unique(np.asarray(group), return_inverse=True)
        if unit.shape != place.shape:
            raise UserError(f"`group` must have the shape {place.shape}, not {unit.shape}")
        units = len(names)
    if not numbers(output):
        return Crossing(NAN, NAN)
    places, index = np.unique(place, return_inverse=True)
    excess = output - level
    rounding = 1e-12 * max(abs(level), float(np.abs(output).max()))

    def crossing_of(times: Floats) -> float:
        """Position of the crossing, if sample i counts `times[i]` times."""
        sums = (np.bincount(index, weights=w, minlength=len(places)) for w in (times, times * excess))
        count, total = (one.astype(np.float64) for one in sums)
        total[np.abs(total) <= rounding * count] = 0.0
        return _cross(places[count > 0], total[count > 0], count[count > 0])

    value = crossing_of(np.ones(place.size))
    if np.isnan(value) or units < 2:
        return Crossing(value, NAN)
    generator = np.random.default_rng(seed)
    drawn = (np.bincount(generator.integers(units, size=units), minlength=units) for _ in range(draws))
    tries = np.array([crossing_of(times[unit].astype(np.float64)) for times in drawn])
    crossed = tries[~np.isnan(tries)]
    enough = len(crossed) >= max(2, (1 - MAX_LOST_SHARE) * draws)
    return Crossing(value, float(crossed.std(ddof=1)) if enough else NAN)


def _cross(places: Floats, total: Floats, count: Floats) -> float:
    """Position in `places` where `total / count` crosses zero; nan without a crossing.

    If there are several crossings, the result is the crossing that separates the samples best (see `crossing`).
    """
    mean = total / count
    off = np.flatnonzero(mean)
    change = np.flatnonzero(np.diff(np.sign(mean[off])))
    if not len(change):
        return NAN
    left, right = off[change], off[change + 1]
    below = np.cumsum(total)[left]  # Σ (p − level) on the left; samples on the level add nothing
    best = np.argmax(np.abs(total.sum() - 2 * below))
    i, j = left[best], right[best]
    if j > i + 1:
        return float((places[i + 1] + places[j - 1]) / 2)
    return float(places[i] + (places[j] - places[i]) * mean[i] / (mean[i] - mean[j]))
