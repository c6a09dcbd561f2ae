"""The base of simulated images: size, memory, reader of files."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.readers.simulation import SimulatedSequence
from ....data.source import Data
from ....recipe.registry import find
from .optics import add_noise, to_picture

MAX_HELD_BYTES = 2 << 30  # bytes of images of a part that stay in memory once they are made, if there are no more


class SimulatedImages(SimulatedSequence):
    """Images of endless sequences."""

    noun: ClassVar[str] = "images"
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".h5")
    rows_per_write: ClassVar[int] = 1024

    size: int = Field(default=64, ge=16, le=512)
    """Image side in pixels; the field of view does not depend on it (default: 64)."""
    chunk_size: int = Field(default=4096, ge=16)
    """Number of images simulated at a time (default: 4096). A training keeps several chunks in memory and mixes some of
    them."""

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """Columns that are drawn before images are made, and `image_shape`."""
        if name == "image_shape":
            return np.full((count, 2), self.size, np.int32)
        return super().known_column(name, count, part)

    def bytes_per_pixel(self) -> int:
        return 1

    def stays_in_memory(self, count: int) -> bool:
        return count * self.size**2 * self.bytes_per_pixel() <= MAX_HELD_BYTES

    def file_reader(self) -> Data:
        found: Data = find("data", "images")(kind="images")
        return found


class SkyImages(SimulatedImages):
    """Images of the sky in several bands, with its noise."""

    bands: int = Field(default=1, ge=1, le=20)
    """Number of channels, from red to blue (default: 1)."""
    unit: Literal["picture", "flux"] = "picture"
    """Pixel values. picture: 8 bits, compressed at the bright end; flux: in standard deviations of the sky noise
    (default: picture)."""

    def bytes_per_pixel(self) -> int:
        return self.bands * (4 if self.unit == "flux" else 1)

    def observe(self, light: Array, rng: np.random.Generator) -> Array:
        """Images (n, H, W, C) of light (n, C, H, W), in deviations of the sky's noise."""
        seen = add_noise(light, rng).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(to_picture(seen) if self.unit == "picture" else seen)
