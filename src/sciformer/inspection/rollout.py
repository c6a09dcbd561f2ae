"""Attention rollout over all blocks (arXiv 2005.00928).

A block mixes the residual stream of a token with the tokens that it attends to. The product of these mixing matrices
over all blocks, from the prediction back to the sample, gives one weight for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from ..data.random import Floats
from .attention import AttentionMaps, self_attention


def average_with_identity(weights: ArrayLike) -> Floats:
    """Mean over heads of (I + A) / 2, with the self-attention A (H, N, N) of a block.

    The weights (H, 1 + N) of a single pooling query give a row of the matrix. Rows sum to one; a query without visible
    keys keeps only itself.
    """
    a = np.asarray(weights, np.float64).mean(0)
    if a.ndim == 1:
        return 0.5 * (a + np.eye(1, len(a))[0])
    return 0.5 * (a + np.diag((a == 0).all(1).astype(np.float64)) + np.eye(len(a)))


def chain(layers: Sequence[Floats]) -> Floats:
    """Product R (N, N) = A_L ... A_2 A_1 of the layers A_l (N, N) of one sample.

    layers  from the first block to the last; R_ij is the share of token j in token i after the last block
    """
    return reduce(lambda found, layer: layer @ found, layers)


def follow(layers: Sequence[Floats], rows: Sequence[Floats], tokens: int, asks: str = "mean") -> Floats:
    """Share (tokens,) of each token of one sample in the prediction.

    layers  (N, N) matrices of self-attention; N includes a class token
    rows    (1 + tokens,) weights of a pooling query on itself and on the tokens
    asks    token that gives the prediction if there is no pooling query: class, first, last, or mean (of all tokens)
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


def rollout_samples(recorded: AttentionMaps) -> list[Floats]:
    """Attention rollout (N,) of every sample; [] if the model has no attention."""
    return follow_samples(recorded, recorded.watch.attention, average_with_identity)


def follow_samples(recorded: AttentionMaps, maps: dict[str, Tensor], layer: Callable[[Floats], Floats]) -> list[Floats]:
    """Share (N,) of each token in the prediction, for every sample.

    maps    attention maps (B, H, N, N), or (B, H, 1 + N) of a pooling query, by name
    layer   function from the maps of a sample to a matrix for `follow`
    """
    inside = self_attention(recorded)
    if not maps:
        return []
    whole = {name: a.detach().double().cpu().numpy() for name, a in maps.items()}
    longest, found = int(recorded.seen.stream.lengths.max(initial=0)), []
    for row, n in enumerate(recorded.seen.stream.lengths.tolist()):
        layers: dict[bool, list[Any]] = {True: [], False: []}
        for name, a in whole.items() if n else ():
            if name in inside:
                a = a[row, :, : recorded.front + n, : recorded.front + n]
            else:
                a = a[row, :, 0, : a.shape[3] - longest + n]  # a class token may also attend to itself
                if a.shape[1] == n:
                    a = np.concatenate([np.zeros((len(a), 1)), a], 1)
            layers[name in inside].append(layer(a))
        found.append(follow(layers[True], layers[False], n, recorded.asks) if n else np.zeros(0))
    return found
