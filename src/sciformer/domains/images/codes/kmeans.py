"""Codebook of patches by k-means clustering (Lloyd's algorithm).

    e_k = mean of the patches whose nearest codeword is e_k

The patches of a picture repeat: most of them are background. Clustering counts each distinct patch once, so that rare
patches, such as the edges of small shapes, get codewords too. If there are no more distinct patches than codewords, the
codebook is exact.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ....data.columns import Array
from ....data.random import mix

ITERATIONS = 25
MAX_PATCHES = 1 << 16  # distinct patches that are clustered; more are thinned at random
ROWS_AT_ONCE = 1 << 14  # patches whose distances are computed at a time


def distinct_rows(patches: Array, known: Array | None = None) -> Array:
    """Distinct rows of patches (n, pixels), and of the rows `known` so far."""
    rows = np.ascontiguousarray(patches if known is None else np.concatenate([known, patches]))
    # equal hashes of different rows do no harm: a patch is missing
    return np.asarray(rows[np.sort(np.unique(_hashes(rows), return_index=True)[1])])


def distinct_inverse(patches: Array) -> tuple[Array, Array]:
    """Distinct rows of patches (n, pixels), and the index (n,) of each patch among them."""
    rows = np.ascontiguousarray(patches)
    _, first, inverse = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    found, inverse = rows[first], inverse.reshape(-1)
    if not np.array_equal(found[inverse], rows):  # equal hashes of different rows
        return rows, np.arange(len(rows))
    return found, inverse


def _hashes(rows: Array) -> Array:
    code = np.zeros(len(rows), np.uint64)
    for column in _as_words(rows).T:
        code = mix(code ^ column)
    return code


def _as_words(rows: Array) -> Array:
    """Bytes of rows (n, pixels) as 64-bit words (n, words)."""
    flat = rows.view(np.uint8).reshape(len(rows), rows.shape[1] * rows.itemsize)
    return np.pad(flat, ((0, 0), (0, -flat.shape[1] % 8))).view(np.uint64)


def thin_rows(rows: Array, most: int = MAX_PATCHES) -> Array:
    """Random selection of at most `most` rows, the same in each call."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:most])]


def cluster_patches(patches: Array, codes: int) -> Array:
    """Learn a codebook (K, pixels) from distinct patches (n, pixels).

    It has K = min(codes, n) codewords.
    """
    rows = torch.from_numpy(np.asarray(patches, np.float32))
    if len(rows) <= codes:
        return rows.numpy()
    order = np.random.default_rng(0).permutation(len(rows))[:codes]
    book = rows[torch.from_numpy(order)].clone()
    for _ in range(ITERATIONS):
        nearest = nearest_codes(rows, book)
        count = torch.bincount(nearest, minlength=codes)
        total = torch.zeros_like(book).index_add_(0, nearest, rows)
        moved = torch.where(count[:, None] > 0, total / count[:, None].clamp(min=1), book)
        if torch.equal(moved, book):
            break
        book = moved
    return book.numpy()


def nearest_codes(rows: Tensor, book: Tensor) -> Tensor:
    """Index (n,) of the nearest codeword in `book` (K, pixels) for each row."""
    half = book.square().sum(1) / 2
    parts = [torch.addmm(half, part, book.T, alpha=-1).argmin(1) for part in rows.split(ROWS_AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)
