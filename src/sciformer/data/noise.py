"""Standard normal noise on a device, as a pure function of 64-bit words.

The noise of a sample is the same in every batch, and in training it needs no copy from the host. The mixing function is
the same as in `random`: SplitMix64, with integers that wrap around.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .random import GOLDEN

BITS = 24  # random bits of a uniform number, as many as a float32 holds


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
    """Standard normal numbers (B, count) in float32, from words (B,), by the Box-Muller transform.

    Their absolute values are at most 5.9, because a uniform number has `BITS` bits.
    """
    place = mix_words(torch.arange(count, device=words.device))
    z = mix_words(words[:, None] + place)
    first, second = (((part & ((1 << BITS) - 1)).float() + 0.5) * 2.0**-BITS for part in (_shift(z, 64 - BITS), z))
    return (-2 * first.log()).sqrt() * (2 * math.pi * second).cos()
