"""Attention rolled out: hand-made blocks, every pooling, samples of different lengths."""

import numpy as np
import pytest

from sciformer.inspection.attention import attention_maps
from sciformer.inspection.rollout import average_with_identity, chain, follow, rollout_samples
from tests.domains.jets.jets_table import jets
from tests.inspection.plots.test_heads import PARTICLES, PATCHES, assembled

LEFT = np.array([[[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]])  # each looks at its left neighbour, the first at itself


def rollout(maps):
    return chain([average_with_identity(a) for a in maps])


def test_two_blocks_by_hand():
    half = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    assert rollout([LEFT]) == pytest.approx(half)
    assert rollout([LEFT, LEFT]) == pytest.approx(half @ half)
    assert rollout([LEFT, LEFT])[2] == pytest.approx([0.25, 0.5, 0.25])


def test_later_blocks_are_applied_to_what_earlier_ones_made():
    right = LEFT[:, ::-1, ::-1]
    assert rollout([LEFT, right]) == pytest.approx(average_with_identity(right) @ average_with_identity(LEFT))
    assert not np.allclose(rollout([LEFT, right]), rollout([right, LEFT]))


def test_heads_count_alike_and_rows_sum_to_one():
    a = np.random.default_rng(0).dirichlet(np.ones(4), (3, 2, 4))
    found = rollout(list(a))
    assert found.sum(1) == pytest.approx(np.ones(4))
    assert rollout([each.mean(0, keepdims=True) for each in a]) == pytest.approx(found)


def test_a_query_that_sees_nothing_keeps_itself():
    a = LEFT.copy()
    a[0, 1] = 0
    assert rollout([a])[1] == pytest.approx([0, 1, 0])


def test_who_answers():
    layers = [average_with_identity(LEFT)]
    assert follow(layers, [], 3) == pytest.approx(layers[0].mean(0))
    assert follow(layers, [], 3, "last") == pytest.approx(layers[0][2])
    assert follow(layers, [], 3, "first") == pytest.approx(layers[0][0])
    assert follow(layers, [], 2, "class") == pytest.approx(layers[0][0, 1:])
    asked = np.array([0.5, 0, 0, 0.5])  # half itself, half the last token
    assert follow(layers, [asked], 3) == pytest.approx(0.5 * layers[0][2])
    assert follow(layers, [asked, asked], 3) == pytest.approx(0.75 * layers[0][2])
    assert follow([], [asked], 3) == pytest.approx([0, 0, 0.5])


@pytest.mark.parametrize("pool", ["mean", "class_token", "class_attention", "attention", "first", "last"])
def test_every_pooling(pool):
    made, step, batch = assembled(PARTICLES, jets((6, 1, 9, 3)), pool=pool)
    look = attention_maps(step, made, batch)
    found = rollout_samples(look)
    assert [len(each) for each in found] == [6, 1, 9, 3]
    assert all((each >= 0).all() and 0 < each.sum() <= 1 + 1e-6 for each in found)
    alone = rollout_samples(attention_maps(step, made, batch.take(np.array([3]))))  # without padding
    assert found[3] == pytest.approx(alone[0], abs=1e-6)


def test_mean_pooling_by_hand():
    made, step, batch = assembled(PATCHES, {"image": np.random.default_rng(0).normal(size=(2, 4, 6))}, pool="mean")
    look = attention_maps(step, made, batch)
    maps = [a[1].double().numpy() for a in look.watch.attention.values()]
    assert rollout_samples(look)[1] == pytest.approx(rollout(maps).mean(0))
