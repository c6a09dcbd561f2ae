"""How well classes are told apart: accuracy, F1, confusion, ROC and the area under it.

The predicted class is the one with the greatest probability, the first of them where several are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from .arrays import NAN, Floats, Integers, classes, demand_numbers, numbers, weights
from .base import CLASSES, metric


class Roc(NamedTuple):
    """The rates of false and true positives as the threshold falls, from (0, 0) to (1, 1)."""

    false_positive: Floats
    true_positive: Floats

    @property
    def area(self) -> float:
        """∫ true positive d(false positive), by trapezes: ties count half."""
        return float(np.trapezoid(self.true_positive, self.false_positive))


@metric("higher", CLASSES, "share of samples whose class is right")
def accuracy(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Σ w [argmax p = label] / Σ w: the share of samples whose predicted class is right."""
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    return float(np.average(p.argmax(axis=1) == truth, weights=w)) if numbers(p) else NAN


@metric("higher", CLASSES, "F1, the mean over classes")
def macro_f1(probabilities: ArrayLike, label: ArrayLike) -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    Over the classes that occur in the labels or in the predictions. A class that is predicted and never true, or true
    and never predicted, counts with an F1 of 0; one that is neither does not count.
    """
    p, truth = classes(probabilities, label)
    if not numbers(p):
        return NAN
    table = _table(p, truth)
    sizes = table.sum(axis=0) + table.sum(axis=1)  # 2 TP + FP + FN
    occur = sizes > 0
    return float(np.mean(2 * np.diag(table)[occur] / sizes[occur]))


@metric("higher", CLASSES, "area under the ROC curve; over more than two classes, the mean over pairs of them")
def auc(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """P(s⁺ > s⁻) + ½ P(s⁺ = s⁻): how often a sample of the class has a greater score than one of another.

    With two classes the score is the probability of class 1. With more it is the mean over ordered pairs of classes
    (a, b) of the samples of a against those of b, by the probability of a: macro one-versus-one (Hand and Till 2001),
    which does not depend on how many samples a class has. Over the classes that occur in the labels; nan where all
    labels are of one class, for then there is no pair. A sample's weight counts in every pair it is part of; a class
    whose weights are all 0 does not occur.
    """
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    totals: Floats = np.bincount(truth, weights=w, minlength=p.shape[1]).astype(np.float64)
    occur = np.flatnonzero(totals)
    if not numbers(p) or len(occur) < 2:
        return NAN
    if p.shape[1] == 2:
        return _roc(p[:, 1], truth == 1, w).area
    areas = [np.delete(_wins(p[:, c], c, truth, w, totals)[occur], i) for i, c in enumerate(occur.tolist())]
    return float(np.mean(areas))


@metric("higher", CLASSES, "share of the second class found at 1 % false alarms")
def efficiency_1(probabilities: ArrayLike, label: ArrayLike) -> float:
    """The largest share of class 1 above a cut that no more than 1 % of class 0 pass, of two classes: a detection at a
    rate of false alarms. nan where there are other classes, or none of one of both."""
    p, truth = classes(probabilities, label)
    if not numbers(p) or p.shape[1] != 2 or len(np.unique(truth)) < 2:
        return NAN
    found = _roc(p[:, 1], truth == 1, weights(None, len(p)))
    return float(found.true_positive[found.false_positive <= 0.01 + 1e-12].max())


def roc(probabilities: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> Roc:
    """(P(s ≥ t | 0), P(s ≥ t | 1)) for every threshold t, of two classes with the score s = p of class 1."""
    p, truth = classes(probabilities, label)
    w = weights(weight, len(p))
    demand_numbers("a ROC curve", p)
    if p.shape[1] != 2:
        raise UserError(f"a ROC curve needs two classes, not {p.shape[1]}")
    if not (w[truth == 0].sum() > 0 and w[truth == 1].sum() > 0):
        raise UserError(f"a ROC curve needs both classes among the labels, but there is class {truth[w > 0][0]} only")
    return _roc(p[:, 1], truth == 1, w)


def confusion(probabilities: ArrayLike, label: ArrayLike) -> Integers:
    """n[i, j] = #{label = i, argmax p = j}: counts (C, C), a row for each true class, a column for each predicted one.

    Probabilities that are not numbers are refused: a count cannot be nan.
    """
    p, truth = classes(probabilities, label)
    demand_numbers("a confusion matrix", p)
    return _table(p, truth)


def _table(p: Floats, truth: Integers) -> Integers:
    c = p.shape[1]
    return np.bincount(truth * c + p.argmax(axis=1), minlength=c * c).reshape(c, c).astype(np.int64)


def _wins(score: Floats, c: int, truth: Integers, weight: Floats, totals: Floats) -> Floats:
    """(C,) how often a sample of class c has a greater score than one of each class, of those that occur."""
    values, place = np.unique(score, return_inverse=True)
    own = np.bincount(place, weights=weight * (truth == c), minlength=len(values))
    above = own.sum() - own.cumsum() + own / 2  # equal scores count half
    won = np.bincount(truth, weights=weight * above[place], minlength=len(totals))
    return np.divide(won, totals * totals[c], out=np.zeros_like(totals), where=totals > 0)


def _roc(score: Floats, positive: NDArray[np.bool_], weight: Floats) -> Roc:
    """One point for each distinct score, in O(n log n): equal scores are passed by the threshold together."""
    values, place = np.unique(-score, return_inverse=True)
    rates = []
    for chosen in (~positive, positive):
        passed = np.cumsum(np.bincount(place, weights=weight * chosen, minlength=len(values)))
        rates.append(np.concatenate([[0.0], passed / passed[-1]]))
    return Roc(*rates)
