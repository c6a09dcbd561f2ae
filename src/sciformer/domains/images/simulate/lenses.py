"""Images of gravitational lenses: a galaxy whose mass bends the light of another one behind it into arcs and rings.

    table = lenses(10_000, seed=1)                 # columns image (n, 64, 64) of 8 bits, einstein_radius, e1, e2 ...
    table = lenses(1000, light=False)              # the arcs alone, as if the lens were subtracted

The mass is an elliptical power law with a shear from outside (lensing.py), exact; the source is a Sersic profile, the
lens shines as another whose form is near that of its mass. Rays are traced through every pixel at 2 x 2 points, blurred
by two Gaussians, and given the noise of a sky and of light itself. Lengths are arcseconds; rows go down as y grows.

What it is not: a survey. Nothing but the two galaxies is in the field, sources are smooth, the point-spread function is
round, all ranges are flat or logarithmic. Compare arXiv 2210.04143 (Huang et al.), whose images lenstronomy made; that
this agrees with lenstronomy is tested where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import PARTS, chances, check, identifiers, sequence, sizes
from .arrays import TURN, Floats
from .lensing import shape, source_plane
from .optics import axis, blur, check_view, colours, column, noisy, picture
from .sersic import profile, sersic, total

VERSION = 1  # of what is made; another one makes other lenses
CHUNK = 64  # lenses made at a time
FIELD = 6.4  # arcseconds on a side
FINE = 2  # rays on a side of a pixel
FEW = 4  # lenses whose rays are traced at a time: as many as a cache holds
TARGETS = ("einstein_radius", "slope", "e1", "e2", "centre_x", "centre_y", "shear_1", "shear_2")
SOURCE = ("source_x", "source_y", "source_radius", "source_index", "source_e1", "source_e2")
SNR = (20.0, 200.0)  # of the arcs
SEEING = (0.05, 0.12)  # the deviation of the blur


class Options(NamedTuple):
    """How lenses are seen."""

    size: int = 64
    bands: int = 1
    unit: str = "picture"
    light: bool = True

    def check(self) -> None:
        """Refuse what makes no sense."""
        check_view(self.size, self.bands, self.unit)


def lenses(
    number: int,
    seed: int = 0,
    first: int = 0,
    part: str = "file",
    options: Options | None = None,
    **more: object,
) -> dict[str, Array]:
    """The lenses first, first + 1, ... of an endless sequence.

    A pure function of its arguments, whatever is asked for in one go; parts of the same seed have no lens in common.
    Options are given as such, or by name: `size=32`. Other processors may round the last bit otherwise.
    """
    check("lenses", number, seed, first, part)
    wanted = options or Options(**more)  # type: ignore[arg-type]
    wanted.check()
    made = sequence(number, first, CHUNK, lambda index: chunk((seed, PARTS.index(part)), index, wanted))
    return {"id": identifiers(part, seed, first, number), **made}


def truths(number: int, seed: int = 0, first: int = 0, part: str = "file") -> dict[str, Array]:
    """What is known of these lenses, which is drawn before their images are made."""
    return sequence(number, first, CHUNK, lambda index: drawn((seed, PARTS.index(part)), index)[1])


def drawn(seed: tuple[int, int], index: int) -> tuple[np.random.Generator, dict[str, Array]]:
    """The chance of a chunk, and what is true of its lenses."""
    rng = chances(VERSION, *seed, index)

    def ellipse(deviation: float) -> Floats:
        """(2, CHUNK) of length below 0.35."""
        given = rng.normal(0, deviation, (2, CHUNK))
        return given * np.minimum(1, 0.35 / np.maximum(np.hypot(*given), 1e-9))

    mass, shear, centre, own = ellipse(0.13), ellipse(0.04), rng.normal(0, 0.08, (2, CHUNK)), ellipse(0.2)
    radius = rng.uniform(0.6, 2.0, CHUNK)
    far, way = radius * 0.35 * np.sqrt(rng.random(CHUNK)), rng.uniform(0, TURN, CHUNK)
    columns = [radius, rng.uniform(1.7, 2.3, CHUNK), *mass, *centre, *shear]
    columns += [centre[0] + far * np.cos(way), centre[1] + far * np.sin(way)]
    columns += [sizes(rng, CHUNK, 0.08, 0.4), rng.uniform(0.5, 2.5, CHUNK), *own]
    columns += [sizes(rng, CHUNK, *SNR), rng.uniform(*SEEING, CHUNK)]
    names = (*TARGETS, *SOURCE, "snr", "seeing")
    return rng, {name: values.astype(np.float32) for name, values in zip(names, columns, strict=True)}


@lru_cache(maxsize=1)
def chunk(seed: tuple[int, int], index: int, options: Options) -> dict[str, Array]:
    """CHUNK lenses, the same for the same arguments."""
    rng, truth = drawn(seed, index)
    blue, red = rng.uniform(-0.2, 0.8, CHUNK), rng.uniform(1.0, 1.8, CHUNK)
    light = blur(arcs(truth, options.size), truth["seeing"], FIELD)
    light *= column(truth["snr"] / np.sqrt((light**2).sum((1, 2))))
    seen = light[:, None] * colours(blue, options.bands)[:, :, None, None]
    lens = blur(lens_light(truth, options.size, rng), truth["seeing"], FIELD)
    lens *= column(sizes(rng, CHUNK, 0.5, 4) * light.sum((1, 2)) / lens.sum((1, 2)))
    if options.light:
        seen += lens[:, None] * colours(red, options.bands)[:, :, None, None]
    seen = noisy(seen, rng).transpose(0, 2, 3, 1)
    image = picture(seen) if options.unit == "picture" else seen
    return {"image": np.ascontiguousarray(image if options.bands > 1 else image[..., 0]), **truth}


def arcs(truth: Mapping[str, Array], size: int) -> Floats:
    """The light of sources (n, H, W) as it is seen, of surface brightness 1 at the sources' half-light radii."""
    along = axis(size * FINE, FIELD)
    made = np.empty((len(truth["e1"]), size, size), np.float32)
    for first in range(0, len(made), FEW):
        few = {name: values[first : first + FEW] for name, values in truth.items()}
        centre, shear = (np.stack([few[name] for name in pair], 1) for pair in (TARGETS[4:6], TARGETS[6:8]))
        radius, slope, e1, e2 = (few[name] for name in TARGETS[:4])
        x, y = source_plane(along[None, None], along[None, :, None], radius, slope, e1, e2, centre, shear)
        fine = brightness(x, y, few)
        rays = [fine[:, i::FINE, j::FINE] for i in range(FINE) for j in range(FINE)]
        made[first : first + FEW] = sum(rays[1:], rays[0]) / FINE**2
    return made


