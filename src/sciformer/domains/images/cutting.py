"""The arithmetic of patches: images of one shape or of several, cut into patches and put together again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.columns import Lists, Table
from ...errors import UserError

Array = NDArray[Any]
Shape = tuple[int, int]
PIXELS_AT_ONCE = 1 << 22  # pixels whose moments are taken at once


class PatchGrid(NamedTuple):
    """How images are cut: pixels on the sides of a patch, and from one patch to the next."""

    sides: Shape
    steps: Shape

    def grid(self, shape: Any) -> Any:
        """Rows and columns (..., 2) of the patches that cover images of height and width (..., 2)."""
        shape = np.asarray(shape)
        return 1 + np.maximum(0, -(-(shape - self.sides) // np.asarray(self.steps)))

    def covered(self, grid: Shape) -> Shape:
        """Height and width that so many rows and columns of patches cover."""
        down, aside = ((count - 1) * step + side for count, step, side in zip(grid, self.steps, self.sides))
        return down, aside

    def cut(self, images: Array, fill: Any) -> Array:
        """(n, height, width, channels) -> (n * N, pixels): patches row by row, filled at the right and bottom."""
        count, channels = len(images), images.shape[-1]
        rows, columns = self.grid(images.shape[1:3]).tolist()
        images = pad_images(images, self.covered((rows, columns)), fill)
        (side, wide), (down, aside) = self.sides, self.steps
        if self.steps == self.sides:
            pieces = images.reshape(count, rows, side, columns, wide, channels).swapaxes(2, 3)
        else:
            seen = np.lib.stride_tricks.sliding_window_view(images, self.sides, (1, 2))
            pieces = np.moveaxis(seen[:, ::down, ::aside], 3, -1)
        return np.ascontiguousarray(pieces).reshape(count * rows * columns, side * wide * channels)

    def assemble(self, patches: Array, shape: Shape) -> Array:
        """(n, N, pixels) -> (n, height, width, channels): the way back; where patches overlap, the last one counts."""
        (side, wide), (down, aside) = self.sides, self.steps
        (rows, columns), channels = self.grid(shape).tolist(), patches.shape[-1] // (side * wide)
        pieces = patches.reshape(len(patches), rows, columns, side, wide, channels)
        height, width = self.covered((rows, columns))
        if self.steps == self.sides:
            images = pieces.swapaxes(2, 3).reshape(len(patches), height, width, channels)
        else:
            images = np.zeros((len(patches), height, width, channels), patches.dtype)
            for i in range(side):
                for j in range(wide):
                    last = i + (rows - 1) * down + 1, j + (columns - 1) * aside + 1
                    images[:, i : last[0] : down, j : last[1] : aside] = pieces[:, :, :, i, j]
        return np.ascontiguousarray(images[:, : shape[0], : shape[1]])

    def inside(self, cell: Array, size: Array) -> Array:
        """(T, pixels of a channel) which pixels of patches in these cells (T, 2) are in images of this size (T, 2)."""
        here = []
        for axis in range(2):
            place = cell[:, axis, None] * self.steps[axis] + np.arange(self.sides[axis])
            here.append(place < size[:, axis, None])
        return (here[0][:, :, None] & here[1][:, None]).reshape(len(cell), self.sides[0] * self.sides[1])


def pad_images(images: Array, shape: Shape, fill: Any) -> Array:
    """Images with a value for each channel at the right and bottom, up to a shape; real numbers where that is so."""
    if images.shape[1:3] == shape:
        return images
    made = np.empty((len(images), *shape, images.shape[-1]), np.result_type(images, np.float32))
    made[:] = fill
    made[:, : images.shape[1], : images.shape[2]] = images
    return made


class ImageColumn:
    """The images of a table, of one shape or of several.

    shapes    (n, 2) height and width of each
    channels  of all
    one_shape whether all have one shape, as the table has it
    """

    def __init__(self, table: Table) -> None:
        if "image" not in table:
            raise UserError(f"column `image` is missing; the columns are {', '.join(table)}")
        found = table["image"]
        self.one_shape = not isinstance(found, Lists)
        if not isinstance(found, Lists):
            if found.ndim not in (3, 4) or found.dtype.kind not in "biuf":
                kind = "" if found.dtype.kind in "biuf" else f" of {found.dtype}"
                raise UserError(
                    "images must be numbers of shape (n, height, width) or (n, height, width, channels), not an array "
                    f"of shape {found.shape}{kind}"
                )
            self.values = found[..., None] if found.ndim == 3 else found
            self.shapes = np.tile(np.array(self.values.shape[1:3], np.int64), (len(found), 1))
        else:
            self.values = found.values if found.values.ndim == 2 else found.values[:, None]
            self.shapes = _image_shapes(table, found)
            self.lists = Lists(self.values, found.lengths)
        self.channels = int(self.values.shape[-1])

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def largest(self) -> Shape | None:
        """The largest height and the largest width; None without an image."""
        if self.one_shape:
            height, width = self.values.shape[1:3]
            return height, width
        return (int(self.shapes[:, 0].max()), int(self.shapes[:, 1].max())) if len(self) else None

    def groups(self) -> Iterator[tuple[Array, Array]]:
        """Rows of the table whose images have one shape, and these images (n, height, width, channels)."""
        if self.one_shape:
            yield np.arange(len(self)), self.values
            return
        for rows in group_equal_rows(self.shapes):
            height, width = self.shapes[rows[0]]
            yield rows, self.lists.take(rows).values.reshape(len(rows), height, width, self.channels)


def group_equal_rows(shapes: Array) -> list[Array]:
    """The rows (n, 2) that are equal, group by group."""
    if not len(shapes):
        return []
    _, group = np.unique(shapes, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _image_shapes(table: Table, found: Lists) -> Array:
    shapes = table.get("image_shape")
    if shapes is None or isinstance(shapes, Lists) or shapes.shape != (len(found), 2):
        what = "images of different shapes need a column `image_shape` of shape (n, 2), height and width"
        if shapes is None:
            raise UserError(f"{what}, which is missing")
        raise UserError(f"{what}, not {'lists' if isinstance(shapes, Lists) else f'the shape {shapes.shape}'}")
    shapes = shapes.astype(np.int64)
    wrong = np.flatnonzero((shapes.prod(1) != found.lengths) | (shapes < 1).any(1))
    if len(wrong):
        row = int(wrong[0])
        height, width = shapes[row]
        raise UserError(
            f"image {row} has {found.lengths[row]} pixels, but its shape in column `image_shape` is {height} x {width}"
        )
    return shapes


class ChannelMoments:
    """Mean and deviation of each channel, over many tables."""

    def __init__(self, channels: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(channels), np.zeros(channels)

    def add(self, values: Array) -> None:
        """More values (n, channels), joined about their means: squares of large numbers would drown a small
        deviation."""
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
        """Of each channel."""
        found: Array = np.sqrt(self.squares / self.count)
        return found
