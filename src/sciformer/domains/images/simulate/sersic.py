"""Sersic profiles I(r) ~ exp(-b ((r / R)^(1/n) - 1)), half-light radius R."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np

from ....data.columns import Array
from ....files.packages import require
from .optics import FIELD_SIDE, per_image, rotated_coordinates

CUSP_SOFTENING = 0.3  # softening of the central cusp, in units of the sampling distance
CORE_PIXELS = 5  # side of the oversampled core in pixels
CORE_SUBPIXELS = 8  # samples along the side of a core pixel
SMOOTHING_WIDTH = 0.3  # std in pixels of a Gaussian that limits the size of GalSim's Fourier transforms
INDEX_STEP = 0.1  # Sersic indices are rounded, because GalSim builds a table for each


def sersic_b(n: Array) -> Array:
    """b(n) by Ciotti and Bertin (1999), accurate to 1e-4 for n >= 0.5."""
    n = np.asarray(n, np.float64)
    return np.asarray(2 * n - 1 / 3 + 4 / (405 * n) + 46 / (25515 * n**2) + 131 / (1148175 * n**3))


def total_flux(n: Array, radius: Array) -> Array:
    """Total flux of a profile with I(R) = 1: 2 pi n R^2 e^b b^(-2n) Gamma(2n)."""
    n, b = np.asarray(n, np.float64), sersic_b(n)
    gamma = np.exp([lgamma(2 * one) for one in n.ravel()]).reshape(n.shape)
    return np.asarray(2 * np.pi * n * np.asarray(radius) ** 2 * np.exp(b) * b ** (-2 * n) * gamma)


def profile(squared: Array, n: Array, radius: Array) -> Array:
    """Brightness (n, H, W) at squared elliptical radii (n, H, W), with total flux 1."""
    b = sersic_b(n)
    inner = (squared / per_image(np.asarray(radius) ** 2)) ** per_image(0.5 / np.asarray(n))
    bright = np.exp(per_image(b) * (1 - inner))
    return np.asarray(bright / per_image(total_flux(n, radius)))


def sersic(
    size: int, n: Array, radius: Array, ratio: Array, angle: Array, centre: Array, field: float = FIELD_SIDE
) -> Array:
    """Render Sersic profiles (n, H, W) with total flux 1.

    radius  half-light radius R, the mean radius sqrt(a b) of the ellipse
    ratio   axis ratio, short over long axis
    angle   angle of the long axis, from x to y
    """
    pixel = field / size
    soft = CUSP_SOFTENING * pixel / CORE_SUBPIXELS

    def brightness(side: int, middle: Array, width: float) -> Array:
        along, across = rotated_coordinates(side, middle, angle, width)
        squared = along**2 * per_image(ratio) + across**2 / per_image(ratio) + np.float32(soft**2)  # always above 0
        return profile(squared, n, radius)

    made = brightness(size, centre, field) * np.float32(pixel**2)
    if size < CORE_PIXELS or not len(made):
        return made
    corner = np.floor((np.asarray(centre) + field / 2) / pixel).astype(int) - CORE_PIXELS // 2
    corner = np.clip(corner, 0, size - CORE_PIXELS)
    middle = (corner + CORE_PIXELS / 2) * pixel - field / 2  # centre of the core
    core = brightness(CORE_PIXELS * CORE_SUBPIXELS, centre - middle, CORE_PIXELS * pixel)
    core = core.reshape(-1, CORE_PIXELS, CORE_SUBPIXELS, CORE_PIXELS, CORE_SUBPIXELS).mean((2, 4))
    rows, columns = (corner[:, axis, None] + np.arange(CORE_PIXELS) for axis in (1, 0))
    made[np.arange(len(made))[:, None, None], rows[:, :, None], columns[:, None]] = core * np.float32(pixel**2)
    return made


def load_galsim() -> Any:
    """GalSim renderer with the arguments of `sersic` (arXiv 1407.7676).

    GalSim integrates light over every pixel, at some tens of galaxies per second. It serves as a check of `sersic`.
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
