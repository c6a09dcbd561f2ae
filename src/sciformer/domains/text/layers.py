"""How tokens of a vocabulary enter a model, and come back."""

from __future__ import annotations

from torch import Tensor, nn

from ...nn.losses import IGNORE_INDEX, linear_cross_entropy, total_cross_entropy
from ...tokens.base import Columns
from ...tokens.protocols import Readout

LOGITS_AT_ONCE = 16384  # tokens whose logits are held at once, where a vocabulary is large


class TextEmbedding(nn.Module):
    """x = E[id], with E normal of deviation 0.02 (GPT-2); scaled: x = sqrt(D) E[id], with 1 / sqrt(D) (1706.03762)."""

    def __init__(self, size: int, dim: int, scale: bool = False) -> None:
        super().__init__()
        self.scale = dim**0.5 if scale else 1.0
        self.table = nn.Embedding(size, dim)
        nn.init.normal_(self.table.weight, std=dim**-0.5 if scale else 0.02)

    def forward(self, columns: Columns) -> Tensor:
        """ids (..., N) -> (..., N, D)."""
        x = self.table(columns["ids"])
        return x if self.scale == 1.0 else x * self.scale


class TextReadout(Readout):
    """p(id) = softmax(W h), or softmax(W h + b) with a `bias`; W is the embedding itself where that is given."""

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
        """Logits (..., V)."""
        return self.linear(hidden)

    def loss(self, hidden: Tensor, target: Columns, smoothing: float = 0.0) -> Tensor:
        """-ln p of the target's ids (n,)."""
        return linear_cross_entropy(hidden, self.linear.weight, target["ids"], smoothing, self.linear.bias)

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """The sum of -ln p; on a GPU a large vocabulary goes in chunks."""
        ids = target["ids"] if wanted is None else target["ids"].masked_fill(~wanted, IGNORE_INDEX)
        large = hidden.is_cuda and hidden.shape[0] * self.linear.weight.shape[0] > LOGITS_AT_ONCE * 16384
        chunk = LOGITS_AT_ONCE if large else 0
        return total_cross_entropy(hidden, self.linear.weight, ids, chunk, smoothing, self.linear.bias)

    def predict(self, hidden: Tensor) -> Columns:
        return {"ids": self.linear(hidden).argmax(-1)}
