"""Metrics: functions of whole arrays of a model's outputs, in NumPy alone.

`METRICS["auc"](outputs)` picks what the metric needs out of a dictionary of outputs. What is neither better when
higher nor when lower (coverage), or is no single number (confusion, roc, reliability, crossing), is a function only.
Rejections of a background have names of their own, `rejection_50` and the like: they depend on two classes and a share.
The rules for nan, empty input and single classes are those of `arrays` and of each docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from ..errors import UserError
from .calibration import Reliability, calibration_error, reliability
from .classification import Roc, accuracy, auc, confusion, macro_f1, roc
from .crossing import Crossing, crossing
from .entities import entities, entity_f1, entity_precision, entity_recall
from .regression import coverage, mae, negative_log_likelihood, quantile_error, rmse
from .rejection import AtLeast, Rejection, Sculpting, odds, rejection, sculpting, tradeoff
from .text import perplexity, token_accuracy
from .translation import bleu, chrf

__all__ = [
    "METRICS",
    "AtLeast",
    "Crossing",
    "Metric",
    "Rejection",
    "Reliability",
    "Roc",
    "Sculpting",
    "accuracy",
    "auc",
    "bleu",
    "calibration_error",
    "chrf",
    "confusion",
    "coverage",
    "crossing",
    "entities",
    "entity_f1",
    "entity_precision",
    "entity_recall",
    "lower_is_better",
    "macro_f1",
    "mae",
    "negative_log_likelihood",
    "odds",
    "perplexity",
    "quantile_error",
    "rejection",
    "reliability",
    "rmse",
    "roc",
    "sculpting",
    "token_accuracy",
    "tradeoff",
]


@dataclass(frozen=True)
class Metric:
    """One number that says how good a model is, and how it is read."""

    function: Callable[..., float]
    better: Literal["higher", "lower"]
    needs: tuple[str, ...]
    help: str

    def __call__(self, outputs: Mapping[str, ArrayLike]) -> float:
        """The metric of the outputs it needs; the others are left alone."""
        if missing := [name for name in self.needs if name not in outputs]:
            found = ", ".join(outputs) or "no outputs"
            raise UserError(f"{' and '.join(missing)} for {self.function.__name__}", found)
        return self.function(**{name: outputs[name] for name in self.needs})


CLASSES, NUMBERS, SPREADS = ("probabilities", "label"), ("mean", "target"), ("mean", "std", "target")
TEXTS = ("translation", "reference")
TAGS = ("tags", "truth")
METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, "higher", CLASSES, "share of samples whose class is right"),
    "auc": Metric(
        auc, "higher", CLASSES, "area under the ROC curve; over more than two classes, the mean over pairs of them"
    ),
    "bleu": Metric(bleu, "higher", TEXTS, "n-grams of words shared with the reference, in per cent (sacreBLEU)"),
    "calibration_error": Metric(calibration_error, "lower", CLASSES, "mean of |accuracy − confidence| over 15 bins"),
    "chrf": Metric(chrf, "higher", TEXTS, "n-grams of characters shared with the reference, in per cent"),
    "entity_f1": Metric(entity_f1, "higher", TAGS, "F1 of entities: all their words and the type must be right"),
    "entity_precision": Metric(entity_precision, "higher", TAGS, "share of the predicted entities that are right"),
    "entity_recall": Metric(entity_recall, "higher", TAGS, "share of the true entities that were found"),
    "macro_f1": Metric(macro_f1, "higher", CLASSES, "F1, the mean over classes"),
    "mae": Metric(mae, "lower", NUMBERS, "mean absolute error"),
    "negative_log_likelihood": Metric(negative_log_likelihood, "lower", SPREADS, "of Gaussians, in nats per number"),
    "perplexity": Metric(perplexity, "lower", ("loss", "count"), "exp of the mean loss of a token"),
    "quantile_error": Metric(
        quantile_error, "lower", SPREADS, "how far the predicted quantiles are from the true ones"
    ),
    "rmse": Metric(rmse, "lower", NUMBERS, "root of the mean squared error"),
    "token_accuracy": Metric(token_accuracy, "higher", ("correct", "count"), "share of tokens that are right"),
}
REJECTION = "rejection_"


def lower_is_better(name: str) -> bool:
    """Whether a smaller value of the loss or a metric is the better one."""
    return not name.startswith(REJECTION) and (name not in METRICS or METRICS[name].better == "lower")
