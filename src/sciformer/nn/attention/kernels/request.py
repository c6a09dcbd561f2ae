"""Request: the arguments of one attention call, for every kernel."""

from __future__ import annotations

import importlib.util
import os
from typing import NamedTuple

import torch
from torch import Tensor

from ...positions import Rotation, rotate
from ..cache import Store
from ..masks import Causal, Documents, Full, Sight
from ..pair_bias import PairBias
from ..scores import ScaledDot, Score

DEFAULT_SCORE = ScaledDot()
HAS_TRITON = importlib.util.find_spec("triton") is not None  # at import: a compiler cannot trace find_spec
TRITON_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Request(NamedTuple):
    """Arguments of one attention call.

    Shapes: B samples, H heads, G key-value heads, N queries, M keys, E head width.

    q         (B, H, N, E) queries prepared for the score (`score.query`), before the rotation
    k, v      (B, G, M, E) keys (prepared for the score, before the rotation) and values; only of the new tokens if
              there is a store
    sight     visible keys and the bias of the scores
    score     comparison of queries with keys
    dropout   share of the attention weights to set to zero
    qkv       (B, N, (H + 2 G) E) the projection, if q, k and v are views of it
    rotation  rotation of queries and keys by their positions, not yet applied
    store     keys and values of earlier tokens, not yet extended by the new tokens

    A kernel that reads the projection must rotate and extend the store itself; the other kernels call `prepare`. A
    request is made for every attention call. It is a named tuple, because making a frozen dataclass takes four times as
    long.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    sight: Sight
    score: Score = DEFAULT_SCORE
    dropout: float = 0.0
    qkv: Tensor | None = None
    rotation: Rotation | None = None
    store: Store | None = None

    @property
    def keys(self) -> int:
        """Number M of keys, including earlier keys in the store."""
        return self.k.shape[2] if self.store is None else self.store.size(self.q.shape[2], self.sight.start)

    @property
    def scale(self) -> float:
        """Factor of the product of query and key in the score."""
        return self.score.scale(self.q.shape[3])

    def prepare(self) -> Request:
        """Request with rotated queries and keys, and with all stored keys and values."""
        if self.rotation is None and self.store is None:
            return self
        q, k, v = self.q, self.k, self.v
        if self.rotation is not None:
            q, k = rotate(q, self.rotation), rotate(k, self.rotation)
        if self.store is not None:
            k, v = self.store.extend(k, v, self.sight.start)
        return Request(q, k, v, self.sight, self.score, self.dropout)

    def join(self) -> Tensor:
        """Queries, keys, values as one tensor (B, N, 3 H E), without a copy if possible."""
        ready = self.prepare()
        heads = ready.q.shape[1]
        if ready.qkv is not None and ready.k.shape[1] == heads:
            return ready.qkv
        return torch.cat([repeat_heads(x, heads).transpose(1, 2).flatten(2) for x in (ready.q, ready.k, ready.v)], 2)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each key-value head H / G times: (B, G, M, E) to (B, H, M, E)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def no_product(request: Request) -> str | None:
    """Reason why the scores are not a product of queries and keys, or None."""
    score = request.score
    return None if score.fused else f"the {type(score).__name__} score is not a product of query and key"


def no_triton(x: Tensor) -> str | None:
    """Reason why a Triton kernel does not support this tensor, or None."""
    if HAS_TRITON and (x.is_cuda or TRITON_INTERPRETED) and x.dtype != torch.float64:
        return None
    return "it runs only on CUDA, with Triton, and not in double precision"


def not_packed(request: Request, *, causal: bool = False, cross: bool = False) -> str | None:
    """Reason why a kernel for packed sequences does not support the request, or None.

    causal  whether causal attention within a sequence is supported
    cross   whether cross-attention is supported
    """
    sight, pattern, bias = request.sight, request.sight.pattern, request.sight.bias
    if not isinstance(pattern, Documents) or not isinstance(pattern.within, (Full, Causal) if causal else Full):
        return f"it supports only packed sequences with full{' or causal' if causal else ''} attention"
    if pattern.keys is not None and not cross:
        return "it supports only self-attention"
    if sight.valid is not None or not isinstance(sight.start, int) or sight.start:
        return "it supports neither hidden keys (`valid`) nor a cache"
    heads, width = request.q.shape[1], request.q.shape[3]
    if bias is not None and not (isinstance(bias, PairBias) and pattern.keys is None and bias.heads == heads):
        return f"`bias` must be a PairBias of {heads} heads for the same packed tokens"
    if request.v.shape[3] != width:
        return f"values must be as wide as queries, which are {width} wide, not {request.v.shape[3]}"
    return no_product(request)
