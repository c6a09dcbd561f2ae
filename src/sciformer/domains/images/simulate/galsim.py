"""Sersic profiles drawn by GalSim (arXiv 1407.7676), where it is installed: light integrated over every pixel.

Some tens of galaxies in a second, against more than a thousand with `sersic.sersic`, of which it is a check.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....data.columns import Array
from ....files.packages import require
from .optics import FIELD_SIDE

SMOOTHING_WIDTH = 0.3  # pixels: the deviation of a Gaussian that keeps its Fourier transforms small
INDEX_STEP = 0.1  # indices are rounded to it, for GalSim makes a table for each


def load_galsim() -> Any:
    """What draws profiles as `sersic.sersic` does."""
    galsim = require("galsim", "galaxies of the engine galsim")

    def draw(
        size: int, n: Array, radius: Array, ratio: Array, angle: Array, centre: Array, field: float = FIELD_SIDE
    ) -> Array:
        """Light (n, H, W) in each pixel, of total flux 1."""
        pixel = field / size
        made = np.zeros((len(n), size, size), np.float32)
        blunt = galsim.Gaussian(sigma=SMOOTHING_WIDTH * pixel)
        for i, index in enumerate(np.clip(np.round(np.asarray(n) / INDEX_STEP) * INDEX_STEP, 0.4, 6.0)):
            one = galsim.Sersic(float(index), half_light_radius=float(radius[i]))
            one = one.shear(q=float(ratio[i]), beta=float(angle[i]) * galsim.radians)
            one = galsim.Convolve(one, blunt).shift(float(centre[i, 0]), float(centre[i, 1]))
            made[i] = one.drawImage(nx=size, ny=size, scale=pixel, dtype=np.float32).array
        return made

    return draw
