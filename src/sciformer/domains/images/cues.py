"""Which of two cues does a model follow, where they disagree? (arXiv 1811.12231)

bias = cue_bias(predicted, shape, texture)
bias.value                    the share of answers for the first cue, among those for one of the two
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ...errors import UserError
from ...inspect.plots import style
from ...inspect.plots.attention import FONT_SIZE
from ...inspect.plots.style import FAINT_GREY, LINE_COLOURS
from ...inspect.report.page import Page

if TYPE_CHECKING:
    from ...inspect.report.report import ReportData

SECOND_CUE = "texture"  # the column of the second cue, beside that of the label


class CueBias(NamedTuple):
    """Answers where two cues disagree: how many follow the first, the second, or none of both."""

    first: int
    second: int
    neither: int
    classes: dict[str, tuple[int, int]]
    """By the class of the first cue, how many follow the first and the second."""

    @property
    def value(self) -> float:
        """The share of the first cue among answers that follow one; nan where none does."""
        return self.first / (self.first + self.second) if self.first + self.second else float("nan")

    @property
    def error(self) -> float:
        n = self.first + self.second
        return float(np.sqrt(self.value * (1 - self.value) / n)) if n else float("nan")


def cue_bias(predicted: ArrayLike, first: ArrayLike, second: ArrayLike) -> CueBias:
    """Count the answers (n,) that follow the first or the second cue (n,), over samples whose cues disagree."""
    answer, one, other = (np.asarray(each).astype(str) for each in (predicted, first, second))
    if not answer.shape == one.shape == other.shape or answer.ndim != 1:
        shapes = f"{answer.shape}, {one.shape} and {other.shape}"
        raise UserError(f"each sample must have an answer and two cues, but their shapes are {shapes}")
    fight = one != other
    answer, one, other = answer[fight], one[fight], other[fight]
    mine, theirs = answer == one, answer == other
    counts = {str(name): (int(mine[one == name].sum()), int(theirs[one == name].sum())) for name in np.unique(one)}
    return CueBias(int(mine.sum()), int(theirs.sum()), int((~mine & ~theirs).sum()), counts)


def draw_bias(found: Mapping[str, CueBias], first: str, second: str) -> Figure:
    """The share of answers that follow the first cue, by name (of models, say): dots for classes, a bar for all."""
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
    style.finish(figure, axes, f"share of answers that follow the {first}, not the {second}", "")
    return figure


def cue_section(page: Page, found: ReportData) -> None:
    """The section of the report, where samples have a second cue beside their label and the two disagree."""
    label, made = getattr(found.objective, "label", ""), {}
    for part, judged in found.judged.items():
        if "probabilities" in judged.outputs and SECOND_CUE in judged.samples and label in judged.samples:
            answer = np.asarray(found.objective.classes)[judged.outputs["probabilities"].argmax(1)]
            bias = cue_bias(answer, judged.samples[label], judged.samples[SECOND_CUE])
            if bias.first + bias.second + bias.neither:
                made[part] = bias
    if not made:
        return
    page.section("Which cue it follows", note=f"Where {label} and {SECOND_CUE} disagree")
    rows = [
        [part, one.first, one.second, one.neither, f"{one.value:.3f} ± {one.error:.3f}"] for part, one in made.items()
    ]
    page.table(["part", label, SECOND_CUE, "neither", f"share of {label}"], rows, "Answers by the cue that they follow")
    page.figure(draw_bias(made, label, SECOND_CUE), "A dot for each class.", f"Share of answers that follow {label}")
    found.numbers["cues"] = {
        part: {**one._asdict(), "bias": one.value, "error": one.error} for part, one in made.items()
    }
