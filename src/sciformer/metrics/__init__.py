"""Metrics of a model's outputs: functions of whole arrays, in NumPy alone.

`METRICS["auc"](outputs)` takes the arrays that the metric needs from a dictionary of outputs. Coverage is better
neither high nor low, so no model is selected by it. Results that are more than one number (confusion, roc, reliability,
crossing) are functions, but not in `METRICS`. An objective names the scores that only it has (`Objective.score`). For
the rules on nan, empty input and single classes, see `arrays` and the docstring of each metric.
"""

from .base import METRICS, AtLeast, Metric, metric

__all__ = ["METRICS", "AtLeast", "Metric", "metric"]
