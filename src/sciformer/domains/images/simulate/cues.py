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
from ....data.readers.sequence import (
    SEQUENCES,
    check_range,
    class_numbers,
    draw_chunk_classes,
    sample_names,
    sample_sequence,
)
from ....errors import UserError
from .arrays import TWO_PI, Floats
from .optics import FIELD_SIDE, per_image, rotated_coordinates

VERSION = 1  # of what is made; another one makes other images
IMAGES_PER_CHUNK = 256  # images made at a time
CLASSES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "bar")
TEXTURES = ("stripes", "dots", "checks", "waves", "grain", "grid", "blots", "circles")
STAR_POINTS, STAR_INNER_RADIUS = 5, 0.45  # of a star
BLOT_WAVES = 12  # of which blots are made


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
    check_range("images", number, seed, first, part)
    kinds, wanted = check_classes(classes), options or Options(**more)  # type: ignore[arg-type]
    wanted.check()
    made = sample_sequence(
        number, first, IMAGES_PER_CHUNK, lambda index: make_chunk((seed, SEQUENCES.index(part)), index, kinds, wanted)
    )
    return {"id": sample_names(part, seed, first, number), **made}


def draw_labels(number: int, seed: int = 0, classes: Sequence[str] = (), first: int = 0, part: str = "file") -> Array:
    """The shapes of these images, which are drawn before they are made."""
    key, kinds = (VERSION, seed, SEQUENCES.index(part)), check_classes(classes)
    found = sample_sequence(
        number,
        first,
        IMAGES_PER_CHUNK,
        lambda index: {"label": draw_chunk_classes((*key, index), kinds, IMAGES_PER_CHUNK)[1]},
    )
    return np.array(CLASSES)[found["label"]]


def check_classes(classes: Sequence[str]) -> tuple[int, ...]:
    """The numbers of some classes, two or more; all unless some are named."""
    found = class_numbers("shapes", classes, CLASSES)
    if len(found) < 2:
        raise UserError(f"there must be two classes or more, not only {', '.join(classes)}")
    return found


@lru_cache(maxsize=1)
def make_chunk(seed: tuple[int, int], index: int, classes: tuple[int, ...], options: Options) -> dict[str, Array]:
    """IMAGES_PER_CHUNK images, the same for the same arguments."""
    rng, label = draw_chunk_classes((VERSION, *seed, index), classes, IMAGES_PER_CHUNK)
    kinds = np.sort(classes)
    other = kinds[(np.searchsorted(kinds, label) + rng.integers(1, len(kinds), IMAGES_PER_CHUNK)) % len(kinds)]
    texture = np.where(rng.random(IMAGES_PER_CHUNK) < options.agree, label, other)
    radius, centre = rng.uniform(16, 24, IMAGES_PER_CHUNK), rng.uniform(-5, 5, (IMAGES_PER_CHUNK, 2))
    inside = np.empty((IMAGES_PER_CHUNK, options.size, options.size), np.float32)
    pattern = np.empty_like(inside)
    turn, aside = rng.uniform(0, TWO_PI, (2, IMAGES_PER_CHUNK)), rng.uniform(0, FIELD_SIDE, (IMAGES_PER_CHUNK, 2))
    period = rng.uniform(6.0, 9.0, IMAGES_PER_CHUNK)
    for kind in kinds:
        rows = np.flatnonzero(label == kind)
        u, v = (one / per_image(radius[rows]) for one in rotated_coordinates(options.size, centre[rows], turn[0, rows]))
        edge = shape_depth(CLASSES[kind], u, v) * per_image(radius[rows]) * np.float32(options.size / FIELD_SIDE)
        inside[rows] = np.clip(edge + 0.5, 0, 1)  # edge: pixels from the border
        rows = np.flatnonzero(texture == kind)
        u, v = (one / per_image(period[rows]) for one in rotated_coordinates(options.size, aside[rows], turn[1, rows]))
        pattern[rows] = texture_values(TEXTURES[kind], u, v, rng)
    deep, gap = (
        rng.uniform(0.15, 0.27, IMAGES_PER_CHUNK),
        rng.uniform(0.1, 0.2, IMAGES_PER_CHUNK),
    )  # of the texture; to the ground
    ground = 0.05 + (0.9 - 2 * deep - gap) * rng.random(IMAGES_PER_CHUNK)
    light = (
        per_image(ground + gap + deep) + per_image(deep * np.where(rng.random(IMAGES_PER_CHUNK) < 0.5, 1, -1)) * pattern
    )
    image = per_image(ground) + inside * (light - per_image(ground))
    image = np.where(per_image(rng.random(IMAGES_PER_CHUNK)) < 0.5, 1 - image, image)
    image += np.float32(options.noise) * rng.standard_normal(image.shape, np.float32)
    return {
        "image": np.clip(np.rint(image * 255), 0, 255).astype(np.uint8),
        "label": np.array(CLASSES)[label],
        "texture": np.array(CLASSES)[texture],
    }


def shape_depth(name: str, u: Floats, v: Floats) -> Floats:
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
        return 0.52 - r * np.cos((theta % (TWO_PI / 3)) - np.pi / 3)
    wedge = TWO_PI / STAR_POINTS
    folded = np.abs((theta + wedge / 2) % wedge - wedge / 2)
    x, y = STAR_INNER_RADIUS * np.cos(wedge / 2), STAR_INNER_RADIUS * np.sin(wedge / 2)
    across = (y * (1 - r * np.cos(folded)) - (1 - x) * r * np.sin(folded)) / np.hypot(1 - x, y)
    return np.asarray(across)


def texture_values(name: str, u: Floats, v: Floats, rng: np.random.Generator) -> Floats:
    """A texture between -1 and 1 with period 1 at u, v (n, H, W)."""
    if name == "stripes":
        return np.sign(np.sin(TWO_PI * u))
    if name == "waves":
        return np.sign(np.sin(TWO_PI * u + 1.8 * np.sin(np.pi * v)))
    if name == "checks":
        return np.sign(np.sin(np.pi * u) * np.sin(np.pi * v))
    if name == "grain":
        return np.sign(rng.standard_normal(u.shape, np.float32))
    if name == "blots":
        way, phase = rng.uniform(0, TWO_PI, (2, BLOT_WAVES, len(u)))
        waves = [
            np.cos(TWO_PI * 0.7 * (per_image(np.cos(a)) * u + per_image(np.sin(a)) * v) + per_image(p))
            for a, p in zip(way, phase)
        ]
        return np.sign(sum(waves[1:], waves[0]))
    x, y = u - np.floor(u) - 0.5, v - np.floor(v) - 0.5
    if name == "dots":
        return np.where(x * x + y * y < 0.09, 1, -1)
    if name == "grid":
        return np.where(np.maximum(np.abs(x), np.abs(y)) > 0.38, 1, -1)
    x, y = 0.5 * u - np.floor(0.5 * u) - 0.5, 0.5 * v - np.floor(0.5 * v) - 0.5
    return np.sign(np.cos(TWO_PI * 4 * np.hypot(x, y)))
