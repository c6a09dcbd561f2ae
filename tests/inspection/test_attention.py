"""How far attention reaches and what receives it, against numbers made by hand."""

import numpy as np
import pytest
import torch

from sciformer.inspection import attention, distance
from sciformer.inspection.attention import attention_maps, map_title, received_attention, weights_on
from sciformer.inspection.distance import AttentionDistance, attention_distance_along, attention_distances, reach
from tests.errors import refuses
from tests.inspection.plots.test_heads import PATCHES, assembled

LINE = np.abs(np.subtract.outer(np.arange(5), np.arange(5))).astype(float)


def softmax(shape, mask=None, seed=0):
    scores = np.random.default_rng(seed).normal(size=shape)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


# How far


def test_the_reach_of_known_heads():
    uniform, own = np.full((5, 5), 0.2), np.eye(5)
    one_left = np.eye(5, k=-1) + np.diag([1, 0, 0, 0, 0])  # the first has none at its left
    found = reach(np.stack([uniform, own, one_left])[None], LINE)
    assert found.heads == pytest.approx(np.array([[1.6, 0.0, 0.8]]))
    assert found.uniform == pytest.approx([1.6])


def test_the_baseline_sees_what_a_head_may_see():
    causal = np.tril(np.ones((5, 5), bool))
    found = reach(softmax((2, 3, 5, 5), causal), LINE)
    by_hand = np.mean([np.mean(LINE[i, : i + 1]) for i in range(5)])
    assert found.uniform == pytest.approx([by_hand] * 2)
    assert found.heads.shape == (2, 3)


def test_padding_and_the_class_token_do_not_count():
    plain = softmax((1, 2, 4, 4))
    padded = np.zeros((1, 2, 5, 5))
    padded[..., :4, :4] = plain
    known = reach(plain, LINE[:4, :4])
    assert reach(padded, LINE).heads == pytest.approx(known.heads)
    crowned = np.full((1, 2, 5, 5), 0.2)
    crowned[..., 1:, 0], crowned[..., 1:, 1:] = 0.6, 0.4 * plain
    assert reach(crowned, LINE[:4, :4], front=1).heads == pytest.approx(known.heads)
    assert reach(crowned, LINE[:4, :4], front=1).uniform == pytest.approx(known.uniform)


def test_what_has_no_reach():
    for nothing in (0, np.nan):
        assert np.isnan(reach(np.full((1, 1, 5, 5), nothing), LINE).heads).all()
    with refuses((1, 1, 1, 5)):
        reach(np.ones((1, 1, 1, 5)) / 5, LINE)
    with refuses((1, 1, 5, 5), (4, 4)):
        reach(softmax((1, 1, 5, 5)), LINE[:4, :4])
    with refuses("(B, H, N, M)", (5, 5)):
        reach(np.eye(5), LINE)


def test_distance_against_depth():
    rising = {f"blocks.{i}": AttentionDistance(np.full((2, 3), 1.0 + i), np.ones(2)) for i in range(4)}
    assert distance.depth(rising).correlation == pytest.approx(1)
    assert distance.depth(rising).heads.shape == (4, 3)
    assert np.isnan(distance.depth({"blocks.0": rising["blocks.0"]}).correlation)
    assert np.isnan(distance.depth({}).correlation)
    (axes,) = distance.draw_reach({"blocks.0": rising["blocks.0"]}).axes
    assert [tick for tick in axes.get_xticks() if 0.4 <= tick <= 1.6] == [1]
    two = {name: rising[name] for name in ("blocks.0", "blocks.1")}
    assert np.isnan(distance.depth(two).correlation)  # any two blocks are correlated or constant
    heads = (("a", [1.0, 3]), ("b", [5.0]), ("c", [4.0]))
    uneven = {name: AttentionDistance(np.array([each]), np.ones(1)) for name, each in heads}
    assert distance.depth(uneven).correlation == pytest.approx(np.corrcoef([0, 0, 1, 2], [1, 3, 5, 4])[0, 1])
    assert np.isnan(distance.correlation([1, 1], [1, 2]))


# At what


def test_received_is_the_mean_over_queries_and_heads():
    weights = softmax((2, 3, 5, 5))
    assert received_attention(torch.tensor(weights)) == pytest.approx(weights.mean((1, 2)))


def test_uniform_attention_is_received_uniformly_also_under_a_causal_mask():
    causal = np.tril(np.ones((5, 5)))
    weights = (causal / causal.sum(1, keepdims=True))[None, None]
    assert received_attention(weights) == pytest.approx(np.full((1, 5), 0.2))


def test_a_query_that_asks_for_the_sample_has_its_own_row():
    weights = softmax((2, 3, 5, 5))
    assert received_attention(weights, front=1) == pytest.approx(weights[:, :, 0, 1:].mean(1))
    assert received_attention(weights[:, :, :1]) == pytest.approx(weights[:, :, 0].mean(1))


def test_samples_by_their_value():
    x = np.array([2.0, 1.0, 2.0, np.nan, 1.0])
    assert [(value, rows.tolist()) for value, rows in attention.group_by_value(x)] == [(1.0, [1, 4]), (2.0, [0, 2])]
    many = attention.group_by_value(np.arange(100.0)[::-1], most=4)
    assert [value for value, _ in many] == [12.0, 37.0, 62.0, 87.0]
    assert sorted(np.concatenate([rows for _, rows in many]).tolist()) == list(range(100))
    assert attention.group_by_value(np.array([np.nan])) == []


