"""Embedding and readout of text tokens."""

from __future__ import annotations

from torch import Tensor, nn

from ...nn.losses import IGNORE_INDEX, linear_cross_entropy, total_cross_entropy
from ...tokens.base import Columns
from ...tokens.protocols import Readout

LOGITS_AT_ONCE = 16384  # tokens per chunk of logits, for a large vocabulary on a GPU


class TextEmbedding(nn.Module):
    """Token embedding x = E[id], or x = sqrt(D) E[id] with `scale` (arXiv 1706.03762).

    The initial standard deviation of E is 0.02 as in GPT-2, or 1 / sqrt(D) with `scale`.
    """

    def __init__(self, size: int, dim: int, scale: bool = False) -> None:
        super().__init__()
        self.scale = dim**0.5 if scale else 1.0
        self.table = nn.Embedding(size, dim)
        nn.init.normal_(self.table.weight, std=dim**-0.5 if scale else 0.02)

    def forward(self, columns: Columns) -> Tensor:
        """Map ids (..., N) to vectors (..., N, D)."""
        x = self.table(columns["ids"])
        return x if self.scale == 1.0 else x * self.scale


class TextReadout(Readout):
    """Next-token distribution p(id) = softmax(W h + b).

    embedding  embedding with the matrix W (tied weights), or None for a separate matrix
    bias       whether to add a bias b
    """

    def __init__(self, size: int, dim: int, embedding: nn.Module | None, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, size, bias=bias)
        if bias:
            nn.init.zeros_(self.linear.bias)
        if embedding is not None:
            assert isinstance(embedding, TextEmbedding)
            self.linear.weight = embedding.table.weight
        else:
            nn.init.normal_(self.linear.weight, std=0.02)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (..., D) to logits (..., V)."""
        return self.linear(hidden)

    def loss(self, hidden: Tensor, target: Columns, smoothing: float = 0.0) -> Tensor:
        """Cross entropy -ln p of each target id (n,)."""
        return linear_cross_entropy(hidden, self.linear.weight, target["ids"], smoothing, self.linear.bias)

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """Sum of the cross entropy over all tokens.

        On a GPU, the logits of a large vocabulary are computed in chunks to save memory.
        """
        ids = target["ids"] if wanted is None else target["ids"].masked_fill(~wanted, IGNORE_INDEX)
        large = hidden.is_cuda and hidden.shape[0] * self.linear.weight.shape[0] > LOGITS_AT_ONCE * 16384
        chunk = LOGITS_AT_ONCE if large else 0
        return total_cross_entropy(hidden, self.linear.weight, ids, chunk, smoothing, self.linear.bias)

    def predict(self, hidden: Tensor) -> Columns:
        return {"ids": self.linear(hidden).argmax(-1)}
