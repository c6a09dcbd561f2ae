"""Metrics of a model's outputs: functions of whole arrays, in NumPy alone.

`METRICS["auc"](outputs)` takes the arrays that the metric needs from a dictionary of outputs. Coverage is better
neither high nor low, so no model is selected by it. Results that are more than one number (confusion, roc, reliability,
crossing) are functions, but not in `METRICS`. An objective names the scores that only it has (`Objective.score`). For
the rules on nan, empty input and single classes, see `arrays` and the docstring of each metric.
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
