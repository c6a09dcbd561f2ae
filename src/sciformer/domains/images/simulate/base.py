"""Base classes of simulated images."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.readers.simulation import SimulatedSequence
from ....data.source import Data
from ....recipe.registry import find
from .optics import add_noise, to_picture

MAX_HELD_BYTES = 2 << 30  # a part (train, valid, test) up to this size stays in memory


class SimulatedImages(SimulatedSequence):
    """Simulation of images as an endless sequence."""

    noun: ClassVar[str] = "images"
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".h5")
    rows_per_write: ClassVar[int] = 1024

    size: int = Field(default=64, ge=16, le=512)
    """Image size in pixels; the field of view does not depend on it (default: 64)."""
    chunk_size: int = Field(default=4096, ge=16)
    """Images simulated at a time (default: 4,096). Training holds several chunks in memory and shuffles across them."""

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """Column known before rendering, such as `image_shape`; otherwise None."""
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
    """Simulation of sky images in several bands, with noise."""

    bands: int = Field(default=1, ge=1, le=20)
    """Number of bands, from red to blue (default: 1)."""
    unit: Literal["picture", "flux"] = "picture"
    """Unit of the pixels (default: picture). `picture`: 8 bits with an asinh stretch. `flux`: float32 in standard
    deviations of the sky noise."""

    def bytes_per_pixel(self) -> int:
        return self.bands * (4 if self.unit == "flux" else 1)

    def observe(self, light: Array, rng: np.random.Generator) -> Array:
        """Convert light (n, C, H, W) to images (n, H, W, C) with noise."""
        seen = add_noise(light, rng).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(to_picture(seen) if self.unit == "picture" else seen)
