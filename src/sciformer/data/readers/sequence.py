"""Endless sequences of simulated samples: the same ones each time, whatever is asked for in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UserError, one_of
from ..columns import Array, Table, concatenate, select

SEQUENCES = ("file", "train", "valid", "test", "agree")  # independent sequences of the same seed


def check_range(what: str, number: int, seed: int, first: int, part: str, least: str = "") -> None:
    """Refuse numbers that make no sense; `least` is the smallest in words."""
    if number < 1 or first < 0:
        raise UserError(f"number must be {least or f'1 or more {what}'}, and first 0 or more, not {number} and {first}")
    if seed < 0:
        raise UserError(f"seed must be 0 or more, not {seed}")
    one_of(f"a part of the {what}", part, SEQUENCES)


def sample_sequence(number: int, first: int, size: int, make: Callable[[int], Table]) -> dict[str, Any]:
    """The samples first, first + 1, ... of chunks of `size` each, made by number; a copy, for chunks may be kept."""
    tables = []
    indices = range(first // size, (first + number - 1) // size + 1)
    for index in indices:
        low, high = max(first - index * size, 0), min(first + number - index * size, size)
        whole = len(indices) > 1 and high - low == size
        tables.append(make(index) if whole else select(make(index), np.arange(low, high)))
    return concatenate(tables)


def chunk_rng(*key: int) -> np.random.Generator:
    """The random numbers of a chunk."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def draw_chunk_classes(key: Sequence[int], classes: Sequence[int], size: int) -> tuple[np.random.Generator, Array]:
    """The random numbers of a chunk, and the classes of its samples."""
    rng = chunk_rng(*key, *classes)
    return rng, shuffled_rounds(rng, np.array(classes), size)


def log_uniform(rng: np.random.Generator, n: int, low: float, high: float) -> Array:
    """(n,) numbers from low to high, alike often on a logarithmic scale."""
    made: Array = np.exp(rng.uniform(np.log(low), np.log(high), n))
    return made


def shuffled_rounds(rng: np.random.Generator, kinds: Array, size: int) -> Array:
    """(size,) of some numbers, each once in every round, in random order."""
    made: Array = rng.permuted(np.tile(kinds, (-(-size // len(kinds)), 1)), axis=1).ravel()[:size]
    return made


def class_numbers(what: str, names: Sequence[str], known: Sequence[str]) -> tuple[int, ...]:
    """The numbers of some classes; all unless some are named."""
    for name in names:
        one_of(f"a class of {what}", name, known)
    if len(set(names)) < len(names):
        raise UserError(f"each class of {what} must be named once, not {', '.join(names)}")
    return tuple(known.index(name) for name in names or known)


def sample_names(part: str, seed: int, first: int, number: int) -> Array:
    """(number,) names of samples."""
    return np.array([f"{part}-{seed}-{i}" for i in range(first, first + number)])
