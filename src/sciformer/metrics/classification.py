"""Classification metrics: accuracy, F1, confusion matrix, ROC curve and its area.

The predicted class is the class with the largest probability; among equal probabilities, the first class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from .arrays import NAN, Floats, Integers, classes, demand_numbers, numbers, weights
from .base import CLASSES, metric

MIN_PROBABILITY = 1e-37  # smaller probabilities are zero in single precision
MIN_CLASS_SAMPLES = 10  # minimum samples in each of two classes for a score over pairs of classes


class Roc(NamedTuple):
    """False and true positive rates for a falling threshold, from (0, 0) to (1, 1)."""

    false_positive: Floats
    true_positive: Floats

    @property
    def area(self) -> float:
        """Area under the curve by the trapezoidal rule; ties count half."""
        return float(np.trapezoid(self.true_positive, self.false_positive))


@metric("higher", CLASSES, "share of samples with the correct class")
def accuracy(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Weighted fraction of correct predictions: Σ w [argmax p = label] / Σ w."""
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    return float(np.average(p.argmax(axis=1) == truth, weights=w)) if numbers(p) else NAN


@metric("higher", CLASSES, "mean of the recalls of the classes")
def balanced_accuracy(probabilities: ArrayLike, label: ArrayLike) -> float:
    """Mean recall TP / (TP + FN) over the classes in the labels."""
    found = class_scores(probabilities, label)
    return float(np.mean(found.recall[found.support > 0])) if found is not None else NAN


@metric("lower", CLASSES, "mean of −ln(probability of the correct class)")
def log_loss(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Cross-entropy of the probabilities: −Σ w ln p_label / Σ w."""
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    own = np.take_along_axis(p, truth[:, None], 1)[:, 0]
    return float(np.average(-np.log(np.maximum(own, MIN_PROBABILITY)), weights=w)) if numbers(p) else NAN


@metric("higher", CLASSES, "mean of the F1 scores of the classes")
def macro_f1(probabilities: ArrayLike, label: ArrayLike) -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    The mean is over classes that occur in the labels or in the predictions. A class that occurs only in the labels, or
    only in the predictions, has an F1 of 0.
    """
    found = class_scores(probabilities, label)
    return float(np.nanmean(found.f1)) if found is not None else NAN


@metric(
    "higher", CLASSES, "area under the ROC curve; with more than two classes, the mean over pairs", MIN_CLASS_SAMPLES
)
def auc(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Area under the ROC curve: P(s⁺ > s⁻) + ½ P(s⁺ = s⁻).

    With two classes, the score s is the probability of class 1. With more classes, the result is the mean of the areas
    over ordered pairs of classes (a, b): samples of a against samples of b, with the probability of a as score. This is
    macro one-versus-one (Hand and Till 2001), which does not depend on the class sizes. Only classes that occur in the
    labels with a weight above zero count. With a single class there is no pair, and the area is nan. The weight of a
    sample is used in every pair with this sample.
    """
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    totals = np.bincount(truth, weights=w, minlength=p.shape[1]).astype(np.float64)
    occur = np.flatnonzero(totals)
    if not numbers(p) or len(occur) < 2:
        return NAN
    if p.shape[1] == 2:
        return _roc(p[:, 1], truth == 1, w).area
    areas = [np.delete(_win_rates(p[:, c], c, truth, w, totals)[occur], i) for i, c in enumerate(occur.tolist())]
    return float(np.mean(areas))


@metric("higher", CLASSES, "true positive rate of the second class at 1 % false positives", MIN_CLASS_SAMPLES)
def efficiency_1(probabilities: ArrayLike, label: ArrayLike) -> float:
    """True positive rate at a false positive rate of 1 %; nan without both classes."""
    p, truth = classes(probabilities, label)
    if not numbers(p) or p.shape[1] != 2 or len(np.unique(truth)) < 2:
        return NAN
    found = _roc(p[:, 1], truth == 1, weights(None, len(p)))
    return float(found.true_positive[found.false_positive <= 0.01 + 1e-12].max())


def roc(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> Roc:
    """ROC curve (P(s ≥ t | 0), P(s ≥ t | 1)) for all thresholds t; s = p(class 1)."""
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    demand_numbers("the ROC curve", p)
    if p.shape[1] != 2:
        raise UserError(f"a ROC curve needs two classes, not {p.shape[1]}")
    if not (w[truth == 0].sum() > 0 and w[truth == 1].sum() > 0):
        raise UserError(f"a ROC curve needs samples of both classes, but there is only class {truth[w > 0][0]}")
    return _roc(p[:, 1], truth == 1, w)


class ClassScores(NamedTuple):
    """Scores of each class (C,); nan for classes never predicted or never true."""

    precision: Floats  # TP / (TP + FP)
    recall: Floats  # TP / (TP + FN)
    f1: Floats  # 2 TP / (2 TP + FP + FN)
    support: Integers  # TP + FN


def class_scores(probabilities: ArrayLike, label: ArrayLike) -> ClassScores | None:
    """Precision, recall, F1 and sample count per class; None for non-finite inputs."""
    p, truth = classes(probabilities, label)
    if not numbers(p):
        return None
    table = _table(p, truth)
    right, predicted, true = np.diag(table), table.sum(axis=0), table.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return ClassScores(right / predicted, right / true, 2 * right / (predicted + true), true)


def confusion(probabilities: ArrayLike, label: ArrayLike) -> Integers:
    """Confusion matrix (C, C): true classes in rows, predicted classes in columns."""
    p, truth = classes(probabilities, label)
    demand_numbers("the confusion matrix", p)
    return _table(p, truth)


def _table(p: Floats, truth: Integers) -> Integers:
    c = p.shape[1]
    return np.bincount(truth * c + p.argmax(axis=1), minlength=c * c).reshape(c, c).astype(np.int64)


def _win_rates(score: Floats, c: int, truth: Integers, weight: Floats, totals: Floats) -> Floats:
    """Win rates (C,): probability of a higher score for class c than for each class."""
    values, place = np.unique(score, return_inverse=True)
    own = np.bincount(place, weights=weight * (truth == c), minlength=len(values))
    above = own.sum() - own.cumsum() + own / 2  # equal scores count half
    won = np.bincount(truth, weights=weight * above[place], minlength=len(totals))
    return np.divide(won, totals * totals[c], out=np.zeros_like(totals), where=totals > 0)


def _roc(score: Floats, positive: NDArray[np.bool_], weight: Floats) -> Roc:
    """ROC curve with one point for each distinct score, in O(n log n)."""
    values, place = np.unique(-score, return_inverse=True)
    rates = []
    for chosen in (~positive, positive):
        passed = np.cumsum(np.bincount(place, weights=weight * chosen, minlength=len(values)))
        rates.append(np.concatenate([[0.0], passed / passed[-1]]))
    return Roc(*rates)
