"""Drawing of text in lines, with token weights as background colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...data.columns import Array

LINE_CELLS, LINE_WIDTH, MAX_WORD_WIDTH = 64, 80, 30  # cells or columns of a line; maximum width of a word


def write_lines(axes: Axes, tokens: Sequence[str], weights: Array | None, cells: bool) -> None:
    """Draw tokens in lines.

    cells   whether each token is drawn in a cell of equal width (for characters) or in its own width
    """
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    shade = np.zeros(len(tokens)) if weights is None else np.asarray(weights, np.float64)
    shade = shade / max(float(shade.max(initial=0)), 1e-12)
    tokens = [token if len(token) <= MAX_WORD_WIDTH else token[: MAX_WORD_WIDTH - 1] + "…" for token in tokens]
    axes.set_axis_off()
    places = [(i % LINE_CELLS, i // LINE_CELLS, 1) for i in range(len(tokens))] if cells else _word_places(tokens)
    least = (1, 1) if cells else (LINE_WIDTH // 2, 3)  # minimum size, so that few words are not stretched
    axes.set_xlim(0, max([least[0], *(x + wide for x, _, wide in places)]))
    axes.set_ylim(max([least[1], *(y + 1 for _, y, _ in places)]), 0)
    for token, (x, y, wide), dark in zip(tokens, places, shade):
        axes.add_patch(Rectangle((x, y), wide, 1, facecolor=colormaps["Blues"](0.9 * float(dark)), linewidth=0))
        style: dict[str, Any] = {"family": "monospace", "ha": "center", "va": "center", "parse_math": False}
        size, color = 7 if wide > len(token) or len(token) == 1 else 4, "white" if dark > 0.6 else "black"
        axes.text(x + wide / 2, y + 0.5, token, fontsize=size, color=color, **style)


def _word_places(tokens: Sequence[str]) -> list[tuple[int, int, int]]:
    places, x, y = [], 0, 0
    for token in tokens:
        wide = len(token) + 1
        if x and x + wide > LINE_WIDTH:
            x, y = 0, y + 1
        places.append((x, y, wide))
        x += wide
    return places
