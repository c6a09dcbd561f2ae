"""The brightness of galaxies after Sersic: I(r) ~ exp(-b ((r / R)^(1/n) - 1)), half of the light within R."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np

from ....data.columns import Array
from ....files.packages import require
from .optics import FIELD_SIDE, per_image, rotated_coordinates

CUSP_SOFTENING = 0.3  # where a profile is taken at points, its cusp is rounded off over so many times their distance
CORE_PIXELS = 5  # pixels on a side of the middle
CORE_SUBPIXELS = 8  # points on a side of each pixel of the middle, over which light is summed
SMOOTHING_WIDTH = 0.3  # pixels: the deviation of a Gaussian that keeps Fourier transforms of GalSim small
INDEX_STEP = 0.1  # indices are rounded to it, for GalSim makes a table for each


def sersic_b(n: Array) -> Array:
    """b(n), so that R holds half of the light: the series of Ciotti and Bertin (1999), good to 1e-4 from n = 0.5 on."""
    n = np.asarray(n, np.float64)
    return np.asarray(2 * n - 1 / 3 + 4 / (405 * n) + 46 / (25515 * n**2) + 131 / (1148175 * n**3))


def total_flux(n: Array, radius: Array) -> Array:
    """All light of a profile that is 1 at R: 2 pi n R^2 e^b b^(-2n) Gamma(2n)."""
    n, b = np.asarray(n, np.float64), sersic_b(n)
    gamma = np.exp([lgamma(2 * one) for one in n.ravel()]).reshape(n.shape)
    return np.asarray(2 * np.pi * n * np.asarray(radius) ** 2 * np.exp(b) * b ** (-2 * n) * gamma)


def profile(squared: Array, n: Array, radius: Array) -> Array:
    """Brightness (n, H, W) of total flux 1 at elliptical radii whose squares (n, H, W) are given."""
    b = sersic_b(n)
    inner = (squared / per_image(np.asarray(radius) ** 2)) ** per_image(0.5 / np.asarray(n))
    bright = np.exp(per_image(b) * (1 - inner))
    return np.asarray(bright / per_image(total_flux(n, radius)))


def sersic(
    size: int, n: Array, radius: Array, ratio: Array, angle: Array, centre: Array, field: float = FIELD_SIDE
) -> Array:
    """Light (n, H, W) in each pixel, of total flux 1; R is the mean radius of the ellipse, sqrt(a b).

    ratio   of the short axis to the long one
    angle   of the long axis, from x to y
    """
    along, across = rotated_coordinates(size, centre, angle, field)
    pixel = field / size
    made = profile(
        _squared_radii(along, across, ratio, CUSP_SOFTENING * pixel / CORE_SUBPIXELS), n, radius
    ) * np.float32(pixel**2)
    if size < CORE_PIXELS or not len(made):
        return made
    corner = np.clip(
        np.floor((np.asarray(centre) + field / 2) / pixel).astype(int) - CORE_PIXELS // 2, 0, size - CORE_PIXELS
    )
    middle = (corner + CORE_PIXELS / 2) * pixel - field / 2  # of the core
    along, across = rotated_coordinates(CORE_PIXELS * CORE_SUBPIXELS, centre - middle, angle, CORE_PIXELS * pixel)
    core = profile(_squared_radii(along, across, ratio, CUSP_SOFTENING * pixel / CORE_SUBPIXELS), n, radius)
    core = core.reshape(-1, CORE_PIXELS, CORE_SUBPIXELS, CORE_PIXELS, CORE_SUBPIXELS).mean((2, 4)) * np.float32(
        pixel**2
    )
    rows, columns = (corner[:, axis, None] + np.arange(CORE_PIXELS) for axis in (1, 0))
    made[np.arange(len(made))[:, None, None], rows[:, :, None], columns[:, None]] = core
    return made


def _squared_radii(along: Array, across: Array, ratio: Array, soft: float) -> Array:
    """Squares of elliptical radii, none of them 0."""
    return np.asarray(along**2 * per_image(ratio) + across**2 / per_image(ratio) + np.float32(soft**2))


def load_galsim() -> Any:
    """What draws profiles as `sersic` does, by GalSim (arXiv 1407.7676): light integrated over every pixel.

    Some tens of galaxies in a second, against more than a thousand with `sersic`, of which it is a check.
    """
    galsim = require("galsim", "galaxies of the engine galsim")

    def draw(
        size: int, n: Array, radius: Array, ratio: Array, angle: Array, centre: Array, field: float = FIELD_SIDE
    ) -> Array:
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
