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


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, M, E) -> (B, H, M, E): each shared key-value head serves H / G query heads in a row."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


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
