"""Simulated images, made where they are needed: galaxies, gravitational lenses, shapes with textures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ...errors import UserError
from ...registry import find
from ...simulate import cues, galaxies, lenses
from ..source import Array, Data, Source, Splits, Table
from .arrays import Arrays, read_arrays

HELD = 2 << 30  # bytes of images of a part that stay in memory once they are made, if there are no more


class Rendered(Data):
    """Images that are made piece by piece when they are asked for, the same ones each time."""

    version: ClassVar[int] = 0

    number: int = Field(default=20_000, ge=1)
    """Images to train on."""
    valid: int | None = Field(default=None, ge=0)
    """Images to choose the best model with; a tenth of `number` unless given."""
    test: int | None = Field(default=None, ge=0)
    """Images for the final judgement; a tenth of `number` unless given."""
    seed: int = Field(default=0, ge=0)
    """Another one gives other images. Those of train, valid and test always differ."""
    size: int = Field(default=64, ge=16, le=512)
    """Pixels on a side; the field that they show is the same."""
    piece: int = Field(default=4096, ge=16)
    """Images made at a time; a training keeps several such pieces in memory, and mixes some of them."""
    cache: str = ""
    """Folder where pieces are kept for the next time; empty: nowhere, they are made again."""

    def make(self, count: int, first: int, part: str) -> dict[str, Array]:
        """Images of a part, from one number on."""
        raise NotImplementedError

    def told(self, count: int, part: str) -> dict[str, Array]:
        """What is known of the first images of a part before they are made."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse what makes no sense, before anything is made."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """Images of each part."""
        tenth = max(1, self.number // 10)
        others = {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        return {"train": self.number, **others}

    def bytes(self) -> int:
        """Of an image."""
        wide = 4 if getattr(self, "unit", "") == "flux" else 1
        return int(self.size**2 * getattr(self, "bands", 1) * wide)

    def words(self) -> str:
        """What is made, in words: its options, but for numbers of images."""
        kept = {"kind", "number", "valid", "test", "piece", "cache"}
        options = ", ".join(f"{name} {value}" for name, value in self.model_dump(exclude=kept).items())
        return f"{type(self).__name__.lower()}, version {self.version}: {options}"

    def open(self, say: Any = None, write: bool = True) -> Splits:
        """Nothing is made yet."""
        self.check()
        counts = self.counts()
        sources: dict[str, Source] = {
            part: Simulated(self, part, count, write) for part, count in counts.items() if count
        }
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        return Splits(sources, {"simulation": f"{self.words()}; {sizes}"})

    def reopen(self, say: Any = None) -> Splits:
        """The same; what is made now is not kept."""
        return self.open(say, write=False)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Images in .npz files, such as `sciformer simulate` writes, or in others."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        plain: Data = find("data", "images")(kind="images")  # type: ignore[assignment]
        return plain.read(files)


class Galaxies(Rendered):
    """Galaxies of eight classes (column `label`), with their `snr`, `seeing`, `radius`, `axis_ratio` and `angle`.

    More than a thousand are made in a second on one core; what they are, and what they are not, says
    `sciformer.simulate.galaxies`.
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

    def told(self, count: int, part: str) -> dict[str, Array]:
        """Their classes."""
        return {"label": galaxies.labels(count, self.seed, self.classes, 0, part)}


class Lenses(Rendered):
    """Gravitational lenses with what there is to find: `einstein_radius`, `slope`, `e1`, `e2`, `centre_x` and others.

    Hundreds are made in a second on one core; what they are, and what they are not, says `sciformer.simulate.lenses`.
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

    def told(self, count: int, part: str) -> dict[str, Array]:
        """All that is drawn."""
        return lenses.truths(count, self.seed, 0, part)


class Cues(Rendered):
    """Shapes filled with textures: `label` is the shape, `texture` the class whose texture it has.

    In train and valid both agree; in the part test they never do, and in the part `agree` always. What the images are
    says `sciformer.simulate.cues`.
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

    def told(self, count: int, part: str) -> dict[str, Array]:
        """Their shapes."""
        return {"label": cues.labels(count, self.seed, self.classes, 0, part)}


class Simulated:
    """The images of a part, in pieces."""

    def __init__(self, section: Rendered, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        whole, rest = divmod(count, section.piece)
        self.sizes = [section.piece] * whole + ([rest] if rest else [])
        self.held: dict[int, Table] | None = {} if count * section.bytes() <= HELD else None

    def known(self, name: str, lists: bool = False) -> Array | None:
        """What is drawn before images are made, and their heights and widths as `image_shape`."""
        if name == "image_shape" and not lists:
            return np.full((sum(self.sizes), 2), self.section.size, np.int32)
        return None if lists else self.section.told(sum(self.sizes), self.part).get(name)

    def load(self, piece: int) -> Table:
        """Make a piece, or find it where it was kept."""
        if self.held is None:
            return self._load(piece)
        if piece not in self.held:
            self.held[piece] = self._load(piece)
        return self.held[piece]

    def _load(self, piece: int) -> Table:
        path = self._path(piece)
        if path is not None and path.exists():
            with suppress(UserError):  # a damaged file is made again
                return read_arrays(path)
        table = self.section.make(self.sizes[piece], piece * self.section.piece, self.part)
        if path is not None and self.write:
            _keep(path, table)
        return table

    def _path(self, piece: int) -> Path | None:
        own = self.section
        if not own.cache:
            return None
        mark = hashlib.sha256(own.words().encode()).hexdigest()[:12]
        kind = type(own).__name__.lower()
        return Path(own.cache) / f"{kind}-{mark}-{self.part}-{piece * own.piece}-{self.sizes[piece]}.npz"


def _keep(path: Path, table: dict[str, Array]) -> None:
    """A piece for the next time, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **table)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"room for {path}", f"{error}", "Name another place with data.cache, or none.") from error
