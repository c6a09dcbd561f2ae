"""Figures of background rejection: ROC curves, and spectra before and after cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter

from ...data.columns import Array
from ...errors import UserError
from ...inspection.plots import style
from ...inspection.plots.attention import FONT_SIZE
from ...inspection.plots.style import LINE_COLOURS, LINE_DASHES
from ...metrics.classification import Roc
from .rejection import MIN_SPECTRUM_SAMPLES, Rejection, Sculpting, rejection, tradeoff

if TYPE_CHECKING:
    from .discriminate import Discriminate

CURVE_POINTS = 401  # points of a curve
# Signal efficiencies; spectra use the three lowest with enough background.
EFFICIENCIES = (0.99, 0.95, 0.9, 0.8, 0.5, 0.3)
PANELS_PER_ROW = 3  # panels of spectra per row
MAX_PANELS = 12  # maximum number of classes with spectra
MIN_BACKGROUND_SAMPLES = 10  # background samples for a reliable point of a curve
# Paul Tol's muted colours, safe for colour-blind readers; dashes distinguish the lines in greyscale.
COLOURS = ("#332288", "#cc6677", "#117733", "#88ccee", "#882255", "#ddaa33", "#44aa99", "#aa4499", "#999933")


def rejection_figures(
    objective: Discriminate, outputs: Mapping[str, Array], samples: Mapping[str, Array]
) -> dict[str, Callable[[], Figure]]:
    """Drawing functions of the figures, by caption; empty if no background is set."""
    if not objective.signals:
        return {}
    pair, place = (outputs["probabilities"], outputs["label"]), objective.classes.index
    against = place(objective.background)

    def tradeoffs() -> Figure:
        curves = {name: tradeoff(*pair, place(name), against) for name in objective.signals}
        points = {n: [rejection(*pair, place(n), against, share) for share in objective.kept(n)] for n in curves}
        return draw_tradeoff(curves, points, objective.background)

    def spectra(column: Array) -> Figure:
        names = objective.signals[:MAX_PANELS]
        found = {n: {share: rejection(*pair, place(n), against, share) for share in EFFICIENCIES} for n in names}
        left = np.array([[one.left for one in shares.values()] for shares in found.values()])
        if not left.any():
            raise UserError(f"no samples of {objective.background} pass any cut")
        many = (left >= MIN_SPECTRUM_SAMPLES).mean(axis=0) >= 0.5
        cuts = [share for share, enough in zip(EFFICIENCIES, many) if enough][-3:] or EFFICIENCIES[:3]
        panels = {
            name: [(f"{100 * c:g} % kept", objective.sculpted(outputs, column, name, shares[c].odds)) for c in cuts]
            for name, shares in found.items()
        }
        return draw_sculpting(panels, objective.spectrum, objective.background)

    caption = f"Rejection of {objective.background} against signal efficiency"
    drawn: dict[str, Callable[[], Figure]] = {caption: tradeoffs}
    if objective.spectrum in samples:
        caption = f"Spectrum of {objective.spectrum} of {objective.background} before and after cuts"
        drawn[caption] = partial(spectra, samples[objective.spectrum])
    return drawn


def draw_tradeoff(curves: Mapping[str, Roc], points: Mapping[str, Sequence[Rejection]], background: str) -> Figure:
    """Draw background rejection against the signal efficiency of each class.

    points  working points of each class, drawn as dots, lower bounds as open triangles

    A curve begins at the first background sample above the cut, and is thin for fewer than ten samples.
    """
    figure, axes = style.new_axes()
    figure.set_size_inches(5.5, 3.4 if len(curves) < 5 else 4.0)
    greatest = 10.0
    for i, (name, curve) in enumerate(curves.items()):
        x = np.linspace(0, 1, CURVE_POINTS)
        first = np.searchsorted(curve.true_positive, x - 1e-12)
        passed = curve.false_positive[np.minimum(first, len(curve.false_positive) - 1)]
        y = np.divide(1.0, passed, out=np.full(len(x), np.nan), where=passed > 0)
        greatest = max(greatest, np.nanmax(y, initial=1.0))
        line_style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)]}
        line_style["linestyle"] = LINE_DASHES[i % len(LINE_DASHES)] if len(curves) > 1 else "-"
        sure = passed >= MIN_BACKGROUND_SAMPLES * curve.false_positive[curve.false_positive > 0].min()
        axes.plot(x, y, linewidth=0.6, alpha=0.7, **line_style)
        axes.plot(x, np.where(sure, y, np.nan), label=style.escape_label(name), linewidth=1.5, zorder=3, **line_style)
        for one in points.get(name, ()):
            look = style.BOUND_MARK if one.bound else {"marker": "o"}
            axes.plot([one.efficiency], [one.value], color=line_style["color"], markersize=4.5, zorder=4, **look)
            greatest = max(greatest, np.nan_to_num(one.value))
    if any(one.bound for some in points.values() for one in some):
        axes.plot([], [], color="0.4", linestyle="", markersize=4.5, label="lower bound", **style.BOUND_MARK)
    axes.set_yscale("log")
    axes.set(xlim=(0, 1.005), ylim=(0.9, 1.8 * greatest))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axes.yaxis.set_major_formatter("{x:,.0f}" if greatest < 2e5 else LogFormatterSciNotation())
    axes.yaxis.set_minor_formatter(NullFormatter())
    style.finish(figure, axes, "signal efficiency", f"rejection of {background}")
    return figure


def draw_sculpting(panels: Mapping[str, Sequence[tuple[str, Sculpting]]], column: str, background: str) -> Figure:
    """Draw the background spectrum before (grey) and after cuts (lines), by class.

    panels  {class: [(name of the cut, sculpting)]}

    A panel shows the divergence of its last cut. Cuts passed by fewer than 50 samples are not drawn.
    """
    across = min(PANELS_PER_ROW, len(panels))
    down = -(-len(panels) // across)
    figure = style.new_figure()
    figure.set_size_inches(*((5.5, 3.4) if across == 1 else (7.2, 1.75 * down + 0.9)))
    grid = figure.subplots(down, across, squeeze=False, sharex=True)
    for number, (name, cuts) in enumerate(panels.items()):
        axes = grid[number // across, number % across]
        edges, before, highest = cuts[0][1].edges[::2], _merge_bins(cuts[0][1].before), 0.0
        axes.stairs(before, edges, fill=True, color="0.88", label="all" if number == 0 else None)
        words = "too few samples"
        for i, (label, cut) in enumerate(cuts):
            line_style: dict[str, Any] = {"color": LINE_COLOURS[i], "linestyle": LINE_DASHES[i]}
            if number == 0:
                axes.plot([], [], label=style.escape_label(label), linewidth=1.2, **line_style)
            if cut.passed >= MIN_SPECTRUM_SAMPLES:
                after = _merge_bins(cut.after)
                axes.stairs(after, edges, baseline=None, linewidth=1.2, **line_style)
                words = f"{label}: {cut.divergence:.2f} bit\nby chance {cut.chance:.2f}"
                highest = max(highest, after.max())
        if across > 1:
            axes.set_title(style.escape_label(name), fontsize=FONT_SIZE, loc="left")
        axes.text(0.98, 0.95, words, ha="right", va="top", fontsize=FONT_SIZE, color="0.3", transform=axes.transAxes)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.25 * max(highest, before.max())))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.set_yticks([])
        style.quiet_frame(axes)
        axes.spines["left"].set_visible(False)
        if number + across >= len(panels):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(style.escape_label(column), fontsize=FONT_SIZE)
    for axes in grid.ravel()[len(panels) :]:
        axes.set_axis_off()
    first = grid[0, 0]
    what = f"share of {background}"
    style.finish(figure, first, column if len(panels) <= across else "", what if across == 1 else "")
    first.spines["left"].set_visible(False)
    if across > 1:
        figure.supylabel(style.escape_label(what), fontsize=FONT_SIZE)
    return figure


def _merge_bins(shares: Array) -> Array:
    return shares.reshape(-1, 2).sum(axis=1)
