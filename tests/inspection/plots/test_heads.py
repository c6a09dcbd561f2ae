"""One sample for every head of every block, whatever the tokens are and however they are pooled."""

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.inspection.attention import attention_maps, weights_on
from sciformer.inspection.distance import attention_distances
from sciformer.inspection.plots import heads
from sciformer.inspection.plots.heads import draw_every_head, has_shape
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from tests.domains.jets.jets_table import jets
from tests.models.sections import model_keys

PATCHES = {"kind": "patches", "patch": 2}
PARTICLES = {"kind": "particles", "widths": [8], "pair_widths": [4]}


def assembled(tokens, table, objective=None, **model):
    sections = {
        "data": {"kind": "arrays", "files": ["none.npz"]},
        "tokens": tokens,
        "model": model_keys(**{"kind": "encoder", "dim": 16, "depth": 3, "heads": 4, "position": "none", **model}),
        "objective": objective or {"kind": "classify"},
    }
    made = Assembly(Recipe.from_dict(sections), None)
    for one in made.tokens.values():
        one.fit([table])
    made.objective.state.update(classes=["a", "b"], counts=[1, 1], mean=[0.0], deviation=[1.0])
    step = Step(made.network(), made.objective)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in step.model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    count = len(next(iter(table.values())))
    return made, step, made.samples({**table, "label": np.array(["a", "b"] * count)[:count]}).batch(np.arange(count))


CASES = {
    "particles": (PARTICLES, jets((6, 1, 9, 3)), {"pool": "class_attention"}, 5),
    "patches": (PATCHES, {"image": np.random.default_rng(0).normal(size=(3, 6, 8))}, {"pool": "class_attention"}, 5),
    "class token": (PARTICLES, jets((6, 2)), {"pool": "class_token"}, 3),
    "attention pool": (PARTICLES, jets((6, 2)), {"pool": "attention"}, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_a_panel_for_every_head_and_block(case):
    tokens, table, model, maps = CASES[case]
    made, step, batch = assembled(tokens, table, **model)
    look = attention_maps(step, made, batch)
    assert has_shape(made, look, 0)
    figure = draw_every_head(look, made, 0)
    panels = figure.axes[: 4 * maps]
    assert len(panels) == 4 * maps
    pooling = {"class_attention": ["pool, block 1", "pool, block 2"], "attention": ["pool"]}.get(model["pool"], [])
    assert [axes.get_ylabel() for axes in panels[::4]] == ["block 1", "block 2", "block 3", *pooling]
    figure.draw_without_rendering()


@pytest.mark.parametrize("row", range(4))
def test_heads_make_up_the_mean(row):
    tokens, table, model, _ = CASES["particles"]
    made, step, batch = assembled(tokens, table, **model)
    look = attention_maps(step, made, batch)
    n = int(batch.stream.lengths[row])
    whole, parts = weights_on(look, row), [weights_on(look, row, head) for head in range(4)]
    pooling = [f"pool.blocks.{i}.attention" for i in range(2)]
    assert list(whole) == [*(f"blocks.{i}.attention" for i in range(3)), *pooling]
    for name, weights in whole.items():
        assert weights.shape == (n,)
        np.testing.assert_allclose(weights, np.mean([part[name] for part in parts], 0), atol=1e-12)
    for name in list(whole)[:3]:
        assert whole[name].sum() == pytest.approx(1)
    assert list(attention_distances(look, made)) == list(whole)[:3]


def test_the_pair_bias_is_in_the_weights_that_are_shown():
    tokens, table, model, _ = CASES["particles"]
    made, step, batch = assembled(tokens, table, **model)
    before = attention_maps(step, made, batch).watch.attention["blocks.0.attention"]
    with torch.no_grad():
        step.model.entrance.pairs.embedding.layers[-1].weight.mul_(5)
    after = attention_maps(step, made, batch).watch.attention["blocks.0.attention"]
    assert (before - after).abs().max() > 1e-3


def test_many_heads_and_blocks_are_thinned(monkeypatch):
    monkeypatch.setattr(heads, "MAX_BLOCKS", 2)
    monkeypatch.setattr(heads, "MAX_HEADS", 3)
    tokens, table, _, _ = CASES["patches"]
    made, step, batch = assembled(tokens, table, depth=4, heads=8, pool="mean")
    figure = draw_every_head(attention_maps(step, made, batch), made, 0)
    assert len(figure.axes) == 2 * 3
    assert figure.axes[-3].get_ylabel() == "block 4"
