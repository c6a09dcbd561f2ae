"""Images of a shape that is filled with a texture: which of the two does a model go by? (arXiv 1811.12231)

    table = cues(10_000)                    # columns image (n, 64, 64) of 8 bits, label (the shape), texture
    table = cues(1000, agree=0.0)           # every shape with the texture of another one

Each of eight classes has a shape and a texture of its own; `texture` says whose texture it is, so that it can be
compared with an answer as `label` can. Where both agree either is enough to tell the class: the shape by looking at the
whole, the texture by looking at any small part. Where they disagree, the answer shows which of them was learned.

    disk stripes, square dots, triangle checks, star waves, cross grain, ring grid, crescent blots, bar circles

Shapes are anywhere near the middle, of different size, turned by any angle; textures are turned and shifted by
themselves, and brightness and contrast are random, dark on light or light on dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import PARTS, check, chosen, drawn, identifiers, sequence
from ....errors import UserError
from .arrays import TURN, Floats
from .optics import FIELD, column, turned

VERSION = 1  # of what is made; another one makes other images
CHUNK = 256  # images made at a time
CLASSES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "bar")
TEXTURES = ("stripes", "dots", "checks", "waves", "grain", "grid", "blots", "circles")
POINTS, INNER = 5, 0.45  # of a star
WAVES = 12  # of which blots are made


class Options(NamedTuple):
    """How images are made.

    size    pixels on a side
    agree   the share of images whose texture is that of the shape; others have that of another one
    noise   its deviation, where the range of brightness is 1
    """

    size: int = 64
    agree: float = 1.0
    noise: float = 0.05

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not 24 <= self.size <= 512:
            raise UserError(f"size must be from 24 to 512 pixels on a side, for textures to be seen, not {self.size}")
        if not 0 <= self.agree <= 1:
            raise UserError(f"agree, the share of images that agree, must be between 0 and 1, not {self.agree}")
        if not 0 <= self.noise <= 1:
            raise UserError(f"noise must be between 0 and 1, not {self.noise}")


def cues(
    number: int,
    seed: int = 0,
    classes: Sequence[str] = (),
    first: int = 0,
    part: str = "file",
    options: Options | None = None,
    **more: object,
) -> dict[str, Array]:
    """The images first, first + 1, ... of a sequence of rounds, each with every shape once, in random order.

    A pure function of its arguments, whatever is asked for in one go; parts of the same seed have no image in common.
    """
    check("images", number, seed, first, part)
    kinds, wanted = check_classes(classes), options or Options(**more)  # type: ignore[arg-type]
    wanted.check()
    made = sequence(number, first, CHUNK, lambda index: chunk((seed, PARTS.index(part)), index, kinds, wanted))
    return {"id": identifiers(part, seed, first, number), **made}


def labels(number: int, seed: int = 0, classes: Sequence[str] = (), first: int = 0, part: str = "file") -> Array:
    """The shapes of these images, which are drawn before they are made."""
    key, kinds = (VERSION, seed, PARTS.index(part)), check_classes(classes)
    found = sequence(number, first, CHUNK, lambda index: {"label": drawn((*key, index), kinds, CHUNK)[1]})
    return np.array(CLASSES)[found["label"]]


def check_classes(classes: Sequence[str]) -> tuple[int, ...]:
    """The numbers of some classes, two or more; all unless some are named."""
    found = chosen("shapes", classes, CLASSES)
    if len(found) < 2:
        raise UserError(f"there must be two classes or more, not only {', '.join(classes)}")
    return found


@lru_cache(maxsize=1)
def chunk(seed: tuple[int, int], index: int, classes: tuple[int, ...], options: Options) -> dict[str, Array]:
    """CHUNK images, the same for the same arguments."""
    rng, label = drawn((VERSION, *seed, index), classes, CHUNK)
    kinds = np.sort(classes)
    other = kinds[(np.searchsorted(kinds, label) + rng.integers(1, len(kinds), CHUNK)) % len(kinds)]
    texture = np.where(rng.random(CHUNK) < options.agree, label, other)
    radius, centre = rng.uniform(16, 24, CHUNK), rng.uniform(-5, 5, (CHUNK, 2))
    inside = np.empty((CHUNK, options.size, options.size), np.float32)
    pattern = np.empty_like(inside)
    turn, aside = rng.uniform(0, TURN, (2, CHUNK)), rng.uniform(0, FIELD, (CHUNK, 2))
    period = rng.uniform(6.0, 9.0, CHUNK)
    for kind in kinds:
        rows = np.flatnonzero(label == kind)
        u, v = (one / column(radius[rows]) for one in turned(options.size, centre[rows], turn[0, rows]))
        edge = shape(CLASSES[kind], u, v) * column(radius[rows]) * np.float32(options.size / FIELD)
        inside[rows] = np.clip(edge + 0.5, 0, 1)  # edge: pixels from the border
        rows = np.flatnonzero(texture == kind)
        u, v = (one / column(period[rows]) for one in turned(options.size, aside[rows], turn[1, rows]))
        pattern[rows] = fill(TEXTURES[kind], u, v, rng)
    deep, gap = rng.uniform(0.15, 0.27, CHUNK), rng.uniform(0.1, 0.2, CHUNK)  # of the texture; to the ground
    ground = 0.05 + (0.9 - 2 * deep - gap) * rng.random(CHUNK)
    light = column(ground + gap + deep) + column(deep * np.where(rng.random(CHUNK) < 0.5, 1, -1)) * pattern
    image = column(ground) + inside * (light - column(ground))
    image = np.where(column(rng.random(CHUNK)) < 0.5, 1 - image, image)
    image += np.float32(options.noise) * rng.standard_normal(image.shape, np.float32)
    return {
        "image": np.clip(np.rint(image * 255), 0, 255).astype(np.uint8),
        "label": np.array(CLASSES)[label],
        "texture": np.array(CLASSES)[texture],
    }


def shape(name: str, u: Floats, v: Floats) -> Floats:
    """How far u, v (n, H, W) are inside a shape of radius about 1; negative outside."""
    r = np.sqrt(u * u + v * v)
    if name == "disk":
        return 0.85 - r
    if name == "square":
        return 0.75 - np.maximum(np.abs(u), np.abs(v))
    if name == "ring":
        return 0.2 - np.abs(r - 0.75)
    if name == "crescent":
        return np.minimum(0.95 - r, np.hypot(u - 0.45, v) - 0.7)
    if name == "bar":
        return np.minimum(1 - np.abs(u), 0.33 - np.abs(v))
    if name == "cross":
        one, two = np.minimum(0.95 - np.abs(u), 0.3 - np.abs(v)), np.minimum(0.95 - np.abs(v), 0.3 - np.abs(u))
        return np.maximum(one, two)
    theta = np.arctan2(v, u)
    if name == "triangle":
        return 0.52 - r * np.cos((theta % (TURN / 3)) - np.pi / 3)
    wedge = TURN / POINTS
    folded = np.abs((theta + wedge / 2) % wedge - wedge / 2)
    x, y = INNER * np.cos(wedge / 2), INNER * np.sin(wedge / 2)
    across = (y * (1 - r * np.cos(folded)) - (1 - x) * r * np.sin(folded)) / np.hypot(1 - x, y)
    return np.asarray(across)


def fill(name: str, u: Floats, v: Floats, rng: np.random.Generator) -> Floats:
    """A texture between -1 and 1 with period 1 at u, v (n, H, W)."""
    if name == "stripes":
        return np.sign(np.sin(TURN * u))
    if name == "waves":
        return np.sign(np.sin(TURN * u + 1.8 * np.sin(np.pi * v)))
    if name == "checks":
        return np.sign(np.sin(np.pi * u) * np.sin(np.pi * v))
    if name == "grain":
        return np.sign(rng.standard_normal(u.shape, np.float32))
    if name == "blots":
        way, phase = rng.uniform(0, TURN, (2, WAVES, len(u)))
        waves = [
            np.cos(TURN * 0.7 * (column(np.cos(a)) * u + column(np.sin(a)) * v) + column(p)) for a, p in zip(way, phase)
        ]
        return np.sign(sum(waves[1:], waves[0]))
    x, y = u - np.floor(u) - 0.5, v - np.floor(v) - 0.5
    if name == "dots":
        return np.where(x * x + y * y < 0.09, 1, -1)
    if name == "grid":
        return np.where(np.maximum(np.abs(x), np.abs(y)) > 0.38, 1, -1)
    x, y = 0.5 * u - np.floor(0.5 * u) - 0.5, 0.5 * v - np.floor(0.5 * v) - 0.5
    return np.sign(np.cos(TURN * 4 * np.hypot(x, y)))
