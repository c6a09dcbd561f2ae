"""One call of attention, as every kernel is asked for it."""

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
HAS_TRITON = importlib.util.find_spec("triton") is not None  # asked once: a compiler cannot trace the question
TRITON_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Request(NamedTuple):
    """One call of attention.

    q         (B, H, N, E) queries, as the score compares them (`score.query`) but for the rotation
    k, v      (B, G, M, E) keys, likewise, and values; with a store those of the new tokens
    sight     which keys a query may see, and the bias of the scores
    score     comparison of queries with keys
    dropout   share of the weights that is set to zero
    qkv       (B, N, (H + 2 G) E) the projection, where q, k and v are its parts as they are
    rotation  of queries and keys by their positions, still to be applied
    store     keys and values of earlier tokens, still to be extended

    A kernel that takes the projection applies rotation and store by itself; the others call `prepare`. It is a named
    tuple because every attention of every step makes one, and a frozen dataclass takes four times as long.
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
        """The number M of keys, with those of the store."""
        return self.k.shape[2] if self.store is None else self.store.size(self.q.shape[2], self.sight.start)

    @property
    def scale(self) -> float:
        """The factor before the product of query and key."""
        return self.score.scale(self.q.shape[3])

    def prepare(self) -> Request:
        """The call with queries and keys rotated and the store extended; itself if there is nothing to do."""
        if self.rotation is None and self.store is None:
            return self
        q, k, v = self.q, self.k, self.v
        if self.rotation is not None:
            q, k = rotate(q, self.rotation), rotate(k, self.rotation)
        if self.store is not None:
            k, v = self.store.extend(k, v, self.sight.start)
        return Request(q, k, v, self.sight, self.score, self.dropout)

    def join(self) -> Tensor:
        """(B, N, 3 H E) queries, keys and values side by side: the projection itself where that serves, or a copy."""
        ready = self.prepare()
        heads = ready.q.shape[1]
        if ready.qkv is not None and ready.k.shape[1] == heads:
            return ready.qkv
        return torch.cat([repeat_heads(x, heads).transpose(1, 2).flatten(2) for x in (ready.q, ready.k, ready.v)], 2)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, M, E) -> (B, H, M, E): each shared key-value head serves H / G query heads in a row."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def no_product(request: Request) -> str | None:
    """Reason why the scores are not a product of queries and keys, or None."""
    score = request.score
    return None if score.fused else f"the {type(score).__name__} score is not a product of query and key"


def no_triton(x: Tensor) -> str | None:
    """Reason why a Triton program cannot take this tensor, or None."""
    if HAS_TRITON and (x.is_cuda or TRITON_INTERPRETED) and x.dtype != torch.float64:
        return None
    return "it runs only on CUDA, with Triton, and not in double precision"


def not_packed(request: Request, *, causal: bool = False, cross: bool = False) -> str | None:
    """Reason why this is not attention within packed sequences, without a bias or with a PairBias, or None.

    causal  whether a sequence may be seen up to the query instead of whole
    cross   whether the keys may be other tokens than the queries
    """
    sight, pattern, bias = request.sight, request.sight.pattern, request.sight.bias
    if not isinstance(pattern, Documents) or not isinstance(pattern.within, (Full, Causal) if causal else Full):
        return f"it takes packed sequences that are seen whole{' or causally' if causal else ''}"
    if pattern.keys is not None and not cross:
        return "queries and keys are not the same tokens"
    if sight.valid is not None or not isinstance(sight.start, int) or sight.start:
        return "some keys are hidden (`valid`) or come from a cache"
    heads, width = request.q.shape[1], request.q.shape[3]
    if bias is not None and not (isinstance(bias, PairBias) and pattern.keys is None and bias.heads == heads):
        return f"`bias` must be a PairBias of {heads} heads for the same packed tokens"
    if request.v.shape[3] != width:
        return f"values must be as wide as queries, which are {width} wide, not {request.v.shape[3]}"
    return no_product(request)
