"""Waves of real time: ASTROMER's sines, and a modulation of each token by when it was."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import UserError
from .positions import Position


class Unpaired(Position):
    """PE(p, j) = sin(a_j) for even j, cos(a_j) for odd j, with a_j = p / base^(2j / d)   (ASTROMER, arXiv 2205.01677).

    No two numbers share a frequency; these reach from 1 down to 1 / base^2. With several axes each takes an equal share
    of the width.
    """

    def __init__(self, dim: int, axes: int = 1, base: float = 10_000.0) -> None:
        super().__init__()
        if dim % axes:
            raise UserError(f"the width must be a multiple of {axes} for waves on {axes} axes, not {dim}")
        self.dim, self.axes, self.base = dim, axes, base

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.code(at).to(x.dtype)

    def code(self, at: Tensor) -> Tensor:
        """(..., N, D) for coordinates (..., N), or (..., N, A) with several axes."""
        at = self.columns(at)
        exact = torch.float32 if at.device.type == "mps" else torch.float64
        place = torch.arange(self.dim // self.axes, device=at.device)
        angle = at.to(exact)[..., None] * self.base ** (-2 * place.to(exact) / len(place))
        return torch.where(place % 2 == 0, angle.sin(), angle.cos()).flatten(-2)


class Modulation(Position):
    """x <- x (1 + s(p)) + b(p), with s and b of each number learned Fourier series (TimeModAttn, arXiv 2201.08482):

        s(p) = sum_k  u_k sin(2 pi k p / longest) + v_k cos(2 pi k p / longest),   k = 1 ... harmonics

    and b likewise. Tokens are scaled and shifted by when they were. With several axes the series are added.
    """

    def __init__(self, dim: int, axes: int = 1, longest: float = 1000.0, harmonics: int = 12) -> None:
        super().__init__()
        if longest <= 0 or not 1 <= harmonics <= 512:
            raise UserError(
                f"the longest period must be above 0 and have 1 to 512 harmonics, not {longest:g} with {harmonics}"
            )
        self.dim, self.axes, self.longest, self.harmonics = dim, axes, longest, harmonics
        self.linear = nn.Linear(2 * harmonics * axes, 2 * dim)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        at = self.columns(at)
        exact = torch.float32 if at.device.type == "mps" else torch.float64
        number = torch.arange(1, self.harmonics + 1, dtype=exact, device=at.device)
        angle = (2 * math.pi / self.longest) * at.to(exact)[..., None] * number
        waves = torch.cat([angle.sin(), angle.cos()], -1).flatten(-2).to(self.linear.weight.dtype)
        scale, shift = self.linear(waves).to(x.dtype).chunk(2, -1)
        return x * (1 + scale) + shift
