"""Drawing of images: side by side, or with an overlay of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from ...data.columns import Array

CLIP_PERCENTILES = (0.5, 99.5)  # percentiles of the pixels shown as black and white
MAX_DISCRETE_VALUES = 4  # up to this many distinct values, black and white are the minimum and maximum
MAX_SHADE_ALPHA = 0.75  # opacity of the largest weight
SHADE_COLOURS = LinearSegmentedColormap.from_list("warm", ["#ffb05c", "#ff5a00"])  # visible on black and on white
MISSING_COLOUR = (0.80, 0.86, 0.92)  # colour of NaN pixels


def draw_image(axes: Axes, image: Array, shade: Array | None) -> None:
    """Draw an image (H, W, channels) with an overlay of weights (H, W) in orange."""
    span = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
    axes.imshow(to_rgb(image, display_limits(image)), extent=span, interpolation="nearest")
    if shade is not None:
        level = np.clip(shade / max(float(shade.max(initial=0)), 1e-12), 0, 1)
        look: dict[str, Any] = {"cmap": SHADE_COLOURS, "alpha": MAX_SHADE_ALPHA * level, "vmin": 0, "vmax": 1}
        axes.imshow(level, extent=span, interpolation="nearest", **look)
    axes.set(xticks=[], yticks=[])


def draw_side_by_side(axes: Axes, images: Mapping[str, Array]) -> None:
    """Draw images side by side, with the same colour limits as the last image."""
    *_, last = images.values()
    ends, gap = display_limits(last), max(1, last.shape[1] // 12)
    for number, (name, image) in enumerate(images.items()):
        left = number * (last.shape[1] + gap) - 0.5
        span = (left, left + last.shape[1], last.shape[0] - 0.5, -0.5)
        axes.imshow(to_rgb(image, ends), extent=span, interpolation="nearest")
        axes.text(left + last.shape[1] / 2, last.shape[0], name, ha="center", va="top", fontsize="x-small")
    axes.set(xlim=(-0.5, left + last.shape[1]), ylim=(last.shape[0] - 0.5, -0.5), xticks=[], yticks=[], frame_on=False)


def display_limits(image: Array) -> tuple[Array, Array]:
    """Black and white level of each channel: percentiles, or minimum and maximum.

    Minimum and maximum are used for images with few distinct values.
    """
    flat = _display_channels(image)
    flat = flat.reshape(-1, flat.shape[-1])
    flat = flat[np.isfinite(flat).all(-1)] if np.isfinite(flat).all(-1).any() else np.zeros((1, flat.shape[-1]))
    few = len(np.unique(flat[:10_000])) <= MAX_DISCRETE_VALUES
    low, high = np.percentile(flat, (0, 100) if few else CLIP_PERCENTILES, 0)
    if len(low) == 3:  # common limits keep the colour balance
        low, high = np.full(3, low.min()), np.full(3, high.max())
    flat_one = high <= low
    return np.where(flat_one, flat.min(0), low), np.where(flat_one, np.maximum(flat.max(0), flat.min(0) + 1e-12), high)


def to_rgb(image: Array, ends: tuple[Array, Array]) -> Array:
    """Convert an image to RGB values in [0, 1]; NaN pixels get `MISSING_COLOUR`.

    Images with three channels are drawn in colour. For any other number of channels, the mean of the channels is drawn
    in grey. `ends` are the black and white levels.
    """
    low, high = ends
    shown = _display_channels(image)
    level = np.clip((shown - low) / np.maximum(high - low, 1e-12), 0, 1)
    level = level if level.shape[-1] == 3 else np.repeat(1 - level, 3, -1)
    return np.where(np.isnan(level), MISSING_COLOUR, level)


def _display_channels(image: Array) -> Array:
    return image if image.shape[-1] == 3 else image.mean(-1, keepdims=True)
