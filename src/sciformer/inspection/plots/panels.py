"""Drawings in small panels: smaller markers, fewer ticks, one common legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .attention import FONT_SIZE

PANEL_INCHES = 4.0  # side of a full-size drawing


def draw_missing(axes: Axes) -> None:
    """Panel of a sample without tokens."""
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, "no tokens", ha="center", va="center", fontsize=FONT_SIZE, color="grey", transform=axes.transAxes
    )


def shrink(axes: Axes, side: float) -> None:
    """Scale markers and lines of a plot to a panel of `side` inches."""
    part = min(1.0, side / PANEL_INCHES)
    for marks in axes.collections:
        if isinstance(marks, PathCollection):
            marks.set_sizes(np.asarray(marks.get_sizes()) * part**1.5)
            marks.set_linewidth(0.4)
    for line in axes.lines:
        line.set_markersize(line.get_markersize() * part)


def thin_ticks(axes: Axes, named: bool) -> None:
    """Show about three ticks on each axis; keep axis labels only if `named`."""
    if not axes.axison:
        return
    for axis in (axes.xaxis, axes.yaxis):
        if len(axis.get_majorticklocs()):
            axis.set_major_locator(MaxNLocator(nbins=3))
    axes.tick_params(labelsize=FONT_SIZE - 2, length=2, labelleft=named)
    axes.xaxis.label.set_fontsize(FONT_SIZE)
    axes.set_ylabel(axes.get_ylabel() if named else "", fontsize=FONT_SIZE)


def add_weight_bar(figure: Figure, panels: Sequence[tuple[Axes, Any]]) -> None:
    """Add one colour bar for the weights of all panels, from 0 to «largest».

    Each panel has its own largest weight. Drawings without a colour scale of the weights, for example words on a
    coloured background, get no colour bar.
    """
    for axes, weights in panels:
        most = 0.0 if weights is None else float(np.max(weights, initial=0.0))
        for marks in (*axes.collections, *axes.images):
            if most > 0 and marks.get_array() is not None and np.allclose(marks.get_clim(), (0, most)):
                around = [axes for axes, _ in panels]
                bar = figure.colorbar(marks, ax=around, shrink=0.7, aspect=25, ticks=[0, most], pad=0.02)
                bar.ax.set_yticklabels(["0", "largest"], fontsize=FONT_SIZE)
                bar.ax.tick_params(length=2)
                bar.outline.set_visible(False)
                return


def join_legends(figure: Figure, panels: Iterable[Axes], grey: bool = True) -> None:
    """Replace the legends of the panels by one legend below all panels.

    grey   draw the markers of the legend in grey, for panels whose colours show weights
    """
    found: dict[str, Artist] = {}
    for axes in panels:
        if (legend := axes.get_legend()) is not None:
            handles, labels = axes.get_legend_handles_labels()
            found = {**dict(zip(labels, handles)), **found}
            legend.remove()
    if not found:
        return
    options: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "handletextpad": 0.2}
    marks, names = list(found.values()), list(found)
    legend = figure.legend(marks, names, loc="outside lower center", ncols=min(8, len(found)), **options)
    for handle in legend.legend_handles:
        if grey and isinstance(handle, PathCollection):
            handle.set_array(None)  # the colours of weights belong to one panel
            handle.set_sizes([25])
            handle.set_facecolor("0.8")
