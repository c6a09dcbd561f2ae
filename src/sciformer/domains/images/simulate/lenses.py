"""Simulated images of gravitational lenses.

The mass of a galaxy bends the light of a source behind it into arcs and rings.

    table = Lenses(seed=1).make(10_000)            # columns image (n, 64, 64) of 8 bits, einstein_radius, e1, e2 ...
    table = Lenses(light=False).make(1000)         # arcs only, as after subtraction of the lens light

The mass is the elliptical power law of Tessore and Metcalf (arXiv 1507.01819) with external shear:

    kappa(R) = (3 - slope) / 2 (b / R)^(slope - 1),     R^2 = q^2 x^2 + y^2,     b = sqrt(q) theta_E

The deflection is a series with terms of order f^k, f = (1 - q) / (1 + q). A slope of 2 is the singular isothermal
ellipsoid (SIE). Signs and names follow lenstronomy: e1 and e2 are f times the cosine and sine of twice the angle of the
long axis of the mass, measured from x to y.

The source is a Sersic profile. The lens light is another Sersic profile whose shape is close to that of the mass. Rays
are traced at 2 x 2 points of every pixel; then a point-spread function of two Gaussians, sky noise and photon noise are
applied. Lengths are in arcseconds; y increases with the row.

Limits: the field has no other objects, sources are smooth, the point-spread function is round, and all parameters have
flat or logarithmic distributions. Compare arXiv 2210.04143 (Huang et al.), whose images were made with lenstronomy. If
lenstronomy is installed, a test compares images of this module with images of lenstronomy.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....data.readers.sequence import log_uniform, sample_sequence
from .base import SkyImages
from .optics import TWO_PI, band_fluxes, blur, per_image, pixel_centres
from .sersic import profile, sersic, total_flux

LENSES_PER_CHUNK = 64
FIELD_ARCSEC = 6.4  # side of the field
RAYS_PER_PIXEL_SIDE = 2  # rays along the side of a pixel
LENSES_AT_ONCE = 4  # lenses traced at a time, to stay in the CPU cache
TARGETS = ("einstein_radius", "slope", "e1", "e2", "centre_x", "centre_y", "shear_1", "shear_2")
SOURCE_COLUMNS = ("source_x", "source_y", "source_radius", "source_index", "source_e1", "source_e2")
SERIES_TOLERANCE = 1e-5  # relative size of the last term in the series of the deflection
SNR_RANGE = (20.0, 200.0)  # signal-to-noise ratio of the arcs
SEEING_RANGE = (0.05, 0.12)  # standard deviation of the point-spread function


class Lenses(SkyImages):
    """Simulated gravitational lenses, hundreds per second on one core.

    Targets: `einstein_radius`, `slope`, `e1`, `e2`, `centre_x`, `centre_y`, `shear_1`, `shear_2`. Further columns
    describe the source, `snr` and `seeing`. See `sciformer.domains.images.simulate.lenses` for details.
    """

    noun: ClassVar[str] = "lenses"
    rows_per_chunk: ClassVar[int] = LENSES_PER_CHUNK

    bands: int = Field(default=1, ge=1, le=20)
    """Number of bands, from red to blue; lens and source differ in colour (default: 1)."""
    light: bool = True
    """Include the light of the lens (default: true). With false, the lens light is perfectly subtracted."""

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        found = sample_sequence(count, 0, LENSES_PER_CHUNK, lambda index: draw_truths(self.draw_chunk(part, index)[0]))
        return found.get(name, super().known_column(name, count, part))

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        truth = draw_truths(rng)
        blue, red = rng.uniform(-0.2, 0.8, LENSES_PER_CHUNK), rng.uniform(1.0, 1.8, LENSES_PER_CHUNK)
        light = blur(render_arcs(truth, self.size), truth["seeing"], FIELD_ARCSEC)
        light *= per_image(truth["snr"] / np.sqrt((light**2).sum((1, 2))))
        seen = light[:, None] * band_fluxes(blue, self.bands)[:, :, None, None]
        lens = blur(render_lens_light(truth, self.size, rng), truth["seeing"], FIELD_ARCSEC)
        lens *= per_image(log_uniform(rng, 0.5, 4, LENSES_PER_CHUNK) * light.sum((1, 2)) / lens.sum((1, 2)))
        if self.light:
            seen += lens[:, None] * band_fluxes(red, self.bands)[:, :, None, None]
        image = self.observe(seen, rng)
        return {"image": image if self.bands > 1 else image[..., 0], **truth}


def draw_truths(rng: np.random.Generator) -> dict[str, Array]:
    """Draw the parameters of the lenses of a chunk, before all other random numbers."""

    def ellipse(deviation: float) -> Array:
        given = rng.normal(0, deviation, (2, LENSES_PER_CHUNK))
        return given * np.minimum(1, 0.35 / np.maximum(np.hypot(*given), 1e-9))

    mass, shear, centre, own = ellipse(0.13), ellipse(0.04), rng.normal(0, 0.08, (2, LENSES_PER_CHUNK)), ellipse(0.2)
    radius = rng.uniform(0.6, 2.0, LENSES_PER_CHUNK)
    far, way = radius * 0.35 * np.sqrt(rng.random(LENSES_PER_CHUNK)), rng.uniform(0, TWO_PI, LENSES_PER_CHUNK)
    columns = [radius, rng.uniform(1.7, 2.3, LENSES_PER_CHUNK), *mass, *centre, *shear]
    columns += [centre[0] + far * np.cos(way), centre[1] + far * np.sin(way)]
    columns += [log_uniform(rng, 0.08, 0.4, LENSES_PER_CHUNK), rng.uniform(0.5, 2.5, LENSES_PER_CHUNK), *own]
    columns += [log_uniform(rng, *SNR_RANGE, LENSES_PER_CHUNK), rng.uniform(*SEEING_RANGE, LENSES_PER_CHUNK)]
    names = (*TARGETS, *SOURCE_COLUMNS, "snr", "seeing")
    return {name: values.astype(np.float32) for name, values in zip(names, columns, strict=True)}


def render_arcs(truth: Mapping[str, Array], size: int) -> Array:
    """Render lensed sources (n, H, W); the brightness at the half-light radius is 1."""
    along = pixel_centres(size * RAYS_PER_PIXEL_SIDE, FIELD_ARCSEC)
    made = np.empty((len(truth["e1"]), size, size), np.float32)
    for first in range(0, len(made), LENSES_AT_ONCE):
        few = {name: values[first : first + LENSES_AT_ONCE] for name, values in truth.items()}
        centre, shear = (np.stack([few[name] for name in pair], 1) for pair in (TARGETS[4:6], TARGETS[6:8]))
        radius, slope, e1, e2 = (few[name] for name in TARGETS[:4])
        x, y = source_plane(along[None, None], along[None, :, None], radius, slope, e1, e2, centre, shear)
        fine = source_brightness(x, y, few)
        corners = product(range(RAYS_PER_PIXEL_SIDE), repeat=2)
        rays = [fine[:, i::RAYS_PER_PIXEL_SIDE, j::RAYS_PER_PIXEL_SIDE] for i, j in corners]
        made[first : first + LENSES_AT_ONCE] = sum(rays[1:], rays[0]) / RAYS_PER_PIXEL_SIDE**2
    return made


def axis_ratio_and_angle(e1: Array, e2: Array) -> tuple[Array, Array]:
    """Convert ellipticities e1, e2 to axis ratio and angle of the long axis."""
    f = np.hypot(e1, e2)
    return (1 - f) / (1 + f), 0.5 * np.arctan2(e2, e1)


def deflection(x: Array, y: Array, radius: Array, slope: Array, e1: Array, e2: Array) -> tuple[Array, Array]:
    """Deflection angles (n, H, W) at x, y, measured from the lens centre.

    The lens parameters have the shape (n,). See the module for the equation.
    """
    q, angle = axis_ratio_and_angle(e1, e2)
    f, t = np.hypot(e1, e2), np.asarray(slope) - 1
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    along, across = c * x + s * y, c * y - s * x
    inner = along * per_image(q) + 1j * across
    far = np.maximum(np.abs(inner), np.float32(1e-9))
    turn = inner / far
    double, found = turn * turn, np.ones_like(turn)
    steepest = max(float(f.max(initial=0)), 1e-9)
    for k in range(1 + int(np.log(SERIES_TOLERANCE) / np.log(steepest)), 0, -1):  # Horner scheme
        found *= double
        found *= per_image(-f * (2 * k - (2 - t)) / (2 * k + (2 - t)))
        found += 1
    b = np.asarray(radius) * np.sqrt(q)
    size = per_image(2 * b / (1 + q)) * (per_image(b) / far) ** per_image(t - 1)
    turned = found * turn * (size * (c + 1j * s))
    return turned.real, turned.imag


def source_plane(
    x: Array, y: Array, radius: Array, slope: Array, e1: Array, e2: Array, centre: Array, shear: Array
) -> tuple[Array, Array]:
    """Source position of rays: theta - alpha(theta) - shear theta, for theta = (x, y).

    centre, shear   (n, 2) centre of the lens, and the components shear_1 and shear_2
    """
    bent = deflection(x - per_image(centre[:, 0]), y - per_image(centre[:, 1]), radius, slope, e1, e2)
    g1, g2 = per_image(shear[:, 0]), per_image(shear[:, 1])
    return x - bent[0] - g1 * x - g2 * y, y - bent[1] - g2 * x + g1 * y


def source_brightness(x: Array, y: Array, truth: Mapping[str, Array]) -> Array:
    """Brightness (n, H, W) of the source at x, y; 1 at the half-light radius."""
    q, angle = axis_ratio_and_angle(truth["source_e1"], truth["source_e2"])
    x, y = x - per_image(truth["source_x"]), y - per_image(truth["source_y"])
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    squared = (c * x + s * y) ** 2 * per_image(q) + (c * y - s * x) ** 2 / per_image(q)
    n, radius = truth["source_index"], truth["source_radius"]
    return profile(squared, n, radius) * per_image(total_flux(n, radius))


def render_lens_light(truth: Mapping[str, Array], size: int, rng: np.random.Generator) -> Array:
    """Render the light of lenses (n, H, W) with flux 1, in the shape of the mass."""

    def near(name: str) -> Array:
        return truth[name] + rng.normal(0, 0.04, LENSES_PER_CHUNK)

    q, angle = axis_ratio_and_angle(near("e1"), near("e2"))
    centre = np.stack([truth["centre_x"], truth["centre_y"]], 1) + rng.normal(0, 0.015, (LENSES_PER_CHUNK, 2))
    radius = truth["einstein_radius"] * rng.uniform(0.3, 0.9, LENSES_PER_CHUNK)
    return sersic(size, rng.uniform(2.5, 5, LENSES_PER_CHUNK), radius, q, angle, centre, FIELD_ARCSEC)
