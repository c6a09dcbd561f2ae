"""The shape of an image changed: another size, other channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....data.columns import Array
from ....errors import UserError

LUMA_WEIGHTS = (0.299, 0.587, 0.114)  # of ITU-R 601, as Pillow has them


@dataclass(frozen=True)
class Resizer:
    """What is done to every image.

    shape      (height, width) it is scaled to cover, and cut to about its centre; None: as it is
    channels   1 makes colours grey, 3 repeats grey; None: as they are
    """

    shape: tuple[int, int] | None = None
    channels: int | None = None

    def __call__(self, image: Array) -> Array:
        """(..., height, width, channels) -> the same of another shape."""
        if self.shape is not None and image.shape[-3:-1] != self.shape:
            image = resize_image(image, self.shape)
        if self.channels in (None, image.shape[-1]):
            return image
        if self.channels == 1 and image.shape[-1] == 3:
            return round_to_dtype(image.astype(np.float32) @ np.array(LUMA_WEIGHTS, np.float32)[:, None], image.dtype)
        if image.shape[-1] == 1:
            return np.repeat(image, self.channels or 1, -1)
        raise UserError(
            f"an image of {image.shape[-1]} channels cannot be read as {self.channels} (data.channels)",
            key="data.channels",
        )

    def output_shapes(self, shapes: Array) -> Array:
        """(n, 3) heights, widths and channels as they will be."""
        made = shapes.copy()
        if self.shape is not None:
            made[:, :2] = self.shape
        if self.channels is not None:
            made[:, 2] = self.channels
        return made


def cover_box(shape: tuple[int, int], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """(top, left, height, width) of the largest part about the centre that has the proportions of what is wanted."""
    scale = max(wanted[0] / shape[0], wanted[1] / shape[1])
    height, width = min(shape[0], wanted[0] / scale), min(shape[1], wanted[1] / scale)
    return (shape[0] - height) / 2, (shape[1] - width) / 2, height, width


def resize_image(image: Array, wanted: tuple[int, int]) -> Array:
    """(..., h, w, c) -> (..., H, W, c): scaled to cover and cut about the centre; smoothed where it shrinks."""
    top, left, height, width = cover_box((image.shape[-3], image.shape[-2]), wanted)
    down = triangle_weights(image.shape[-3], top, height, wanted[0])
    aside = triangle_weights(image.shape[-2], left, width, wanted[1])
    exact = image.astype(np.result_type(image.dtype, np.float32))
    return round_to_dtype(np.einsum("yh,...hwc,xw->...yxc", down, exact, aside, optimize=True), image.dtype)


def triangle_weights(count: int, start: float, length: float, wanted: int) -> Array:
    """(wanted, count) weights of linear interpolation, wider where many pixels become one, as Pillow has them."""
    scale = length / wanted
    wide = max(scale, 1.0)
    centre = start + (np.arange(wanted)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs((np.arange(count) + 0.5 - centre) / wide))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def round_to_dtype(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values rounded and bounded to a type of whole numbers, or as a type of real ones."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)
