"""Vector-quantised autoencoder (arXiv 1711.00937): tokens to codewords and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, distributed, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import Watch
from ..nn.transformer import TransformerOptions
from ..nn.watch import inner_watch
from ..tokens.base import Tokens
from .base import Model, Network, single

GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly


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
    restart      number of batches after which an unused codeword is replaced by a vector of the batch (arXiv
                 2005.00341); 0: never. Codewords that start far from all vectors get no gradient and stay unused.
    """

    idle: Tensor

    def __init__(self, codes: int, dim: int, commitment: float = 0.25, restart: int = 0) -> None:
        super().__init__()
        self.codes, self.dim, self.commitment, self.restart = codes, dim, commitment, restart
        self.table = nn.Embedding(codes, dim)
        nn.init.normal_(self.table.weight)
        self.register_buffer("idle", torch.zeros(codes))  # batches since the last use of each codeword

    @property
    def book(self) -> Tensor:
        """Codewords (K, C) of length 1."""
        return F.normalize(self.table.weight.float(), dim=-1)

    def forward(self, z: Tensor) -> Quantized:
        """Quantise vectors (..., C)."""
        z = F.normalize(z.float(), dim=-1)
        if self.training and self.restart and z.numel():
            self.restart_unused(z.detach().flatten(0, -2))
        book = self.book
        ids = (z.detach() @ book.detach().T).argmax(-1)  # the nearest, as all lengths are 1
        word = F.embedding(ids, book)
        loss = (z.detach() - word).square().sum(-1) + self.commitment * (z - word.detach()).square().sum(-1)
        return Quantized(z + (word - z).detach(), ids, loss)

    @torch.no_grad()
    def restart_unused(self, vectors: Tensor) -> None:
        """Replace codewords that have been unused for `restart` batches by vectors (M, C) of this batch.

        Vectors are chosen by the Gumbel top-k trick, with their squared errors as weights. The random numbers depend on
        the place in the batch alone, so that a training stays reproducible. Ranks take the vectors of rank 0.
        """
        nearest, ids = (vectors @ self.book.T).max(-1)
        used = torch.zeros_like(self.idle, dtype=torch.bool).index_fill(0, ids, True)
        idle = torch.where(used, 0, self.idle + 1)
        unused = idle >= self.restart
        uniform = (torch.arange(1, len(ids) + 1, device=ids.device, dtype=torch.float64) * GOLDEN % 1).float()
        gumbel = -(-uniform.clamp(1e-6, 1 - 1e-6).log()).log()
        chosen = ((1 - nearest).clamp(min=1e-12).log() + gumbel).topk(min(self.codes, len(ids))).indices
        at = chosen[(unused.cumsum(0) - 1).clamp(min=0) % len(chosen)]
        weight = torch.where(unused[:, None], vectors[at], self.table.weight)
        idle = torch.where(unused, 0, idle)
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            distributed.broadcast(weight, 0)
            distributed.broadcast(idle, 0)
        self.table.weight.copy_(weight)
        self.idle.copy_(idle)

    def words(self, ids: Tensor) -> Tensor:
        """Codewords (..., C) of ids (...); the mean of the codebook for negative ids."""
        book = self.book
        found = F.embedding(ids.clamp(min=0), book)
        return torch.where((ids < 0)[..., None], book.mean(0), found)


class VectorQuantized(Model):
    """`kind: vector_quantized`: autoencoder with a learned codebook.

    The code of each token is one codeword. Encoder and decoder are trunks of the same kind. With `depth: 0` the code of
    a token depends on this token alone, and only the decoder sees other tokens.
    """

    codes: int = Field(default=512, ge=2, le=1 << 16)
    """Number of codewords (default: 512)."""
    code_dim: int = Field(default=16, ge=1, le=1 << 12)
    """Width of a codeword (default: 16). Small widths use more of the codewords."""
    commitment: float = Field(default=0.25, ge=0, allow_inf_nan=False)
    """Weight of the commitment loss, which keeps the encoder near the codewords (default: 0.25)."""
    restart: int = Field(default=20, ge=0, le=10**9)
    """Number of batches without use after which a codeword is replaced by a vector of the batch (default: 20; 0:
    never)."""
    decoder_depth: int = Field(default=4, ge=0, le=1000)
    """Number of blocks of the decoder (default: 4)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        only = single(tokens, self)
        if not isinstance(self, TransformerOptions):
            message = f"`model.kind: {self.kind}` needs `model.trunk: transformer`, not {self.trunk}"
            raise UserError(message, key="model.trunk")
        return VectorQuantizedNetwork(self, only, objective)


class Reconstruction(NamedTuple):
    """Decoded tokens and their codes.

    hidden   (B, N, D) or (T, D) output of the decoder, for the readout
    ids      index of the codeword of each token
    loss     loss of the quantiser for each token
    """

    hidden: Tensor
    ids: Tensor
    loss: Tensor


class VectorQuantizedNetwork(Network):
    """Network: embed -> trunk -> codewords -> decoder -> readout."""

    def __init__(self, section: VectorQuantized, tokens: Tokens, objective: Any) -> None:
        super().__init__(section, tokens, objective, section.make_trunk(tokens))
        self.narrow = nn.Linear(self.dim, section.code_dim)
        self.quantizer = VectorQuantizer(section.codes, section.code_dim, section.commitment, section.restart)
        self.widen = nn.Linear(section.code_dim, section.dim)
        self.decoder = section.model_copy(update={"depth": section.decoder_depth}).make_trunk(tokens)

    def reconstruct(self, view: StreamView, watch: Watch | None = None) -> Reconstruction:
        """Encode, quantise and decode the tokens of a view."""
        found = self.quantizer(self.narrow(self.run(self.embed(view), view, inner_watch(watch, "encoder"))))
        return Reconstruction(self.decode_words(found.x, view, watch), found.ids, found.loss)

    def codes(self, view: StreamView) -> Tensor:
        """Index of the codeword of each token."""
        ids: Tensor = self.quantizer(self.narrow(self.run(self.embed(view), view))).ids
        return ids

    def decode_codes(self, ids: Tensor, view: StreamView) -> Tensor:
        """Decoder output for indices of codewords; a negative index is a missing code."""
        return self.decode_words(self.quantizer.words(ids), view)

    def decode_words(self, words: Tensor, view: StreamView, watch: Watch | None = None) -> Tensor:
        """Decoder output (B, N, D) or (T, D) for codewords (..., C)."""
        x = self.widen(words.to(self.widen.weight.dtype))
        at = view.columns.get("at")
        return self.decoder(x, view.valid, at=at, watch=inner_watch(watch, "decoder"))
