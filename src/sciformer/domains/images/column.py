"""Image column of a table, for images of equal or different shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError


class ImageColumn:
    """Images of a table: an array if shapes are equal, otherwise `Lists` of pixels.

    In `Lists`, a missing image has no pixels and the shape (0, 0).

    shapes    (n, 2) height and width of each image
    channels  number of channels of all images
    """

    def __init__(self, table: Table) -> None:
        if "image" not in table:
            raise UserError(f"the table has no column `image`, only {', '.join(table) or 'nothing'}")
        found = table["image"]
        self.one_shape = not isinstance(found, Lists)
        if not isinstance(found, Lists):
            if found.ndim not in (3, 4) or found.dtype.kind not in "biuf":
                shapes = "(n, height, width) or (n, height, width, channels)"
                given = f"{found.dtype} of shape {found.shape}"
                raise UserError(f"column `image` must be a numeric array of shape {shapes}, not {given}")
            self.values = found[..., None] if found.ndim == 3 else found
            self.shapes = np.tile(np.array(self.values.shape[1:3], np.int64), (len(found), 1))
        else:
            self.values = found.values if found.values.ndim == 2 else found.values[:, None]
            self.shapes = _image_shapes(table, found)
            self.lists = Lists(self.values, found.lengths)
        self.channels = int(self.values.shape[-1])

    def __len__(self) -> int:
        return len(self.shapes)

    def groups(self) -> Iterator[tuple[Array, Array]]:
        """Row numbers and images (n, height, width, channels) of each shape.

        Missing images are left out.
        """
        if self.one_shape:
            yield np.arange(len(self)), self.values
            return
        for rows in group_equal_rows(self.shapes):
            height, width = self.shapes[rows[0]]
            if not height:
                continue
            yield rows, self.lists.take(rows).values.reshape(len(rows), height, width, self.channels)


def group_equal_rows(shapes: Array) -> list[Array]:
    """Group the row numbers of `shapes` (n, 2) by equal shape."""
    if not len(shapes):
        return []
    _, group = np.unique(shapes, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _image_shapes(table: Table, found: Lists) -> Array:
    shapes = table.get("image_shape")
    if shapes is None or isinstance(shapes, Lists) or shapes.shape != (len(found), 2):
        if shapes is None:
            raise UserError("images of different shapes need the column `image_shape` (n, 2), height and width")
        given = "lists" if isinstance(shapes, Lists) else shapes.shape
        raise UserError(f"the column `image_shape` must have the shape {(len(found), 2)}, not {given}")
    shapes = shapes.astype(np.int64)
    wrong = np.flatnonzero((shapes.prod(1) != found.lengths) | ((shapes < 1).any(1) & (shapes != 0).any(1)))
    if len(wrong):
        row = int(wrong[0])
        shape = f"{shapes[row, 0]} x {shapes[row, 1]}"
        raise UserError(f"image {row} has {found.lengths[row]} pixels, but its column `image_shape` says {shape}")
    return shapes
