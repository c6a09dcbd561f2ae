"""Heat maps of attention weights and of attention patterns.

A row is a query, a column is a key. All figures use one colour map, from white (zero) to dark blue (largest). It varies
only in lightness, so it is readable in grey and by colour-blind people. Figures are made without pyplot and keep no
global state: `axes.figure.savefig("weights.png")` writes a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from ...errors import UserError
from ...nn.attention.masks import Documents, Pattern

Numbers = Tensor | NDArray[Any] | Sequence[Any]
Labels = Sequence[str] | None
Matrix = NDArray[np.float64]
Panel = tuple[str, Matrix]

COLOUR_MAP = "Blues"
CELL_INCHES = 0.36  # side of a cell in a small matrix
MIN_TITLE_INCHES = 1.3  # width of the title of a panel
MAX_PANEL_INCHES, MAX_PAGE_INCHES = 6.0, 16.0  # largest panel, and row of panels
FONT_SIZE, MIN_FONT_SIZE = 8.0, 5.0  # points
MAX_WRITTEN_CELLS = 150  # cells of the largest figure that shows values


def draw_weights(
    weights: Numbers,
    rows: Labels = None,
    columns: Labels = None,
    axes: Axes | None = None,
    *,
    title: str | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Axes:
    """Heat map of weights (N, M) with a label for each row and column.

    axes       axes to draw into (default: a new figure)
    columns    labels of the columns (default for a square matrix: `rows`)
    low        value at the lower end of the colour map (default: 0, or the smallest value if it is negative)
    high       value at the upper end of the colour map (default: the largest value)

    Small matrices show their values, except values that round to zero. Large matrices show evenly spaced labels.
    """
    values = to_matrix(weights, 2, "weights", "(N, M)", "Take one sample and one head: weights[0, 0].")
    labels = _labels(values.shape, rows, columns)
    if axes is None:
        axes = _figure(values.shape, *labels).subplots()
    _paint(axes, values, *labels, *_range([values], low, high), write=values.size <= MAX_WRITTEN_CELLS)
    if title is not None:
        axes.set_title(title, fontsize=FONT_SIZE + 1)
    return axes


def draw_heads(
    weights: Numbers | Mapping[str, Numbers],
    rows: Labels = None,
    columns: Labels = None,
    *,
    titles: Sequence[str] | None = None,
    across: int = 4,
) -> Figure:
    """Heat map of each head, all on one colour scale.

    weights  (H, N, M), with `across` panels in a row; or {name: (H, N, M)}, with a row of panels for each block
    titles   titles of the panels, in order (default: name of the block and number of the head)
    """
    if across < 1:
        raise UserError(f"`across` must be at least 1, not {across}")
    lines = _panels(weights, across)
    panels = [panel for line in lines for panel in line]
    if titles is not None and len(titles) != len(panels):
        raise UserError(f"there are {len(titles)} titles for {len(panels)} panels")
    names = iter([name for name, _ in panels] if titles is None else titles)
    labels = [_labels(values.shape, rows, columns) for _, values in panels]
    low, high = _range([values for _, values in panels], None, None)
    write, wide = sum(values.size for _, values in panels) <= MAX_WRITTEN_CELLS, max(len(line) for line in lines)
    figure = _figure(panels[0][1].shape, *labels[0], len(lines), wide)
    grid, marks = figure.subplots(len(lines), wide, squeeze=False), iter(labels)
    for i, line in enumerate(lines):
        below = len(lines[i + 1]) if i + 1 < len(lines) else 0
        for j, (_, values) in enumerate(line):
            image = _paint(grid[i, j], values, *next(marks), low, high, write)
            grid[i, j].set_title(next(names), fontsize=FONT_SIZE + 1)
            grid[i, j].tick_params(labelleft=j == 0, labelbottom=j >= below)
        for axes in grid[i, len(line) :]:
            axes.set_axis_off()
    figure.supylabel("query", fontsize=FONT_SIZE)
    figure.supxlabel("key", fontsize=FONT_SIZE)
    if not write:
        bar = figure.colorbar(image, ax=grid, shrink=0.5, aspect=30, pad=0.02)
        bar.ax.tick_params(labelsize=FONT_SIZE)
        bar.set_label("weight", fontsize=FONT_SIZE)
    return figure


def draw_pattern(
    pattern: Pattern, n: int, axes: Axes | None = None, *, keys: int | None = None, title: str | None = None
) -> Axes:
    """Plot an attention pattern: a filled cell is a key visible to the query.

    keys   number of keys (default: n, the number of queries)
    """
    keys = n if keys is None else keys
    if n < 1 or keys < 1:
        raise UserError(f"a pattern needs at least 1 query and 1 key, not {n} queries and {keys} keys")
    if isinstance(pattern, Documents) and (pattern.queries.total, pattern.memory.total) != (n, keys):
        total = (pattern.queries.total, pattern.memory.total)
        raise UserError("this pattern of documents has {} queries and {} keys, not {} and {}".format(*total, n, keys))
    allowed = pattern.mask(n, keys).cpu().numpy().astype(np.float64)
    if axes is None:
        axes = _figure(allowed.shape, None, None).subplots()
    _paint(axes, allowed, None, None, 0.0, 1.35, write=False)
    axes.set_xticks(np.arange(keys + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.8", linewidth=min(0.6, 18 / max(n, keys)))
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("key", fontsize=FONT_SIZE)
    axes.set_ylabel("query", fontsize=FONT_SIZE)
    axes.set_title(repr(pattern) if title is None else title, fontsize=FONT_SIZE + 1)
    return axes


def _panels(weights: Numbers | Mapping[str, Numbers], across: int) -> list[list[Panel]]:
    shape, hint = "(H, N, M)", "Take one sample: weights[0]."
    if isinstance(weights, Mapping):
        if not weights:
            raise UserError(
                "there are no attention weights to draw", hint="Pass the Watch to the forward pass of the model."
            )
        blocks = {name: to_matrix(heads, 3, f"weights of {name!r}", shape, hint) for name, heads in weights.items()}
        return [[(f"{name}, head {h + 1}", w) for h, w in enumerate(heads)] for name, heads in blocks.items()]
    panels = [(f"head {h + 1}", w) for h, w in enumerate(to_matrix(weights, 3, "weights", shape, hint))]
    return [panels[h : h + across] for h in range(0, len(panels), across)]


def _paint(
    axes: Axes, values: Matrix, rows: Labels, columns: Labels, low: float, high: float, write: bool
) -> AxesImage:
    image = axes.imshow(values, cmap=COLOUR_MAP, vmin=low, vmax=high, interpolation="nearest")
    figure = axes.get_figure(root=True)
    assert figure is not None
    room = [72 * side / figure.dpi for side in (axes.bbox.width, axes.bbox.height)]
    for axis, labels, count, points in zip((axes.xaxis, axes.yaxis), (columns, rows), values.shape[::-1], room):
        if labels is None:
            axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axis.set_tick_params(length=2, labelsize=FONT_SIZE)
        else:
            size = 0.8 * points / count  # height of a label; if it is too small, labels are left out
            step = math.ceil(MIN_FONT_SIZE / size)
            axis.set_ticks(range(0, count, step), labels=list(labels)[::step])
            axis.set_tick_params(length=0, labelsize=min(FONT_SIZE, max(MIN_FONT_SIZE, size)))
    if columns is not None:
        axes.tick_params(axis="x", labelrotation=90)
    axes.spines[:].set_color("0.8")
    if write:
        for (i, j), value in np.ndenumerate(values):
            if not abs(value) < 0.005:  # NaN is written too
                colour = "white" if value > (low + high) / 2 else "0.15"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=FONT_SIZE - 1.5, color=colour)
    return image


def to_float64(weights: Any) -> Matrix:
    """Convert numbers, or a tensor on any device, to a NumPy array of doubles."""
    if isinstance(weights, Tensor):
        weights = weights.detach().to("cpu", torch.float64).numpy()
    return np.asarray(weights, dtype=np.float64)


def to_matrix(weights: Any, dimensions: int, what: str, shape: str, hint: str = "") -> Matrix:
    """Convert weights to doubles; refuse empty arrays and wrong dimensions."""
    array = to_float64(weights)
    if array.ndim != dimensions or array.size == 0:
        wrong = "are empty, of shape" if array.ndim == dimensions else f"must have the shape {shape}, not"
        raise UserError(f"{what} {wrong} {array.shape}", hint=hint if array.ndim > dimensions else "")
    return array


def _labels(shape: tuple[int, ...], rows: Labels, columns: Labels) -> tuple[Labels, Labels]:
    """Labels of rows and columns, checked against the shape of the weights."""
    if columns is None and shape[0] == shape[1]:
        columns = rows
    for name, labels, count in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
        if labels is not None and len(labels) != count:
            raise UserError(f"there are {len(labels)} labels for the {count} {name} of weights {shape}")
    return rows, columns


def _range(panels: Sequence[Matrix], low: float | None, high: float | None) -> tuple[float, float]:
    """Range of the colour map for all panels, from finite values."""
    values = np.concatenate([panel[np.isfinite(panel)] for panel in panels])
    low = values.min(initial=0.0) if low is None else low
    high = values.max(initial=low) if high is None else high
    return float(low), float(high if high > low else low + 1.0)


def _figure(shape: tuple[int, ...], rows: Labels, columns: Labels, lines: int = 1, wide: int = 1) -> Figure:
    """Empty figure for `lines` rows of `wide` equal panels with labels."""
    cell = CELL_INCHES if lines * wide * math.prod(shape) <= MAX_WRITTEN_CELLS else 0.8 * CELL_INCHES
    cell = min(cell, MAX_PANEL_INCHES / max(shape), MAX_PAGE_INCHES / (wide * shape[1]))
    left, below = (0.3 + 0.08 * max(map(len, labels or ["00"])) for labels in (rows, columns))
    narrow = cell * shape[1] < MIN_TITLE_INCHES  # a title is wider than its panel: do not move panels together
    width, height = MIN_TITLE_INCHES if narrow else cell * shape[1], max(0.3, cell * shape[0])
    size = (left + wide * (width + 0.1) + (0.8 if wide > 1 else 0.2), below + lines * (height + 0.3) + 0.2)
    return Figure(figsize=size, layout="constrained" if narrow else "compressed")
