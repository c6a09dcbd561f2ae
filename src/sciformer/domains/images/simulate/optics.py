"""Telescope optics: pixels, point-spread function, noise, 8-bit pictures.

Light maps are (n, H, W), or (n, C, H, W) with several bands. Lengths are in units of 1 / `FIELD_SIDE` of the field
side, independent of the number of pixels. Coordinates are 0 at the centre; `x` increases with the column, `y` with the
row.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array

TWO_PI = 2 * np.pi
FIELD_SIDE = 64.0  # length units along a side of the field: pixels of a 64 x 64 image
PICTURE_DARK, PICTURE_SOFTENING, PICTURE_TOP = 3.0, 4.0, 150.0  # of `to_picture`, in units of the sky noise
PSF_GAUSSIANS = ((0.8, 1.0), (0.2, 2.2))  # share and relative width of the two Gaussians of the PSF
PSF_CUTOFF = 1e-8  # smallest value of the PSF, relative to its centre
GAIN = 4.0  # light at which photon noise equals sky noise, in units of the sky noise


def pixel_centres(size: int, field: float = FIELD_SIDE) -> Array:
    """Positions (size,) of the pixel centres along a side of the image."""
    return ((np.arange(size) + 0.5) * (field / size) - field / 2).astype(np.float32)


def per_image(values: Array) -> Array:
    """Reshape (n,) values to (n, 1, 1), for broadcasting with maps (n, H, W)."""
    return np.asarray(values, np.float32)[:, None, None]


def rotated_coordinates(size: int, centre: Array, angle: Array, field: float = FIELD_SIDE) -> tuple[Array, Array]:
    """Pixel coordinates (n, H, W) about `centre` (n, 2), rotated by `angle` (n,)."""
    along = pixel_centres(size, field)
    x, y = along[None, None] - per_image(centre[:, 0]), along[None, :, None] - per_image(centre[:, 1])
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    return c * x + s * y, c * y - s * x


def render_blobs(size: int, x: Array, y: Array, width: Array, flux: Array, field: float = FIELD_SIDE) -> Array:
    """Render sums of round Gaussians: flux (n[, C], K) -> maps (n[, C], H, W)."""
    along = pixel_centres(size, field)
    unit = (field / size) / np.sqrt(2 * np.pi)

    def line(centre: Array) -> Array:
        apart = (along - np.asarray(centre, np.float32)[..., None]) / np.asarray(width, np.float32)[..., None]
        return np.asarray(np.exp(-0.5 * np.minimum(apart**2, 80)) * np.asarray(unit / width, np.float32)[..., None])

    across, down = line(x), line(y)
    if flux.ndim == 3:
        across, down = across[:, None], down[:, None]
    return np.asarray(np.matmul((down * np.asarray(flux, np.float32)[..., None]).swapaxes(-1, -2), across))


def render_blurred_blobs(
    size: int, x: Array, y: Array, width: Array, flux: Array, seeing: Array, field: float = FIELD_SIDE
) -> Array:
    """Render round Gaussians, blurred by a point-spread function of width `seeing`."""
    wide = np.concatenate([np.hypot(width, seeing[:, None] * factor) for _, factor in PSF_GAUSSIANS], 1)
    shares = np.concatenate([flux * share for share, _ in PSF_GAUSSIANS], -1)
    return render_blobs(size, np.tile(x, (1, 2)), np.tile(y, (1, 2)), wide, shares, field)


def blur(light: Array, width: Array, field: float = FIELD_SIDE) -> Array:
    """Convolve maps (n, ..., H, W) with a point-spread function of two Gaussians.

    `width` (n,) is the standard deviation of the first Gaussian; the second Gaussian is wider (`PSF_GAUSSIANS`). Light
    outside the field is lost. A width below a third of a pixel is raised to this value.
    """
    size = light.shape[-1]
    along = pixel_centres(size, field)
    apart = along[:, None] - along[None]
    made = np.zeros_like(light)
    for share, factor in PSF_GAUSSIANS:
        deviation = np.maximum(np.asarray(width, np.float32) * factor, field / size / 3)
        one = np.exp(-0.5 * (apart / per_image(deviation)) ** 2)
        one[one < PSF_CUTOFF] = 0  # denormal numbers are slow
        one /= one[:, size // 2].sum(-1)[:, None, None]
        one = one.reshape(len(light), *[1] * (light.ndim - 3), size, size)
        made += np.float32(share) * np.matmul(np.matmul(one, light), one)
    return made


def add_noise(light: Array, rng: np.random.Generator) -> Array:
    """Add sky noise and photon noise to light in units of the sky noise."""
    deviation = np.sqrt(1 + np.maximum(light, 0) / np.float32(GAIN))
    return np.asarray(light + deviation * rng.standard_normal(light.shape, np.float32))


def to_picture(light: Array) -> Array:
    """Convert light to 8 bits by asinh(x / PICTURE_SOFTENING)."""
    low, high = np.arcsinh(-PICTURE_DARK / PICTURE_SOFTENING), np.arcsinh(PICTURE_TOP / PICTURE_SOFTENING)
    level = (np.arcsinh(light / np.float32(PICTURE_SOFTENING)) - np.float32(low)) * np.float32(255 / (high - low))
    return np.asarray(np.clip(np.rint(level), 0, 255).astype(np.uint8))


def band_fluxes(index: Array, bands: int) -> Array:
    """Fluxes (n, bands) with mean 1, from red to blue.

    index   (n,) colour index: magnitude in the bluest band minus magnitude in the reddest band
    """
    steps = np.linspace(0.5, -0.5, bands) if bands > 1 else np.zeros(1)
    made = 10 ** (0.4 * np.asarray(index)[:, None] * steps)
    return np.asarray((made / made.mean(1, keepdims=True)).astype(np.float32))


def signal_to_noise(light: Array) -> Array:
    """Signal-to-noise ratio (n,) of a matched filter for light (n, C, H, W).

    Light is in units of the sky noise; the ratio is sqrt(mean over bands of the sum of squared pixels).
    """
    return np.asarray(np.sqrt((light.astype(np.float64) ** 2).sum((-1, -2)).mean(-1)))
