"""Writing of pictures as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...data.columns import Array
from ...files.atomic import atomic_write
from .draw import display_limits, to_rgb

PICTURE_SUFFIX = ".png"


def write_pictures(pictures: Array, paths: Sequence[Path]) -> None:
    """Write pictures (n, H, W, C) to PNG files.

    8-bit pictures of one or three channels keep their pixels. Other pictures are stretched from the darkest to the
    brightest pixel of all pictures.
    """
    from matplotlib.image import imsave

    eight = pictures.dtype == np.uint8 and pictures.shape[-1] in (1, 3)
    limits = None if eight or not len(pictures) else display_limits(pictures.reshape(1, -1, pictures.shape[-1]))
    for picture, path in zip(pictures, paths, strict=True):
        if limits is None:
            shown = np.repeat(picture, 3, -1) if picture.shape[-1] == 1 else picture
        else:
            shown = np.rint(255 * to_rgb(picture.astype(np.float64), limits)).astype(np.uint8)
        with atomic_write(path) as partial:
            imsave(partial, shown, format="png")
