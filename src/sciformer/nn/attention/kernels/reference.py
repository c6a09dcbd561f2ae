"""Reference implementation of attention; every other kernel must agree with it.

    alpha_ij = exp(e_ij) / sum_k exp(e_ik),   e_ij = score(q_i, k_j) + bias_ij,   over the keys k visible to query i
    out_i    = sum_j alpha_ij v_j

The output of a query without visible keys is zero.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import Documents, Sight
from ..scores import Score
from .request import Request, repeat_heads


def weigh(q: Tensor, k: Tensor, sight: Sight, score: Score) -> Tensor:
    """Attention weights (B, H, N, M).

    A row sums to 1, or to 0 if the query has no visible keys.
    """
    k = repeat_heads(k, q.shape[1])
    dtype = q.dtype
    exact = torch.promote_types(dtype, torch.float32)  # products in half precision may overflow before scaling
    logits = score.compare(q.to(exact), k.to(exact), _key_positions(sight))
    if (dense := sight.dense_bias) is not None:
        logits = logits + dense
    hidden = logits == -torch.inf
    allowed = sight.allowed(q.shape[2], k.shape[2], q.device)
    if allowed is not None:
        hidden = hidden | ~allowed
    # Rows without visible keys get scores of 0 and then weights of 0, so that output and gradients stay finite.
    empty = hidden.all(-1, keepdim=True)
    logits = logits.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    return logits.softmax(-1).masked_fill(hidden, 0.0).to(dtype)


def _key_positions(sight: Sight) -> Tensor | None:
    """Position (T,) of each key in its packed sequence; None if keys are not packed."""
    if not isinstance(sight.pattern, Documents):
        return None
    keys = sight.pattern.memory
    return keys.position.masked_fill(~keys.inside, 0)


def supports(request: Request) -> str | None:
    """None, because the reference supports every request."""
    return None


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (B, H, N, E); E is the head width."""
    request = request.prepare()
    return mix(weigh(request.q, request.k, request.sight, request.score), request.v, request.dropout)


def mix(weights: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Sum of values v (B, G, M, E), weighted by the attention weights after dropout."""
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ repeat_heads(v, weights.shape[1])
