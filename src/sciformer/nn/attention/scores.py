"""Alignment scores between queries and keys.

Each score prepares queries and keys once (`query`, `key`) and then compares them (`compare`). If the comparison is a
plain product, `fused` is True and every fast kernel can compute it; the other scores use the reference kernel.

    q (B, H, N, E)   k (B, H, M, E)   ->   score(q, k) (B, H, N, M)      B batch, H heads, E head width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError, one_of


class Score(nn.Module):
    """Abstract score of queries and keys (default: scale * q k^T)."""

    fused: bool = True

    def query(self, q: Tensor) -> Tensor:
        """Prepare queries for the comparison with keys."""
        return q

    def key(self, k: Tensor) -> Tensor:
        """Key prepared for the comparison.

        In decoding, each key is prepared only once.
        """
        return k

    def scale(self, dim: int) -> float:
        """Factor of the dot product of vectors of width `dim`."""
        return 1.0

    def compare(self, q: Tensor, k: Tensor, position: Tensor | None = None) -> Tensor:
        """Scores (B, H, N, M) of prepared queries and keys at `position` (M,)."""
        return self.scale(q.shape[-1]) * (q @ k.transpose(-2, -1))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(self.query(q), self.key(k))


class Dot(Score):
    """Dot-product score(q, k) = q . k (Luong 2015, arXiv 1508.04025)."""


class ScaledDot(Score):
    """Scaled dot-product score(q, k) = q . k / sqrt(E) (arXiv 1706.03762)."""

    def scale(self, dim: int) -> float:
        return dim**-0.5 if dim else 1.0


class Content(Score):
    """Content-based score: scaled cosine similarity (Graves 2014, arXiv 1410.5401).

        score(q, k) = beta cos(q, k) = beta q . k / (|q| |k|)

    The sharpness beta is learned for each head and starts at 1. The norms |q| and |k| are at least 1e-3, so that the
    gradient of a vector near zero (the first state of a decoder) stays bounded.
    """

    shortest = 1e-3

    def __init__(self, dim: int, heads: int = 1) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(heads, 1, 1))

    def query(self, q: Tensor) -> Tensor:
        return self.sharpness * F.normalize(q, dim=-1, eps=self.shortest)

    def key(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1, eps=self.shortest)


class General(Score):
    """General score(q, k) = q^T W k (arXiv 1508.04025); W starts as the identity."""

    def __init__(self, dim: int, heads: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim).repeat(heads, 1, 1))

    def query(self, q: Tensor) -> Tensor:
        return q @ self.weight


class Additive(Score):
    """Additive score(q, k) = v . tanh(W_q q + W_k k) (Bahdanau 2015, arXiv 1409.0473).

    The matrix W_a of the paper is [W_q, W_k]. Queries and keys are compared pair by pair. This needs E times the memory
    of a product (E: width of a head).
    """

    fused = False

    def __init__(self, dim: int, heads: int = 1) -> None:
        super().__init__()
        bound = (3 / dim) ** 0.5
        self.query_weight = nn.Parameter(torch.empty(heads, dim, dim).uniform_(-bound, bound))
        self.key_weight = nn.Parameter(torch.empty(heads, dim, dim).uniform_(-bound, bound))
        self.vector = nn.Parameter(torch.empty(heads, 1, 1, dim).uniform_(-bound, bound))

    def query(self, q: Tensor) -> Tensor:
        return q @ self.query_weight

    def key(self, k: Tensor) -> Tensor:
        return k @ self.key_weight

    def compare(self, q: Tensor, k: Tensor, position: Tensor | None = None) -> Tensor:
        return (torch.tanh(q[..., :, None, :] + k[..., None, :, :]) * self.vector).sum(-1)


class Location(Score):
    """Location-based score(q, k_j) = (W q)_j (Luong 2015, arXiv 1508.04025).

    j is the position of the key, and W has one row for each of `length` positions. The content of the keys is not used.
    """

    fused = False

    def __init__(self, dim: int, heads: int = 1, length: int = 512) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, length, dim).normal_(std=dim**-0.5))

    def compare(self, q: Tensor, k: Tensor, position: Tensor | None = None) -> Tensor:
        places = self.weight.shape[1]
        if position is None:
            position = torch.arange(k.shape[-2], device=k.device)
        if torch.compiler.is_compiling():
            return q @ self.weight[:, position].transpose(-2, -1).to(q.dtype)
        if len(position) and (last := int(position.max())) >= places:
            message = f"the Location score was made for at most {places} keys, but there are {last + 1} keys"
            raise UserError(message, hint=f"Make it with Location(dim, heads, length={last + 1}).")
        return q @ self.weight[:, position].transpose(-2, -1).to(q.dtype)


SCORES: dict[str, type[Score]] = {
    "content": Content,
    "additive": Additive,
    "location": Location,
    "general": General,
    "dot": Dot,
    "scaled_dot": ScaledDot,
}


def make_score(name: str, dim: int, heads: int = 1, length: int = 512) -> Score:
    """Make the score `name` for heads of width `dim`.

    `length` is the maximum number of keys of the location score; the other scores ignore it.
    """
    one_of("the score", name, SCORES)
    if name in ("dot", "scaled_dot"):
        return SCORES[name]()
    if name == "location":
        return Location(dim, heads, length)
    return SCORES[name](dim, heads)
