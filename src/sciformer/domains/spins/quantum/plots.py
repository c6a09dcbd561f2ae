"""Figures of quantum spins."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ....inspection.plots import style
from ....inspection.plots.style import LINE_COLOURS


def draw_correlations(found: Any, exact: Any = None) -> Figure:
    """Draw <S^z_0 S^z_d> of displacements d against their length, with exact values as crosses.

    found, exact   (rows, columns) correlations of a periodic lattice
    """
    figure, axes = style.new_axes()
    values = np.asarray(found)
    rows, columns = values.shape
    down, right = np.meshgrid(np.arange(rows // 2 + 1), np.arange(columns // 2 + 1), indexing="ij")
    length = np.hypot(down, right).ravel()
    order = np.argsort(length)[1:]  # the value at distance 0 is 1/4

    def near(some: Any) -> Any:
        return np.asarray(some)[: rows // 2 + 1, : columns // 2 + 1].ravel()[order]

    axes.axhline(0, color="0.8", linewidth=0.8)
    line = "-" if rows == 1 else ""
    axes.plot(length[order], near(values), "o", linestyle=line, color=LINE_COLOURS[0], markersize=4, label="model")
    if exact is not None:
        axes.plot(length[order], near(exact), "x", linestyle="", color="0.2", markersize=7, label="exact")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.finish(figure, axes, "distance in sites", "correlation of S^z")
    return figure
