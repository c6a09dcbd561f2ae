"""Common style of figures: size, colours and dashes, a light frame, one legend.

Curves differ in lightness and dashes, so they are readable in grey. NaN and None are gaps in a curve; a point between
two gaps is a dot. Names are drawn literally: a dollar sign in a name stays a dollar sign.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import ArrayLike, NDArray

from ...errors import UserError
from .attention import FONT_SIZE

Values = NDArray[np.float64]

FIGURE_SIZE = (5.5, 3.4)  # inches
LINE_COLOURS = ("#08306b", "#d9772b", "#6baed6", "0.4")
LINE_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
FAINT_GREY = "0.6"  # for diagonals and reference lines
MAX_DOTTED_POINTS = 30  # points of the longest curve with dots
BOUND_MARK: dict[str, Any] = {"marker": "^", "markerfacecolor": "none"}  # a value that is a lower bound
LEGEND_LETTERS = 80  # letters in a line of the legend


def new_axes() -> tuple[Figure, Axes]:
    """Make a figure with a single pair of axes."""
    figure = new_figure()
    return figure, figure.subplots()


def new_figure() -> Figure:
    """Make an empty figure in the common size and layout."""
    return Figure(figsize=FIGURE_SIZE, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def say_empty(axes: Axes) -> None:
    """Write «no finite values» on empty axes, without ticks."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, "no finite values", ha="center", va="center", fontsize=FONT_SIZE, transform=axes.transAxes)


def finish(figure: Figure, axes: Axes, xlabel: str, ylabel: str, always: bool = False) -> None:
    """Set labels and frame, and add a legend if there are several curves."""
    quiet_frame(axes)
    label_axes(axes, escape_label(xlabel), escape_label(ylabel))
    found = [pair for panel in figure.axes for pair in zip(*panel.get_legend_handles_labels())]
    if len(found) > 1 or (found and always):
        handles, labels = zip(*found)
        across = max(1, min(4, LEGEND_LETTERS // (max(map(len, labels)) + 6)))
        figure.legend(
            handles, labels, loc="outside upper left", ncols=across, frameon=False, fontsize=FONT_SIZE, handlelength=2.6
        )


def label_axes(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Set the labels of both axes in the common font size."""
    axes.set_xlabel(xlabel, fontsize=FONT_SIZE)
    axes.set_ylabel(ylabel, fontsize=FONT_SIZE)


def add_colour_bar(figure: Figure, drawn: ScalarMappable, axes: Axes, label: str, **options: Any) -> None:
    """Add a small colour bar without a frame beside the axes."""
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, aspect=25, **options)
    bar.ax.tick_params(labelsize=FONT_SIZE, length=2)
    bar.set_label(label, fontsize=FONT_SIZE)
    bar.outline.set_visible(False)


def quiet_frame(axes: Axes) -> None:
    """Draw only two sides of the frame, in grey, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("0.7")
    axes.tick_params(labelsize=FONT_SIZE, length=2.5, color="0.7")
    axes.tick_params(which="minor", length=0)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)


def escape_label(name: str) -> str:
    """Escape a name for Matplotlib: dollar signs, and a leading underscore."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def line_style(i: int) -> dict[str, Any]:
    """Colour, dashes and width of the i-th curve of a figure."""
    dashes = LINE_DASHES[(i + i // len(LINE_COLOURS)) % len(LINE_DASHES)]
    return {"color": LINE_COLOURS[i % len(LINE_COLOURS)], "linestyle": dashes, "linewidth": 1.4}


def draw_line(axes: Axes, x: Values, y: Values, i: int, name: str) -> None:
    """Plot the i-th curve, with dots for few or isolated points."""
    there = np.isfinite(x) & np.isfinite(y)
    y = np.where(there, y, np.nan)
    dots = there if there.sum() <= MAX_DOTTED_POINTS else isolated_points(there)
    options = {**line_style(i), "marker": "o" if dots.any() else "", "markevery": np.flatnonzero(dots).tolist()}
    axes.plot(x, y, **options, markersize=3, label=escape_label(name), zorder=3)


def isolated_points(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of points without a finite neighbour, invisible in a line plot."""
    padded = np.concatenate([[False], there, [False]])
    return there & ~padded[:-2] & ~padded[2:]


def to_array(given: ArrayLike | Sequence[Any]) -> Values:
    """Convert numbers to an array; None becomes NaN."""
    array = np.asarray(given, dtype=np.float64)
    if array.ndim == 0:
        raise UserError(f"{given!r} is not a sequence of numbers")
    return array


@contextmanager
def ignore_missing_glyphs() -> Iterator[None]:
    """Suppress warnings about letters missing in the font."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def axis_label(what: str, unit: str = "") -> str:
    """Label of an axis: quantity, and unit if known."""
    return f"{what} in {unit}" if unit else what


def two_decimals(value: float) -> str:
    """Format a number with two decimals, without a minus sign before zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def name_in_words(name: str) -> str:
    """Replace underscores in a metric name by spaces; recall_1 becomes recall@1."""
    return re.sub(r"\brecall (?=\d+$)", "recall@", name.replace("_", " "))
