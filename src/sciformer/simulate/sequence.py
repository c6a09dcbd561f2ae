"""Endless sequences of simulated samples: the same ones each time, whatever is asked for in one go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..data.source import Array
from ..errors import UserError, one_of

PARTS = ("file", "train", "valid", "test", "agree")  # independent sequences of the same seed
Chunk = Mapping[str, Array]


def check(what: str, number: int, seed: int, first: int, part: str) -> None:
    """Refuse numbers that make no sense."""
    if number < 1 or first < 0:
        raise UserError(f"1 or more {what}, from number 0 on", f"{number} from {first}")
    if seed < 0:
        raise UserError("a seed of 0 or more", f"{seed}")
    one_of(f"a part of the {what}", part, PARTS)


def sequence(number: int, first: int, size: int, make: Callable[[int], Chunk]) -> dict[str, Array]:
    """The samples first, first + 1, ... of chunks of `size` each, made by number."""
    tables = []
    for index in range(first // size, (first + number - 1) // size + 1):
        low, high = max(first - index * size, 0), min(first + number - index * size, size)
        tables.append({name: values[low:high] for name, values in make(index).items()})
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def chances(*key: int) -> np.random.Generator:
    """The random numbers of a chunk."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def sizes(chance: np.random.Generator, n: int, low: float, high: float) -> Array:
    """(n,) numbers from low to high, alike often on a logarithmic scale."""
    made: Array = np.exp(chance.uniform(np.log(low), np.log(high), n))
    return made


def rounds(chance: np.random.Generator, kinds: Array, size: int) -> Array:
    """(size,) of some numbers, each once in every round, in random order."""
    made: Array = chance.permuted(np.tile(kinds, (-(-size // len(kinds)), 1)), axis=1).ravel()[:size]
    return made


def chosen(what: str, names: Sequence[str], known: Sequence[str]) -> tuple[int, ...]:
    """The numbers of some classes; all unless some are named."""
    for name in names:
        one_of(f"a class of {what}", name, known)
    if len(set(names)) < len(names):
        raise UserError("each class once", ", ".join(names))
    return tuple(known.index(name) for name in names or known)


def identifiers(part: str, seed: int, first: int, number: int) -> Array:
    """(number,) names of samples."""
    return np.array([f"{part}-{seed}-{i}" for i in range(first, first + number)])
