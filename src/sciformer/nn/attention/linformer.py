"""Linformer attention in linear time, with learned mixtures of keys and values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...errors import UserError
from ..positions import Learned
from .masks import Documents, Full, Sight


class Compress(nn.Module):
    """Linformer projection of keys and values to `count` mixtures (arXiv 2006.04768).

        k'_m = s sum_j E[p_j, m] k_j,   v'_m = s sum_j F[p_j, m] v_j   for m < count

    p_j is the position of token j, on a line or a grid of `places`; E and F are learned and shared by the heads. For
    real-valued coordinates, rows of E and F are interpolated. s is the number of positions divided by the number of
    tokens (1 for complete samples), so that samples of all sizes give mixtures of the same scale. The first `lead`
    tokens of a sequence have no position; each of them has its own rows of E and F.
    """

    def __init__(self, count: int, places: int | tuple[int, ...], lead: int = 0) -> None:
        super().__init__()
        self.count, self.lead = count, lead
        self.table = Learned(2 * count, places)
        self.whole = math.prod(self.table.shape) + lead
        self.first = nn.Parameter(torch.empty(lead, 2 * count)) if lead else None
        for weight in self.parameters():
            nn.init.normal_(weight, std=self.whole**-0.5)  # mixtures have the variance of keys and values

    def forward(self, k: Tensor, v: Tensor, at: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Project keys and values (B, G, N, E) along the tokens to (B, G, count, E).

        Here E is the width of a head, G the number of key-value heads, and `count` the number of projected tokens.

        at     (B or 1, N, A) coordinates of the tokens on A axes
        valid  (B, N) mask of real tokens; None means that all are real
        """
        mixture = self.table.code(at)
        if self.first is not None:
            mixture = torch.cat([self.first.expand(mixture.shape[0], -1, -1), mixture[:, self.lead :]], 1)
        n = k.shape[2]
        if valid is not None:
            real = valid.sum(1).clamp(min=1)[:, None, None]
            mixture = mixture.masked_fill(~valid[..., None], 0) * (self.whole / real)
        elif n and n != self.whole:
            mixture = mixture * (self.whole / n)
        keys, values = mixture.to(k.dtype)[:, None].mT.chunk(2, 2)
        return keys @ k, values @ v

    def extra_repr(self) -> str:
        return f"count={self.count}, places={self.table.shape}, lead={self.lead}"


def compress_error(what: str) -> UserError:
    """Error for a feature `what` that excludes the option `compress`."""
    return UserError(f"compress cannot be used with {what}", hint="Use full self-attention, or remove compress.")


def compress_keys(
    mixing: Compress, q: Tensor, k: Tensor, v: Tensor, sight: Sight
) -> tuple[Tensor, Tensor, Tensor, Sight]:
    """Queries, keys, values and Sight for compressed attention.

    Keys and values (B, G, N, E) of G key-value heads become `mixing.count` learned mixtures (B, G, count, E) of the
    tokens. Every query sees all mixtures. Packed queries, keys and values are padded first.
    """
    packed = sight.pattern if isinstance(sight.pattern, Documents) else None
    pattern = sight.pattern if packed is None else packed.within
    if not isinstance(pattern, Full) or sight.bias is not None:
        raise compress_error("a pair bias" if sight.bias is not None else f"the pattern {pattern!r}")
    assert sight.at is not None, "a stack passes the coordinates of its tokens"
    at, valid = sight.at, sight.valid
    if packed is not None:
        ragged = packed.queries
        q, k, v = (ragged.pad_heads(part) for part in (q, k, v))
        at, valid = ragged.pad(at[0]), ragged.valid
    return q, *mixing(k, v, at, valid), Sight()
