"""Prediction heads: classes, values with uncertainty, quantiles, tags of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .blocks import MLP


def _layer(
    dim: int, outputs: int, hidden: int | Sequence[int] | None, dropout: float, activation: str = "gelu"
) -> nn.Module:
    if hidden is None:
        return nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, outputs))
    *more, last = [hidden] if isinstance(hidden, int) else hidden
    before: list[nn.Module] = []
    for width in more:
        before += [nn.Linear(dim, width), nn.ReLU() if activation == "relu" else nn.GELU(), nn.Dropout(dropout)]
        dim = width
    mlp = MLP(dim, last, activation, dropout=dropout)
    mlp.down = nn.Linear(last, outputs)
    return nn.Sequential(*before, mlp) if before else mlp


class ClassHead(nn.Module):
    """Classification head: logits (B, classes) = W y + b of pooled vectors y (B, D).

    With `hidden` (widths of hidden layers) the head is an MLP.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        hidden: int | Sequence[int] | None = None,
        dropout: float = 0.0,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.layer = _layer(dim, classes, hidden, dropout, activation)

    def forward(self, y: Tensor) -> Tensor:
        return self.layer(y)


class TagHead(ClassHead):
    """Tagging head like ClassHead: logits (..., N, tags) of tokens (..., N, D)."""


class Gaussian(NamedTuple):
    """Mean and standard deviation of predicted values, each (B, values)."""

    mean: Tensor
    std: Tensor

    def loss(self, target: Tensor) -> Tensor:
        """Negative log-likelihood ln std + (target - mean)^2 / (2 std^2) + ln(2 pi) / 2."""
        if target.shape != self.mean.shape:
            raise UserError(f"targets must have shape {tuple(self.mean.shape)}, not {tuple(target.shape)}")
        return self.std.log() + 0.5 * ((target - self.mean) / self.std) ** 2 + 0.5 * math.log(2 * math.pi)


class ValueHead(nn.Module):
    """Regression head with uncertainty: mean W y + b, std softplus(V y + c) + floor."""

    def __init__(
        self,
        dim: int,
        values: int = 1,
        hidden: int | Sequence[int] | None = None,
        dropout: float = 0.0,
        floor: float = 1e-3,
    ) -> None:
        super().__init__()
        self.floor = floor
        self.layer = _layer(dim, 2 * values, hidden, dropout)

    def forward(self, y: Tensor) -> Gaussian:
        mean, raw = self.layer(y).chunk(2, -1)
        return Gaussian(mean, F.softplus(raw.to(torch.promote_types(raw.dtype, torch.float32))) + self.floor)


class QuantileHead(nn.Module):
    """Quantile regression head: Q increasing quantiles (B, values, Q) of each value.

    The quantile with index `middle` is W y + b. Each of the other quantiles is one softplus step below or above its
    neighbour, so quantiles cannot cross.
    """

    def __init__(
        self,
        dim: int,
        values: int = 1,
        quantiles: int = 3,
        middle: int = 1,
        hidden: int | Sequence[int] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.values, self.middle = values, middle
        self.layer = _layer(dim, values * quantiles, hidden, dropout)

    def forward(self, y: Tensor) -> Tensor:
        raw = self.layer(y)
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32)).unflatten(-1, (self.values, -1))
        low, middle, high = raw.tensor_split((self.middle, self.middle + 1), -1)
        down = F.softplus(low.flip(-1)).cumsum(-1).flip(-1)
        return torch.cat([middle - down, middle, middle + F.softplus(high).cumsum(-1)], -1)


def pinball(quantiles: Tensor, levels: Tensor, target: Tensor) -> Tensor:
    """Pinball loss (B, values) of quantiles (B, values, Q), summed over `levels` (Q,).

    For the level q: q (y - z) if the target y is above the quantile z, else (1 - q) (z - y).
    """
    above = target[..., None] - quantiles
    return torch.maximum(levels * above, (levels - 1) * above).sum(-1)
