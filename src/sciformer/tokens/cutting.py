"""Patches of arrays with any number of axes: images, cubes, clips."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..data.columns import Array

Shape = tuple[int, ...]


class PatchGrid(NamedTuple):
    """Patches of arrays (n, *sizes, channels) on A axes.

    sides   (A,) length of a patch along each axis
    steps   (A,) distance from one patch to the next along each axis
    """

    sides: Shape
    steps: Shape

    def grid(self, sizes: Any) -> Any:
        """Patches (..., A) needed along each axis to cover arrays of sizes (..., A)."""
        return 1 + np.maximum(0, -(-(np.asarray(sizes) - self.sides) // np.asarray(self.steps)))

    def covered(self, grid: Shape) -> Shape:
        """Sizes of an array covered by a grid of patches."""
        return tuple((count - 1) * step + side for count, step, side in zip(grid, self.steps, self.sides))

    def cut(self, arrays: Array, fill: Any) -> Array:
        """Cut arrays (n, *sizes, channels) into patches (n * N, values).

        The patches are in row-major order; patches at the edges are padded with `fill`.
        """
        count, channels, axes = len(arrays), arrays.shape[-1], len(self.sides)
        grid = tuple(self.grid(arrays.shape[1:-1]).tolist())
        arrays = pad_arrays(arrays, self.covered(grid), fill)
        if self.steps == self.sides:
            pairs = [size for pair in zip(grid, self.sides) for size in pair]
            order = (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 1 + 2 * axes)
            pieces = arrays.reshape(count, *pairs, channels).transpose(order)
        else:
            seen = np.lib.stride_tricks.sliding_window_view(arrays, self.sides, tuple(range(1, 1 + axes)))
            chosen = (slice(None), *(slice(None, None, step) for step in self.steps))
            pieces = np.moveaxis(seen[chosen], 1 + axes, -1)
        return np.ascontiguousarray(pieces).reshape(count * prod(grid), prod(self.sides) * channels)

    def assemble(self, patches: Array, sizes: Shape) -> Array:
        """Inverse of `cut`: (n, N, values) -> (n, *sizes, channels).

        Where patches overlap, the values come from the first patch.
        """
        grid, axes = tuple(self.grid(sizes).tolist()), len(sizes)
        channels = patches.shape[-1] // prod(self.sides)
        pieces = patches.reshape(len(patches), *grid, *self.sides, channels)
        whole = (len(patches), *self.covered(grid), channels)
        if self.steps == self.sides:
            pairs = [axis for pair in zip(range(1, 1 + axes), range(1 + axes, 1 + 2 * axes)) for axis in pair]
            arrays = pieces.transpose(0, *pairs, 1 + 2 * axes).reshape(whole)
        else:
            arrays = np.zeros(whole, patches.dtype)
            for offset in product(*map(range, self.sides)):
                ends = (first + (count - 1) * step + 1 for first, count, step in zip(offset, grid, self.steps))
                places = (slice(*place) for place in zip(offset, ends, self.steps))
                arrays[:, *places] = pieces[..., *offset, :]  # type: ignore[arg-type]
        return np.ascontiguousarray(arrays[:, *(slice(size) for size in sizes)])

    def inside(self, cell: Array, sizes: Array) -> Array:
        """Mask (T, values per channel) of the patch values inside the array.

        cell   (T, A) position of each patch on the grid
        sizes  (T, A) sizes of the array of each patch
        """
        found = np.ones((len(cell), 1), bool)
        for axis, (side, step) in enumerate(zip(self.sides, self.steps)):
            here = cell[:, axis, None] * step + np.arange(side) < sizes[:, axis, None]
            found = (found[:, :, None] & here[:, None]).reshape(len(cell), found.shape[1] * side)
        return found


def pad_arrays(arrays: Array, sizes: Shape, fill: Any) -> Array:
    """Pad arrays to these sizes with one value per channel; padded arrays are floats."""
    if arrays.shape[1:-1] == sizes:
        return arrays
    made = np.empty((len(arrays), *sizes, arrays.shape[-1]), np.result_type(arrays, np.float32))
    made[:] = fill
    made[:, *(slice(size) for size in arrays.shape[1:-1])] = arrays
    return made
