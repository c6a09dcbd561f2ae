"""Section of the report: predictions against a column of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...data.columns import Array
from ...errors import UserError, one_of
from ...evaluation.evaluate import Evaluation
from ...metrics.crossing import Crossing, crossing
from .. import attention
from ..plots import curves
from .page import Page

if TYPE_CHECKING:
    from .report import ReportData

MAX_CROSSING_ERROR = 0.1  # largest error of a crossing, as a share of the range of the column


class AnswersAgainst(NamedTuple):
    """Model output against a column, and the position where a probability crosses 0.5."""

    what: str
    x: Array
    y: Array
    crossing: Crossing | None


def answers_against(found: ReportData) -> tuple[AnswersAgainst | None, str]:
    """Predictions against the plotted column, over all evaluated parts.

    Returns None and the reason if they cannot be drawn.
    """
    objective, by = found.objective, getattr(getattr(found.run.recipe.data, "split", None), "by", "")
    if not objective.plot_against or not found.evaluated:
        return None, "" if found.evaluated else "Not shown: predictions need the data."
    try:
        used = [part for part in found.evaluated.values() if objective.plot_against in part.samples]
        if not used:
            one_of("objective.plot_against", objective.plot_against, next(iter(found.evaluated.values())).samples)
        x = np.concatenate([part.samples[objective.plot_against] for part in used])
        if x.dtype.kind not in "iuf":
            message = f"column `{objective.plot_against}` holds {x.dtype}, not numbers"
            raise UserError(message, key="objective.plot_against")
        good = np.isfinite(x)
        what, y = _answers(objective, used)
        group = np.concatenate([part.samples[by] for part in used])[good] if by in used[0].samples else None
        of_two = what.startswith("probability") and (len(objective.classes) == 2 or objective.curve)
        passed = crossing(x[good], y[good], group=group) if of_two else None
        if passed is not None and passed.error > MAX_CROSSING_ERROR * np.ptp(x[good]):
            passed = Crossing(np.nan, np.nan)
    except UserError as error:
        return None, f"Not shown: {str(error).rstrip('.')}."
    numbers = {} if passed is None else {"crossing": passed.value, "error": passed.error}
    about = {"column": objective.plot_against, "what": what, "reference": objective.reference}
    found.numbers["along"] = about | numbers
    return AnswersAgainst(what, x[good].astype(np.float64), y[good], passed), ""


def _answers(objective: Any, used: list[Evaluation]) -> tuple[str, Array]:
    """Name and values of the model output to plot."""
    outputs = {name: np.concatenate([part.outputs[name] for part in used]) for name in used[0].outputs}
    if "probabilities" in outputs:
        name = objective.curve or objective.classes[-1]
        one_of("objective.curve", name, objective.classes)
        return f"probability of {name}", outputs["probabilities"][:, objective.classes.index(name)]
    if "mean" in outputs:
        return f"predicted {objective.targets[0]}", outputs["mean"][:, 0]
    return "mean loss", outputs["loss"] / np.maximum(1, outputs.get("count", 1))


def draw_answers_against(page: Page, found: ReportData, along: AnswersAgainst | None, trouble: str) -> None:
    """Write the section with its figure, or with the reason for its absence.

    trouble   reason why there is no figure
    """
    page.section("Predictions", note=f"Against {found.objective.plot_against}, parts: {', '.join(found.evaluated)}")
    if along is None:
        page.text(trouble)
        return
    groups = attention.group_by_value(along.x)
    mean = np.array([along.y[rows].mean() for _, rows in groups])
    error = np.array([along.y[rows].std() / len(rows) ** 0.5 for _, rows in groups])
    marks = {} if along.crossing is None else {"crossing": along.crossing.value}
    if found.objective.reference is not None:
        marks["reference"] = found.objective.reference
    band = {along.what: (mean, mean - error, mean + error)}
    figure = curves.draw_along([value for value, _ in groups], band, marks, found.objective.plot_against, along.what)
    alt = f"{along.what} against {found.objective.plot_against}"
    page.figure(figure, f"Mean {along.what} and its standard error.", alt)
