"""Dropout with random numbers that do not cost more than the layers between them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16


def dropout(x: Tensor, p: float) -> Tensor:
    """x with a share p of its numbers set to zero and the others divided by 1 - p."""
    if p == 0 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep(x.shape, p, x.dtype)


def keep(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """Zeros for the share p, else 1 / (1 - p), on the CPU.

    PyTorch draws one random number for each there, with one core; four fit into the bits of one. The share is a
    multiple of 2^-16.
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    dropped = min(LEVELS, max(1, round(p * LEVELS)))
    kept = torch.empty(shape, dtype=dtype)
    torch.gt(words.view(torch.int16)[:count].view(shape), dropped - LEVELS // 2 - 1, out=kept)
    return kept.mul_(LEVELS / max(1, LEVELS - dropped))


class Dropout(nn.Dropout):
    """As PyTorch's, and quick on the CPU too."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
