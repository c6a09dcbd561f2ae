"""Metrics of retrieval: recall@k, mean rank, and accuracy of pairs in a batch.

Each sample has two vectors, of its two streams or of its two views. All second vectors are ordered by their cosine
to the first vector of a sample. The rank of the sample is the place of its own second vector in this order (1 is the
best). In the reverse direction the second vector is the query. Retrieval from more samples is harder: compare scores
only for equal numbers of samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, floats, numbers
from .base import metric

MAX_SIMILARITIES = 1 << 22  # largest number of similarities in memory


def ranks(queries: ArrayLike, keys: ArrayLike) -> Floats:
    """Rank (n,) of the key of each query among all keys, by cosine similarity.

    Keys of equal similarity are ranked in the order of the rows. If all vectors are equal, the ranks are therefore 1 to
    n, with the scores of a random order. If a vector is not finite, all ranks are nan.
    """
    first, second = floats("queries", queries), floats("keys", keys)
    if first.ndim != 2 or first.shape != second.shape:
        message = f"`queries` {first.shape} and `keys` {second.shape} must have the same shape (n, D)"
        raise UserError(message)
    if not numbers(first, second):
        return np.full(len(first), NAN)
    first, second = _unit(first), _unit(second)
    found, row = np.zeros(len(first)), np.arange(len(first))
    step = max(1, MAX_SIMILARITIES // len(first))
    for start in range(0, len(first), step):
        mine = row[start : start + step]
        similar = first[mine] @ second.T
        own = similar[np.arange(len(mine)), mine][:, None]
        ahead = (similar > own) | ((similar == own) & (row < mine[:, None]))
        found[mine] = 1 + ahead.sum(1)
    return found


def _unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _recall(rank: ArrayLike, most: int) -> float:
    values = floats("rank", rank)
    return float((values <= most).mean()) if numbers(values) else NAN


@metric("higher", ("rank",), "share of samples whose second vector is the nearest to the first")
def recall_1(rank: ArrayLike) -> float:
    """Recall@1: share of samples with rank 1."""
    return _recall(rank, 1)


@metric("higher", ("rank",), "share of samples whose second vector is among the five nearest to the first")
def recall_5(rank: ArrayLike) -> float:
    """Recall@5: share of samples with rank 5 or better."""
    return _recall(rank, 5)


@metric("lower", ("rank",), "mean rank of the second vector among the neighbours of the first")
def mean_rank(rank: ArrayLike) -> float:
    """Mean rank: 1 is the best, (n + 1) / 2 is a random order."""
    return float(floats("rank", rank).mean())


@metric("higher", ("reverse_rank",), "share of samples whose first vector is the nearest to the second")
def reverse_recall_1(reverse_rank: ArrayLike) -> float:
    """Recall@1 with the second vector as query."""
    return _recall(reverse_rank, 1)


@metric("higher", ("reverse_rank",), "share of samples whose first vector is among the five nearest to the second")
def reverse_recall_5(reverse_rank: ArrayLike) -> float:
    """Recall@5 with the second vector as query."""
    return _recall(reverse_rank, 5)


@metric("lower", ("reverse_rank",), "mean rank of the first vector among the neighbours of the second")
def reverse_mean_rank(reverse_rank: ArrayLike) -> float:
    """Mean rank with the second vector as query."""
    return float(floats("reverse_rank", reverse_rank).mean())


@metric("higher", ("matched",), "share of pairs found within their batch, both ways")
def pair_accuracy(matched: ArrayLike) -> float:
    """Mean share of matched pairs in a batch.

    matched   (n,) share of correct directions for each pair: 0, ½ or 1

    A direction (first to second, or back) is correct if the pair has the largest similarity among all candidates.
    """
    values = floats("matched", matched)
    return float(values.mean()) if numbers(values) else NAN