# Models


IMAGES = {"image": np.random.default_rng(0).normal(size=(30, 8, 8)), "label": np.array(["a", "b"] * 15)}
IMAGES |= {"temperature": np.repeat([1.0, 2.0, 3.0], 10), "name": np.array(["a"] * 30)}


def made(objective="classify", tokens=PATCHES, table=IMAGES, **model):
    assembly, step, _ = assembled(tokens, table, {"kind": objective}, **{"depth": 2, "heads": 2, **model})
    return step.eval(), assembly, assembly.samples(table)


BLOCKS = ["blocks.0.attention", "blocks.1.attention"]


@pytest.mark.parametrize(
    ("pool", "maps"),
    [
        ("mean", BLOCKS),
        ("class_token", BLOCKS),
        ("attention", [*BLOCKS, "pool.attention"]),
        ("class_attention", [*BLOCKS, "pool.blocks.0.attention", "pool.blocks.1.attention"]),
    ],
)
def test_every_pooling_is_looked_at(pool, maps):
    step, assembly, dataset = made(pool=pool)
    look = attention_maps(step, assembly, dataset.batch(np.arange(3)))
    assert list(look.watch.attention) == maps
    assert look.front == (pool == "class_token")
    distances = attention_distances(look, assembly)
    assert list(distances) == BLOCKS
    assert all(each.heads.shape == (3, 2) and (each.heads > 0).all() for each in distances.values())
    assert distances[BLOCKS[0]].uniform == pytest.approx(np.full(3, distances[BLOCKS[0]].uniform[0]))
    on = weights_on(look, 1)
    assert list(on) == maps
    assert all(weights.shape == (16,) and 0 < weights.sum() <= 1 + 1e-6 for weights in on.values())
    figure = attention.draw_attention(look, assembly, 0)
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == ["sample", *map(map_title, maps)]
    assert len(attention.draw_matrices(look, assembly, 0).axes) == 5
    assert distance.draw_reach(distances).axes[0].get_xlabel() == "block"


def test_what_is_hidden_stays_hidden_and_is_not_pooled():
    step, assembly, dataset = made("masked", pool="attention")
    look = attention_maps(step, assembly, dataset.batch(np.arange(2)))
    hidden = look.seen.stream.columns["hidden"]
    assert hidden.any()
    assert (look.seen.stream.columns["patch"][hidden] == 0).all()
    assert list(look.watch.attention) == BLOCKS


def test_text_of_different_lengths():
    texts = np.array(["a b$", "a", "b text"], object)
    tokens = {"kind": "text", "context": 12}
    step, assembly, dataset = made("next_token", tokens, {"text": texts}, kind="decoder")
    look = attention_maps(step, assembly, dataset.batch(np.arange(3)))
    assert look.seen.stream.lengths.tolist() == [3, 0, 5]
    distances = attention_distances(look, assembly)[BLOCKS[0]]
    alone = attention_maps(step, assembly, assembly.samples({"text": texts[:1]}).batch(np.arange(1)))
    assert distances.heads.shape == (2, 2)  # the one without a token has none
    assert distances.heads[0] == pytest.approx(attention_distances(alone, assembly)[BLOCKS[0]].heads[0])
    assert [len(weights_on(look, row).get(BLOCKS[1], [])) for row in range(3)] == [3, 0, 5]
    figure = attention.draw_attention(look, assembly, 2)
    figure.draw_without_rendering()
    assert len(figure.axes) == 3


def test_reach_along_a_column():
    step, assembly, dataset = made()
    found = attention_distance_along(step, assembly, [dataset], "temperature", samples_per_value=4)
    assert found.values.tolist() == [1, 2, 3]
    look = attention_maps(step, assembly, dataset.batch(np.array([10, 13, 16, 19])))
    heads = attention_distances(look, assembly)[BLOCKS[1]].heads
    assert found.mean[BLOCKS[1]][1] == pytest.approx(heads.mean(0))
    assert found.deviation[BLOCKS[1]][1] == pytest.approx(heads.std(0))
    assert found.uniform.shape == (3,)
    assert distance.draw_reach_along(found, "temperature").axes[0].get_xlabel() == "temperature"
    for column in ("name", "nothing"):
        with refuses(column):
            attention_distance_along(step, assembly, [dataset], column)


def test_what_is_left_out_of_a_trunk_counts_in_no_share():
    plain = softmax((1, 2, 3, 3))
    wide = np.zeros((1, 2, 5, 5))  # the tokens 1 and 3 are hidden: nobody looks at them, and they look at nobody
    wide[np.ix_([0], [0, 1], [0, 2, 4], [0, 2, 4])] = plain
    assert received_attention(wide)[0, [0, 2, 4]] == pytest.approx(received_attention(plain)[0])
    assert attention.relative_to_uniform(received_attention(wide)[0]).sum() == pytest.approx(3)
    assert attention.relative_to_uniform(np.full(4, 0.25)) == pytest.approx(1)
