"""Embedding and readout of text tokens."""

from __future__ import annotations

from torch import Tensor

from ...tokens.base import Columns
from ...tokens.vocabulary import VocabularyEmbedding, VocabularyReadout

LOGITS_AT_ONCE = 16384  # tokens per chunk of logits, for a large vocabulary on a GPU


class TextEmbedding(VocabularyEmbedding):
    """Token embedding x = E[id], or x = sqrt(D) E[id] with `scale` (arXiv 1706.03762).

    The initial standard deviation of E is 0.02 as in GPT-2, or 1 / sqrt(D) with `scale`.
    """

    def __init__(self, size: int, dim: int, scale: bool = False) -> None:
        super().__init__(size, dim, dim**-0.5 if scale else 0.02)
        self.scale = dim**0.5 if scale else 1.0

    def forward(self, columns: Columns) -> Tensor:
        """Map ids (..., N) to vectors (..., N, D)."""
        x = super().forward(columns)
        return x if self.scale == 1.0 else x * self.scale


class TextReadout(VocabularyReadout):
    """Next-token distribution p(id) = softmax(W h + b), for vocabularies of any size."""

    def chunk_size(self, hidden: Tensor) -> int:
        """Number of tokens whose logits are computed at a time; 0 means all tokens.

        On a GPU, the logits of a large vocabulary are computed in chunks to save memory.
        """
        large = hidden.is_cuda and hidden.shape[0] * self.linear.weight.shape[0] > LOGITS_AT_ONCE * 16384
        return LOGITS_AT_ONCE if large else 0
