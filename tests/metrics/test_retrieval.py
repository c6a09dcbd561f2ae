"""Ranks of retrieval: against loops, with ties, and of a model that has diverged or collapsed."""

import math

import numpy as np
import pytest

from sciformer.metrics import METRICS, retrieval
from sciformer.metrics.retrieval import ranks, recall_1
from tests.errors import refuses


def test_ranks_are_those_of_loops(monkeypatch):
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 40, 5))
    keys[1] = 3 * keys[0]  # equal cosines: in order of the rows
    cosine = [[q @ k / np.linalg.norm(q) / np.linalg.norm(k) for k in keys] for q in queries]
    expected = [1 + sum(other > row[i] + 1e-12 for other in row) for i, row in enumerate(cosine)]
    expected[1] += 1
    for size in (1 << 22, 7):  # at once, and in pieces
        monkeypatch.setattr(retrieval, "MAX_SIMILARITIES", size)
        found = ranks(queries, keys)
        assert (np.delete(found, [0, 1]) == np.delete(expected, [0, 1])).all()
        assert abs(found[:2] - expected[:2]).max() <= 1


def test_equal_vectors_have_the_scores_of_chance():
    found = ranks(np.ones((8, 3)), np.ones((8, 3)))
    assert found.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert recall_1(found) == 1 / 8


def test_vectors_that_are_no_numbers_have_no_score():
    vectors = np.eye(4)
    vectors[2, 1] = math.nan
    for found in (ranks(vectors, np.eye(4)), ranks(np.eye(4), vectors)):
        for name in ("recall_1", "recall_5", "mean_rank"):
            assert math.isnan(METRICS[name]({"rank": found}))
            assert math.isnan(METRICS[f"reverse_{name}"]({"reverse_rank": found}))
    assert math.isnan(METRICS["pair_accuracy"]({"matched": [1, math.nan]}))


@pytest.mark.parametrize(("queries", "keys"), [((3, 2), (4, 2)), ((3, 2), (3, 4)), ((3,), (3,))])
def test_unequal_shapes_are_refused(queries, keys):
    with refuses(queries, keys):
        ranks(np.ones(queries), np.ones(keys))
