"""Reproducible, endless sequences of simulated samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UserError, one_of
from ..columns import Array, Table, concatenate, select

SEQUENCES = ("file", "train", "valid", "test")  # independent sequences per seed


def sample_sequence(number: int, first: int, size: int, make: Callable[[int], Table]) -> dict[str, Any]:
    """Samples first .. first + number - 1 of a sequence made in chunks of `size`."""
    tables = []
    indices = range(first // size, (first + number - 1) // size + 1)
    for index in indices:
        low, high = max(first - index * size, 0), min(first + number - index * size, size)
        whole = len(indices) > 1 and high - low == size
        tables.append(make(index) if whole else select(make(index), np.arange(low, high)))
    return concatenate(tables)


def chunk_rng(*key: int) -> np.random.Generator:
    """Random generator of a chunk, from the integers of its key."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def shuffled_rounds(rng: np.random.Generator, kinds: Sequence[int], size: int) -> Array:
    """Class numbers (size,) in rounds: all classes once, in random order."""
    made: Array = rng.permuted(np.tile(np.array(kinds), (-(-size // len(kinds)), 1)), axis=1).ravel()[:size]
    return made


def log_uniform(rng: np.random.Generator, low: float, high: float, n: int) -> Array:
    """Log-uniform numbers (n,) between low and high."""
    made: Array = np.exp(rng.uniform(np.log(low), np.log(high), n))
    return made


def class_numbers(what: str, names: Sequence[str], known: Sequence[str]) -> tuple[int, ...]:
    """Indices of the classes with these names (default: all classes)."""
    for name in names:
        one_of(f"a class of {what}", name, known, key="data.classes")
    if len(set(names)) < len(names):
        raise UserError(f"a class of {what} is given twice: {', '.join(names)}", key="data.classes")
    return tuple(known.index(name) for name in names or known)
