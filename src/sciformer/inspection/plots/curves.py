"""Figures of a run: history, calibration, confusion, predictions along a column.

Figures are made without pyplot: `figure.savefig("loss.png")` writes a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from ...errors import UserError, one_of
from ...metrics.calibration import Reliability
from ...metrics.classification import Roc
from . import style
from .attention import COLOUR_MAP, FONT_SIZE, MIN_FONT_SIZE
from .style import FAINT_GREY, LINE_COLOURS, LINE_DASHES

Band = tuple[ArrayLike, ArrayLike | None, ArrayLike | None]

MIN_LOG_DECADES = 1.5  # range above which an axis is logarithmic
MIN_DENSITY_POINTS = 2000  # points above which a density is drawn


def draw_history(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | Mapping[str, str],
    *,
    ylabel: str | None = None,
    bounds: Mapping[str, str] | None = None,
) -> Figure:
    """Plot columns of a run's records against steps.

    records  records as in metrics.jsonl; records without a column or step are skipped. If a resumed run has two records
             of one step, the later record is used
    columns  keys of the records, or {key: name in the legend}
    bounds   {key: name of the score}; if a record lists this name in its `bounds`, the value is only a lower bound and
             is drawn as an open triangle

    The axis is logarithmic if all values are positive and span more than 1.5 decades.
    """
    names = dict(columns) if isinstance(columns, Mapping) else {key: key for key in columns}
    if not names:
        raise UserError("there are no columns to draw")
    present = sorted({key for record in records for key in record} - {"step"})
    figure, axes = style.new_axes()
    curves, lower_bounds = [], False
    for i, (key, name) in enumerate(names.items()):
        one_of("a column of the history", key, present)
        found = {record["step"]: record[key] for record in records if key in record and "step" in record}
        steps = sorted(found)
        curves.append((style.to_array(steps), style.to_array([found[s] for s in steps])))
        style.draw_line(axes, *curves[-1], i, name)
        score = (bounds or {}).get(key)
        lower = {r["step"]: r[key] for r in records if key in r and "step" in r and score in r.get("bounds", ())}
        if lower:
            options = {"color": style.line_style(i)["color"], "linestyle": "", "markersize": 6, **style.BOUND_MARK}
            axes.plot([*lower], [*lower.values()], zorder=4, label="" if lower_bounds else "lower bound", **options)
            lower_bounds = True
    values = np.concatenate([y[np.isfinite(y)] for _, y in curves])
    if values.size and values.min() > 0 and math.log10(values.max() / values.min()) > MIN_LOG_DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if values.max() / values.min() > 1e3 else (1.0, 2.0, 5.0)))
        wide = values.max() > 1e4 or values.min() < 1e-3
        axes.yaxis.set_major_formatter(LogFormatterSciNotation() if wide else "{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    places = np.unique(np.concatenate([x for x, _ in curves]))
    if places.size == 1:
        axes.set_xlim(places[0] - 1, places[0] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if not values.size:
        style.say_empty(axes)
    style.finish(figure, axes, "step", ylabel or (next(iter(names.values())) if len(names) == 1 else ""))
    return figure


def draw_along(
    x: ArrayLike,
    curves: Mapping[str, Band],
    marks: Mapping[str, float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Plot quantities against a sample column, each as a line with a band.

    curves  {name: (mean, low, high)} of the shape of x; low and high may be None
    marks   {label: position on the x axis} of vertical lines; a NaN is listed as «none» in the legend
    """
    places = style.to_array(x)
    order = np.argsort(places, kind="stable")
    figure, axes = style.new_axes()
    for i, (name, band) in enumerate(curves.items()):
        mean, low, high = (None if part is None else style.to_array(part) for part in band)
        for part in (mean, low, high):
            if part is not None and part.shape != places.shape:
                raise UserError(f"{name!r} has the shape {part.shape}, but x has {places.size} values")
        assert mean is not None
        style.draw_line(axes, places[order], mean[order], i, name)
        if low is not None and high is not None:
            bounds, colour = np.stack([places, low, high])[:, order], style.line_style(i)["color"]
            axes.fill_between(*bounds, color=colour, alpha=0.18, linewidth=0)
            alone = style.isolated_points(np.isfinite(bounds.sum(axis=0)))
            axes.vlines(*bounds[:, alone], color=colour, alpha=0.3, linewidth=4)
    for i, (label, place) in enumerate((marks or {}).items()):
        dashes = LINE_DASHES[(i + 1) % len(LINE_DASHES)]
        options: dict[str, Any] = {"color": "0.25", "linewidth": 0.9, "linestyle": dashes}
        if math.isfinite(place):
            axes.axvline(place, label=style.escape_label(label), zorder=1, **options)
        else:
            axes.plot([], [], label=style.escape_label(f"{label}: none"), **options)
    style.finish(figure, axes, xlabel, ylabel or (next(iter(curves)) if len(curves) == 1 else ""), always=bool(marks))
    return figure


