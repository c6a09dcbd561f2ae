"""The base of simulated images: size, memory, reader of files."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.readers.simulation import SimulatedSequence
from ....data.source import Data
from ....recipe.registry import find

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

    def stays_in_memory(self, count: int) -> bool:
        bytes_per_number = 4 if getattr(self, "unit", "") == "flux" else 1
        return bool(count * self.size**2 * getattr(self, "bands", 1) * bytes_per_number <= MAX_HELD_BYTES)

    def file_reader(self) -> Data:
        found: Data = find("data", "images")(kind="images")
        return found
