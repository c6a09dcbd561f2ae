"""What a telescope makes of light: pixels, a blur, noise; and the picture that people look at.

Maps of light are (n, H, W), or (n, C, H, W) in several colours. Lengths are in units of the whole field's side over
`FIELD_SIDE`, whatever the number of pixels; `x` goes along a row and `y` down the rows, from the centre.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array

TWO_PI = 2 * np.pi
FIELD_SIDE = 64.0  # units of length on a side of the field: pixels, where there are 64
PICTURE_DARK, PICTURE_SOFTENING, PICTURE_TOP = 3.0, 4.0, 150.0  # of `to_picture`, in deviations of the sky
PSF_GAUSSIANS = ((0.8, 1.0), (0.2, 2.2))  # of the blur: shares of two Gaussians, and widths over that of the first
PSF_CUTOFF = 1e-8  # of a blur, over its middle
GAIN = 4.0  # counts in a deviation of the sky, squared: light that adds as much noise as the sky does


def pixel_centres(size: int, field: float = FIELD_SIDE) -> Array:
    """(size,) where the centres of pixels stand along a side."""
    return ((np.arange(size) + 0.5) * (field / size) - field / 2).astype(np.float32)


def per_image(values: Array) -> Array:
    """(n,) numbers beside maps (n, H, W)."""
    return np.asarray(values, np.float32)[:, None, None]


def rotated_coordinates(size: int, centre: Array, angle: Array, field: float = FIELD_SIDE) -> tuple[Array, Array]:
    """Coordinates (n, H, W) along and across the axis of something at `centre` (n, 2), x and y, turned by `angle`."""
    along = pixel_centres(size, field)
    x, y = along[None, None] - per_image(centre[:, 0]), along[None, :, None] - per_image(centre[:, 1])
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    return c * x + s * y, c * y - s * x


def render_blobs(size: int, x: Array, y: Array, width: Array, flux: Array, field: float = FIELD_SIDE) -> Array:
    """Round Gaussians (n, K) of this flux, summed into maps (n, H, W); of flux (n, C, K), into maps (n, C, H, W)."""
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
    """The same, blurred by a point-spread function of deviation `seeing` (n,) as `blur` does."""
    wide = np.concatenate([np.hypot(width, seeing[:, None] * factor) for _, factor in PSF_GAUSSIANS], 1)
    shares = np.concatenate([flux * share for share, _ in PSF_GAUSSIANS], -1)
    return render_blobs(size, np.tile(x, (1, 2)), np.tile(y, (1, 2)), wide, shares, field)


def blur(light: Array, width: Array, field: float = FIELD_SIDE) -> Array:
    """Maps (n, ..., H, W) through a point-spread function of two round Gaussians, of deviation `width` (n,) and wider.

    Light that falls outside the field is lost. A Gaussian narrower than a third of a pixel is widened to that.
    """
    size = light.shape[-1]
    along = pixel_centres(size, field)
    apart = along[:, None] - along[None]
    made = np.zeros_like(light)
    for share, factor in PSF_GAUSSIANS:
        deviation = np.maximum(np.asarray(width, np.float32) * factor, field / size / 3)
        one = np.exp(-0.5 * (apart / per_image(deviation)) ** 2)
        one[one < PSF_CUTOFF] = 0  # tiny numbers are slow, and of no use
        one /= one[:, size // 2].sum(-1)[:, None, None]
        one = one.reshape(len(light), *[1] * (light.ndim - 3), size, size)
        made += np.float32(share) * np.matmul(np.matmul(one, light), one)
    return made


def add_noise(light: Array, rng: np.random.Generator) -> Array:
    """Light in deviations of the sky, with the noise of the sky and its own."""
    deviation = np.sqrt(1 + np.maximum(light, 0) / np.float32(GAIN))
    return np.asarray(light + deviation * rng.standard_normal(light.shape, np.float32))


def to_picture(light: Array) -> Array:
    """8-bit pixels, asinh(x / PICTURE_SOFTENING): even where the sky's noise is, logarithmic where it is bright."""
    low, high = np.arcsinh(-PICTURE_DARK / PICTURE_SOFTENING), np.arcsinh(PICTURE_TOP / PICTURE_SOFTENING)
    level = (np.arcsinh(light / np.float32(PICTURE_SOFTENING)) - np.float32(low)) * np.float32(255 / (high - low))
    return np.asarray(np.clip(np.rint(level), 0, 255).astype(np.uint8))


def band_fluxes(index: Array, bands: int) -> Array:
    """(n, bands) fluxes of mean 1, from red to blue, of light that is `index` magnitudes brighter in the reddest."""
    steps = np.linspace(0.5, -0.5, bands) if bands > 1 else np.zeros(1)
    made = 10 ** (0.4 * np.asarray(index)[:, None] * steps)
    return np.asarray((made / made.mean(1, keepdims=True)).astype(np.float32))


def signal_to_noise(light: Array) -> Array:
    """(n,) the signal-to-noise ratio of light (n, C, H, W), in deviations of the sky, to who knows its form.

    The mean over bands of the squares' sum, and its root.
    """
    return np.asarray(np.sqrt((light.astype(np.float64) ** 2).sum((-1, -2)).mean(-1)))
