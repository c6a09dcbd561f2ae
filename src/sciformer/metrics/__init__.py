"""Metrics of model outputs, as NumPy functions of whole arrays.

`METRICS["auc"](outputs)` takes the arrays that the metric needs from a dictionary of outputs. Models are not selected
by coverage, because neither a high nor a low value is better. Functions with several numbers as result (confusion, roc,
reliability, crossing) are not in `METRICS`. A score of only one objective is computed in the method `score` of this
objective. For nan, empty input and single classes, see `arrays` and the docstring of each metric.
"""

from .base import METRICS, AtLeast, Metric, metric

__all__ = ["METRICS", "AtLeast", "Metric", "metric"]
