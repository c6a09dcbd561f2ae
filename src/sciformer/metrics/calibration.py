"""Calibration of probabilities and standard deviations: measures and corrections."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, Integers, classes, demand_numbers, numbers
from .base import CLASSES, metric
from .classification import MIN_PROBABILITY

MAX_TEMPERATURE = 50.0  # the search goes from 1 / MAX_TEMPERATURE to MAX_TEMPERATURE


class Reliability(NamedTuple):
    """Reliability curve in bins of confidence (edge, next edge]; nan in an empty bin."""

    edges: Floats  # (bins + 1,)
    confidence: Floats  # (bins,) mean probability of the predicted class
    accuracy: Floats  # (bins,) share of correct predictions
    samples: Integers  # (bins,) number of samples

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """68 % interval of the accuracy in each bin (Wilson 1927, z = 1); nan if empty.

        (p + z²/2n ± z √(p (1 − p) / n + z²/4n²)) / (1 + z²/n)
        """
        n = np.where(self.samples > 0, self.samples, np.nan)
        middle, half = self.accuracy + 0.5 / n, np.sqrt(self.accuracy * (1 - self.accuracy) / n + 0.25 / n**2)
        ends = ((middle - half) / (1 + 1 / n), (middle + half) / (1 + 1 / n))
        return np.minimum(ends[0], self.accuracy), np.maximum(ends[1], self.accuracy)

    @property
    def error(self) -> float:
        """Expected calibration error: Σ (samples / n) |accuracy − confidence|."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float(self.samples @ gaps / self.samples.sum())


@metric("lower", CLASSES, "mean of |accuracy − confidence| over 15 bins")
def calibration_error(probabilities: ArrayLike, label: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error of the predicted class (1706.04599).

        Σ_b (n_b / n) |accuracy_b − confidence_b|

    Bin b has n_b of the n samples. The bins have equal width in the probability of the predicted class. Because of the
    bins, the error of a perfect model is slightly above 0, by at most about √(bins / n) / 2.
    """
    p, _ = classes(probabilities, label)
    return reliability(probabilities, label, bins).error if numbers(p) else NAN


def reliability(probabilities: ArrayLike, label: ArrayLike, bins: int = 15) -> Reliability:
    """Accuracy and mean confidence (max p) in bins of confidence; error if p has nan."""
    if bins < 1:
        raise UserError(f"`bins` must be 1 or more, not {bins}")
    p, truth = classes(probabilities, label)
    demand_numbers("the reliability curve", p)
    edges = np.linspace(0.0, 1.0, bins + 1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == truth
    place = np.digitize(confidence, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins).astype(np.int64)
    full = np.where(count > 0, count, np.nan)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (confidence, right)]
    return Reliability(edges, sums[0] / full, sums[1] / full, count)


def temperature(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Maximum-likelihood temperature T of softmax(ln p / T).

    T is above 1 for an overconfident model. T is one number for all classes and samples (1706.04599), so the predicted
    classes do not change. The slope of the loss in 1 / T increases monotonically, so this slope has only one zero.
    """
    p, truth = classes(probabilities, label)
    demand_numbers("the calibration temperature", p)
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
        message = f"the temperature has no optimum, because all {len(p):,} predictions are correct"
        raise UserError(message, hint="Use more samples, so that some predictions are wrong.")
    if slope(low) > 0:
        raise UserError(f"no temperature fits: the predictions for {len(p):,} samples are no better than chance")
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 1 / float(np.sqrt(low * high))


def spread(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """Maximum-likelihood factor for `std`: √⟨((target − mean) / std)²⟩."""
    off = (np.asarray(target, np.float64) - np.asarray(mean, np.float64)) / np.asarray(std, np.float64)
    demand_numbers("the calibration of the standard deviations", off)
    found = float(np.sqrt(np.mean(off**2)))
    if not found:
        raise UserError("the standard deviations cannot be calibrated: all predicted values equal the targets")
    return found


def stretch(quantiles: ArrayLike, target: ArrayLike, place: int, share: float) -> float:
    """Correction factor for the distances of quantiles from the median.

    After the correction, a `share` of the targets lies between the quantile with index `place` (below the median) and
    the symmetric quantile above the median. Shapes: quantiles (n, levels), targets (n,).
    """
    levels, truth = np.asarray(quantiles, np.float64), np.asarray(target, np.float64)
    demand_numbers("the calibration of the quantiles", levels)
    middle = levels[:, levels.shape[1] // 2]
    wide = np.where(truth < middle, middle - levels[:, place], levels[:, -1 - place] - middle)
    found = float(np.quantile(np.abs(truth - middle) / np.maximum(wide, np.finfo(float).tiny), share))
    if not 0 < found < np.inf:
        raise UserError("the quantiles cannot be calibrated: they are equal, or all targets equal the median")
    return found
