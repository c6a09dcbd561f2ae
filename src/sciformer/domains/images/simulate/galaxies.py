"""Images of galaxies of eight classes, made from nothing, more than a thousand in a second on one core.

    table = Galaxies(seed=1).make(10_000)             # columns image (n, 64, 64, 3) of 8 bits, label, snr, radius ...
    table = Galaxies().make(1000, first=5_000_000)    # 5,000,000 to 5,000,999 of the same endless sequence
    table = Galaxies(unit="flux").make(1000)          # in deviations of the sky's noise, single precision

The classes are those of arXiv 2110.01024 (Lin et al.), after the questions of Galaxy Zoo 2: `round`, `between` and
`cigar`-shaped smooth ones, `edge_on` disks, `barred` and `unbarred` spirals, `irregular` ones and a `merger`. They
overlap, as there: axis ratios of smooth classes share their tails, arms may be weak, and noise hides much of what is
faint, so that no answer is right for all. Stars and other galaxies in the field belong to no class.

What it is: Sersic bulges and exponential disks with the textbook's arms, bars, dust and tails (morphology.py) behind
a point-spread function of two Gaussians and the noise of a sky and of light itself (optics.py). What it is not: a
survey. There is no redshift, no history of star formation, no artefact of a camera; ranges are round numbers. Train
on it to learn, to test, to pretrain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....data.readers.sequence import log_uniform
from .base import SkyImages
from .morphology import CLASSES as CLASSES
from .morphology import MAKERS, OLD_STAR_COLOURS, DrawProfile, LightMaps
from .optics import FIELD_SIDE, band_fluxes, blur, render_blurred_blobs, signal_to_noise
from .sersic import load_galsim, sersic

MIN_SNR, MAX_SNR = 20.0, 400.0  # the range of signal-to-noise ratios
SEEING_RANGE = (0.7, 1.5)  # the deviation of the blur
STARS_PER_FIELD, GALAXIES_PER_FIELD = 0.4, 0.6  # in a field, on average


ENGINES: dict[str, Callable[[], DrawProfile]] = {"builtin": lambda: sersic, "galsim": load_galsim}


class Galaxies(SkyImages):
    """Galaxies of eight classes (column `label`), with their `snr`, `seeing`, `radius`, `axis_ratio` and `angle`.

    More than a thousand are made in a second on one core; `sciformer.domains.images.simulate.galaxies` describes them.
    """

    noun: ClassVar[str] = "galaxies"
    rows_per_chunk: ClassVar[int] = 128
    known_classes: ClassVar[tuple[str, ...]] = CLASSES

    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of galaxies to simulate, equally often (default: all classes)."""
    bands: int = Field(default=3, ge=1, le=20)
    """Number of channels, from red to blue (default: 3)."""
    engine: Literal["builtin", "galsim"] = "builtin"
    """Renderer of the smooth components: builtin, or galsim, which must be installed and is much slower (default:
    builtin)."""

    def check(self) -> None:
        super().check()
        ENGINES[self.engine]()

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        n, draw = len(label), ENGINES[self.engine]()
        light = np.zeros((n, self.bands, self.size, self.size), np.float32)
        truth = {name: np.zeros(n, np.float32) for name in ("radius", "axis_ratio", "angle")}
        for kind in self.class_numbers():
            rows = np.flatnonzero(label == kind)
            made = MAKERS[CLASSES[kind]](len(rows), self.size, rng, draw)
            light[rows] = render_bands(made, self.bands)
            for name, values in zip(truth, (made.radius, made.ratio, made.angle % np.pi)):
                truth[name][rows] = values
        seeing = rng.uniform(*SEEING_RANGE, n)
        snr = log_uniform(rng, MIN_SNR, MAX_SNR, n)
        light = blur(light, seeing)
        light *= (snr / signal_to_noise(light)).astype(np.float32)[:, None, None, None]
        light += render_neighbours(seeing, self.size, self.bands, rng)
        return {
            "image": self.observe(light, rng),
            "snr": snr.astype(np.float32),
            "seeing": seeing.astype(np.float32),
            **truth,
        }


def render_bands(made: LightMaps, bands: int) -> Array:
    """Light (n, C, H, W) in every band, behind its dust, which takes more of the blue."""
    light = sum(band_fluxes(colour, bands)[:, :, None, None] * map[:, None] for map, colour in made.maps)
    assert isinstance(light, np.ndarray)
    if made.dust is not None:
        more = np.linspace(0.7, 1.3, bands).astype(np.float32)[None, :, None, None] if bands > 1 else np.float32(1)
        light *= np.exp(-more * made.dust[:, None])
    return light


def render_neighbours(seeing: Array, size: int, bands: int, rng: np.random.Generator) -> Array:
    """Stars and small galaxies anywhere in the fields (n, C, H, W), in deviations of the sky."""
    n, most = len(seeing), 3
    there = np.arange(2 * most) % most < np.repeat(
        rng.poisson((STARS_PER_FIELD, GALAXIES_PER_FIELD), (n, 2)), most, axis=1
    )
    width = np.where(np.arange(2 * most) < most, 0, rng.uniform(0.8, 2.2, (n, 2 * most)))
    x, y = rng.uniform(-FIELD_SIDE / 2, FIELD_SIDE / 2, (2, n, 2 * most))
    flux = log_uniform(rng, 20, 800, 2 * most * n) * there.ravel()
    tint = band_fluxes(rng.uniform(-0.2, OLD_STAR_COLOURS[1], len(flux)), bands) * flux[:, None]
    return render_blurred_blobs(size, x, y, width, tint.reshape(n, -1, bands).swapaxes(1, 2), seeing)