def draw_reliability(curve: Reliability) -> Figure:
    """Plot accuracy against confidence, with 68 % intervals and the diagonal.

    A calibrated model lies on the diagonal. A second panel shows a histogram of the confidence.
    """
    figure = style.new_figure()
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    axes.plot([0, 1], [0, 1], color=FAINT_GREY, linewidth=0.8, linestyle=LINE_DASHES[1], label="calibrated")
    label = f"model, calibration error {curve.error:.3f}"
    line: dict[str, Any] = {"color": LINE_COLOURS[0], "linewidth": 1.2, "marker": "o", "markersize": 4, "zorder": 3}
    low, high = curve.interval
    axes.errorbar(
        curve.confidence,
        curve.accuracy,
        (curve.accuracy - low, high - curve.accuracy),
        label=label,
        elinewidth=0.8,
        capsize=2,
        **line,
    )
    widths = np.diff(curve.edges)
    below.bar(curve.edges[:-1], curve.samples, width=widths, align="edge", color=LINE_COLOURS[2], linewidth=0)
    full = np.flatnonzero(curve.samples)
    first = float(curve.edges[full[0]]) if full.size else 0.0
    axes.set(xlim=(min(first, 0.5), 1.005), ylim=(-0.02, 1.02))
    below.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    style.quiet_frame(below)
    style.label_axes(below, "confidence", "samples")
    style.finish(figure, axes, "", "accuracy")
    figure.align_ylabels([axes, below])
    return figure


def draw_roc(curve: Roc) -> Figure:
    """Plot the ROC curve of two classes, with the diagonal of random guesses."""
    figure, axes = style.new_axes()
    axes.plot([0, 1], [0, 1], color=FAINT_GREY, linewidth=0.8, linestyle=LINE_DASHES[1], label="random, AUC 0.5")
    label = f"model, AUC {curve.area:.3f}"
    axes.plot(curve.false_positive, curve.true_positive, color=LINE_COLOURS[0], linewidth=1.4, label=label)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    style.finish(figure, axes, "false positive rate", "true positive rate")
    return figure


def draw_confusion(matrix: ArrayLike, names: Sequence[str] | None = None) -> Figure:
    """Plot the counts (C, C) of true (rows) and predicted (columns) classes.

    The colour is the share of the true class. Counts and labels are left out where they do not fit.
    """
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.size == 0:
        raise UserError(f"the confusion matrix has the shape {counts.shape}, not (C, C) with at least one class")
    c = len(counts)
    labels = [str(i) for i in range(c)] if names is None else [str(name) for name in names]
    if len(labels) != c:
        raise UserError(f"there are {len(labels)} names for {c} classes")
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    side = min(3.2, max(2.2, 0.55 * c))
    margin = 0.5 + 0.065 * min(24, max(map(len, labels)))
    figure = Figure(figsize=(side + margin + 0.9, side + margin + 0.1), layout="compressed")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap=COLOUR_MAP, vmin=0, vmax=1, interpolation="nearest")
    points = 72 * side / c
    ticks = range(0, c, math.ceil(1.3 * MIN_FONT_SIZE / points))
    short = [style.escape_label(label if len(label) <= 24 else label[:23] + "…") for label in labels]
    size = min(FONT_SIZE, max(MIN_FONT_SIZE, 0.75 * points))
    axes.set_xticks(ticks, labels=[short[i] for i in ticks], fontsize=size)
    axes.set_yticks(ticks, labels=[short[i] for i in ticks], fontsize=size)
    if max(map(len, short)) * 0.6 * size > points * ticks.step:
        axes.tick_params(axis="x", labelrotation=90)
    axes.tick_params(length=0)
    axes.spines[:].set_color("0.8")
    room = min(FONT_SIZE, 1.5 * points / max(len(f"{count:g}") for count in counts.ravel()))
    if room >= MIN_FONT_SIZE:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[i, j] > 0.5 else "0.15"
                axes.text(j, i, f"{count:g}", ha="center", va="center", fontsize=room, color=colour)
    style.label_axes(axes, "predicted", "true")
    style.add_colour_bar(figure, image, axes, "share of the true class", ticks=[0, 0.5, 1])
    return figure


