"""Images as a person looks at them: in grey or in colours, with weights over them, or side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

Array = NDArray[Any]
ENDS = (0.5, 99.5)  # per cent of the pixels between black and white
FEW = 4  # different values that are shown as they are
STRONG = 0.75  # how much of an image the largest weight covers
WARM = LinearSegmentedColormap.from_list("warm", ["#ffb05c", "#ff5a00"])  # seen on black as on white
EMPTY = (0.80, 0.86, 0.92)  # where there is nothing


def draw(axes: Axes, image: Array, shade: Array | None) -> None:
    """An image (height, width, channels), and over it weights (height, width), the larger the redder.

    Pixels that are NaN are empty.
    """
    span = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
    axes.imshow(coloured(image, limits(image)), extent=span, interpolation="nearest")
    if shade is not None:
        level = np.clip(shade / max(float(shade.max(initial=0)), 1e-12), 0, 1)
        axes.imshow(level, cmap=WARM, alpha=STRONG * level, extent=span, vmin=0, vmax=1, interpolation="nearest")
    _plain(axes)


def beside(axes: Axes, images: Mapping[str, Array]) -> None:
    """Images side by side in one pair of axes, in the colours of the last, with their names below."""
    *_, last = images.values()
    ends, gap = limits(last), max(1, last.shape[1] // 12)
    for number, (name, image) in enumerate(images.items()):
        left = number * (last.shape[1] + gap) - 0.5
        span = (left, left + last.shape[1], last.shape[0] - 0.5, -0.5)
        axes.imshow(coloured(image, ends), extent=span, interpolation="nearest")
        axes.text(left + last.shape[1] / 2, last.shape[0], name, ha="center", va="top", fontsize="x-small")
    axes.set_xlim(-0.5, left + last.shape[1])
    axes.set_ylim(last.shape[0] - 0.5, -0.5)
    _plain(axes)
    axes.set_frame_on(False)


def limits(image: Array) -> tuple[Array, Array]:
    """What is black and what is white in each channel: nearly all pixels are between; few values as they are."""
    flat = _shown(image)
    flat = flat.reshape(-1, flat.shape[-1])
    flat = flat[np.isfinite(flat).all(-1)] if np.isfinite(flat).all(-1).any() else np.zeros((1, flat.shape[-1]))
    found = np.percentile(flat, ENDS, 0) if len(np.unique(flat[:10_000])) > FEW else (flat.min(0), flat.max(0))
    low, high = np.asarray(found[0]), np.asarray(found[1])
    if len(low) == 3:  # colours keep their balance
        low, high = np.full(3, low.min()), np.full(3, high.max())
    flat_one = high <= low
    return np.where(flat_one, flat.min(0), low), np.where(flat_one, np.maximum(flat.max(0), flat.min(0) + 1e-12), high)


def coloured(image: Array, ends: tuple[Array, Array]) -> Array:
    """(height, width, 3) between 0 and 1: three channels in colours, others by their mean, dark on white."""
    low, high = ends
    shown = _shown(image)
    level = np.clip((shown - low) / np.maximum(high - low, 1e-12), 0, 1)
    level = level if level.shape[-1] == 3 else np.repeat(1 - level, 3, -1)
    return np.where(np.isnan(level), EMPTY, level)


def _shown(image: Array) -> Array:
    return image if image.shape[-1] == 3 else image.mean(-1, keepdims=True)


def _plain(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
