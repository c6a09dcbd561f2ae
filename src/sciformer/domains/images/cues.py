"""Cue bias: does a model follow shape or texture? (arXiv 1811.12231)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ...errors import UserError
from ...inspection.plots import style
from ...inspection.plots.attention import FONT_SIZE
from ...inspection.plots.style import FAINT_GREY, LINE_COLOURS
from ...inspection.report.page import Page

if TYPE_CHECKING:
    from ...inspection.report.report import ReportData

SECOND_CUE = "texture"  # column of the second cue; the first is the label


class CueBias(NamedTuple):
    """Counts of predicted classes by cue, over samples with conflicting cues.

    first     predictions equal to the class of the first cue
    second    predictions equal to the class of the second cue
    neither   all other predictions
    """

    first: int
    second: int
    neither: int
    classes: dict[str, tuple[int, int]]
    """Counts (first, second) for each class of the first cue."""

    @property
    def value(self) -> float:
        """Share of the first cue: first / (first + second); nan if both counts are 0."""
        return self.first / (self.first + self.second) if self.first + self.second else float("nan")

    @property
    def error(self) -> float:
        n = self.first + self.second
        return float(np.sqrt(self.value * (1 - self.value) / n)) if n else float("nan")


def cue_bias(predicted: ArrayLike, first: ArrayLike, second: ArrayLike) -> CueBias:
    """Count the predicted classes by cue, over samples with conflicting cues.

    predicted       (n,) predicted classes
    first, second   (n,) classes of the two cues
    """
    answer, one, other = (np.asarray(each).astype(str) for each in (predicted, first, second))
    if not answer.shape == one.shape == other.shape or answer.ndim != 1:
        shapes = f"{answer.shape}, {one.shape} and {other.shape}"
        raise UserError(f"predictions and cues must have one value for each sample, but their shapes are {shapes}")
    fight = one != other
    answer, one, other = answer[fight], one[fight], other[fight]
    mine, theirs = answer == one, answer == other
    counts = {str(name): (int(mine[one == name].sum()), int(theirs[one == name].sum())) for name in np.unique(one)}
    return CueBias(int(mine.sum()), int(theirs.sum()), int((~mine & ~theirs).sum()), counts)


def draw_bias(found: Mapping[str, CueBias], first: str, second: str) -> Figure:
    """Plot the cue bias of each model or part.

    A dot is the bias of a single class; a bar with its error is the bias of all classes together.
    """
    figure, axes = style.new_axes()
    figure.set_size_inches(5.5, 1.1 + 0.45 * len(found))
    for i, bias in enumerate(found.values()):
        colour = LINE_COLOURS[i % len(LINE_COLOURS)]
        shares = [mine / (mine + theirs) for mine, theirs in bias.classes.values() if mine + theirs]
        axes.plot(shares, [i] * len(shares), "o", color=colour, markersize=4, alpha=0.5, linewidth=0)
        axes.errorbar(bias.value, i, xerr=bias.error, color=colour, marker="|", markersize=18, capsize=2)
        axes.text(1.02, i, f"{bias.value:.2f}", fontsize=FONT_SIZE, va="center", transform=axes.get_yaxis_transform())
    axes.axvline(0.5, color=FAINT_GREY, linewidth=0.8, linestyle="--", zorder=1)
    axes.set(xlim=(-0.02, 1.02), ylim=(len(found) - 0.5, -0.5))
    axes.set_yticks(range(len(found)), labels=[style.escape_label(name) for name in found], fontsize=FONT_SIZE)
    style.finish(figure, axes, f"share of predictions that follow {first}, not {second}", "")
    return figure


def cue_section(page: Page, found: ReportData) -> None:
    """Add the cue bias to the report, for data with two conflicting cues."""
    label, made = getattr(found.objective, "label", ""), {}
    for part, evaluated in found.evaluated.items():
        if "probabilities" in evaluated.outputs and SECOND_CUE in evaluated.samples and label in evaluated.samples:
            answer = np.asarray(found.objective.classes)[evaluated.outputs["probabilities"].argmax(1)]
            bias = cue_bias(answer, evaluated.samples[label], evaluated.samples[SECOND_CUE])
            if bias.first + bias.second + bias.neither:
                made[part] = bias
    if not made:
        return
    page.section("Cue bias", note=f"Samples with conflicting {label} and {SECOND_CUE}")
    rows = [[part, *one[:3], f"{one.value:.3f} ± {one.error:.3f}"] for part, one in made.items()]
    page.table(["part", label, SECOND_CUE, "neither", f"share of {label}"], rows, "Predictions that follow each cue")
    page.figure(draw_bias(made, label, SECOND_CUE), "Dots: classes. Bar: all classes.", f"Share that follows {label}")
    numbers = {part: {**one._asdict(), "bias": one.value, "error": one.error} for part, one in made.items()}
    found.numbers["cues"] = numbers
