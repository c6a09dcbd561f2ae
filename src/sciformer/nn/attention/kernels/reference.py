"""The definition of attention. Every other kernel must agree with these lines.

    alpha_ij = exp(e_ij) / sum_k exp(e_ik),   e_ij = score(q_i, k_j) + bias_ij,   over the keys k that i may see
    out_i    = sum_j alpha_ij v_j

A query that may see nothing gets zeros.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import Documents, Sight
from ..scores import Score
from .request import Request, repeat_heads


def weigh(q: Tensor, k: Tensor, sight: Sight, score: Score) -> Tensor:
    """The attention weights (B, H, N, M) of prepared queries and keys; each row sums to one, or to zero."""
    k = repeat_heads(k, q.shape[1])
    dtype, exact = q.dtype, torch.promote_types(q.dtype, torch.float32)  # half precision overflows before it is scaled
    logits = score.compare(q.to(exact), k.to(exact), _key_positions(sight))
    if (dense := sight.dense_bias) is not None:
        logits = logits + dense
    hidden = logits == -torch.inf
    allowed = sight.allowed(q.shape[2], k.shape[2], q.device)
    if allowed is not None:
        hidden = hidden | ~allowed
    # A row without keys is opened and then zeroed, so that it stays finite, also in the backward pass.
    empty = hidden.all(-1, keepdim=True)
    logits = logits.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    return logits.softmax(-1).masked_fill(hidden, 0.0).to(dtype)


def _key_positions(sight: Sight) -> Tensor | None:
    """The place of each key in its own sequence, where sequences are packed."""
    if not isinstance(sight.pattern, Documents):
        return None
    keys = sight.pattern.memory
    return keys.position.masked_fill(~keys.inside, 0)


def supports(request: Request) -> str | None:
    """None: the definition takes every request."""
    return None


def run(request: Request) -> Tensor:
    """The heads (B, H, N, E)."""
    request = request.prepare()
    return mix(weigh(request.q, request.k, request.sight, request.score), request.v, request.dropout)


def mix(weights: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """The weighted sum of the values (B, G, M, E)."""
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ repeat_heads(v, weights.shape[1])
