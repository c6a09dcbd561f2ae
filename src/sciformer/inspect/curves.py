"""A run as pictures: its history, its calibration, its mistakes, its outputs along a column of the data.

Curves differ in lightness and in dashes, so that they can be read in grey. A value that is nan or None is a gap in its
curve, a point between two gaps is a dot. Names are drawn as they are: a dollar in the name of a column is a dollar.
Figures are made without pyplot: `figure.savefig("loss.png")` writes one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError, one_of
from ..metrics import Reliability, Roc
from .attention import COLOURS, FONT, SMALLEST

Values = NDArray[np.float64]
Band = tuple[ArrayLike, ArrayLike | None, ArrayLike | None]

SIZE = (5.5, 3.4)  # inches
LINES = ("#08306b", "#d9772b", "#6baed6", "0.4")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
FAINT = "0.6"  # diagonals and reference lines
DECADES = 1.5  # of a positive quantity, from which its axis is logarithmic
DOTS = 30  # points of a curve, up to which each has a dot
CROWD = 2000  # points, from which a cloud is drawn as a density
LETTERS = 80  # of a line of the legend


def draw_history(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | Mapping[str, str],
    *,
    step: str = "step",
    ylabel: str | None = None,
) -> Figure:
    """Columns of a run's records against its steps, all on one axis: draw another figure for another quantity.

    records  as in metrics.jsonl; a record without a column (or without a step) says nothing about it. Of two records
             of one step, which a resumed run leaves, the later one counts
    columns  keys of the records, or {key: name in the legend}

    The axis is logarithmic where all values are positive and span more than a decade and a half.
    """
    names = dict(columns) if isinstance(columns, Mapping) else {key: key for key in columns}
    if not names:
        raise UserError("one column or more", "none")
    present = sorted({key for record in records for key in record} - {step})
    figure, axes = _start()
    curves = {}
    for key, name in names.items():
        one_of("a column of the history", key, present)
        found = {record[step]: record[key] for record in records if key in record and step in record}
        steps = sorted(found)
        curves[name] = _values(steps), _values([found[s] for s in steps])
    for i, (name, (x, y)) in enumerate(curves.items()):
        _line(axes, x, y, i, name)
    values = np.concatenate([y[np.isfinite(y)] for _, y in curves.values()])
    if values.size and values.min() > 0 and math.log10(values.max() / values.min()) > DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if values.max() / values.min() > 1e3 else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(
            LogFormatterSciNotation() if values.max() > 1e4 or values.min() < 1e-3 else "{x:g}"
        )
        axes.yaxis.set_minor_formatter(NullFormatter())
    places = np.unique(np.concatenate([x for x, _ in curves.values()]))
    if places.size == 1:
        axes.set_xlim(places[0] - 1, places[0] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if not values.size:
        _empty(axes)
    _finish(figure, axes, step, ylabel or (next(iter(names.values())) if len(names) == 1 else ""))
    return figure


def draw_along(
    x: ArrayLike,
    curves: Mapping[str, Band],
    marks: Mapping[str, float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Quantities against a column of the samples, each as a line in a band from low to high.

    curves  {name: (mean, low, high)} of the shape of x; low and high may be None
    marks   {label: place on the x axis} of vertical lines; one that is nan is named as «none» and not drawn
    """
    places = _values(x)
    order = np.argsort(places, kind="stable")
    figure, axes = _start()
    for i, (name, band) in enumerate(curves.items()):
        mean, low, high = (None if part is None else _values(part) for part in band)
        for part in (mean, low, high):
            if part is not None and part.shape != places.shape:
                raise UserError(f"{places.size} values of {name!r}, one for each x", f"shape {part.shape}")
        assert mean is not None
        _line(axes, places[order], mean[order], i, name)
        if low is not None and high is not None:
            bounds = np.stack([places, low, high])[:, order]
            axes.fill_between(*bounds, color=_colour(i), alpha=0.18, linewidth=0)
            alone = _alone(np.isfinite(bounds.sum(axis=0)))
            axes.vlines(*bounds[:, alone], color=_colour(i), alpha=0.3, linewidth=4)
    for i, (label, place) in enumerate((marks or {}).items()):
        there = math.isfinite(place)
        style: dict[str, Any] = {"color": "0.25", "linewidth": 0.9, "linestyle": DASHES[(i + 1) % len(DASHES)]}
        if there:
            axes.axvline(place, label=_plain(label), zorder=1, **style)
        else:
            axes.plot([], [], label=_plain(f"{label}: none"), **style)
    _finish(figure, axes, xlabel, ylabel or (next(iter(curves)) if len(curves) == 1 else ""), always=bool(marks))
    return figure


