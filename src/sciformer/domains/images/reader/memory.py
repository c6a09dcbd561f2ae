"""Images that are in memory, as a table of samples.

table = images([a, b, c])                 of any heights and widths, (height, width) or (height, width, channels)
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
    """A table for `Run.predict` and `embed`: a column `image`, and what else is given, one value for each image.

    what      images, each an array or a picture of Pillow; or one array (n, height, width) or (n, height, width,
              channels)
    size      as the key `data.size`: a model that was trained with it takes images of that size best
    channels  as the key `data.channels`: 1 makes colours grey, 3 repeats grey
    """
    fit = Resizer((size, size) if isinstance(size, int) else size, channels)
    made = [fit(_image_pixels(number, one)) for number, one in enumerate(what)]
    if not made:
        raise UserError("there are no images")
    dtype = common_dtype({one.dtype.str: f"image {number}" for number, one in reversed(list(enumerate(made)))})
    depths = sorted({one.shape[2] for one in made})
    if len(depths) > 1:
        advice = "Say `channels=3`, or 1." if depths == [1, 3] else ""
        raise UserError(
            f"all images must have the same number of channels, not {' and '.join(map(str, depths))}", hint=advice
        )
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
        raise UserError(
            f"image {number} must be numbers (height, width) or (height, width, channels), not {_describe_value(found)}"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        count = int((~np.isfinite(found)).sum())
        raise UserError(f"{count:,} pixels of image {number} are not finite", hint="Put a number in their place.")
    found = found.astype(np.uint8) if found.dtype.kind == "b" else found
    return found if found.ndim == 3 else found[..., None]


def _describe_value(found: Array) -> str:
    return f"shape {found.shape}" if found.dtype.kind in "biuf" else f"{found.dtype}"
