"""Mixup of two samples (arXiv 1710.09412): choice of partners and mixing weights."""

from __future__ import annotations

import numpy as np

from .columns import Array
from .dataset import Dataset
from .random import SampleRandom, key

MAX_ROUNDS = 200  # rejection rounds; remaining samples get the weight 0.5


def partners(dataset: Dataset, rng: SampleRandom) -> tuple[Array, SampleRandom]:
    """Draw the id (B,) of a partner of each sample, and random numbers to augment it.

    If the data have more pieces than fit in memory, the partner comes from the same piece.
    """
    draw, ids = rng.uniform("partner"), np.asarray(rng.ids, np.int64)
    first, size = np.zeros(len(ids), np.int64), np.full(len(ids), len(dataset))
    if len(dataset.sizes) > dataset.near:
        piece = np.searchsorted(dataset.stops, ids, side="right")
        size = np.asarray(dataset.sizes)[piece]
        first = dataset.stops[piece] - size
    chosen = first + np.minimum((draw * size).astype(np.int64), size - 1)
    return chosen, SampleRandom(int(key(rng.seed, "partner")[0]), rng.epoch, ids)


def shares(alpha: float, rng: SampleRandom) -> Array:
    """Mixing weights (B,) from Beta(alpha, alpha), by Jöhnk's rejection method."""
    found = np.full(len(rng.ids), 0.5)
    todo = np.arange(len(found))
    for turn in range(MAX_ROUNDS):
        if not len(todo):
            break
        some = SampleRandom(rng.seed, rng.epoch, np.asarray(rng.ids)[todo])
        one, other = (np.log1p(-some.uniform(f"share {turn} {side}")) / alpha for side in "ab")
        both = np.logaddexp(one, other)
        found[todo[both <= 0]] = np.exp(one - both)[both <= 0]
        todo = todo[both > 0]
    return found
