"""Simulated images, made where they are needed: galaxies, gravitational lenses, shapes with textures."""

from __future__ import annotations

import hashlib
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.readers.simulation import Simulation
from ....data.source import Data
from ....recipe.registry import find
from . import cues, galaxies, lenses

MAX_HELD_BYTES = 2 << 30  # bytes of images of a part that stay in memory once they are made, if there are no more


class SimulatedImages(Simulation):
    """Images that are made piece by piece when they are asked for, the same ones each time."""

    version: ClassVar[int] = 0

    size: int = Field(default=64, ge=16, le=512)
    """Pixels on a side; the field that they show is the same."""
    chunk_size: int = Field(default=4096, ge=16)
    """Images made at a time (default: 4096); a training keeps several such chunks in memory, and mixes some of them."""

    def bytes(self) -> int:
        """Of an image."""
        wide = 4 if getattr(self, "unit", "") == "flux" else 1
        return int(self.size**2 * getattr(self, "bands", 1) * wide)

    def describe(self) -> str:
        """What is made, in words: its options, but for numbers of images."""
        kept = {"kind", "number", "valid", "test", "chunk_size", "cache"}
        options = ", ".join(f"{name} {value}" for name, value in self.model_dump(exclude=kept).items())
        return f"{type(self).__name__.lower()}, version {self.version}: {options}"

    def cache_prefix(self) -> str:
        """A digest of the options."""
        return f"{type(self).__name__.lower()}-{hashlib.sha256(self.describe().encode()).hexdigest()[:12]}"

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """What is drawn before images are made, and their heights and widths as `image_shape`."""
        if name == "image_shape":
            return np.full((count, 2), self.size, np.int32)
        return self.draw_columns(count, part).get(name)

    def draw_columns(self, count: int, part: str) -> dict[str, Array]:
        """What is known of the first images of a part."""
        raise NotImplementedError

    def stays_in_memory(self, count: int) -> bool:
        """As many as are not too large."""
        return count * self.bytes() <= MAX_HELD_BYTES

    def file_reader(self) -> Data:
        """Images of any form."""
        found: Data = find("data", "images")(kind="images")
        return found


class Galaxies(SimulatedImages):
    """Galaxies of eight classes (column `label`), with their `snr`, `seeing`, `radius`, `axis_ratio` and `angle`.

    More than a thousand are made in a second on one core; what they are, and what they are not, says
    `sciformer.domains.images.simulate.galaxies`.
    """

    version: ClassVar[int] = galaxies.VERSION

    classes: list[str] = Field(default_factory=lambda: list(galaxies.CLASSES))
    """Classes of galaxies, alike often."""
    bands: int = Field(default=3, ge=1, le=20)
    """Channels, from red to blue."""
    unit: Literal["picture", "flux"] = "picture"
    """picture: 8 bits, compressed where it is bright; flux: in deviations of the sky's noise."""
    engine: Literal["builtin", "galsim"] = "builtin"
    """Who draws the smooth parts; galsim, if you have installed it, is much slower."""

    @property
    def options(self) -> galaxies.Options:
        """How galaxies are seen."""
        return galaxies.Options(self.size, self.bands, self.unit, self.engine)

    def check(self) -> None:
        """Classes and options."""
        galaxies.check_classes(self.classes)
        self.options.check()

    def make(self, count: int, first: int, part: str) -> dict[str, Array]:
        """Galaxies of a part."""
        return galaxies.galaxies(count, self.seed, self.classes, first, part, self.options)

    def draw_columns(self, count: int, part: str) -> dict[str, Array]:
        """Their classes."""
        return {"label": galaxies.draw_labels(count, self.seed, self.classes, 0, part)}


class Lenses(SimulatedImages):
    """Gravitational lenses with what there is to find: `einstein_radius`, `slope`, `e1`, `e2`, `centre_x` and others.

    Hundreds are made in a second on one core; what they are, and what they are not, says
    `sciformer.domains.images.simulate.lenses`.
    """

    version: ClassVar[int] = lenses.VERSION

    bands: int = Field(default=1, ge=1, le=20)
    """Channels, from red to blue; with several, the colours of lens and source differ."""
    unit: Literal["picture", "flux"] = "picture"
    """picture: 8 bits, compressed where it is bright; flux: in deviations of the sky's noise."""
    light: bool = True
    """Whether the lens shines; else it is as if it had been subtracted."""

    @property
    def options(self) -> lenses.Options:
        """How lenses are seen."""
        return lenses.Options(self.size, self.bands, self.unit, self.light)

    def check(self) -> None:
        """Options."""
        self.options.check()

    def make(self, count: int, first: int, part: str) -> dict[str, Array]:
        """Lenses of a part."""
        return lenses.lenses(count, self.seed, first, part, self.options)

    def draw_columns(self, count: int, part: str) -> dict[str, Array]:
        """All that is drawn."""
        return lenses.draw_truths(count, self.seed, 0, part)


class Cues(SimulatedImages):
    """Shapes filled with textures: `label` is the shape, `texture` the class whose texture it has.

    In train and valid both agree; in the part test they never do, and in the part `agree` always. What the images are
    says `sciformer.domains.images.simulate.cues`.
    """

    version: ClassVar[int] = cues.VERSION

    classes: list[str] = Field(default_factory=lambda: list(cues.CLASSES))
    """Classes of shapes, alike often."""
    agree: float = Field(default=1.0, ge=0, le=1)
    """Share of images of train and valid whose texture is that of their shape."""
    noise: float = Field(default=0.05, ge=0, le=1)
    """Deviation of the noise, where the range of brightness is 1."""

    def check(self) -> None:
        """Classes and options."""
        cues.check_classes(self.classes)
        self.options("train").check()

    def options(self, part: str) -> cues.Options:
        """How images of a part are made."""
        return cues.Options(self.size, {"test": 0.0, "agree": 1.0}.get(part, self.agree), self.noise)

    def counts(self) -> dict[str, int]:
        """A part more, as large as test."""
        found = super().counts()
        return {**found, "agree": found["test"]}

    def make(self, count: int, first: int, part: str) -> dict[str, Array]:
        """Images of a part."""
        return cues.cues(count, self.seed, self.classes, first, part, self.options(part))

    def draw_columns(self, count: int, part: str) -> dict[str, Array]:
        """Their shapes."""
        return {"label": cues.draw_labels(count, self.seed, self.classes, 0, part)}
