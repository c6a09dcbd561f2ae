"""Dropout with fast random numbers on the CPU."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16


def dropout(x: Tensor, p: float) -> Tensor:
    """Dropout: set elements to zero with probability p, divide the rest by 1 - p."""
    if p == 0 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep(x.shape, p, x.dtype)


def keep(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """Dropout mask on the CPU: 0 for a share p of the elements, else 1 / (1 - p).

    PyTorch draws one random number per element, on one core. This function draws 64 random bits for four elements, so
    p is rounded to a multiple of 2^-16.
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    dropped = min(LEVELS, max(1, round(p * LEVELS)))
    kept = torch.empty(shape, dtype=dtype)
    torch.gt(words.view(torch.int16)[:count].view(shape), dropped - LEVELS // 2 - 1, out=kept)
    return kept.mul_(LEVELS / max(1, LEVELS - dropped))


class Dropout(nn.Dropout):
    """Dropout with the interface of `torch.nn.Dropout`, but faster on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
