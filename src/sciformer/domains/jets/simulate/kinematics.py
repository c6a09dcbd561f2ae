"""Four-vectors (px, py, pz, E) as arrays (4, n): boosts, decays, directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
TWO_PI = 2 * np.pi


@dataclass
class Rows:
    """Base class of dataclasses with arrays of one length along the last axis."""

    def __len__(self) -> int:
        return int(getattr(self, fields(self)[-1].name).shape[-1])

    def take(self, rows: Floats) -> Self:
        return type(self)(*(getattr(self, field.name).take(rows, -1) for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts], -1) for field in fields(cls)))


def boost(p: Floats, frame: Floats, mass: Floats) -> Floats:
    """Boost four-vectors out of the rest frame of a particle with momentum `frame`.

    E' = (E E_f + p . p_f) / m,    p' = p + p_f (E + E') / (E_f + m)
    """
    made = np.empty_like(p)
    energy = made[3]
    np.multiply(p[3], frame[3], out=energy)
    for axis in range(3):
        energy += p[axis] * frame[axis]
    energy /= mass
    along = (p[3] + energy) / (frame[3] + mass)
    for axis in range(3):
        np.multiply(frame[axis], along, out=made[axis])
        made[axis] += p[axis]
    return made


def decay_momentum(mass: Floats, first: Floats, second: Floats) -> Floats:
    """Momentum of two decay products at rest: sqrt(lambda(M^2, m1^2, m2^2)) / 2M."""
    product = (mass**2 - (first + second) ** 2) * (mass**2 - (first - second) ** 2)
    return np.sqrt(np.maximum(product, 0)) / (2 * mass)


def direction_vectors(cosine: Floats, angle: Floats) -> Floats:
    """Unit vectors (3, n) from polar angle and azimuth about the first axis.

    cosine  cosine of the polar angle
    angle   azimuth
    """
    sine = np.sqrt(np.maximum(1 - cosine * cosine, 0))
    made = np.empty((3, len(cosine)), cosine.dtype)
    made[0] = cosine
    np.multiply(sine, np.cos(angle), out=made[1])
    np.multiply(sine, np.sin(angle), out=made[2])
    return made


def isotropic_directions(rng: np.random.Generator, count: int, dtype: Any = np.float32) -> Floats:
    """Isotropic random unit vectors (3, n)."""
    drawn = rng.random((2, count), dtype)
    return direction_vectors(2 * drawn[0] - 1, TWO_PI * drawn[1])


def draw_normals(rng: np.random.Generator, count: int) -> Floats:
    """Normal random numbers (2, n) by Box-Muller, faster than `standard_normal`."""
    drawn = rng.random((2, count), np.float32)
    length = np.sqrt(np.float32(-2) * np.log1p(-drawn[0]))
    angle = np.float32(TWO_PI) * drawn[1]
    np.multiply(length, np.cos(angle), out=drawn[0])
    np.multiply(length, np.sin(angle), out=drawn[1])
    return drawn


def transverse_axes(axis: Floats) -> tuple[Floats, Floats]:
    """Two orthogonal unit vectors perpendicular to `axis` (3, n) (Duff et al. 2017)."""
    x, y, z = axis
    sign = np.copysign(np.ones((), axis.dtype), z)
    a = -1 / (sign + z)
    b = x * y * a
    first, second = np.empty_like(axis), np.empty_like(axis)
    first[0], first[1], first[2] = 1 + sign * x * x * a, sign * b, -sign * x
    second[0], second[1], second[2] = b, sign + y * y * a, -y
    return first, second


def decay(parent: Floats, mass: Floats, first: Floats, second: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Momenta (4, n) of two decay products with masses `first` and `second`.

    direction    (3, n) direction of the first product in the rest frame of the parent
    """
    length = decay_momentum(mass, first, second)
    inside = np.empty_like(parent)
    np.multiply(direction, length, out=inside[:3])
    np.sqrt(length * length + first * first, out=inside[3])
    one = boost(inside, parent, mass)
    return one, parent - one
