"""Vector quantisation with a learned codebook (arXiv 1711.00937)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Quantized(NamedTuple):
    """Result of a quantisation.

    x      (..., C) codewords in the forward pass, with the gradient of the input
    ids    (...) index of the codeword
    loss   (...) codebook loss plus commitment loss of each vector
    """

    x: Tensor
    ids: Tensor
    loss: Tensor


class VectorQuantizer(nn.Module):
    """Replace vectors by their nearest codewords, with a straight-through gradient.

        k = argmin_j |z - e_j|^2,   y = z + sg(e_k - z)
        loss = |sg(z) - e_k|^2 + commitment |z - sg(e_k)|^2

    where sg stops the gradient, so that dL/dz = dL/dy. Vectors and codewords are scaled to length 1 first (arXiv
    2110.04627), because few codewords are used if their lengths differ.

    codes        number of codewords K
    dim          width C of vectors and codewords
    commitment   weight of the commitment loss
    """

    def __init__(self, codes: int, dim: int, commitment: float = 0.25) -> None:
        super().__init__()
        self.codes, self.dim, self.commitment = codes, dim, commitment
        self.table = nn.Embedding(codes, dim)
        nn.init.normal_(self.table.weight)

    @property
    def book(self) -> Tensor:
        """Codewords (K, C) of length 1."""
        return F.normalize(self.table.weight.float(), dim=-1)

    def forward(self, z: Tensor) -> Quantized:
        """Quantise vectors (..., C)."""
        z = F.normalize(z.float(), dim=-1)
        book = self.book
        ids = (z.detach() @ book.detach().T).argmax(-1)  # the nearest, as all lengths are 1
        word = F.embedding(ids, book)
        loss = (z.detach() - word).square().sum(-1) + self.commitment * (z - word.detach()).square().sum(-1)
        return Quantized(z + (word - z).detach(), ids, loss)

    def words(self, ids: Tensor) -> Tensor:
        """Codewords (..., C) of ids (...); the mean of the codebook for negative ids."""
        book = self.book
        found = F.embedding(ids.clamp(min=0), book)
        return torch.where((ids < 0)[..., None], book.mean(0), found)
