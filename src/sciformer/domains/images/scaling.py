"""Pixel values: stretch, normalisation, statistics and the inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...data.batch import Stream
from ...data.columns import Array, Table
from ...errors import UserError
from .column import ImageColumn
from .levels import PixelLevels

if TYPE_CHECKING:
    from .tokens import Patches

TARGET_PREFIX = "target "
EPSILON = 1e-6  # added to the variance of a patch
PIXELS_AT_ONCE = 1 << 22  # number of pixels summed at a time


def learn_scaling(section: Patches, tables: Iterable[Table]) -> dict[str, Any]:
    """Learn the largest shape, the channel moments and the pixel levels of images."""
    moments: ChannelMoments | None = None
    levels = PixelLevels()
    shapes: set[tuple[int, int]] = set()
    varies, before = False, 0
    for table in tables:
        pictures = ImageColumn(table)
        moments = moments or ChannelMoments(pictures.channels)
        if pictures.channels != len(moments.mean):
            counts = f"the first image has {len(moments.mean)} channels and a later image has {pictures.channels}"
            raise UserError(f"all images must have the same number of channels, but {counts}")
        for rows, images in pictures.groups():
            values = images.reshape(-1, images.shape[-1])
            bad = np.zeros(0, bool) if values.dtype.kind in "bui" else ~np.isfinite(values).all(-1)
            if bad.any():
                where = before + rows[np.flatnonzero(bad)[0] // (images.shape[1] * images.shape[2])]
                raise UserError(f"{bad.sum()} pixels are NaN or infinite, the first in sample {where}")
            levels.add(values)
            moments.add(stretch_values(values, section.stretch, section.softening))
            if len(rows):
                shapes.add((images.shape[1], images.shape[2]))
        varies, before = varies or not pictures.one_shape, before + len(pictures)
    if moments is None or not moments.count:
        raise UserError("there are no images to train on")
    height, width = (max(sides) for sides in zip(*shapes))
    least = section.cutting.sides
    if height < least[0] or width < least[1]:
        message = f"images of {height} x {width} pixels are smaller than a patch of {least[0]} x {least[1]}"
        raise UserError(message, hint="Choose a smaller tokens.patch, or larger images.", key="tokens.patch")
    shape = [height, width, len(moments.mean)]
    found = {"shape": shape, "mean": moments.mean.tolist(), "deviation": moments.deviation.tolist()}
    found["pixels"] = levels.to_json()
    return found | ({"varies": True} if varies or len(shapes) > 1 else {})


class ChannelMoments:
    """Running mean and standard deviation of each channel (Welford)."""

    def __init__(self, channels: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(channels), np.zeros(channels)

    def add(self, values: Array) -> None:
        """Add values (n, channels).

        Sums of squares are centred before merging; otherwise large means would lose precision.
        """
        for start in range(0, len(values), PIXELS_AT_ONCE):
            some = values[start : start + PIXELS_AT_ONCE].astype(np.float64)
            more = some.mean(0)
            apart, share = more - self.mean, len(some) / (self.count + len(some))
            some -= more
            some *= some
            self.squares = self.squares + some.sum(0) + apart**2 * self.count * share
            self.count, self.mean = self.count + len(some), self.mean + apart * share

    @property
    def deviation(self) -> Array:
        return np.asarray(np.sqrt(self.squares / self.count))


def normalise_patches(section: Patches, stream: Stream) -> dict[str, Array]:
    """Normalise the columns `patch` and `target patch` (T, pixels) for the model."""
    names = [name for name in ("patch", TARGET_PREFIX + "patch") if name in stream.columns]
    made = {name: scale_by_channel(section, stream.columns[name]) for name in names}
    if section.scale == "image":
        centre, deviation, inside = image_levels(section, stream, made["patch"])
        made = {name: np.where(inside, (values - centre) / deviation, 0) for name, values in made.items()}
    columns: dict[str, Array] = {
        name: v.astype(np.float32, copy=False).reshape(len(v), section.pixels) for name, v in made.items()
    }
    if "hidden" in stream.columns:
        columns["patch"][stream.columns["hidden"].astype(bool)] = 0
    if section.target == "patch" and TARGET_PREFIX + "patch" in columns:
        mean, deviation = patch_moments(columns[TARGET_PREFIX + "patch"])
        columns[TARGET_PREFIX + "patch"] = (columns[TARGET_PREFIX + "patch"] - mean) / deviation
    return columns


def scale_by_channel(section: Patches, values: Array) -> Array:
    """Stretch and normalise patches (T, pixels) -> (T, pixels / channels, channels)."""
    exact, channels = np.result_type(values, np.float32), section.shape[2]  # float64 is kept for the subtraction
    each = section.pixels // channels
    values = stretch_values(values.reshape(len(values), section.pixels), section.stretch, section.softening)
    if section.scale == "none":
        values = values.astype(np.float32)
    else:  # all pixels of a patch at once: a loop over channels is slow
        mean, deviation = (np.tile(np.asarray(section.state[key], exact), each) for key in ("mean", "deviation"))
        values = np.subtract(values, mean, dtype=exact)
        values /= np.where(deviation > 0, deviation, 1)
    return values.reshape(len(values), each, channels)


def image_levels(section: Patches, stream: Stream, values: Array) -> tuple[Array, Array, Array]:
    """Mean and standard deviation of the image of each patch, and pixel mask.

    Mean and standard deviation (T, 1, 1) are over the visible pixels of the image of the patch. The mask (T, pixels of
    a channel, 1) is True for pixels inside the image, False for padding.
    """
    columns = stream.columns
    cell = columns.get("cell", columns["at"])
    size = columns.get("size", np.broadcast_to(np.asarray(section.shape[:2]), cell.shape))
    inside = section.cutting.inside(cell, size)[..., None]
    seen = inside if "hidden" not in columns else inside & ~columns["hidden"].astype(bool)[:, None, None]
    sample, rows = stream.sample, len(stream)
    count = np.maximum(1, np.bincount(sample, seen.sum((1, 2)), rows) * values.shape[-1])
    mean = np.bincount(sample, np.where(seen, values, 0).sum((1, 2), np.float64), rows) / count
    apart = np.where(seen, values - mean[sample, None, None], 0)
    deviation = np.sqrt(np.bincount(sample, (apart**2).sum((1, 2), np.float64), rows) / count)
    deviation = np.where(deviation > 0, deviation, 1)
    return mean[sample, None, None], deviation[sample, None, None], inside


def denormalise_patches(section: Patches, stream: Stream, patches: Array) -> Array:
    """Convert predicted patches (T, pixels) back to the units of the data."""
    values = patches.reshape(len(patches), -1, section.shape[2]).astype(np.float64)
    if section.target == "patch":  # the model predicts no mean and deviation: take the true ones
        plain = section.model_copy(update={"target": "pixels"})
        mean, deviation = patch_moments(normalise_patches(plain, stream)[TARGET_PREFIX + "patch"])
        values = values * deviation[..., None] + mean[..., None]
    if section.scale == "image":
        centre, deviation, _ = image_levels(section, stream, scale_by_channel(section, stream.columns["patch"]))
        values = values * deviation + centre
    if section.scale != "none":
        deviation = np.asarray(section.state["deviation"])
        values = values * np.where(deviation > 0, deviation, 1) + np.asarray(section.state["mean"])
    return unstretch_values(values, section.stretch, section.softening).reshape(patches.shape)


def patch_moments(patches: Array) -> tuple[Array, Array]:
    """Mean and standard deviation (T, 1) of each patch."""
    spread = patches.var(-1, keepdims=True, ddof=min(1, patches.shape[-1] - 1))
    return patches.mean(-1, keepdims=True), np.sqrt(spread + EPSILON)


class Stretch(NamedTuple):
    """Stretch of pixel values: formula as text, function, and inverse function."""

    formula: str
    forward: Callable[[Array, float], Array]
    inverse: Callable[[Array, float], Array]


STRETCHES = {
    "asinh": Stretch("asinh(x / softening)", lambda x, s: np.arcsinh(x / s), lambda x, s: s * np.sinh(x)),
    "log": Stretch(
        "sign(x) log(1 + |x| / softening)",
        lambda x, s: np.sign(x) * np.log1p(np.abs(x) / s),
        lambda x, s: np.sign(x) * s * np.expm1(np.abs(x)),
    ),
    "sqrt": Stretch("sign(x) sqrt(|x|)", lambda x, s: np.sign(x) * np.sqrt(np.abs(x)), lambda x, s: np.sign(x) * x**2),
}


def stretch_values(values: Array, how: str, soft: float = 1.0) -> Array:
    """Compress large pixel values by asinh, log or sqrt; signs are kept."""
    if how == "none":
        return values
    return np.asarray(STRETCHES[how].forward(values.astype(np.result_type(values, np.float32)), soft))


def unstretch_values(values: Array, how: str, soft: float = 1.0) -> Array:
    """Invert `stretch_values`."""
    return values if how == "none" else np.asarray(STRETCHES[how].inverse(values, soft))
