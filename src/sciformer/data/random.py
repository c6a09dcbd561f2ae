"""Random numbers as pure functions of seed, epoch, sample, name and token.

They do not depend on the order of calls or on the process. A counter goes through the mixing function of SplitMix64
(Steele, Lea, Flood 2014), vectorised over the batch. `normal_noise` draws on a device, without a copy from the host.
"""

from __future__ import annotations

import math
import zlib
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
UNIFORM_BITS = 24  # random bits of a uniform number, as many as a float32 holds


def mix(words: Any) -> Words:
    """Hash 64-bit words: each output bit depends on every input bit."""
    z = np.atleast_1d(np.asarray(words)).astype(np.uint64) + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def key(*parts: int | str) -> Words:
    """Hash integers and names to a single 64-bit word, shape (1,)."""
    word = np.zeros(1, np.uint64)
    for part in parts:
        number = zlib.crc32(part.encode()) if isinstance(part, str) else part & 0xFFFFFFFFFFFFFFFF
        word = mix(word ^ np.uint64(number))
    return word


def permute(index: Any, count: int, word: Words) -> Integers:
    """Apply a pseudorandom permutation of 0 .. count - 1 to indices.

    A Feistel network permutes the range up to the next power of four. Indices that land beyond `count` are permuted
    again until they are inside.
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    rounds = [mix(word + np.uint64(i)) for i in range(6)]
    x = np.atleast_1d(np.asarray(index)).astype(np.uint64)
    todo = np.ones(len(x), bool)
    while todo.any():
        left, right = x[todo] >> shift, x[todo] & mask
        for turn in rounds:
            left, right = right, left ^ (mix(right ^ turn) & mask)
        x[todo] = (left << shift) | right
        todo[todo] = x[todo] >= count
    return x.astype(np.int64)


class SampleRandom:
    """Random numbers of a batch, from the seed, the epoch and the sample ids."""

    def __init__(self, seed: int, epoch: int, ids: Any) -> None:
        self.seed, self.epoch, self.ids = seed, epoch, ids

    def branch(self, name: str) -> SampleRandom:
        """Further random numbers of the same samples, independent for each `name`."""
        return SampleRandom(int(key(self.seed, name)[0]), self.epoch, self.ids)

    @cached_property
    def words(self) -> Words:
        """One 64-bit word (B,) per sample."""
        return mix(key(self.seed, self.epoch) ^ mix(np.asarray(self.ids, np.int64)))

    def _draw(self, name: str, lengths: Integers | None) -> Words:
        words = mix(self.words ^ key(name))
        if lengths is None:
            return words
        place = np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths)
        return mix(np.repeat(words, lengths) + mix(place))

    def uniform(self, name: str, lengths: Integers | None = None) -> Floats:
        """Uniform numbers in [0, 1), per sample (B,); with `lengths`, per token (T,)."""
        return (self._draw(name, lengths) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, name: str, high: int, lengths: Integers | None = None) -> Integers:
        """Uniform integers in 0 .. high - 1, per sample or per token."""
        return np.minimum((self.uniform(name, lengths) * high).astype(np.int64), high - 1)

    def normal(self, name: str, lengths: Integers | None = None) -> Floats:
        """Standard normal numbers, per sample or per token, by the Box-Muller transform."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(name + " radius", lengths)))
        return radius * np.cos(2 * np.pi * self.uniform(name + " angle", lengths))

    def ranks(self, name: str, lengths: Integers) -> Integers:
        """Random permutation within each sample: the rank (T,) of each token, from 0."""
        sample = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((self.uniform(name, lengths), sample))
        ranks = np.empty(len(sample), np.int64)
        ranks[order] = np.arange(len(sample)) - np.repeat(lengths.cumsum() - lengths, lengths)
        return ranks


# On a device


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shift(z: Tensor, bits: int) -> Tensor:
    """Shift to the right without sign extension."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mix_words(words: Tensor) -> Tensor:
    """Hash 64-bit words (int64): each output bit depends on every input bit."""
    z = words + _signed(int(GOLDEN))
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def normal_noise(words: Tensor, count: int) -> Tensor:
    """Standard normal numbers (B, count) in float32, from 64-bit words (B,).

    They are made by the Box-Muller transform. Their absolute values are at most 5.9, because a uniform
    number has `UNIFORM_BITS` bits.
    """
    place = mix_words(torch.arange(count, device=words.device))
    z = mix_words(words[:, None] + place)
    first, second = (
        ((part & ((1 << UNIFORM_BITS) - 1)).float() + 0.5) * 2.0**-UNIFORM_BITS
        for part in (_shift(z, 64 - UNIFORM_BITS), z)
    )
    return (-2 * first.log()).sqrt() * (2 * math.pi * second).cos()
