"""Named masks of cubes: tasks that hide a part of a neighbourhood.

forecast    the last hours
between     hours in the middle, between known hours
inpaint     a rectangle in the centre of the map, at all hours
downscale   all cubes, which show averages over square blocks of grid cells
bias        all cubes of a stream, which are predicted from the other streams
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...data.batch import Stream
from ...data.columns import Array
from ...errors import UserError
from ...tokens.cutting import PatchGrid

LENGTH = "objective.mask_length"
Rule = Callable[[Stream, float], Array]


def hide_last(stream: Stream, share: float) -> Array:
    """Mask (T,) of the cubes in the last `share` of the time."""
    rows = stream.columns["grid"][:, 0]
    return np.asarray(stream.columns["at"][:, 1] >= rows - np.maximum(1, np.round(share * rows)))


def hide_middle(stream: Stream, share: float) -> Array:
    """Mask (T,) of the cubes in the middle `share` of the time."""
    rows = stream.columns["grid"][:, 0]
    count = np.maximum(1, np.round(share * rows))
    first = (rows - count) // 2
    at = stream.columns["at"][:, 1]
    return np.asarray((at >= first) & (at < first + count))


def hide_centre(stream: Stream, share: float) -> Array:
    """Mask (T,) of the cubes in a rectangle in the centre, with `share` of the area."""
    found = np.ones(len(stream.columns["at"]), bool)
    for axis in (1, 2):
        places = stream.columns["grid"][:, axis]
        count = np.maximum(1, np.round(share**0.5 * places))
        first = (places - count) // 2
        at = stream.columns["at"][:, 1 + axis]
        found &= (at >= first) & (at < first + count)
    return found


def hide_all(stream: Stream, share: float) -> Array:
    """Mask (T,) of all cubes."""
    return np.ones(len(stream.columns["at"]), bool)


def hide_last_hours(stream: Stream, hours: float) -> Array:
    """Mask (T,) of the cubes in the last `hours` of the neighbourhood.

    It is an error if these hours begin inside a cube.
    """
    end = stream.columns["time"][:, 3]
    return _whole_cubes(stream, end - hours, end, hours)


def hide_middle_hours(stream: Stream, hours: float) -> Array:
    """Mask (T,) of the cubes in a gap in the middle of the neighbourhood.

    The known steps before and after the gap are `hours` apart: a gap of 6 hours hides 5 hourly steps. The gap begins at
    the border of a cube.
    """
    _, _, first, last = stream.columns["time"].T
    step = stream.columns["step"]
    count = np.round((last - first) / step) + 1
    hidden = np.round(hours / step) - 1
    if (hidden < 1).any():
        message = f"a gap of {hours:g} hours has no time step inside"
        raise UserError(message, hint="Choose a gap of two steps or more.", key=LENGTH)
    cube = np.round((stream.columns["time"][:, 1] - stream.columns["time"][:, 0]) / step).max(initial=0) + 1
    before = (count - hidden) // 2 // cube * cube
    low = first + (before - 1) * step
    return _whole_cubes(stream, low, low + hidden * step, hours)


def _whole_cubes(stream: Stream, low: Array, high: Array, hours: float) -> Array:
    """Mask (T,) of the cubes with all times in (low, high].

    It is an error if a cube has only some of its times there, or if no time before the mask is known.
    """
    begin, end, first, _ = stream.columns["time"].T
    slack = 1e-6
    some = (end > low + slack) & (begin <= high + slack)
    whole = (begin > low + slack) & (end <= high + slack)
    if (some & ~whole).any():
        message = f"a mask of {hours:g} hours would hide a part of a cube, but only whole cubes can be hidden"
        hint = "Choose another length, or cubes of fewer time steps (tokens.cube)."
        raise UserError(message, hint=hint, key=LENGTH)
    if (low < first - slack).any():
        message = f"a mask of {hours:g} hours leaves no known hour in a neighbourhood"
        raise UserError(message, hint="Choose a longer data.neighbourhood.", key=LENGTH)
    return np.asarray(some)


BY_SHARE: dict[str, Rule] = {
    "forecast": hide_last,
    "between": hide_middle,
    "inpaint": hide_centre,
    "downscale": hide_all,
    "bias": hide_all,
}
BY_LENGTH: dict[str, Rule] = {"forecast": hide_last_hours, "between": hide_middle_hours}
COARSE = ("downscale",)


def coarse_cubes(values: Array, cube: tuple[int, int, int], factor: int) -> Array:
    """Replace the values of cubes by means over blocks of grid cells.

    A block has `factor` x `factor` cells at one time. Missing values are left out of the mean; a block without values
    stays missing.

    values   (n, P) values of n cubes
    cube     time steps, rows and columns of a cube
    """
    duration, height, width = cube
    if height % factor or width % factor:
        message = f"blocks of {factor} x {factor} cells do not fit into cubes of {height} x {width}"
        hint = "Choose another objective.coarse_factor, or cubes whose sides are multiples of it."
        raise UserError(message, hint=hint, key="objective.coarse_factor")
    boxes = values.reshape(len(values), duration, height // factor, factor, width // factor, factor)
    known = np.isfinite(boxes)
    count = known.sum((3, 5), keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known, boxes, 0).sum((3, 5), keepdims=True) / count
    return np.broadcast_to(means, boxes.shape).reshape(values.shape).astype(values.dtype)


def cube_grid(cube: tuple[int, int, int]) -> PatchGrid:
    """Grid of adjacent cubes along time, rows and columns."""
    return PatchGrid(cube, cube)
