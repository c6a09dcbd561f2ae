"""Drawing of maps with shaded cubes, and of predicted and true maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from ...data.columns import Array

MISSING_COLOUR = (0.85, 0.85, 0.85, 1.0)
SHADE_COLOUR = "Oranges"
MAX_SHADE_ALPHA = 0.7  # opacity of the largest weight


def draw_map(axes: Axes, values: Array, shade: Array | None = None) -> None:
    """Draw a map, with an optional overlay of weights.

    values  (rows, columns), rows from south to north
    shade   weights of the same shape, or None
    """
    colours = "viridis" if shade is None else "gray"
    axes.imshow(to_colours(values, colours, *_limits(values)), origin="lower", interpolation="nearest")
    if shade is not None:
        level = np.clip(shade / max(float(shade.max(initial=0)), 1e-12), 0, 1)
        look: dict[str, Any] = {"cmap": SHADE_COLOUR, "alpha": MAX_SHADE_ALPHA * level, "vmin": 0, "vmax": 1}
        axes.imshow(level, origin="lower", interpolation="nearest", **look)
    axes.set(xticks=[], yticks=[])


def draw_maps(axes: Axes, maps: Mapping[str, Array], label: str = "") -> None:
    """Draw maps side by side, then the error of the prediction.

    The last map is the truth, the map before the truth is the prediction. All maps have the colour limits of the truth.
    The error is prediction - truth, with blue for too low and red for too high values.

    label   text at the left of the maps
    """
    *_, said, truth = maps.values()
    error = said - truth
    height, width = truth.shape
    gap = max(1, width // 12)
    look: dict[str, Any] = {"origin": "lower", "interpolation": "nearest"}
    strongest = float(np.nanmax(np.abs(error))) if np.isfinite(error).any() else 0.0
    shown = [(name, to_colours(one, "viridis", *_limits(truth))) for name, one in maps.items()]
    shown.append((f"error, up to {strongest:.2g}", to_colours(error, "RdBu_r", -strongest, strongest)))
    for number, (name, one) in enumerate(shown):
        left = number * (width + gap) - 0.5
        axes.imshow(one, extent=(left, left + width, -0.5, height - 0.5), **look)
        axes.text(left + width / 2, -1, name, ha="center", va="top", fontsize="x-small")
    axes.set(xlim=(-0.5, left + width), ylim=(-0.5, height - 0.5), xticks=[], yticks=[], frame_on=False)
    if label:
        axes.set_ylabel(label, fontsize="x-small")


def to_colours(values: Array, name: str, low: float, high: float) -> Array:
    """Colours (..., 4) of values from `low` to `high`; missing values are grey.

    name   name of the colour map
    """
    level = (np.nan_to_num(values) - low) / max(high - low, 1e-12)
    colours = np.asarray(colormaps[name](np.clip(level, 0, 1)))
    colours[~np.isfinite(values)] = MISSING_COLOUR
    return colours


def _limits(values: Array) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
