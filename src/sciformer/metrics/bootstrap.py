"""Bootstrap intervals of scores, and a check for classes with too few samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import UserError
from .arrays import NAN
from .base import METRICS, Metric
from .classification import MIN_CLASS_SAMPLES

DRAWS, MIN_DRAWS = 200, 40  # bootstrap draws of the samples; fewer for large arrays
MAX_DRAWN_NUMBERS = 20_000_000  # largest count of numbers in all draws for one metric
MAX_LOST_SHARE = 0.1  # largest share of draws without a value; above it there is no interval
MIN_SAMPLES = 10  # with fewer samples there is no interval
SHARE = 0.95
TOO_FEW = "too few"  # shown instead of a meaningless value
TOO_FEW_NOTE = f"{TOO_FEW}: the score needs {MIN_CLASS_SAMPLES} samples or more in at least two classes."


def score_intervals(outputs: Mapping[str, Any], names: Iterable[str], seed: int = 0) -> dict[str, tuple[float, float]]:
    """Central 95 % bootstrap interval of each metric, by resampling the samples.

    A metric is left out if its inputs are not one row of numbers per sample (e.g. texts), or if there are too few
    samples (in total, or in the classes: `too_few_samples`).
    """
    few, found = too_few_samples(outputs, names := list(names)), {}
    for name in names:
        inputs = _rows_of_numbers(METRICS[name], outputs)
        if name in few or inputs is None:
            continue
        count = len(next(iter(inputs.values())))
        draws = min(DRAWS, max(MIN_DRAWS, MAX_DRAWN_NUMBERS // sum(column.size for column in inputs.values())))
        rng = np.random.default_rng(seed)  # the same samples for every metric
        values = np.array([_value(METRICS[name], inputs, rng.integers(count, size=count)) for _ in range(draws)])
        if np.isnan(values).mean() <= MAX_LOST_SHARE:
            low, high = np.nanquantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
            found[name] = (float(low), float(high))
    return found


def too_few_samples(outputs: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Names of the metrics for which the classes have too few samples.

    At least two classes must have `Metric.class_samples` samples each.
    """
    if "label" not in outputs:
        return []
    counts = np.bincount(np.asarray(outputs["label"], np.int64))
    return [name for name in names if (least := METRICS[name].class_samples) and (counts >= least).sum() < 2]


def format_interval(ends: tuple[float, float] | None) -> str:
    """Text of an interval, for example 0.71 to 0.96; empty for None."""
    return "" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"


def _rows_of_numbers(metric: Metric, outputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Inputs of a metric as arrays, or None if no interval is possible."""
    if any(name not in outputs for name in metric.needs):
        return None
    inputs = {name: np.asarray(outputs[name]) for name in metric.needs}
    sizes = {len(column) if column.ndim else 0 for column in inputs.values()}
    numeric = all(column.dtype.kind in "fiub" for column in inputs.values())
    return inputs if numeric and len(sizes) == 1 and min(sizes) >= MIN_SAMPLES else None


def _value(metric: Metric, inputs: Mapping[str, Any], rows: Any) -> float:
    try:
        return metric({name: column[rows] for name, column in inputs.items()})
    except UserError:  # a draw without the samples that the metric needs
        return NAN
