"""K-means on patches."""

import numpy as np
import torch

from sciformer.domains.images.codes import kmeans
from sciformer.domains.images.codes.kmeans import (
    cluster_patches,
    distinct_inverse,
    distinct_rows,
    nearest_codes,
    thin_rows,
)


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 3)) * 10
    rows = (centres[rng.integers(5, size=400)] + rng.normal(size=(400, 3)) * 0.01).astype(np.float32)
    book = cluster_patches(rows, 5)
    nearest = nearest_codes(torch.from_numpy(rows), torch.from_numpy(book))
    for code in range(5):
        if (own := rows[nearest.numpy() == code]).size:
            np.testing.assert_allclose(book[code], own.mean(0), rtol=1e-4, atol=1e-4)


def test_the_nearest_codeword():
    rows, book = torch.randn(50, 4), torch.randn(7, 4)
    assert torch.equal(nearest_codes(rows, book), torch.cdist(rows, book).argmin(1))
    assert nearest_codes(rows[:0], book).shape == (0,)


def test_distinct_rows_are_kept_in_order():
    rows = np.array([[1, 2], [3, 4], [1, 2], [0, 0], [3, 4]], np.uint8)
    assert distinct_rows(rows).tolist() == [[1, 2], [3, 4], [0, 0]]
    assert distinct_rows(rows[:1], rows[3:]).tolist() == [[0, 0], [3, 4], [1, 2]]
    wide = np.random.default_rng(0).integers(0, 2, (1000, 3), np.uint8)
    assert len(distinct_rows(wide)) == len(np.unique(wide, axis=0)) == 8


def test_few_rows_are_the_codebook():
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(cluster_patches(rows, 9), rows)
    assert np.array_equal(thin_rows(rows, 9), rows)
    assert np.array_equal(thin_rows(rows, 2), thin_rows(rows, 2))
    assert len(thin_rows(rows, 2)) == 2


def test_rows_are_put_together_from_distinct_rows():
    rows = np.random.default_rng(0).integers(0, 2, (300, 3), np.uint8)
    found, inverse = distinct_inverse(rows)
    assert len(found) == 8
    assert np.array_equal(found[inverse], rows)


def test_rows_with_equal_hashes_stay_apart(monkeypatch):
    monkeypatch.setattr(kmeans, "_hashes", lambda rows: np.zeros(len(rows), np.uint64))
    rows = np.array([[1, 2], [3, 4], [1, 2]], np.uint8)
    found, inverse = distinct_inverse(rows)
    assert np.array_equal(found[inverse], rows)
