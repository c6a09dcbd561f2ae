"""Images of textured shapes, to test shape against texture (arXiv 1811.12231).

    table = Cues().make(10_000)             # columns image (n, 64, 64) of 8 bits, label (the shape), texture
    table = Cues(agree=0.0).make(1000)      # every shape with the texture of another class

Each of eight classes has its own shape and its own texture. The column `texture` is the class of the texture, so that
predictions can be compared with both columns. If shape and texture have the same class, either cue is enough to find
the class: the shape needs a view of the whole image, the texture only a small part. If the two classes differ, the
prediction shows which cue was learned.

    disk stripes, square dots, triangle checks, star waves, cross grain, ring grid, crescent blots, bar circles

Position, size and angle of the shapes are random, near the centre. Textures have their own random angle and shift.
Brightness and contrast are random, dark on light or light on dark.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....errors import UserError
from .base import SimulatedImages
from .optics import FIELD_SIDE, TWO_PI, per_image, rotated_coordinates

CLASSES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "bar")
TEXTURES = ("stripes", "dots", "checks", "waves", "grain", "grid", "blots", "circles")
STAR_POINTS, STAR_INNER_RADIUS = 5, 0.45  # points and inner radius of a star
BLOT_WAVES = 12  # plane waves summed for blots


class Cues(SimulatedImages):
    """Images of textured shapes, with the classes of shape (`label`) and `texture`.

    The share of images with the same class of shape and texture is `agree` in train and valid, 0 in test, and 1 in the
    part `agree`. See `sciformer.domains.images.simulate.cues` for details.
    """

    rows_per_chunk: ClassVar[int] = 256
    known_classes: ClassVar[tuple[str, ...]] = CLASSES
    further_parts: ClassVar[tuple[str, ...]] = ("agree",)

    size: int = Field(default=64, ge=24, le=512)
    """Image size in pixels; at least 24 to resolve the textures (default: 64)."""
    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of shapes, equally frequent (default: all eight)."""
    agree: float = Field(default=1.0, ge=0, le=1)
    """Share of images with the same class of shape and texture, in train, valid and written files (default: 1)."""
    noise: float = Field(default=0.05, ge=0, le=1)
    """Standard deviation of the noise, relative to the range of brightness (default: 0.05)."""

    def check(self) -> None:
        super().check()
        if len(self.classes) == 1:
            raise UserError(f"data.classes needs at least two classes, not only {self.classes[0]}", key="data.classes")

    def counts(self) -> dict[str, int]:
        """Number of images in each part; the part `agree` is as large as test."""
        found = super().counts()
        return {**found, "agree": found["test"]}

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        n, agree = len(label), {"test": 0.0, "agree": 1.0}.get(part, self.agree)
        kinds = np.sort(self.class_numbers())
        other = kinds[(np.searchsorted(kinds, label) + rng.integers(1, len(kinds), n)) % len(kinds)]
        texture = np.where(rng.random(n) < agree, label, other)
        radius, centre = rng.uniform(16, 24, n), rng.uniform(-5, 5, (n, 2))
        inside = np.empty((n, self.size, self.size), np.float32)
        pattern = np.empty_like(inside)
        turn, aside = rng.uniform(0, TWO_PI, (2, n)), rng.uniform(0, FIELD_SIDE, (n, 2))
        period = rng.uniform(6.0, 9.0, n)
        for kind in kinds:
            rows = np.flatnonzero(label == kind)
            wide = per_image(radius[rows])
            u, v = (one / wide for one in rotated_coordinates(self.size, centre[rows], turn[0, rows]))
            edge = shape_depth(CLASSES[kind], u, v) * wide * np.float32(self.size / FIELD_SIDE)
            inside[rows] = np.clip(edge + 0.5, 0, 1)  # edge: signed distance to the border in pixels
            rows = np.flatnonzero(texture == kind)
            u, v = (one / per_image(period[rows]) for one in rotated_coordinates(self.size, aside[rows], turn[1, rows]))
            pattern[rows] = texture_values(TEXTURES[kind], u, v, rng)
        deep, gap = rng.uniform(0.15, 0.27, n), rng.uniform(0.1, 0.2, n)  # texture contrast; gap to the background
        ground = 0.05 + (0.9 - 2 * deep - gap) * rng.random(n)
        sign = np.where(rng.random(n) < 0.5, 1, -1)
        light = per_image(ground + gap + deep) + per_image(deep * sign) * pattern
        image = per_image(ground) + inside * (light - per_image(ground))
        image = np.where(per_image(rng.random(n)) < 0.5, 1 - image, image)
        image += np.float32(self.noise) * rng.standard_normal(image.shape, np.float32)
        return {"image": np.clip(np.rint(image * 255), 0, 255).astype(np.uint8), "texture": np.array(CLASSES)[texture]}


def shape_depth(name: str, u: Array, v: Array) -> Array:
    """Distance (n, H, W) of points u, v to the border of a shape, negative outside."""
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


def texture_values(name: str, u: Array, v: Array, rng: np.random.Generator) -> Array:
    """Values of a texture with period 1 at points u, v (n, H, W), between -1 and 1."""
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
        across = (per_image(np.cos(a)) * u + per_image(np.sin(a)) * v for a in way)
        waves = [np.cos(TWO_PI * 0.7 * x + per_image(p)) for x, p in zip(across, phase)]
        return np.sign(sum(waves[1:], waves[0]))
    x, y = u - np.floor(u) - 0.5, v - np.floor(v) - 0.5
    if name == "dots":
        return np.where(x * x + y * y < 0.09, 1, -1)
    if name == "grid":
        return np.where(np.maximum(np.abs(x), np.abs(y)) > 0.38, 1, -1)
    x, y = 0.5 * u - np.floor(0.5 * u) - 0.5, 0.5 * v - np.floor(0.5 * v) - 0.5
    return np.sign(np.cos(TWO_PI * 4 * np.hypot(x, y)))
