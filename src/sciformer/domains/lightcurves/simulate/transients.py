"""Simulated transients with the image and the magnitude of their host galaxy.

    table = Transients(seed=1).make(1000)    # columns image, time, value, error, band, limit, host_magnitude, label ...

The class and the redshift of a transient determine its light curve (supernovae.py), and the morphology and the
brightness of its host galaxy. Hosts follow the known trends: type Ia in all galaxies, core collapse
(Ibc, II) in galaxies that form stars, superluminous supernovae in faint irregular galaxies. Class fractions and
magnitudes are rounded, not fitted. Hosts are fainter with redshift, but neither smaller nor redder.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....data.readers.arrays import Arrays
from ....data.source import Data
from ...images.reader.reader import ImageFiles
from ...images.simulate.base import SkyImages
from ...images.simulate.galaxies import SEEING_RANGE, render_bands, render_neighbours
from ...images.simulate.morphology import MAKERS
from ...images.simulate.optics import blur, signal_to_noise
from ...images.simulate.sersic import sersic
from .supernovae import BANDS, CLASSES, distance_modulus, supernovae

HOSTS = {  # class -> shares of the morphology of its host
    "Ia": {"round": 0.25, "between": 0.25, "edge_on": 0.1, "barred": 0.15, "unbarred": 0.25},
    "Ibc": {"edge_on": 0.1, "barred": 0.25, "unbarred": 0.5, "irregular": 0.15},
    "II": {"edge_on": 0.15, "barred": 0.2, "unbarred": 0.4, "irregular": 0.25},
    "SLSN": {"irregular": 0.8, "unbarred": 0.2},
}
HOST_MAGNITUDES = {"Ia": (-20.5, 1.0), "Ibc": (-20.0, 1.0), "II": (-19.5, 1.0), "SLSN": (-17.5, 1.2)}
MAGNITUDE_ERROR = 0.1  # of the host, in magnitudes
REFERENCE_MAGNITUDE, REFERENCE_SNR, MIN_SNR, MAX_SNR = 18.0, 100.0, 3.0, 400.0  # brightness of the host in its image


class Transients(SkyImages):
    """Simulated supernovae, each with the image and the magnitude of its host galaxy.

    Columns: `image`, the light curve (`time`, `value`, `error`, `band`, `limit`), `host_magnitude`, `label`, `redshift`
    and `host`. See `sciformer.domains.lightcurves.simulate.transients` for details.
    """

    noun: ClassVar[str] = "transients"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)
    rows_per_chunk: ClassVar[int] = 128
    known_classes: ClassVar[tuple[str, ...]] = CLASSES

    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of supernovae, equally frequent (default: Ia, Ibc, II, SLSN)."""
    size: int = Field(default=32, ge=16, le=512)
    """Image size in pixels; the field of view does not depend on it (default: 32)."""
    bands: int = Field(default=3, ge=1, le=20)
    """Number of bands of the image, from red to blue (default: 3)."""
    missing: float = Field(default=0.0, ge=0, lt=1)
    """Probability that the image is missing, and that the magnitude of the host is missing (default: 0)."""

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        return None if self.missing and name == "image_shape" else super().known_column(name, count, part)

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        n = len(label)
        curves = supernovae(label, rng, BANDS, "magnitude")
        mean, spread = np.array([HOST_MAGNITUDES[name] for name in CLASSES])[label].T
        magnitude = mean + spread * rng.standard_normal(n) + distance_modulus(np.asarray(curves["redshift"]))
        host = draw_hosts(label, rng)
        light = np.zeros((n, self.bands, self.size, self.size), np.float32)
        for name in sorted(set(host.tolist())):
            rows = np.flatnonzero(host == name)
            light[rows] = render_bands(MAKERS[name](len(rows), self.size, rng, sersic), self.bands)
        seeing = rng.uniform(*SEEING_RANGE, n)
        light = blur(light, seeing)
        snr = np.clip(REFERENCE_SNR * 10 ** (-0.4 * (magnitude - REFERENCE_MAGNITUDE)), MIN_SNR, MAX_SNR)
        light *= (snr / signal_to_noise(light)).astype(np.float32)[:, None, None, None]
        light += render_neighbours(seeing, self.size, self.bands, rng)
        seen = magnitude + MAGNITUDE_ERROR * rng.standard_normal(n)
        image: Table = {"image": self.observe(light, rng)}
        if self.missing:
            image_is_missing, magnitude_is_missing = rng.random((2, n)) < self.missing
            image = ImageFiles(kind="images").with_gaps(image, np.where(image_is_missing, -1, np.arange(n)))
            seen[magnitude_is_missing] = np.nan
        return {**image, **curves, "host_magnitude": seen.astype(np.float32), "host": host}

    def file_reader(self) -> Data:
        return Arrays(kind="arrays")


def draw_hosts(label: Array, rng: np.random.Generator) -> Array:
    """Draw the morphology (n,) of the host of each supernova."""
    drawn, found = rng.random(len(label)), np.empty(len(label), "U16")
    for number, name in enumerate(CLASSES):
        rows, shares = np.flatnonzero(label == number), HOSTS[name]
        place = np.searchsorted(np.cumsum(list(shares.values())), drawn[rows], side="right")
        found[rows] = np.array(list(shares))[np.minimum(place, len(shares) - 1)]
    return found
