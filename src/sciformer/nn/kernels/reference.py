"""The definition of attention. Every other kernel must agree with these lines.

    alpha_ij = exp(e_ij) / sum_k exp(e_ik),   e_ij = score(q_i, k_j) + bias_ij,   over the keys k that i may see
    out_i    = sum_j alpha_ij v_j

A query that may see nothing gets zeros.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..patterns import Documents, Sight
from ..scores import Score


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, M, E) -> (B, H, M, E): each shared key-value head serves H / G query heads in a row."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def weigh(q: Tensor, k: Tensor, sight: Sight, score: Score) -> Tensor:
    """The attention weights (B, H, N, M) of prepared queries and keys; each row sums to one, or to zero."""
    k = repeat_heads(k, q.shape[1])
    pattern = sight.pattern
    position = pattern.memory.position if isinstance(pattern, Documents) else None
    logits = score.compare(q, k, position)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if sight.bias is not None:
        logits = logits + sight.bias
    hidden = logits == -torch.inf
    allowed = sight.allowed(q.shape[2], k.shape[2], q.device)
    if allowed is not None:
        hidden = hidden | ~allowed
    # The lowest finite number instead of -inf: a row without keys stays finite, also in the backward pass.
    logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
    return logits.softmax(-1).masked_fill(hidden, 0.0).to(q.dtype)


def refuse(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
    """Why this kernel cannot do it: it can do everything."""
    return None


def run(q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
    """(B, H, N, E) from prepared queries (B, H, N, E), keys (B, G, M, E) and values (B, G, M, E)."""
    return mix(weigh(q, k, sight, score), v, dropout)


def mix(weights: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """The weighted sum of the values (B, G, M, E)."""
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ repeat_heads(v, weights.shape[1])
