"""Metrics: functions of whole arrays of a model's outputs, in NumPy alone.

`METRICS["auc"](outputs)` picks what the metric needs out of a dictionary of outputs. Coverage is neither better when
higher nor when lower: no model is chosen by it. What is no single number (confusion, roc, reliability, crossing) is a
function only.
Scores that only one objective has are no metrics: it names them itself (`Objective.score`).
The rules for nan, empty input and single classes are those of `arrays` and of each docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from ..errors import UserError
from .bounds import AtLeast
from .calibration import Reliability, calibration_error, reliability, spread, stretch, temperature
from .classification import Roc, accuracy, auc, confusion, efficiency_1, macro_f1, roc
from .crossing import Crossing, crossing
from .entities import entities, entity_f1, entity_precision, entity_recall
from .regression import coverage, coverage_68, coverage_95, mae, negative_log_likelihood, quantile_error, rmse
from .series import noise_left, overlap, scatter
from .text import perplexity, token_accuracy
from .translation import bleu, chrf

__all__ = [
    "METRICS",
    "AtLeast",
    "Crossing",
    "Metric",
    "Reliability",
    "Roc",
    "accuracy",
    "auc",
    "bleu",
    "calibration_error",
    "chrf",
    "confusion",
    "coverage",
    "coverage_68",
    "coverage_95",
    "crossing",
    "efficiency_1",
    "entities",
    "entity_f1",
    "entity_precision",
    "entity_recall",
    "macro_f1",
    "mae",
    "negative_log_likelihood",
    "noise_left",
    "overlap",
    "perplexity",
    "quantile_error",
    "reliability",
    "rmse",
    "roc",
    "scatter",
    "spread",
    "stretch",
    "temperature",
    "token_accuracy",
]


@dataclass(frozen=True)
class Metric:
    """One number that says how good a model is, and how it is read."""

    function: Callable[..., float]
    better: Literal["higher", "lower", "neither"]
    needs: tuple[str, ...]
    help: str

    def __call__(self, outputs: Mapping[str, ArrayLike]) -> float:
        """The metric of the outputs it needs; the others are left alone."""
        if missing := [name for name in self.needs if name not in outputs]:
            there = f"the outputs are {', '.join(outputs)}" if outputs else "there are no outputs"
            raise UserError(f"{self.function.__name__} needs {' and '.join(missing)}; {there}")
        return self.function(**{name: outputs[name] for name in self.needs})


def inside(share: int) -> tuple[str, ...]:
    """What tells whether targets are in an interval with so many per cent of them."""
    return (f"low_{share}", f"high_{share}", "target")


CLASSES, NUMBERS, SPREADS = ("probabilities", "label"), ("mean", "target"), ("mean", "std", "target")
SERIES = ("inner", "power", "true_power")
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
    "coverage_68": Metric(coverage_68, "neither", inside(68), "share of targets where 68 % of them should be"),
    "coverage_95": Metric(coverage_95, "neither", inside(95), "share of targets where 95 % of them should be"),
    "efficiency_1": Metric(efficiency_1, "higher", CLASSES, "share of the second class found at 1 % false alarms"),
    "entity_f1": Metric(entity_f1, "higher", TAGS, "F1 of entities: all their words and the type must be right"),
    "entity_precision": Metric(entity_precision, "higher", TAGS, "share of the predicted entities that are right"),
    "entity_recall": Metric(entity_recall, "higher", TAGS, "share of the true entities that were found"),
    "macro_f1": Metric(macro_f1, "higher", CLASSES, "F1, the mean over classes"),
    "mae": Metric(mae, "lower", NUMBERS, "mean absolute error"),
    "negative_log_likelihood": Metric(negative_log_likelihood, "lower", SPREADS, "of Gaussians, in nats per number"),
    "noise_left": Metric(noise_left, "lower", ("residual", "noise"), "scatter that is left, over that of the data"),
    "overlap": Metric(
        overlap, "higher", SERIES, "normalised product of the found and the true series, mean of samples"
    ),
    "perplexity": Metric(perplexity, "lower", ("loss", "count"), "exp of the mean loss of a token"),
    "quantile_error": Metric(
        quantile_error, "lower", SPREADS, "how far the predicted quantiles are from the true ones"
    ),
    "rmse": Metric(rmse, "lower", NUMBERS, "root of the mean squared error"),
    "scatter": Metric(scatter, "lower", ("residual", "count"), "root of the mean square of what is left of the noise"),
    "token_accuracy": Metric(token_accuracy, "higher", ("correct", "count"), "share of tokens that are right"),
}
