"""Cleaning of light curves: filter, sort and merge observations.

Points are dropped if their time or value is not finite, if they are flagged, if they have no band or a band that is not
selected, or if their error is not positive. The rest is sorted by time, and points of equal time and band are merged.
Upper limits need no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ....errors import UserError
from ....files.formats.memory import words
from ...columns import Array, Lists
from ...fileset import Counts
from .names import column_error

SameTime = Literal["mean", "first", "keep"]
BadErrors = Literal["drop", "keep"]
Column = Array | Lists
TRUE_WORDS = frozenset(("true", "t", "yes", "y", "1", "<", ">", "limit", "upper", "ul", "u", "1.0"))
FALSE_WORDS = frozenset(("false", "f", "no", "n", "0", "", "=", "detection", "nan", "none", "0.0", "-"))


@dataclass(frozen=True)
class Rules:
    """Rules for cleaning observations; see the keys of `SeriesFiles`."""

    min_points: int = 1
    same_time: SameTime = "mean"
    bad_errors: BadErrors = "drop"
    bands: tuple[str, ...] = ()
    missing_values: tuple[float, ...] = ()


def clean(table: Mapping[str, Column], rules: Rules, where: Path | str, counts: Counts) -> dict[str, Column]:
    """Clean the observations of all objects; the result has no column `quality`.

    table   `time`, `value`, optionally `error`, `band`, `limit`, `quality`, and further lists and columns
    counts  counter; it receives the number of points, and of points dropped for each reason. If bands are selected, it
            also receives the number of points in each band, as ("band", NAME)
    """
    lists = {name: column for name, column in table.items() if isinstance(column, Lists)}
    lengths = lists["time"].lengths
    for name, column in lists.items():
        _check_lengths(name, column.lengths, lengths, table, where)
    points = {name: column.values for name, column in lists.items()}
    sample = np.repeat(np.arange(len(lengths)), lengths)
    points, sample = _filter_points(points, sample, rules, counts)
    points, sample = _sorted(points, sample, counts)
    points, sample = _merge_points(points, sample, rules.same_time, counts)
    made = np.bincount(sample, minlength=len(lengths))
    rest = {name: column for name, column in table.items() if name not in lists}
    return {**{name: Lists(values, made) for name, values in points.items()}, **rest}


def _check_lengths(name: str, lengths: Array, times: Array, table: Mapping[str, Column], where: Path | str) -> None:
    if lengths is not times and not np.array_equal(lengths, times):
        row = int(np.argmax(lengths != times))
        which = f"object {table['id'][row]}" if isinstance(table.get("id"), np.ndarray) else f"row {row}"  # type: ignore[index]
        message = f"{which} of {where} has {times[row]:,} values of `time`, but {lengths[row]:,} of `{name}`"
        raise column_error(where, message)


def _filter_points(
    points: dict[str, Array], sample: Array, rules: Rules, counts: Counts
) -> tuple[dict[str, Array], Array]:
    """Drop bad points, and convert columns to their final types."""
    counts["points"] += len(sample)
    made = {"time": numbers(points["time"], np.float64), "value": numbers(points["value"], np.float32)}
    keep = np.isfinite(made["time"]) & np.isfinite(made["value"])
    counts["not finite"] += int((~keep).sum())
    codes = np.array(rules.missing_values, np.float32)
    missing = keep & np.isin(made["value"], codes)
    counts["missing"] += int(missing.sum())
    keep &= ~missing
    if "quality" in points:
        flagged = keep & (np.nan_to_num(numbers(points["quality"], np.float64)) != 0)
        counts["flagged"] += int(flagged.sum())
        keep &= ~flagged
    if "band" in points:
        made["band"] = band = words(points["band"])
        nameless = keep & (band == "")
        counts["nameless"] += int(nameless.sum())
        keep &= ~nameless
        if rules.bands:
            for name, number in zip(*np.unique(band[keep], return_counts=True)):
                counts["band", str(name)] += int(number)
            other = keep & ~np.isin(band, rules.bands)
            counts["other bands"] += int(other.sum())
            keep &= ~other
    if "limit" in points:
        made["limit"] = truths(points["limit"])
    if "error" in points:
        made["error"] = error = numbers(points["error"], np.float32)
        bad = keep & ~(np.isfinite(error) & (error > 0) & ~np.isin(error, codes))
        error[bad] = np.nan
        bad &= ~made.get("limit", np.zeros(len(bad), bool))
        counts["bad errors"] += int(bad.sum())
        if rules.bad_errors == "drop":
            keep &= ~bad
    for name, values in points.items():
        if name not in made and name != "quality":
            made[name] = words(values) if values.dtype.kind in "OUS" else numbers(values, np.float32)
    if keep.all():
        return made, sample
    return {name: values[keep] for name, values in made.items()}, sample[keep]


def _sorted(points: dict[str, Array], sample: Array, counts: Counts) -> tuple[dict[str, Array], Array]:
    time = points["time"]
    wrong = (np.diff(time) < 0) & (np.diff(sample) == 0)
    if not wrong.any():
        return points, sample
    counts["unsorted"] += len(np.unique(sample[1:][wrong]))
    order = np.lexsort((time, sample))
    return {name: values[order] for name, values in points.items()}, sample[order]


def _merge_points(
    points: dict[str, Array], sample: Array, way: SameTime, counts: Counts
) -> tuple[dict[str, Array], Array]:
    """Merge points with equal object, time and band; merge upper limits separately."""
    time = points["time"]
    if not ((np.diff(time) == 0) & (np.diff(sample) == 0)).any():
        return points, sample
    keys = [points[name] for name in ("band", "limit") if name in points]
    order = np.lexsort((*keys[::-1], time, sample))
    points, sample = {name: values[order] for name, values in points.items()}, sample[order]
    new = np.ones(len(sample), bool)
    new[1:] = False
    for values in (sample, points["time"], *(values[order] for values in keys)):
        new[1:] |= values[1:] != values[:-1]
    counts["same time"] += int((~new).sum())
    if way == "keep" or new.all():
        return points, sample
    if way == "first":
        return {name: values[new] for name, values in points.items()}, sample[new]
    return _mean(points, new), sample[new]


def _mean(points: dict[str, Array], new: Array) -> dict[str, Array]:
    """Mean of each group of points, weighted by 1 / error² if errors are known."""
    group = np.cumsum(new) - 1
    many = int(group[-1]) + 1
    weight = np.zeros(len(group))
    if "error" in points:
        error = points["error"].astype(np.float64)
        weight = np.where(np.isfinite(error), 1 / np.where(np.isfinite(error), error, 1.0) ** 2, 0.0)
    known = np.bincount(group, weight, many)
    weight = np.where(known[group] > 0, weight, 1.0)
    total = np.bincount(group, weight, many)
    made = {}
    for name, values in points.items():
        if name == "error":
            made[name] = np.where(known > 0, 1 / np.sqrt(np.where(known > 0, known, 1.0)), np.nan).astype(np.float32)
        elif name == "time" or values.dtype.kind in "bU":
            made[name] = values[new]
        else:
            made[name] = (np.bincount(group, weight * values, many) / total).astype(values.dtype)
    return made


def numbers(values: Array, kind: Any) -> Array:
    """Convert values to a dtype; overflow becomes infinite, without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(values, kind)


