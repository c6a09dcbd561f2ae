"""Whether a classifier is as sure as it is right."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, Integers, classes, demand_numbers, numbers


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
        raise UserError("one bin or more", f"{bins}")
    p, truth = classes(probabilities, label)
    demand_numbers("a reliability curve", p)
    edges = np.linspace(0.0, 1.0, bins + 1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == truth
    place = np.digitize(confidence, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins).astype(np.int64)
    full = np.where(count > 0, count, np.nan)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (confidence, right)]
    return Reliability(edges, sums[0] / full, sums[1] / full, count)