def draw_residuals(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> Figure:
    """Plot predicted against true values (left), and (target − mean) / std (right).

    The right panel shows the standard normal distribution for comparison. Values that are not finite, or without a
    positive spread, are left out and counted on the axis. Residuals beyond 8 standard deviations fall in the last bin.
    """
    predicted, spread, truth = (style.to_array(array).ravel() for array in (mean, std, target))
    if not predicted.size == spread.size == truth.size:
        sizes = f"{predicted.size}, {spread.size}, {truth.size}"
        raise UserError(f"the numbers of means, spreads and targets differ: {sizes}")
    good = np.isfinite(predicted) & np.isfinite(truth) & (spread > 0) & np.isfinite(spread)
    predicted, spread, truth = predicted[good], spread[good], truth[good]
    figure = style.new_figure()
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    lost = int((~good).sum())
    if predicted.size:
        both = np.concatenate([predicted, truth])
        pad = max(0.04 * float(np.ptp(both)), 1.2 * float(np.median(spread)))
        ends = (both.min() - pad, both.max() + pad)
        left.plot(ends, ends, color=FAINT_GREY, linewidth=0.8, linestyle=LINE_DASHES[1], zorder=1)
        if predicted.size > MIN_DENSITY_POINTS:
            left.hexbin(truth, predicted, gridsize=45, extent=(*ends, *ends), cmap=COLOUR_MAP, mincnt=1, bins="log")
        else:
            left.vlines(truth, predicted - spread, predicted + spread, color=LINE_COLOURS[0], alpha=0.2, linewidth=0.6)
            opacity = 0.8 if truth.size < 200 else 0.5
            left.scatter(truth, predicted, s=8, linewidths=0, color=LINE_COLOURS[0], alpha=opacity)
        left.set(xlim=ends, ylim=ends)
        left.xaxis.set_major_locator(MaxNLocator(nbins=5))
        z = (truth - predicted) / spread
        edge = min(8.0, max(4.0, float(np.abs(z).max())))
        bins = np.linspace(-edge, edge, 2 * min(20, max(6, int(z.size**0.5))))
        inside = np.clip(z, -edge, edge)
        right.hist(inside, bins.tolist(), density=True, color=LINE_COLOURS[2], label="found")
        grid = np.linspace(-edge, edge, 200)
        right.plot(grid, np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi), color=LINE_COLOURS[0], label="expected")
        right.set_yticks([])
    else:
        style.say_empty(left)
        style.say_empty(right)
    style.quiet_frame(right)
    right.spines["left"].set_visible(False)
    right.set_xlabel("(true − predicted) / standard deviation", fontsize=FONT_SIZE)
    note = f" ({lost} of {good.size} left out: not numbers)" if lost else ""
    style.finish(figure, left, f"true{note}", "predicted")
    return figure


# Scores at steps without a common scale, such as 20, 100 and all labels


def draw_steps(
    steps: Sequence[str], curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str
) -> Figure:
    """Plot a line with error bars for each name, at evenly spaced steps.

    curves  {name: (means, spreads)}, with one entry for each step; NaN is left out
    """
    figure, axes = style.new_axes()
    places = np.arange(len(steps))
    for number, (name, (means, spreads)) in enumerate(curves.items()):
        if not len(means) == len(spreads) == len(steps):
            found = f"{len(means)} means and {len(spreads)} spreads"
            raise UserError(f"{name!r} needs a mean and a spread for each of {len(steps)} steps, not {found}")
        x, y, error = places + 0.06 * (number - (len(curves) - 1) / 2), style.to_array(means), style.to_array(spreads)
        options = {**style.line_style(number), "marker": "o", "markersize": 4, "capsize": 2.5}
        axes.errorbar(x, y, error, **options, label=style.escape_label(name))
    axes.set_xticks(places, labels=[style.escape_label(step) for step in steps], fontsize=FONT_SIZE)
    axes.set_xlim(-0.4, len(steps) - 0.6)
    style.finish(figure, axes, xlabel, ylabel, always=True)
    return figure
