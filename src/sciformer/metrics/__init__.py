"""Metrics of model outputs, as NumPy functions of whole arrays.

`METRICS["auc"](outputs)` takes the arrays that the metric needs from a dictionary of outputs. A coverage cannot select
the best model, because neither a high nor a low coverage is better. Functions that return several numbers (confusion,
roc, reliability, crossing) are not in `METRICS`. A score of a single objective is computed in the method `score` of
this objective. For nan, empty input and single classes, see `arrays` and the docstring of each metric.
"""

from .base import METRICS, AtLeast, Metric, metric

__all__ = ["METRICS", "AtLeast", "Metric", "metric"]
