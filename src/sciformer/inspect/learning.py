"""What more of something gives: scores at steps that are no numbers on one scale, such as 20, 100 and all labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ..errors import UserError
from . import frame
from .attention import FONT
from .frame import DASHES, LINES


def draw_steps(
    steps: Sequence[str], curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str
) -> Figure:
    """A line for each name, with its spread as bars; lines stand a little beside each other.

    curves  {name: (means, spreads)}, one for each of the steps; what is nan is left out
    """
    figure, axes = frame.start()
    places = np.arange(len(steps))
    for number, (name, (means, spreads)) in enumerate(curves.items()):
        if not len(means) == len(spreads) == len(steps):
            counts = f"{len(means)} and {len(spreads)}"
            raise UserError(f"{name!r} must have {len(steps)} means and spreads, one for each step, not {counts}")
        aside = 0.06 * (number - (len(curves) - 1) / 2)
        axes.errorbar(
            places + aside,
            np.asarray(means, np.float64),
            np.asarray(spreads, np.float64),
            color=LINES[number % len(LINES)],
            linestyle=DASHES[(number + number // len(LINES)) % len(DASHES)],
            linewidth=1.4,
            marker="o",
            markersize=4,
            capsize=2.5,
            label=frame.plain(name),
        )
    axes.set_xticks(places, labels=[frame.plain(step) for step in steps], fontsize=FONT)
    axes.set_xlim(-0.4, len(steps) - 0.6)
    frame.finish(figure, axes, xlabel, ylabel, always=True)
    return figure
