"""Drawing of one sample for every head of every block, coloured by attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...assembly import Assembly
from ..attention import (
    AttentionMaps,
    escape_mathtext,
    even_steps,
    excess_over,
    map_title,
    relative_to_uniform,
    weights_on,
)
from .attention import FONT_SIZE, MIN_FONT_SIZE
from .panels import add_weight_bar, join_legends, shrink

MAX_BLOCKS, MAX_HEADS = 12, 12  # largest numbers of rows and columns
MAX_PANEL_INCHES, PAGE_INCHES = 1.05, 8.4  # largest panel, and row of panels


def has_shape(assembly: Assembly, recorded: AttentionMaps, row: int) -> bool:
    """Whether the drawing of a sample has a fixed aspect ratio.

    Only drawings with a fixed aspect ratio are readable in a small panel.
    """
    return _trial_axes(assembly, recorded, row).get_aspect() != "auto"


def draw_every_head(recorded: AttentionMaps, assembly: Assembly, row: int) -> Figure:
    """Draw a sample for every head: a row for each block, a column for each head.

    The blocks of an attention pooling come last. The title of a panel is the largest attention divided by uniform
    attention. The colour of a token is the attention that it receives in excess of uniform attention, so the drawing of
    a uniform head has no colour.
    """
    maps = recorded.watch.attention
    names = [list(maps)[i] for i in even_steps(len(maps), MAX_BLOCKS)]
    most = max(maps[name].shape[1] for name in names)
    heads = even_steps(most, MAX_HEADS).tolist()
    trial = _trial_axes(assembly, recorded, row)
    wide, high = (abs(float(np.ptp(ends))) for ends in (trial.get_xlim(), trial.get_ylim()))
    side = min(MAX_PANEL_INCHES, PAGE_INCHES / len(heads))
    height = side * min(2.0, max(0.5, high / wide)) + 0.16
    figure = Figure(figsize=(side * len(heads) + 0.5, height * len(names) + 0.4), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)  # type: ignore[union-attr, call-arg]
    grid = figure.subplots(len(names), len(heads), squeeze=False)
    drawn: list[tuple[Axes, Any]] = []
    sample, tokens = recorded.seen.take(np.array([row])), assembly.tokens[recorded.stream]
    for i, name in enumerate(names):
        for j, head in enumerate(heads):
            axes = grid[i, j]
            if head >= maps[name].shape[1]:
                axes.set_axis_off()
                continue
            excess, greatest = excess_over(relative_to_uniform(weights_on(recorded, row, head)[name]))
            tokens.draw(sample, excess, axes)
            drawn.append((axes, excess))
            _strip_words(axes)
            shrink(axes, side)
            number, times = f"head {head + 1}   " if i == 0 else "", f"×{greatest:.1f}" if excess.any() else "–"
            axes.set_title(number + times, fontsize=MIN_FONT_SIZE + 1, pad=2)
        grid[i, 0].set_ylabel(escape_mathtext(map_title(name)), fontsize=FONT_SIZE)
    join_legends(figure, grid.ravel())
    add_weight_bar(figure, drawn)
    return figure


def _trial_axes(assembly: Assembly, recorded: AttentionMaps, row: int) -> Axes:
    axes = Figure().subplots()
    assembly.tokens[recorded.stream].draw(recorded.seen.take(np.array([row])), None, axes)
    return axes


def _strip_words(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    for letter in axes.texts:
        letter.remove()
    axes.spines[:].set(color="0.8", linewidth=0.5)
