"""PyTorch's fused attention: the everyday kernel on CPU and CUDA.

It never forms the weights; masks and biases enter as one additive term, prepared once for all blocks of a stack.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..patterns import Causal, Full, Sight
from ..scores import Score
from .reference import repeat_heads


def refuse(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
    """Why this kernel cannot do it, or None."""
    return None if score.fused else f"the {type(score).__name__} score is not a product of query and key"


def run(q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
    """(B, H, N, E) from prepared queries, keys and values."""
    n, m = q.shape[2], k.shape[2]
    pattern, mask, causal = sight.simplified(n, m), None, False
    if sight.valid is None and sight.bias is None and isinstance(pattern, (Full, Causal)) and _is_zero(sight.start):
        causal = isinstance(pattern, Causal)
    else:
        mask = sight.once(("sdpa", n, m, q.dtype), lambda: _mask(sight, n, m, q))
    # With a mask, the CUDA kernels do not share heads and would fall back to the unfused path.
    shared = k.shape[1] != q.shape[1]
    if shared and mask is not None and q.is_cuda:
        k, v, shared = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1]), False
    return F.scaled_dot_product_attention(
        q, k, v, mask, dropout, causal, scale=score.scale(q.shape[-1]), enable_gqa=shared
    )


def _is_zero(start: int | Tensor) -> bool:
    return isinstance(start, int) and start == 0


def _mask(sight: Sight, n: int, m: int, q: Tensor) -> Tensor | None:
    allowed = sight.allowed(n, m, q.device)
    if sight.bias is None:
        return allowed
    bias = sight.bias.to(q.dtype)
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