def brightness(x: Floats, y: Floats, truth: Mapping[str, Array]) -> Floats:
    """The source's light at x, y (n, H, W), 1 at its half-light radius."""
    q, angle = shape(truth["source_e1"], truth["source_e2"])
    x, y = x - column(truth["source_x"]), y - column(truth["source_y"])
    c, s = column(np.cos(angle)), column(np.sin(angle))
    squared = (c * x + s * y) ** 2 * column(q) + (c * y - s * x) ** 2 / column(q)
    n, radius = truth["source_index"], truth["source_radius"]
    return profile(squared, n, radius) * column(total(n, radius))


def lens_light(truth: Mapping[str, Array], size: int, rng: np.random.Generator) -> Floats:
    """Lenses (n, H, W) of flux 1, whose form is near that of their mass."""

    def near(name: str) -> Floats:
        return truth[name] + rng.normal(0, 0.04, CHUNK)

    q, angle = shape(near("e1"), near("e2"))
    centre = np.stack([truth["centre_x"], truth["centre_y"]], 1) + rng.normal(0, 0.015, (CHUNK, 2))
    radius = truth["einstein_radius"] * rng.uniform(0.3, 0.9, CHUNK)
    return sersic(size, rng.uniform(2.5, 5, CHUNK), radius, q, angle, centre, FIELD)
