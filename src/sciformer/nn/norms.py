"""The norms, and the residual that may be dropped."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError, one_of
from .ragged import Ragged

NORMS = ("layer", "rms", "none")


def make_norm(name: str, dim: int, bias: bool = True, epsilon: float | None = None) -> nn.Module:
    """`layer`: g (x - mean) / std + b (arXiv 1607.06450), b if `bias`; `rms`: g x / rms (arXiv 1910.07467); `none`.

    `epsilon` stands beside the variance under the root: 1e-5 (layer) and 1e-6 (rms) unless given.
    """
    one_of("the norm", name, NORMS)
    if name == "none":
        return nn.Identity()
    if name == "layer":
        return nn.LayerNorm(dim, eps=1e-5 if epsilon is None else epsilon, bias=bias)
    return nn.RMSNorm(dim, eps=1e-6 if epsilon is None else epsilon)


class DropPath(nn.Module):
    """Leave a branch out for whole samples (arXiv 1603.09382): y = x b / (1 - p), b ~ Bernoulli(1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise UserError("a drop path rate from 0 to below 1", f"{p}")
        self.p = p

    def forward(self, x: Tensor, ragged: Ragged | None = None) -> Tensor:
        """x (B, N, D), or packed (1, T, D) with its layout."""
        if not self.training or self.p == 0:
            return x
        if ragged is None:
            kept = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.p
        else:
            kept = (torch.rand(len(ragged) + 1, device=x.device) >= self.p)[ragged.sample][None, :, None]
        return x * kept / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
