"""Scaling of observations: centre and scale, weights from errors, patches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.batch import Stream, sorted_rows
from ...data.columns import Array
from ...errors import UserError

MAX_PLACES_PER_POINT = 200  # regular times per point, above which a series is not regular


class Level(NamedTuple):
    """Centre and scale (T, 1) for normalising the values of each token."""

    centre: Array
    scale: Array


def group_means(values: Array, seen: Array, group: Array, count: int) -> tuple[Array, Array]:
    """Mean (0 if empty) and number of the visible values in each group of tokens.

    values, seen   (T, P) values, and mask of visible values
    group          (T,) group of each token
    """
    some = values if (whole := bool(seen.all())) else np.where(seen, values, 0.0)
    of_token = some[:, 0] if values.shape[1] == 1 else some.sum(1)
    number = np.bincount(group, minlength=count) * values.shape[1] if whole else np.bincount(group, seen.sum(1), count)
    return np.bincount(group, of_token, count) / np.maximum(number, 1), number


def group_medians(values: Array, seen: Array, group: Array, count: int) -> tuple[Array, Array]:
    """Median (0 if empty) and number of the visible values in each group of tokens.

    The arguments are as in `group_means`.
    """
    which, flat = np.repeat(group, values.shape[1])[seen.ravel()], values[seen]
    number = np.bincount(which, minlength=count)
    if not len(flat):
        return np.zeros(count), number
    if np.any(which[1:] < which[:-1]):
        order = np.argsort(which, kind="stable")
        which, flat = which[order], flat[order]
    middles = np.maximum(np.stack([(number - 1) // 2, number // 2]), 0)
    if (table := sorted_rows(flat, which, number)) is not None:
        low, high = np.take_along_axis(table, middles.T, 1).T
    else:
        flat = flat[np.lexsort((flat, which))]
        low, high = flat[np.minimum(number.cumsum() - number + middles, len(flat) - 1)]
    return np.where(number > 0, (low + high) / 2, 0.0), number


def compute_level(
    values: Array, seen: Array, sample: Array, band: Array | None, centre: str, scale: str, known: tuple[float, float]
) -> Level:
    """Centre and scale for each token, from the visible values of its sample alone.

    values  (T, P) in double precision
    seen    (T, P) mask of visible values
    band    (T,) band of each token, for a centre per band; a band without visible values gets the centre of its sample
    known   centre and scale of the training data, for the option `learned` and for samples without visible values
    """
    count = int(sample.max(initial=-1)) + 1
    middle = np.full(len(values), known[0] if centre == "learned" else 0.0)
    if centre in ("mean", "median"):
        of = group_means if centre == "mean" else group_medians
        found, number = of(values, seen, sample, count)
        middle = np.where(number > 0, found, known[0])[sample]
        if band is not None:
            bands = int(band.max(initial=0)) + 1
            own = sample * bands + band
            found, number = of(values, seen, own, count * bands)
            middle = np.where(number[own] > 0, found[own], middle)
    wide = np.full(len(values), known[1] if scale == "learned" else 1.0)
    if scale == "deviation":
        square, number = group_means((values - middle[:, None]) ** 2, seen, sample, count)
        wide = np.where((number > 1) & (square > 0), np.sqrt(square), known[1])[sample]
    return Level(middle[:, None], wide[:, None])


def error_weights(error: Array, known: Array, sample: Array) -> Array:
    """Weights (T, P) minmax(1 / error) + 1e-3 in each sample (arXiv 2502.02717).

    The weights are 1 if all errors are equal. A point without a known error gets the mean weight of its sample.
    """
    count, wide = int(sample.max(initial=-1)) + 1, error.shape[1]
    inverse = np.where(known, 1 / np.where(known, error, 1), 0.0)
    mean, _ = group_means(inverse, known, sample, count)
    inverse = np.where(known, inverse, mean[sample][:, None])
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    which = np.repeat(sample, wide)[known.ravel()]
    np.minimum.at(low, which, inverse[known])
    np.maximum.at(high, which, inverse[known])
    span = np.where(np.isfinite(high - low), high - low, 0.0)[sample][:, None]
    even = span <= 1e-6 * np.abs(np.where(np.isfinite(high), high, 0.0))[sample][:, None]
    least = np.where(np.isfinite(low), low, 0.0)[sample][:, None]
    weight = np.clip((inverse - least) / np.where(even, 1.0, span), 0, 1) + 1e-3
    return np.where(even, 1.0, weight)


def draw_replacements(choice: Array, seen: Array, sample: Array) -> tuple[Array, Array]:
    """Draw a visible token of the same sample for each token to be replaced.

    choice   random number in [0, 1) of each token
    seen     mask of visible tokens

    Returns the replaced tokens and their replacements. Tokens of samples without a visible token are left out.
    """
    there = np.flatnonzero(seen)
    number = np.bincount(sample[there], minlength=int(sample.max(initial=-1)) + 1)
    those = np.flatnonzero(~np.isnan(choice))
    those = those[number[sample[those]] > 0]
    mine = sample[those]
    return those, there[(number.cumsum() - number)[mine] + (choice[those] * number[mine]).astype(np.int64)]


def cut_patches(points: Stream, size: int, cadence: float, gaps: bool) -> Stream:
    """Put points on the regular times t0 + k cadence, and cut the series into patches.

    t0 is the first time of the sample. The value at a time without a point is NaN; several points at one time are
    averaged. With `gaps`, empty patches between the first and the last patch of a band are kept.
    """
    rows, sample, time, band = len(points), points.sample, points.columns["at"], points.columns["band"]
    bands = int(band.max(initial=0)) + 1
    first = np.full(rows, np.inf)
    np.minimum.at(first, sample, time)
    place = np.rint((time - first[sample]) / cadence).astype(np.int64)
    number, slot = place // size, place % size
    line = sample * bands + band
    lines = np.unique(line)
    low, high = np.full(rows * bands, np.iinfo(np.int64).max), np.full(rows * bands, -1)
    np.minimum.at(low, line, number)
    np.maximum.at(high, line, number)
    counts = (high - low)[lines] + 1
    if counts.sum() * size > MAX_PLACES_PER_POINT * len(time) + 2 * size * len(lines):
        found = f"{len(time):,} points on {counts.sum() * size:,} regular times with a step of {cadence:.4g}"
        message = f"tokens.patch needs regular series, but these series have {found}"
        raise UserError(message, hint="Use tokens.patch: 1 for irregular times.", key="tokens.patch")
    offset = np.zeros(rows * bands, np.int64)
    offset[lines] = counts.cumsum() - counts
    token = offset[line] + number - low[line]
    total = int(counts.sum())
    owner = np.repeat(lines, counts)
    turn = np.arange(total) - np.repeat(offset[lines], counts) + np.repeat(low[lines], counts)
    at = first[owner // bands] + (turn * size + (size - 1) / 2) * cadence
    made: dict[str, Array] = {
        name: _slot_means(values, token * size + slot, total * size).reshape(total, size)
        for name, values in points.columns.items()
        if name in ("value", "error", "clean")
    }
    keep = np.ones(total, bool) if gaps else np.isfinite(made["value"]).any(1)
    order = np.flatnonzero(keep)
    order = order[np.lexsort((owner[order] % bands, at[order], owner[order] // bands))]
    lengths = np.bincount(owner[order] // bands, minlength=rows).astype(np.int64)
    made |= {"at": at, "band": owner % bands}
    return Stream({name: column[order] for name, column in made.items()}, lengths)


def _slot_means(values: Array, place: Array, total: int) -> Array:
    """Mean of the finite values at each place from 0 to total - 1; NaN without values."""
    known = np.isfinite(values)
    number = np.bincount(place[known], minlength=total)
    sums = np.bincount(place[known], values[known].astype(np.float64), total)
    return np.where(number > 0, sums / np.maximum(number, 1), np.nan).astype(np.float32)
