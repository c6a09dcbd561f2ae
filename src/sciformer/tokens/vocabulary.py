"""Embedding and readout of tokens with a vocabulary, from the column `ids`."""

from __future__ import annotations

from torch import Tensor, nn

from ..nn.losses import IGNORE_INDEX, linear_cross_entropy, total_cross_entropy
from .base import Columns
from .protocols import Readout


class VocabularyEmbedding(nn.Module):
    """Token embedding x = E[id], with a small initial standard deviation as in GPT-2."""

    def __init__(self, size: int, dim: int, std: float = 0.02) -> None:
        super().__init__()
        self.table = nn.Embedding(size, dim)
        nn.init.normal_(self.table.weight, std=std)

    def forward(self, columns: Columns) -> Tensor:
        """Map ids (..., N) to vectors (..., N, D)."""
        x: Tensor = self.table(columns["ids"])
        return x


class VocabularyReadout(Readout):
    """Distribution of a token p(id) = softmax(W h + b).

    embedding  embedding with the matrix W (tied weights), or None for a separate matrix
    bias       whether to add a bias b
    """

    def __init__(self, size: int, dim: int, embedding: nn.Module | None, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, size, bias=bias)
        if bias:
            nn.init.zeros_(self.linear.bias)
        if embedding is not None:
            assert isinstance(embedding, VocabularyEmbedding)
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
        """Cross entropy summed over the tokens; see `Readout.total`."""
        ids = target["ids"] if wanted is None else target["ids"].masked_fill(~wanted, IGNORE_INDEX)
        weight, bias = self.linear.weight, self.linear.bias
        return total_cross_entropy(hidden, weight, ids, self.chunk_size(hidden), smoothing, bias)

    def chunk_size(self, hidden: Tensor) -> int:
        """Number of tokens in a chunk of logits; 0 (default) means all tokens."""
        return 0

    def predict(self, hidden: Tensor) -> Columns:
        return {"ids": self.linear(hidden).argmax(-1)}
