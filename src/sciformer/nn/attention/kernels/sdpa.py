"""PyTorch's scaled_dot_product_attention: the default kernel on CPU and CUDA.

It never stores the attention weights. Mask and bias become one mask tensor, prepared once for all blocks of a stack.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import Causal, Sight
from .request import Request, no_product, repeat_heads

Mask = tuple[Tensor | None, Tensor | None]


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    return no_product(request)


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (B, H, N, E); E is the head width."""
    request = request.prepare()
    q, k, v, sight, dropout = request.q, request.k, request.v, request.sight, request.dropout
    if sight.plain:
        causal, shared = isinstance(sight.pattern, Causal), k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=request.scale, enable_gqa=shared)
    n, m = q.shape[2], k.shape[2]
    mask = sight.once(("sdpa", n, m, q.dtype), lambda: opened(_mask(sight, n, m, q)))
    return masked(q, k, v, mask, request.scale, dropout)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    """Fused attention with a mask from `opened`."""
    heads, allowed, empty = q.shape[1], *mask
    shared = k.shape[1] != heads
    if shared and allowed is not None and q.is_cuda:
        # With a mask, CUDA kernels do not support shared heads and would fall back to the unfused path.
        k, v, shared = repeat_heads(k, heads), repeat_heads(v, heads), False
    out = F.scaled_dot_product_attention(q, k, v, allowed, dropout, scale=scale, enable_gqa=shared)
    return out if empty is None else out.masked_fill(empty, 0)


def opened(mask: Tensor | None) -> Mask:
    """Mask for fused kernels; on CUDA also the mask of queries without visible keys.

    Some CUDA kernels return NaN for a query without visible keys. Here all keys become visible to this query, and
    `masked` then sets its output to zero.
    """
    if mask is None or not mask.is_cuda:
        return mask, None
    if mask.dtype == torch.bool:
        empty = ~mask.any(-1, keepdim=True)
        return mask | empty, empty
    empty = (mask == -torch.inf).all(-1, keepdim=True)
    return mask.masked_fill(empty, 0), empty


def _mask(sight: Sight, n: int, m: int, q: Tensor) -> Tensor | None:
    """Boolean mask (None if all are visible), or the bias with -inf at hidden keys."""
    mask = sight.allowed(n, m, q.device)
    if (dense := sight.dense_bias) is None:
        return mask
    bias = dense.to(q.dtype)
    return bias if mask is None else bias.masked_fill(~mask, -torch.inf)