def draw_reliability(curve: Reliability) -> Figure:
    """Accuracy against confidence beside the diagonal of a calibrated model; below, how many samples are where."""
    figure = _figure()
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=DASHES[1], label="calibrated")
    label = f"model, calibration error {curve.error:.3f}"
    axes.plot(
        curve.confidence, curve.accuracy, color=LINES[0], linewidth=1.2, marker="o", markersize=4, label=label, zorder=3
    )
    below.bar(curve.edges[:-1], curve.samples, width=np.diff(curve.edges), align="edge", color=LINES[2], linewidth=0)
    full = np.flatnonzero(curve.samples)
    first = float(curve.edges[full[0]]) if full.size else 0.0
    axes.set(xlim=(min(first, 0.5), 1.005), ylim=(-0.02, 1.02))
    below.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    _quiet(below)
    below.set_xlabel("confidence", fontsize=FONT)
    below.set_ylabel("samples", fontsize=FONT)
    _finish(figure, axes, "", "accuracy")
    figure.align_ylabels([axes, below])
    return figure


def draw_roc(curve: Roc) -> Figure:
    """True against false positives for two classes, beside the diagonal of a guess."""
    figure, axes = _start()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=DASHES[1], label="guess, AUC 0.5")
    label = f"model, AUC {curve.area:.3f}"
    axes.plot(curve.false_positive, curve.true_positive, color=LINES[0], linewidth=1.4, label=label)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    _finish(figure, axes, "false positives", "true positives")
    return figure


def draw_confusion(matrix: ArrayLike, names: Sequence[str] | None = None) -> Figure:
    """Counts (C, C) of true (rows) and predicted (columns) classes; the colour is the share of the true class.

    The counts are written where they fit; labels that do not fit are left out at even steps.
    """
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.size == 0:
        raise UserError("counts of shape (C, C)", f"{counts.shape}")
    c = len(counts)
    labels = [str(i) for i in range(c)] if names is None else [str(name) for name in names]
    if len(labels) != c:
        raise UserError(f"{c} names of classes", f"{len(labels)}")
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    side = min(3.2, max(2.2, 0.55 * c))
    margin = 0.5 + 0.065 * min(24, max(map(len, labels)))
    figure = Figure(figsize=(side + margin + 0.9, side + margin + 0.1), layout="compressed")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap=COLOURS, vmin=0, vmax=1, interpolation="nearest")
    points = 72 * side / c
    ticks = range(0, c, math.ceil(1.3 * SMALLEST / points))
    short = [_plain(label if len(label) <= 24 else label[:23] + "…") for label in labels]
    size = min(FONT, max(SMALLEST, 0.75 * points))
    axes.set_xticks(ticks, labels=[short[i] for i in ticks], fontsize=size)
    axes.set_yticks(ticks, labels=[short[i] for i in ticks], fontsize=size)
    if max(map(len, short)) * 0.6 * size > points * ticks.step:
        axes.tick_params(axis="x", labelrotation=90)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color("0.8")
    room = min(FONT, 1.5 * points / max(len(f"{count:g}") for count in counts.ravel()))
    if room >= SMALLEST:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[i, j] > 0.5 else "0.15"
                axes.text(j, i, f"{count:g}", ha="center", va="center", fontsize=room, color=colour)
    axes.set_xlabel("predicted", fontsize=FONT)
    axes.set_ylabel("true", fontsize=FONT)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=FONT, length=2)
    bar.set_label("share of the true class", fontsize=FONT)
    bar.outline.set_visible(False)
    return figure


