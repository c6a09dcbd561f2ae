"""Simulated images of galaxies of eight classes.

    table = Galaxies(seed=1).make(10_000)             # columns image (n, 64, 64, 3) of 8 bits, label, snr, radius ...
    table = Galaxies().make(1000, first=5_000_000)    # images 5,000,000 to 5,000,999 of the same sequence
    table = Galaxies(unit="flux").make(1000)          # float32, in standard deviations of the sky noise

The classes follow arXiv 2110.01024 (Lin et al.), based on the questions of Galaxy Zoo 2: `round`, `between` and
`cigar`-shaped smooth galaxies, `edge_on` disks, `barred` and `unbarred` spirals, `irregular` galaxies and a `merger`.
As in real data, the classes overlap: the smooth classes share some axis ratios, arms may be weak, and noise hides faint
structure. No model can therefore reach 100 %. Stars and other galaxies in the field belong to no class.

Included: Sersic bulges and exponential disks with textbook arms, bars, dust and tidal tails (morphology.py), a
point-spread function of two Gaussians, sky noise and photon noise (optics.py). Not included: redshift, star formation
history and camera artefacts. Parameter ranges are round numbers. The images are for learning, tests and pretraining,
and do not replace a survey.
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

MIN_SNR, MAX_SNR = 20.0, 400.0  # range of the signal-to-noise ratio
SEEING_RANGE = (0.7, 1.5)  # standard deviation of the point-spread function
STARS_PER_FIELD, GALAXIES_PER_FIELD = 0.4, 0.6  # mean number in a field

ENGINES: dict[str, Callable[[], DrawProfile]] = {"builtin": lambda: sersic, "galsim": load_galsim}


class Galaxies(SkyImages):
    """Simulated galaxies of eight classes.

    More than a thousand images per second on one core. Columns: `image`, `label`, `snr`, `seeing`, `radius`,
    `axis_ratio`, `angle`. See `sciformer.domains.images.simulate.galaxies` for details.
    """

    noun: ClassVar[str] = "galaxies"
    rows_per_chunk: ClassVar[int] = 128
    known_classes: ClassVar[tuple[str, ...]] = CLASSES

    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of galaxies, equally frequent (default: all eight)."""
    bands: int = Field(default=3, ge=1, le=20)
    """Number of bands, from red to blue (default: 3)."""
    engine: Literal["builtin", "galsim"] = "builtin"
    """Renderer of Sersic profiles (default: builtin). `galsim` needs the package galsim and is much slower."""

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
        seen = {"snr": snr.astype(np.float32), "seeing": seeing.astype(np.float32)}
        return {"image": self.observe(light, rng), **seen, **truth}


def render_bands(made: LightMaps, bands: int) -> Array:
    """Render light (n, C, H, W) in every band, with dust absorption stronger in blue."""
    light = sum(band_fluxes(colour, bands)[:, :, None, None] * map[:, None] for map, colour in made.maps)
    assert isinstance(light, np.ndarray)
    if made.dust is not None:
        more = np.linspace(0.7, 1.3, bands).astype(np.float32)[None, :, None, None] if bands > 1 else np.float32(1)
        light *= np.exp(-more * made.dust[:, None])
    return light


def render_neighbours(seeing: Array, size: int, bands: int, rng: np.random.Generator) -> Array:
    """Render random stars and small galaxies (n, C, H, W), in units of the sky noise."""
    n, most = len(seeing), 3
    counts = rng.poisson((STARS_PER_FIELD, GALAXIES_PER_FIELD), (n, 2))
    there = np.arange(2 * most) % most < np.repeat(counts, most, axis=1)
    width = np.where(np.arange(2 * most) < most, 0, rng.uniform(0.8, 2.2, (n, 2 * most)))
    x, y = rng.uniform(-FIELD_SIDE / 2, FIELD_SIDE / 2, (2, n, 2 * most))
    flux = log_uniform(rng, 20, 800, 2 * most * n) * there.ravel()
    tint = band_fluxes(rng.uniform(-0.2, OLD_STAR_COLOURS[1], len(flux)), bands) * flux[:, None]
    return render_blurred_blobs(size, x, y, width, tint.reshape(n, -1, bands).swapaxes(1, 2), seeing)
