"""Multi-head self-attention and cross-attention, with any score and any kernel."""

from __future__ import annotations

from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError, one_of
from ..norms import make_norm
from ..positions import Rotation, rotate
from ..watch import Watch
from .cache import Store
from .kernels import KERNELS, compute
from .kernels.request import Request, repeat_heads
from .linformer import Compress, compress_keys
from .masks import Sight
from .scores import Dot, ScaledDot, Score, make_score


class AttentionArguments(TypedDict, total=False):
    """Keyword arguments of Attention, passed on by blocks and trunks."""

    kv_heads: int | None
    head_dim: int | None
    score: str
    length: int
    qk_norm: str
    turn_values: bool
    bias: bool
    epsilon: float | None
    kernel: str
    compress: int | None
    places: int | tuple[int, ...] | None
    lead: int
    content: bool


class Attention(nn.Module):
    """Multi-head attention (arXiv 1706.03762).

        q, k, v = x W_q, m W_k, m W_v            m = memory (cross-attention) or m = x (self-attention)
        head_h  = sum_j softmax_j(score(q_i, k_j) + bias_ij) v_j
        out     = [s_1 head_1, ..., s_H head_H] W_o

    kv_heads    heads of keys and values: H (default), 1 (multi-query, arXiv 1911.02150) or any divisor of H
                (grouped-query, arXiv 2305.13245)
    score       content, additive, location, general, dot or scaled_dot; `length` is the maximum number of keys of the
                location score
    qk_norm     `layer`, `rms` or `none`: normalise each head's queries and keys (arXiv 2302.05442)
    turn_values rotate the values too, and rotate the output of each head back: head_h = R_i^-1 sum_j a_ij R_j v_j
                (arXiv 2310.10375). With many frequencies, a head then computes a spectrum of the tokens around token i
    head_scale  learn the scales s_h (NormFormer, arXiv 2110.09456); otherwise s_h = 1
    bias        whether the projections and the norms of queries and keys have biases
    epsilon     epsilon of the norms of queries and keys
    kernel      auto (the fastest), or a name in `kernels.KERNELS`
    compress    number of learned mixtures of tokens in place of the keys and values (Linformer, arXiv 2006.04768);
                `places` is the number of token positions (or the shape of a grid), and `lead` is the number of tokens
                without a position at the beginning of a sequence
    content     False: no queries and keys; the weights follow from the bias of the positions alone (factored attention,
                arXiv 2211.05504), so they are equal for all samples
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        score: str = "scaled_dot",
        length: int = 512,
        qk_norm: str = "none",
        turn_values: bool = False,
        head_scale: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        epsilon: float | None = None,
        kernel: str = "auto",
        compress: int | None = None,
        places: int | tuple[int, ...] | None = None,
        lead: int = 0,
        content: bool = True,
    ) -> None:
        super().__init__()
        one_of("the kernel", kernel, ["auto", *KERNELS])
        if heads < 1:
            raise UserError(f"heads must be 1 or more, not {heads}")
        kv_heads = heads if kv_heads is None else kv_heads
        if head_dim is None:
            if dim % heads:
                message = f"the width {dim} is not a multiple of the {heads} heads"
                raise UserError(message, hint="Choose another width or number of heads, or set head_dim.")
            head_dim = dim // heads
        if kv_heads < 1 or heads % kv_heads:
            raise UserError(f"kv_heads must divide the number of heads ({heads}), but it is {kv_heads}")
        self.dim, self.heads, self.kv_heads, self.head_dim = dim, heads, kv_heads, head_dim
        self.dropout, self.kernel = dropout, kernel
        if not content and (kv_heads != heads or score != "scaled_dot" or compress or turn_values):
            message = "attention without content has no queries and keys, so it takes no option of them"
            raise UserError(message, hint="Leave out kv_heads, score, compress and turn_values.")
        self.content = content
        self.widths = [heads * head_dim * content, kv_heads * head_dim * content, kv_heads * head_dim]
        self.qkv = nn.Linear(dim, sum(self.widths), bias=bias)
        self.out = nn.Linear(heads * head_dim, dim, bias=bias)
        self.score: Score = make_score(score, head_dim, heads, length)
        self.query_norm = make_norm(qk_norm, head_dim, bias, epsilon)
        self.key_norm = make_norm(qk_norm, head_dim, bias, epsilon)
        self.turn_values = turn_values
        if compress is not None and places is None:
            message = "`compress` is set, but `places` (the number of token positions) is missing"
            raise UserError(message, hint="Pass places, a number or the shape of a grid.")
        self.compress = Compress(compress, places, lead) if compress is not None and places is not None else None
        # If only a rotation lies between the projection and the score, kernels may read the projection itself.
        self.direct = (
            content and not (qk_norm != "none" or turn_values or compress) and type(self.score) in (Dot, ScaledDot)
        )
        self.scale = nn.Parameter(torch.ones(heads, 1, 1)) if head_scale else None

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        sight: Sight | None = None,
        *,
        rotation: Rotation | None = None,
        store: Store | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Attention output (B, N, D) of queries x (B, N, D) over the memory or over x.

        memory    (B, M, D) tokens of the keys and values (default: x, which is self-attention)
        sight     visible keys and the bias of the scores
        rotation  rotation of queries and keys by their positions (`Rotary`)
        store     cache: keys and values of earlier tokens (self-attention) or of the memory (cross-attention)
        watch     record of the attention weights
        """
        sight = Sight() if sight is None else sight
        self._check(x)
        if memory is None:
            request = self._self_request(x, sight, rotation, store)
        else:
            request = self._cross_request(x, memory, sight, store)
        heads = compute(request, self.kernel, watch)
        if memory is None and self.compress is not None and sight.packed is not None:
            heads = sight.packed.flatten_heads(heads)  # compress_keys has padded them
        if memory is None and self.turn_values and rotation is not None:
            heads = rotate(heads, (rotation[0], -rotation[1], rotation[2]))
        heads = heads if self.scale is None else heads * self.scale
        return self.out(heads.transpose(1, 2).flatten(2))

    def _self_request(self, x: Tensor, sight: Sight, rotation: Rotation | None, store: Store | None) -> Request:
        batch, n, _ = x.shape
        sight.check(batch, self.heads, n, n if store is None else store.size(n, sight.start))
        qkv, dropout = self.qkv(x), self.dropout if self.training else 0.0
        if not self.content:
            v = self._split(qkv)
            nothing = torch.zeros_like(v)  # scores of 0: softmax of the bias alone
            return Request(nothing, nothing, v, sight, self.score, dropout, store=store)
        q, k, v = (self._split(part) for part in qkv.split(self.widths, -1))
        if self.direct:
            return Request(q, k, v, sight, self.score, dropout, qkv, rotation, store)
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
            v = rotate(v, rotation) if self.turn_values else v
        if self.compress is not None:
            q, k, v, sight = compress_keys(self.compress, q, k, v, sight)
        q, k = self.score.query(q).to(v.dtype), self._key(k).to(v.dtype)  # norms under autocast return float32
        return Request(q, k, v, sight, self.score, dropout, store=store)

    def _cross_request(self, x: Tensor, memory: Tensor, sight: Sight, store: Store | None) -> Request:
        q = self.query_norm(self._split(self._project(x, slice(0, self.widths[0]))))
        k, v = self._memory(memory, store)
        if k.shape[0] != x.shape[0]:
            raise UserError(f"the memory must have {x.shape[0]} samples, like the queries, not {k.shape[0]}")
        sight.check(x.shape[0], self.heads, x.shape[1], k.shape[2])
        return Request(self.score.query(q).to(v.dtype), k, v, sight, self.score, self.dropout if self.training else 0.0)

    def _memory(self, memory: Tensor, store: Store | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory; with a `store`, computed only once."""
        if store is not None and store.memory is not None:
            return store.memory
        self._check(memory)
        both = self._project(memory, slice(self.widths[0], None))
        k, v = (self._split(part) for part in both.chunk(2, -1))
        k = self._key(self.key_norm(k)).to(v.dtype)
        if store is not None:
            store.memory = (k, v)
        return k, v

    def _check(self, x: Tensor) -> None:
        if x.dim() != 3 or x.shape[-1] != self.dim:
            raise UserError(f"tokens must have shape (B, N, {self.dim}), not {tuple(x.shape)}")

    def _key(self, k: Tensor) -> Tensor:
        """Keys prepared for the score; without a fused kernel, repeated for every head."""
        return self.score.key(k if self.score.fused else repeat_heads(k, self.heads))

    def _project(self, x: Tensor, rows: slice) -> Tensor:
        bias = None if self.qkv.bias is None else self.qkv.bias[rows]
        return F.linear(x, self.qkv.weight[rows], bias)

    def _split(self, x: Tensor) -> Tensor:  # (B, N, heads * E) -> (B, heads, N, E)
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, kv_heads={self.kv_heads}, kernel={self.kernel!r}"
