"""Rendering of scenes: masks of every shape and size, blended into pictures."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ..simulate.cues import shape_depth
from ..simulate.optics import FIELD_SIDE
from .things import BACKGROUND, COLOURS, RADII, SHAPES, SIZES, Box, Kind, Thing

DEPTH_NAMES = {"disc": "disk"}  # names of shapes in `shape_depth`, where they differ
POINTS_PER_PIXEL_SIDE = 8  # of anti-aliasing
PALETTE = np.array([*COLOURS.values()], np.float32)
GROUND = np.array(BACKGROUND, np.float32)


class Templates(NamedTuple):
    """Masks of S shapes in Z sizes, each of P x P pixels, for pictures of one size.

    mask   (S, Z, P, P) covered fraction of each pixel; things are centred on the middle pixel
    boxes  (S, Z, 4) left column and top row relative to the centre, width and height
    """

    mask: Array
    boxes: Array

    @property
    def reach(self) -> int:
        """Number of pixels from the centre of a mask to its border."""
        return int(self.mask.shape[-1]) // 2


@lru_cache(maxsize=4)
def templates(side: int) -> Templates:
    """Masks for pictures of `side` pixels."""
    unit = side / FIELD_SIDE
    reach = int(np.ceil(RADII[-1] * unit))
    points = (np.arange((2 * reach + 1) * POINTS_PER_PIXEL_SIDE) + 0.5) / POINTS_PER_PIXEL_SIDE - reach - 0.5
    across, down = np.meshgrid(points, points)
    pixels = 2 * reach + 1
    mask = np.empty((len(SHAPES), len(SIZES), pixels, pixels), np.float32)
    boxes = np.empty((len(SHAPES), len(SIZES), 4), np.int64)
    for s, shape in enumerate(SHAPES):
        for z, radius in enumerate(RADII):
            name = DEPTH_NAMES.get(shape, shape)
            inside = shape_depth(name, -down / (radius * unit), across / (radius * unit)) > 0  # triangles point upwards
            parts = inside.reshape(pixels, POINTS_PER_PIXEL_SIDE, pixels, POINTS_PER_PIXEL_SIDE)
            mask[s, z] = parts.mean((1, 3))
            rows, columns = (np.flatnonzero(mask[s, z].any(axis)) for axis in (1, 0))
            (left, right), (top, bottom) = columns[[0, -1]], rows[[0, -1]]
            boxes[s, z] = left - reach, top - reach, right - left + 1, bottom - top + 1
    return Templates(mask, boxes)


def box_of(kind: Kind, x: int, y: int, side: int) -> Box:
    """Box of a thing, from its kind and its centre."""
    shape, _, size = kind.rank
    left, top, width, height = templates(side).boxes[shape, size].tolist()
    return x + left, y + top, width, height


def render(shape: Array, colour: Array, size: Array, x: Array, y: Array, side: int) -> Array:
    """Render scenes (n, H, W, 3) of 8 bits from shapes, colours, sizes and centres.

    All arrays have shape (n, K) for K things; a shape of -1 is no thing. Centres must lie within the picture of
    `side` x `side` pixels; things are cut off at its edges.
    """
    made = templates(side)
    reach = made.reach
    image = np.empty((len(shape), side + 2 * reach, side + 2 * reach, 3), np.float32)  # with a margin
    image[:] = GROUND
    along = np.arange(2 * reach + 1)
    for k in range(shape.shape[1]):
        rows = np.flatnonzero(shape[:, k] >= 0)
        mask = made.mask[shape[rows, k], size[rows, k]]
        place = (rows[:, None, None], (y[rows, k, None] + along)[:, :, None], (x[rows, k, None] + along)[:, None, :])
        under = image[place]
        image[place] = under + mask[..., None] * (PALETTE[colour[rows, k]][:, None, None] - under)
    return np.rint(image[:, reach : side + reach, reach : side + reach]).astype(np.uint8)


def render_things(things: list[Thing], side: int) -> Array:
    """Render things into a picture (H, W, 3)."""
    columns = [np.array(column, np.int64).reshape(1, -1) for column in zip(*(thing.kind.rank for thing in things))]
    shape, colour, size = columns or [np.zeros((1, 0), np.int64)] * 3
    x, y = (np.array([[getattr(thing, name) for thing in things]], np.int64) for name in "xy")
    picture: Array = render(shape, colour, size, x, y, side)[0]
    return picture