def draw_residuals(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> Figure:
    """Left, predicted against true values; right, (target − mean) / std beside the Gaussian it should follow.

    What is not a number, or has no spread above zero, is left out, and the axis says how much. What lies farther out
    than eight spreads is counted in the outermost bin.
    """
    predicted, spread, truth = (_values(array).ravel() for array in (mean, std, target))
    if not predicted.size == spread.size == truth.size:
        raise UserError("as many means as spreads and targets", f"{predicted.size}, {spread.size}, {truth.size}")
    good = np.isfinite(predicted) & np.isfinite(truth) & (spread > 0) & np.isfinite(spread)
    predicted, spread, truth = predicted[good], spread[good], truth[good]
    figure = _figure()
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    lost = int((~good).sum())
    if predicted.size:
        both = np.concatenate([predicted, truth])
        pad = max(0.04 * float(np.ptp(both)), 1.2 * float(np.median(spread)))
        ends = (both.min() - pad, both.max() + pad)
        left.plot(ends, ends, color=FAINT, linewidth=0.8, linestyle=DASHES[1], zorder=1)
        if predicted.size > CROWD:
            left.hexbin(truth, predicted, gridsize=45, extent=(*ends, *ends), cmap=COLOURS, mincnt=1, bins="log")
        else:
            left.vlines(truth, predicted - spread, predicted + spread, color=LINES[0], alpha=0.2, linewidth=0.6)
            left.scatter(truth, predicted, s=8, linewidths=0, color=LINES[0], alpha=0.8 if truth.size < 200 else 0.5)
        left.set(xlim=ends, ylim=ends)
        left.xaxis.set_major_locator(MaxNLocator(nbins=5))
        z = (truth - predicted) / spread
        edge = min(8.0, max(4.0, float(np.abs(z).max())))
        bins = np.linspace(-edge, edge, 2 * min(20, max(6, int(z.size**0.5))))
        inside = np.clip(z, -edge, edge)
        right.hist(inside, bins.tolist(), density=True, color=LINES[2], label="found")
        grid = np.linspace(-edge, edge, 200)
        right.plot(grid, np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi), color=LINES[0], label="expected")
        right.set_yticks([])
    else:
        _empty(left)
        _empty(right)
    _quiet(right)
    right.spines["left"].set_visible(False)
    right.set_xlabel("(true − predicted) / spread", fontsize=FONT)
    _finish(figure, left, "true" + (f" ({lost} of {good.size} left out: not numbers)" if lost else ""), "predicted")
    return figure


def _start() -> tuple[Figure, Axes]:
    figure = _figure()
    return figure, figure.subplots()


def _figure() -> Figure:
    return Figure(figsize=SIZE, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def _empty(axes: Axes) -> None:
    """Say that there is nothing to draw, instead of drawing ticks of nothing."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, "no finite values", ha="center", va="center", fontsize=FONT, transform=axes.transAxes)


def _finish(figure: Figure, axes: Axes, xlabel: str, ylabel: str, always: bool = False) -> None:
    """Labels, a quiet frame, and above the axes the one legend, where there is more than one curve."""
    _quiet(axes)
    axes.set_xlabel(_plain(xlabel), fontsize=FONT)
    axes.set_ylabel(_plain(ylabel), fontsize=FONT)
    handles: list[Artist] = []
    labels: list[str] = []
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            handles.append(handle)
            labels.append(label)
    if len(labels) > 1 or (labels and always):
        across = max(1, min(4, LETTERS // (max(map(len, labels)) + 6)))
        figure.legend(
            handles, labels, loc="outside upper left", ncols=across, frameon=False, fontsize=FONT, handlelength=2.6
        )


def _quiet(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("0.7")
    axes.tick_params(labelsize=FONT, length=2.5, color="0.7")
    axes.tick_params(which="minor", length=0)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)


def _plain(name: str) -> str:
    """A name that Matplotlib does not read: no formula between dollars, no hidden curve by a first underscore."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def _colour(i: int) -> str:
    return LINES[i % len(LINES)]


def _line(axes: Axes, x: Values, y: Values, i: int, name: str) -> None:
    """The i-th curve of a figure; dots where there are few points, or where a point has no neighbour."""
    there = np.isfinite(x) & np.isfinite(y)
    y = np.where(there, y, np.nan)
    dots = there if there.sum() <= DOTS else _alone(there)
    axes.plot(
        x,
        y,
        color=_colour(i),
        linestyle=DASHES[(i + i // len(LINES)) % len(DASHES)],
        linewidth=1.4,
        marker="o" if dots.any() else "",
        markersize=3,
        markevery=np.flatnonzero(dots).tolist(),
        label=_plain(name),
        zorder=3,
    )


def _alone(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where a point has no neighbour, so that no line leads to it."""
    padded = np.concatenate([[False], there, [False]])
    return there & ~padded[:-2] & ~padded[2:]


def _values(values: ArrayLike | Sequence[Any]) -> Values:
    """Numbers as an array; None is nan."""
    array = np.asarray(values, dtype=np.float64)  # None becomes nan
    if array.ndim == 0:
        raise UserError("a sequence of numbers", f"{values!r}")
    return array


@contextmanager
def any_letters() -> Iterator[None]:
    """Letters that the font has not are drawn as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def word(name: str) -> str:
    """A name in code as words."""
    return name.replace("_", " ")