def truths(values: Any) -> Array:
    """Convert flags to booleans.

    Nonzero numbers and the words `<`, `true`, `yes` and similar become True.
    """
    values = np.asarray(values)
    if values.dtype.kind in "biuf":
        return np.nan_to_num(values) != 0
    found, place = np.unique(words(values), return_inverse=True)
    lower = [one.lower() for one in found.tolist()]
    if odd := [one for one in lower if one not in TRUE_WORDS | FALSE_WORDS]:
        message = f"flags of upper limits must be true or false, 1 or 0, or <, not {odd[0]!r}"
        raise UserError(message, key="data.limit")
    return np.array([one in TRUE_WORDS for one in lower], bool)[place]


def _listed(codes: tuple[float, ...]) -> str:
    return ", ".join(f"{code:.7g}" for code in codes)


def describe_cleaning(found: Counts, objects: int, kept: int, rules: Rules, whose: str = "") -> list[str]:
    """Notes on points and objects left out, sorted or merged."""
    points = found["points"]
    merged = {"mean": "their mean is taken", "first": "the first is taken", "keep": "kept"}[rules.same_time]
    errors = "left out" if rules.bad_errors == "drop" else "kept, the error unknown (NaN)"
    of = {
        "not finite": "have a time or value that is not finite: left out",
        "missing": f"have a value of data.missing_values, {_listed(rules.missing_values)}: left out",
        "flagged": "are flagged: left out",
        "nameless": "have no band: left out",
        "other bands": "have a band that is not in data.bands: left out",
        "bad errors": f"have an error that is not positive: {errors}",
        "same time": f"have the same time and band as another point of their object: {merged}",
    }
    notes = [f"{found[key]:,} of {points:,} points{whose} {text}." for key, text in of.items() if found[key]]
    if found["unsorted"]:
        notes.append(f"{found['unsorted']:,} of {objects:,} objects{whose} were not sorted by time: sorted.")
    without = {key[1]: count for key, count in found.items() if isinstance(key, tuple) and key[0] == "without"}
    share = f"of {objects:,} objects{whose} have"
    notes += [f"{number:,} {share} no `{name}`: left out." for name, number in without.items() if number]
    what = "no points" if rules.min_points == 1 else f"fewer than {rules.min_points:,} points"
    if short := objects - kept - sum(without.values()):
        notes.append(f"{short:,} {share} {what}: left out.")
    if found["short"]:
        notes.append(f"{found['short']:,} {share} {what}: their predictions are NaN.")
    known = sorted(key[1] for key in found if isinstance(key, tuple) and key[0] == "band" and found[key])
    there = f"the bands are {', '.join(known) or 'none'}"
    lost = [band for band in rules.bands if band not in known]
    return notes + [f"No point{whose} has the band {band} of data.bands; {there}." for band in lost]
