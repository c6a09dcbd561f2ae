"""Plots of series against time or phase: visible, hidden and predicted values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from ...data.columns import Array

MARKERS = ("o", "s", "D", "^", "v", "X")
COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa7711", "#774499", "#444444")
BAND_COLOURS = {"u": "#774499", "g": "#228833", "r": "#cc3311", "R": "#cc3311", "i": "#aa7711", "z": "#664433"}
BAND_COLOURS["y"] = "#222222"
MAX_MARKERS = 400  # above this number of points, markers are smaller


@dataclass(frozen=True)
class SeriesView:
    """Series to plot: N tokens (patches) of P points each.

    time, value, error     (N, P) times, values and errors of the points; NaN for missing values
    names                  names of the bands
    band                   (N,) band number of each token
    hidden, limit, asked   (N,) masks of hidden tokens, of upper limits, and of tokens to predict
    """

    time: Array
    value: Array
    error: Array
    band: Array
    names: Sequence[str]
    hidden: Array
    limit: Array
    asked: Array

    @property
    def begin(self) -> float:
        """Integer to subtract from the times, to keep axis labels short; may be 0."""
        low, high = (float(of(self.time)) for of in (np.min, np.max)) if self.time.size else (0.0, 0.0)
        return float(np.floor(low)) if low > 10 * (high - low) else 0.0

    def x(self, period: float | None) -> Array:
        if period is None or not self.time.size:
            return self.time - self.begin
        return (self.time - self.time.min()) / period % 1.0


def draw_series(
    axes: Axes, one: SeriesView, weights: Array | None, magnitudes: bool = False, period: float | None = None
) -> None:
    """Plot a series, with markers by band and colours by weight.

    Hidden points are hollow, upper limits point down. With a period, the series is folded and shown over two periods.
    """
    x, wide = one.x(period), one.value.shape[1]
    shade = np.zeros(one.value.shape) if weights is None else np.repeat(np.asarray(weights, float)[:, None], wide, 1)
    scale = Normalize(0, max(float(shade.max(initial=0)), 1e-12))
    shifts = (0.0,) if period is None else (0.0, 1.0)
    for number, name in enumerate(one.names):
        mine = (one.band == number)[:, None] & np.isfinite(one.value)
        seen, away = mine & ~(one.hidden | one.limit)[:, None], mine & one.hidden[:, None]
        colour = _band_colour(name, number)
        for turn, shift in enumerate(shifts):
            label = name if name and turn == 0 else None
            place, value = x[seen] + shift, one.value[seen]
            _draw_error_bars(axes, place, value, one.error[seen], colour if weights is None else "0.75")
            look: dict[str, Any] = {"color": colour}
            if weights is not None:
                look = {"c": shade[seen], "cmap": "YlOrRd", "norm": scale}
            size = 14.0 if seen.sum() < MAX_MARKERS else 5.0
            mark = MARKERS[number % len(MARKERS)]
            edge: dict[str, Any] = {"edgecolors": "#333333", "linewidths": 0.4}
            axes.scatter(place, value, s=size, marker=mark, label=label, zorder=3, **edge, **look)
            axes.scatter(x[away] + shift, one.value[away], s=size, marker=mark, c="none", **edge, zorder=2)
            low = mine & one.limit[:, None]  # upper limits
            inside: dict[str, Any] = {"c": "none"} if weights is None else {**look, "c": shade[low]}
            axes.scatter(x[low] + shift, one.value[low], s=14, marker="v", edgecolors=colour, linewidths=0.6, **inside)
    _label_axes(axes, one, magnitudes, period)


def draw_hidden_values(
    axes: Axes, one: SeriesView, mean: Array, spread: Array | None, magnitudes: bool, period: float | None = None
) -> None:
    """Plot visible (grey), hidden (hollow) and predicted values.

    mean     (N, P) predicted values; NaN without a prediction
    spread   (N, P) standard deviation of the predictions, or None
    """
    regular = one.value.shape[1] > 1
    period = None if regular else period  # lines and bands need the order of time
    x = one.x(period)
    there = np.isfinite(one.value)
    seen, asked = there & ~one.asked[:, None], there & one.asked[:, None]
    axes.scatter(x[seen], one.value[seen], s=8, color="0.75", linewidths=0, label="seen", zorder=1)
    look: dict[str, Any] = {"s": 16, "c": "none", "edgecolors": "#333333", "linewidths": 0.6}
    axes.scatter(x[asked], one.value[asked], **look, label="hidden", zorder=2)
    for number, name in enumerate(one.names):
        mine = (one.band == number)[:, None] & np.isfinite(mean)
        colour = _band_colour(name, number)
        if not mine.any():
            continue
        said = f"predicted, {name}" if name else "predicted"
        if regular:
            for turn, row in enumerate(np.flatnonzero(mine.any(1))):
                axes.plot(x[row], mean[row], color=colour, linewidth=1, label=None if turn else said, zorder=4)
                if spread is not None:
                    low, high = mean[row] - spread[row], mean[row] + spread[row]
                    axes.fill_between(x[row], low, high, color=colour, alpha=0.25, linewidth=0, zorder=3)
            continue
        bars = None if spread is None else spread[mine]
        _draw_error_bars(axes, x[mine], mean[mine], bars, colour, 3, 1.6)
        axes.scatter(x[mine], mean[mine], s=9, marker="D", color=colour, linewidths=0, label=said, zorder=4)
    _label_axes(axes, one, magnitudes, period, 1.0)


def _band_colour(name: str, number: int) -> str:
    return BAND_COLOURS.get(name, COLOURS[number % len(COLOURS)])


def _draw_error_bars(
    axes: Axes, x: Array, value: Array, error: Array | None, colour: str, order: int = 1, width: float = 0.7
) -> None:
    known = np.zeros(len(x), bool) if error is None else np.isfinite(error) & np.isfinite(value)
    if error is not None and known.any():
        low, high = value[known] - error[known], value[known] + error[known]
        axes.vlines(x[known], low, high, color=colour, alpha=0.5, linewidth=width, zorder=order)


def _label_axes(axes: Axes, one: SeriesView, magnitudes: bool, period: float | None, turns: float = 2.0) -> None:
    """Set axis labels and limits: small magnitudes on top, outliers outside the plot."""
    known = one.value[np.isfinite(one.value)]
    if len(known):
        low, high = np.percentile(known, [2, 98])
        inside = known[(known >= 2 * low - high) & (known <= 2 * high - low)]
        low, high = (float(of(inside)) for of in (np.min, np.max)) if len(inside) else (low, high)
        room = 0.12 * (high - low) or 0.5
        axes.set_ylim(low - room, high + room)
    if magnitudes and not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.set_ylabel("magnitude" if magnitudes else "value")
    axes.set_xlabel("time" + (f" − {one.begin:.0f}" if one.begin else ""))
    if period is not None:
        axes.set_xlabel(f"phase (period {period:.6g})")
        axes.set_xlim(0, turns)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="x-small", loc="upper right", frameon=False, handletextpad=0.1, borderpad=0, ncols=6)
