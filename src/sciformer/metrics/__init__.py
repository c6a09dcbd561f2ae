"""Metrics: functions of whole arrays of a model's outputs, in NumPy alone.

`METRICS["auc"](outputs)` picks what the metric needs out of a dictionary of outputs. Coverage is neither better when
higher nor when lower: no model is chosen by it. What is no single number (confusion, roc, reliability, crossing) is a
function only.
Scores that only one objective has are no metrics: it names them itself (`Objective.score`).
The rules for nan, empty input and single classes are those of `arrays` and of each docstring.
"""

from __future__ import annotations

from .base import METRICS, AtLeast, Metric, metric
from .calibration import Reliability, calibration_error, reliability, spread, stretch, temperature
from .classification import Roc, accuracy, auc, confusion, efficiency_1, macro_f1, roc
from .crossing import Crossing, crossing
from .regression import (
    coverage_68,
    coverage_95,
    mae,
    negative_log_likelihood,
    noise_left,
    overlap,
    quantile_error,
    rmse,
    scatter,
)
from .text import bleu, chrf, entities, entity_f1, entity_precision, entity_recall, perplexity, token_accuracy

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
    "metric",
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
