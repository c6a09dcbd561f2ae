"""Whether a model is as sure as it is right, and by what its certainty is to be changed to be so."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, Integers, classes, demand_numbers, numbers
from .base import CLASSES, metric

MAX_TEMPERATURE = 50.0  # temperatures are looked for from 1 / MAX_TEMPERATURE to MAX_TEMPERATURE
MIN_PROBABILITY = 1e-37  # probabilities below are not told from zero in single precision


class Reliability(NamedTuple):
    """Samples by their confidence in bins (edge, next edge]; nan in the means of an empty bin."""

    edges: Floats  # (bins + 1,)
    confidence: Floats  # (bins,) mean probability of the predicted class
    accuracy: Floats  # (bins,) share that is right
    samples: Integers  # (bins,) how many

    @property
    def error(self) -> float:
        """Σ (samples / n) |accuracy − confidence| over the bins that are not empty."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float(self.samples @ gaps / self.samples.sum())


@metric("lower", CLASSES, "mean of |accuracy − confidence| over 15 bins")
def calibration_error(probabilities: ArrayLike, label: ArrayLike, bins: int = 15) -> float:
    """Σ_b (n_b / n) |accuracy_b − confidence_b|: the expected calibration error of the predicted class (1706.04599).

    Over `bins` of equal width in the probability of the predicted class. Bins make it a little greater than 0 also for
    a perfect model, by about √(bins / n) / 2 at most.
    """
    p, _ = classes(probabilities, label)
    return reliability(probabilities, label, bins).error if numbers(p) else NAN


def reliability(probabilities: ArrayLike, label: ArrayLike, bins: int = 15) -> Reliability:
    """Accuracy against confidence (max p), each as the mean over a bin; probabilities that are nan are refused."""
    if bins < 1:
        raise UserError(f"`bins` must be 1 or more, not {bins}")
    p, truth = classes(probabilities, label)
    demand_numbers("a reliability curve", p)
    edges = np.linspace(0.0, 1.0, bins + 1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == truth
    place = np.digitize(confidence, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins).astype(np.int64)
    full = np.where(count > 0, count, np.nan)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (confidence, right)]
    return Reliability(edges, sums[0] / full, sums[1] / full, count)


def temperature(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """The T for which softmax(ln p / T) gives the truth the highest likelihood: above 1 where answers are too sure.

    One number for all classes and samples (1706.04599), so that no answer changes, only how sure it is. The slope of
    the loss along 1 / T rises, so that its zero is unique.
    """
    p, truth = classes(probabilities, label)
    demand_numbers("a temperature", p)
    logits = np.log(np.maximum(p.astype(np.float64), MIN_PROBABILITY))
    right = np.take_along_axis(logits, truth[:, None], 1)[:, 0]
    weights = None if weight is None else np.asarray(weight, np.float64)

    def slope(inverse: float) -> float:
        scaled = inverse * logits
        scaled = np.exp(scaled - scaled.max(1, keepdims=True))
        mean = (scaled * logits).sum(1) / scaled.sum(1)
        return float(np.average(mean - right, weights=weights))

    low, high = 1 / MAX_TEMPERATURE, MAX_TEMPERATURE
    if not np.average(p.argmax(1) != truth, weights=weights):
        raise UserError(
            f"all answers of the {len(p):,} samples are right, but only wrong answers tell how sure a model may be: no "
            "certainty would be too much",
            hint="Bring more samples.",
        )
    if slope(low) > 0:
        raise UserError(f"the answers for {len(p):,} samples are no better than guessing")
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 1 / float(np.sqrt(low * high))


def spread(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """√⟨((target − mean) / std)²⟩: by this deviations are to be multiplied to have the highest likelihood."""
    off = (np.asarray(target, np.float64) - np.asarray(mean, np.float64)) / np.asarray(std, np.float64)
    demand_numbers("a factor of deviations", off)
    found = float(np.sqrt(np.mean(off**2)))
    if not found:
        raise UserError("all values are exact, but only values that are off tell how sure a model may be")
    return found


def stretch(quantiles: ArrayLike, target: ArrayLike, place: int, share: float) -> float:
    """By this the distances of quantiles (n, levels) from the middle one are to be multiplied so that a `share` of the
    targets (n,) is between quantile number `place` and its partner above."""
    levels, truth = np.asarray(quantiles, np.float64), np.asarray(target, np.float64)
    demand_numbers("a factor of quantiles", levels)
    middle = levels[:, levels.shape[1] // 2]
    wide = np.where(truth < middle, middle - levels[:, place], levels[:, -1 - place] - middle)
    found = float(np.quantile(np.abs(truth - middle) / np.maximum(wide, np.finfo(float).tiny), share))
    if not 0 < found < np.inf:
        raise UserError(
            "quantiles must lie apart, and targets must lie beside the middle quantile, "
            f"but the factor of quantiles is {found:g}"
        )
    return found
