"""Random augmentations of images, with unchanged labels."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.columns import Array
from ...data.random import SampleRandom
from ...errors import UserError
from ...tokens.cutting import PatchGrid, Shape
from .scaling import stretch_values, unstretch_values

if TYPE_CHECKING:
    from .tokens import Patches

PIXELS_AT_ONCE = 1 << 16  # pixels resampled at a time, to stay in the CPU cache
RESAMPLING_AUGMENTATIONS = ("crop", "rotate", "shift")  # augmentations that interpolate between pixels


class Augmentation:
    """Random augmentations of images, set by the recipe keys of `Patches`."""

    def __init__(self, section: Patches) -> None:
        self.section, self.augment = section, section.augment

    def __call__(self, images: Array, rng: SampleRandom) -> Array:
        """Return augmented copies of images (n, height, width, channels)."""
        height, width = images.shape[1:3]
        if "roll" in self.augment:
            if not self.section.periodic:
                hint = "Set tokens.periodic: true if opposite edges of your images touch."
                raise UserError("tokens.augment: roll needs periodic boundaries", hint=hint, key="tokens.periodic")
            down = (np.arange(height) + rng.integers("down", height)[:, None]) % height
            aside = (np.arange(width) + rng.integers("aside", width)[:, None]) % width
            images = images[np.arange(len(images))[:, None, None], down[:, :, None], aside[:, None]]
        if "flip" in self.augment or "turn" in self.augment:
            which, made = self.symmetries((height, width), rng), np.empty_like(images)
            for number in np.unique(which).tolist():
                rows = np.flatnonzero(which == number)
                made[rows] = apply_symmetry(images[rows], number)
            images = made
        if any(name in self.augment for name in RESAMPLING_AUGMENTATIONS):
            images = self._resample_images(images, rng)
        if "negate" in self.augment:
            if images.dtype.kind in "bui":  # unsigned integers have no negative values
                images = images.astype(np.float32)
            images = np.where((rng.uniform("negate") < 0.5)[:, None, None, None], -images, images)
        return self._add_noise(images, rng) if "noise" in self.augment else images

    def symmetries(self, shape: Shape, rng: SampleRandom) -> Array:
        """Draw the symmetry of each image: a number (n,) for `apply_symmetry`."""
        which = np.zeros(len(rng.ids), np.int64)
        if "turn" in self.augment:
            if shape[0] != shape[1]:
                message = f"tokens.augment: turn needs square images, not {shape[0]} x {shape[1]} pixels"
                raise UserError(message, key="tokens.augment")
            which += 2 * rng.integers("turn", 4)
        return which + (rng.uniform("flip") < 0.5) if "flip" in self.augment else which

    def permutes_pixels(self, shape: Shape) -> bool:
        """Whether augmentations only permute pixels, and patches cover each pixel once."""
        cutting = self.section.cutting
        fits = cutting.steps == cutting.sides and cutting.covered(tuple(cutting.grid(shape).tolist())) == shape
        return fits and set(self.augment) <= {"flip", "turn"}

    def permute_patches(self, patches: Array, shape: Shape, channels: int, rng: SampleRandom) -> Array:
        """Flip and turn images by permuting the pixels of their patches (T, pixels).

        The data are copied only once. This is faster than assembling and cutting the images.
        """
        size = channels * patches.dtype.itemsize
        kind = np.dtype(f"u{size}") if size in (1, 2, 4, 8) else np.dtype((np.void, size))
        pixels = np.ascontiguousarray(patches).view(kind).reshape(len(rng.ids), -1)
        made, orders = np.empty_like(pixels), _symmetry_orders(self.section.cutting, shape)
        for row, number in enumerate(self.symmetries(shape, rng).tolist()):
            np.take(pixels[row], orders[number], out=made[row], mode="clip")
        return made.view(patches.dtype).reshape(patches.shape)

    def _resample_images(self, images: Array, rng: SampleRandom) -> Array:
        """Crop, rotate and shift images in a single interpolation."""
        count, height, width = images.shape[:3]
        zoom, angle = np.ones(count), None
        centre = np.tile([(height - 1) / 2, (width - 1) / 2], (count, 1))
        if "crop" in self.augment:
            least, most = self.section.crop
            if least > most:
                message = f"tokens.crop must be [smallest, largest] in ascending order, not [{least:g}, {most:g}]"
                raise UserError(message, key="tokens.crop")
            zoom = np.sqrt(least + (most - least) * rng.uniform("crop"))
            where = np.stack([rng.uniform("crop down"), rng.uniform("crop aside")], 1) - 0.5
            centre = centre + where * (1 - zoom[:, None]) * [height, width]
        if "rotate" in self.augment:
            angle = np.radians(self.section.rotate) * (2 * rng.uniform("rotate") - 1)
        if "shift" in self.augment:
            reach = self.section.shift
            moved = [rng.integers(f"shift {axis}", 2 * reach + 1) - reach for axis in ("down", "aside")]
            centre = centre + np.stack(moved, 1)
        made = np.empty(images.shape, np.result_type(images, np.float32))
        few = max(1, PIXELS_AT_ONCE // (height * width))
        for some in (slice(start, start + few) for start in range(0, count, few)):
            turned = None if angle is None else angle[some]
            made[some] = resample(images[some], centre[some], zoom[some], turned, self.section.periodic)
        return made

    def _add_noise(self, images: Array, rng: SampleRandom) -> Array:
        section = self.section
        exact = np.result_type(images, np.float32)
        values = stretch_values(images, section.stretch, section.softening).astype(exact)
        deviation = section.noise_std * np.asarray(section.state["deviation"], exact)
        for image, number in zip(values, (rng.uniform("noise") * 2.0**53).astype(np.int64).tolist()):
            stream = np.random.Generator(np.random.Philox(key=number))  # fast generator, one for each sample
            image += stream.standard_normal(image.shape, np.float32) * deviation
        return unstretch_values(values, section.stretch, section.softening)


def apply_symmetry(images: Array, number: int) -> Array:
    """Apply a symmetry of the square to images (n, height, width, channels).

    Mirror left to right if the number is odd, then rotate counter-clockwise by (number // 2) right angles.
    """
    return np.rot90(images[:, :, ::-1] if number % 2 else images, number // 2, (1, 2))


@lru_cache(8)
def _symmetry_orders(cutting: PatchGrid, shape: Shape) -> list[Array]:
    """Pixel permutations of the symmetries, for images stored patch by patch."""
    places = np.arange(shape[0] * shape[1]).reshape(1, *shape, 1)
    slot = np.argsort(cutting.cut(places, 0).ravel())
    possible = range(8 if shape[0] == shape[1] else 2)
    return [slot[cutting.cut(apply_symmetry(places, number), 0).ravel()] for number in possible]


def resample(images: Array, centre: Array, zoom: Array, angle: Array | None = None, periodic: bool = False) -> Array:
    """Zoom, rotate and shift images with bilinear interpolation.

    images    (n, height, width, channels)
    centre    (n, 2) point of the input, in pixels, that becomes the centre of the output
    zoom      (n,) width of an output pixel in input pixels
    angle     (n,) rotation in radians, counter-clockwise (default: none)
    periodic  wrap around at the edges; otherwise mirror
    """
    count, height, width, channels = images.shape
    exact, each = np.result_type(images, np.float32), np.arange(count)[:, None]
    down, aside = ((np.arange(size) - (size - 1) / 2) * zoom[:, None] for size in (height, width))
    if angle is None:  # separable: rows first, then columns
        (top, bottom, below), (left, right, beside) = (
            _neighbour_pixels(line + centre[:, axis, None], size, periodic, exact)
            for axis, (line, size) in enumerate(((down, height), (aside, width)))
        )
        made = _blend(images[each, top], images[each, bottom], below[:, :, None, None])
        index = each[..., None], np.arange(height)[:, None]
        return _blend(made[*index, left[:, None]], made[*index, right[:, None]], beside[:, None, :, None])
    turns = [turn(angle).astype(np.float32)[:, None, None] for turn in (np.cos, np.sin)]
    down, aside = down.astype(np.float32)[:, :, None], aside.astype(np.float32)[:, None]
    middle = centre.astype(np.float32)[..., None, None]
    top, bottom, below = _neighbour_pixels(turns[0] * down + turns[1] * aside + middle[:, 0], height, periodic, exact)
    left, right, beside = _neighbour_pixels(turns[0] * aside - turns[1] * down + middle[:, 1], width, periodic, exact)
    flat, first = images.reshape(count * height * width, channels), each[..., None] * (height * width)
    rows = []
    for row in (first + top * width, first + bottom * width):
        one, other = (flat.take(row + end, 0, mode="clip") for end in (left, right))
        rows.append(_blend(one, other, beside[..., None]))
    return _blend(rows[0], rows[1], below[..., None])


def _neighbour_pixels(line: Array, size: int, periodic: bool, exact: Any) -> tuple[Array, Array, Array]:
    """Pixel indices and weights for linear interpolation at positions on a line.

    Returns the pixels below and above each position, and the weight of the pixel above.
    """
    low = np.floor(line + 1e-5)  # integer positions need no interpolation
    part = np.maximum(line - low, 0).astype(exact)
    index = low.astype(np.int64)
    return _wrap_or_mirror(index, size, periodic), _wrap_or_mirror(index + 1, size, periodic), part


def _blend(one: Array, other: Array, part: Array) -> Array:
    made: Array = np.subtract(other, one, dtype=part.dtype)
    made *= part
    made += one
    return made


def _wrap_or_mirror(index: Array, size: int, periodic: bool) -> Array:
    """Wrap or mirror pixel indices into the range from 0 to size - 1."""
    first = int(index.min(initial=0))
    place = np.arange(first, int(index.max(initial=0)) + 1) % (size if periodic or size == 1 else 2 * size)
    return np.where(place < size, place, 2 * size - 1 - place).take(index - first)
