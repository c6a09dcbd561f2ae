"""Images in memory as a table of samples.

table = images([a, b, c])                 arrays (height, width) or (height, width, channels) of any size
table = images([a, b, c], size=64, label=["x", "y", "x"])
Run("runs/mine").predict(table)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....data.columns import Array, Lists, Table, rows_of
from ....errors import UserError
from .decode import Resizer
from .sets import common_dtype


def images(
    what: Sequence[Any] | Array, size: int | tuple[int, int] | None = None, channels: int | None = None, **columns: Any
) -> Table:
    """Make a table of images for `Run.predict` and `embed`.

    what      list of arrays or Pillow pictures, or an array (n, height, width) or (n, height, width, channels)
    size      size of the resized images, equal to `data.size` in the training (default: no resizing)
    channels  number of channels, as `data.channels`: 1 converts colour to grey, 3 repeats grey
    columns   further columns, with one value for each image
    """
    fit = Resizer((size, size) if isinstance(size, int) else size, channels)
    made = [fit(_image_pixels(number, one)) for number, one in enumerate(what)]
    if not made:
        raise UserError("the list of images is empty")
    dtype = common_dtype({one.dtype.str: f"image {number}" for number, one in reversed(list(enumerate(made)))})
    depths = sorted({one.shape[2] for one in made})
    if len(depths) > 1:
        advice = "Set `channels=3`, or 1." if depths == [1, 3] else ""
        raise UserError(f"images have different numbers of channels: {' and '.join(map(str, depths))}", hint=advice)
    table: dict[str, Array | Lists] = {}
    if len({one.shape for one in made}) == 1:
        table["image"] = np.stack(made).astype(dtype, copy=False)
    else:
        flat = [one.reshape(-1, depths[0]) for one in made]
        table["image"] = Lists(np.concatenate(flat).astype(dtype, copy=False), np.array([len(one) for one in flat]))
        table["image_shape"] = np.array([one.shape[:2] for one in made], np.int32)
    table |= {name: np.asarray(column) for name, column in columns.items()}
    rows_of(table)
    return table


def _image_pixels(number: int, what: Any) -> Array:
    found = np.asarray(what)
    if found.ndim not in (2, 3) or found.dtype.kind not in "biuf" or not found.size:
        given = f"has the shape {found.shape}" if found.dtype.kind in "biuf" else f"is of type {found.dtype}"
        shapes = "(height, width) or (height, width, channels)"
        raise UserError(f"image {number} must be a numeric array {shapes}, but {given}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        count = int((~np.isfinite(found)).sum())
        raise UserError(f"{count:,} pixels of image {number} are not finite", hint="Replace them by a number.")
    found = found.astype(np.uint8) if found.dtype.kind == "b" else found
    return found if found.ndim == 3 else found[..., None]
