"""What reaches the answer through all blocks: attention rolled out (arXiv 2005.00928).

A block gives every token a part of itself, past the attention, and a part of those it looks at. Followed from the
answer back to the sample, that is one weight for each token. Nothing here knows what a token is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import UserError
from .attention import AttentionMaps, self_attention

Floats = NDArray[np.float64]


def average_with_identity(weights: ArrayLike) -> Floats:
    """(I + A) / 2 of self-attention A (H, N, N), mean over heads; of a query (H, 1 + N), its row of that matrix.

    Rows sum to one. A query that sees nothing keeps itself.
    """
    a = np.asarray(weights, np.float64).mean(0)
    if a.ndim == 2:
        blind = (a == 0).all(1)
        return 0.5 * (a + np.diag(blind.astype(np.float64)) + np.eye(len(a)))
    a = 0.5 * a
    a[0] += 0.5
    return np.asarray(a)


def chain(layers: Sequence[Floats]) -> Floats:
    """R (N, N): product of the layers (N, N) of one sample, the last one first.

    layers  from the first block to the last; R_ij is how much of token j is in token i after the last block
    """
    found = layers[0]
    for layer in layers:
        if layer.ndim != 2 or layer.shape[0] != layer.shape[1] or layer.shape != found.shape:
            raise UserError(
                f"maps must be self-attention (H, N, N) of one sample, of the same N in every block, not {layer.shape}"
            )
    for layer in layers[1:]:
        found = layer @ found
    return found


def follow(layers: Sequence[Floats], rows: Sequence[Floats], tokens: int, asks: str = "mean") -> Floats:
    """(tokens,) what each token of one sample gives to its answer, through self-attention and then a pooling.

    layers  (N, N), N the tokens and what stands in front of them
    rows    (1 + tokens,) of a query that asks for the sample, over itself and the tokens
    asks    without such a query, who answers: class, the token in front; first, last, or the mean of all
    """
    joint = chain(layers) if len(layers) else np.eye(tokens)
    front = len(joint) - tokens
    if len(rows):
        found = np.zeros(len(joint))
        for row in rows:
            found = row[0] * found + row[1:] @ joint[front:]
    elif asks == "mean":
        found = joint[front:].mean(0)
    else:
        found = joint[{"class": 0, "first": front, "last": len(joint) - 1}[asks]]
    return np.asarray(found[front:])


def rollout_samples(look: AttentionMaps) -> list[Floats]:
    """For every sample of a look, how much of each of its tokens (N,) is in its answer; none without attention."""
    return follow_samples(look, look.watch.attention, average_with_identity)


def follow_samples(look: AttentionMaps, maps: dict[str, Tensor], layer: Callable[[Floats], Floats]) -> list[Floats]:
    """`follow` for every sample of a look, with what makes a layer of maps (H, N, N) and a row of maps (H, 1 + N)."""
    inside = self_attention(look)
    if not maps:
        return []
    whole = {name: a.detach().double().cpu().numpy() for name, a in maps.items()}
    longest, found = int(look.seen.stream.lengths.max(initial=0)), []
    for row, n in enumerate(look.seen.stream.lengths.tolist()):
        layers: dict[bool, list[Any]] = {True: [], False: []}
        for name, a in whole.items() if n else ():
            if name in inside:
                a = a[row, :, : look.front + n, : look.front + n]
            else:
                a = a[row, :, 0, : a.shape[3] - longest + n]  # a class token that asks may also see itself
                if a.shape[1] == n:
                    a = np.concatenate([np.zeros((len(a), 1)), a], 1)
            layers[name in inside].append(layer(a))
        found.append(follow(layers[True], layers[False], n, look.asks) if n else np.zeros(0))
    return found
