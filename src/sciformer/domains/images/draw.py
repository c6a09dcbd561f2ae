"""Images as a person looks at them: in grey or in colours, with weights over them, or side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from ...data.columns import Array

CLIP_PERCENTILES = (0.5, 99.5)  # per cent of the pixels between black and white
MAX_DISCRETE_VALUES = 4  # different values that are shown as they are
MAX_SHADE_ALPHA = 0.75  # how much of an image the largest weight covers
SHADE_COLOURS = LinearSegmentedColormap.from_list("warm", ["#ffb05c", "#ff5a00"])  # seen on black as on white
MISSING_COLOUR = (0.80, 0.86, 0.92)  # where there is nothing


def draw_image(axes: Axes, image: Array, shade: Array | None) -> None:
    """An image (height, width, channels), and over it weights (height, width), the larger the redder.

    Pixels that are NaN are empty.
    """
    span = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
    axes.imshow(to_rgb(image, display_limits(image)), extent=span, interpolation="nearest")
    if shade is not None:
        level = np.clip(shade / max(float(shade.max(initial=0)), 1e-12), 0, 1)
        look: dict[str, Any] = {"cmap": SHADE_COLOURS, "alpha": MAX_SHADE_ALPHA * level, "vmin": 0, "vmax": 1}
        axes.imshow(level, extent=span, interpolation="nearest", **look)
    axes.set(xticks=[], yticks=[])


def draw_side_by_side(axes: Axes, images: Mapping[str, Array]) -> None:
    """Images side by side in one pair of axes, in the colours of the last, with their names below."""
    *_, last = images.values()
    ends, gap = display_limits(last), max(1, last.shape[1] // 12)
    for number, (name, image) in enumerate(images.items()):
        left = number * (last.shape[1] + gap) - 0.5
        span = (left, left + last.shape[1], last.shape[0] - 0.5, -0.5)
        axes.imshow(to_rgb(image, ends), extent=span, interpolation="nearest")
        axes.text(left + last.shape[1] / 2, last.shape[0], name, ha="center", va="top", fontsize="x-small")
    axes.set(xlim=(-0.5, left + last.shape[1]), ylim=(last.shape[0] - 0.5, -0.5), xticks=[], yticks=[], frame_on=False)


def display_limits(image: Array) -> tuple[Array, Array]:
    """What is black and what is white in each channel: nearly all pixels are between; few values as they are."""
    flat = _display_channels(image)
    flat = flat.reshape(-1, flat.shape[-1])
    flat = flat[np.isfinite(flat).all(-1)] if np.isfinite(flat).all(-1).any() else np.zeros((1, flat.shape[-1]))
    found = (
        np.percentile(flat, CLIP_PERCENTILES, 0)
        if len(np.unique(flat[:10_000])) > MAX_DISCRETE_VALUES
        else (flat.min(0), flat.max(0))
    )
    low, high = np.asarray(found[0]), np.asarray(found[1])
    if len(low) == 3:  # colours keep their balance
        low, high = np.full(3, low.min()), np.full(3, high.max())
    flat_one = high <= low
    return np.where(flat_one, flat.min(0), low), np.where(flat_one, np.maximum(flat.max(0), flat.min(0) + 1e-12), high)


def to_rgb(image: Array, ends: tuple[Array, Array]) -> Array:
    """(height, width, 3) between 0 and 1: three channels in colours, others by their mean, dark on white."""
    low, high = ends
    shown = _display_channels(image)
    level = np.clip((shown - low) / np.maximum(high - low, 1e-12), 0, 1)
    level = level if level.shape[-1] == 3 else np.repeat(1 - level, 3, -1)
    return np.where(np.isnan(level), MISSING_COLOUR, level)


def _display_channels(image: Array) -> Array:
    return image if image.shape[-1] == 3 else image.mean(-1, keepdims=True)
