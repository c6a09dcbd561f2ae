"""Particles of a jet in the plane of deta and dphi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from ...data.columns import Array

MARKERS = ("o", "s", "D", "^", "v", "X")


def draw_particles(
    axes: Axes, plane: Array, pt: Array, kind: Array, symbols: Sequence[str], weights: Array | None
) -> None:
    """A marker for each type, the larger the harder, its colour by weight; + is the jet axis.

    plane    (N, 2) deta and dphi
    kind     (N,) the number of the type in `symbols`
    """
    size = 6 + 240 * np.sqrt(pt / max(float(pt.max(initial=0)), 1e-9)) ** 1.5
    shade = np.zeros(len(pt)) if weights is None else np.asarray(weights, np.float64)
    scale = Normalize(0, max(float(shade.max(initial=0)), 1e-12))
    axes.plot([0], [0], "+", color="#bb3333", markersize=12, zorder=1)
    for number in np.unique(kind):
        here = np.flatnonzero(kind == number)
        look: dict[str, Any] = {"marker": MARKERS[int(number) % len(MARKERS)], "edgecolors": "#333333"}
        look |= {"color": "#4477aa"} if weights is None else {"c": shade[here], "cmap": "YlOrRd", "norm": scale}
        axes.scatter(
            plane[here, 0], plane[here, 1], s=size[here], linewidths=0.5, alpha=0.85, label=symbols[int(number)], **look
        )
    reach = max(0.1, 1.1 * float(np.abs(plane).max(initial=0)))
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_xlabel("Δη")
    axes.set_ylabel("Δφ")
    if len(pt):
        legend = axes.legend(fontsize="x-small", loc="upper right", frameon=False, handletextpad=0.1, borderpad=0)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set(array=None, sizes=[25], facecolor="#cccccc")
