"""What answers come from: the rules by hand, and models that are built to look at one token."""

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.inspection import attribution
from sciformer.inspection.attention import attention_maps
from sciformer.inspection.attribution import attribute, has_single_answer, model_answers, prepare_inputs
from sciformer.inspection.faithfulness import score_tokens
from sciformer.inspection.rollout import rollout_samples
from sciformer.nn.attention.attention import Attention
from tests.domains.jets.jets_table import jets
from tests.errors import refuses
from tests.inspection.plots.test_heads import PARTICLES, PATCHES, assembled

IMAGES = {"image": np.random.default_rng(0).normal(size=(4, 4, 6))}


def test_the_rules_by_hand():
    a, slope = torch.tensor([[0.25, 0.75]]), torch.tensor([[2.0, -1.0]])
    assert attribution.weight_by_gradient(a, slope).tolist() == [[0.5, 0.0]]
    assert attribution.weight_by_gradient(a, slope, either=True).tolist() == [[0.5, 0.75]]
    two = np.array([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 3.0], [2.0, 0.0]]])
    assert attribution.relevance(two) == pytest.approx(np.array([[1.0, 2.0], [1.0, 1.0]]))
    assert attribution.relevance(np.array([[0.0, 1.0, 2.0]])) == pytest.approx([1.0, 1.0, 2.0])


def looking_at_one():
    """A model whose answer is the first pixel of the bright patch, which attention finds, and images with one such."""
    image = np.random.default_rng(0).uniform(0, 0.01, (6, 6, 8))
    image[np.arange(6), 2 * (np.arange(6) // 4), 2 * (np.arange(6) % 4)] = 20.0
    made, step, batch = assembled(
        {**PATCHES, "scale": "none"}, {"image": image}, pool="class_token", depth=2, norm="none"
    )
    model = step.model
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.entrance.embedding.linear.weight[0, 0] = 1.0  # the first number of a token is its first pixel
        attention = model.trunk.blocks[-1].attention
        width = attention.head_dim
        attention.qkv.bias[: attention.dim : width] = 6.0  # every query asks for the first number of keys
        attention.qkv.weight[attention.dim :: width, 0] = 1.0
        attention.out.weight[0, ::width] = 1.0
        model.heads["class"].layer[-1].weight[1, 0] = 1.0
    return made, step, batch


def test_a_model_that_looks_at_one_token_is_seen_through():
    made, step, batch = looking_at_one()
    found = score_tokens(step, made, batch)
    assert list(found) == ["attention", "rollout", "attribution", "gradient"]
    for way, scores in found.items():
        best = [int(np.argmax(each)) for each in scores]
        assert best == list(range(6)), way
    others = np.array([np.delete(each, i).max() / each[i] for i, each in enumerate(found["attribution"])])
    assert (others < 0.05).all()


@pytest.mark.parametrize("pool", ["mean", "class_token", "class_attention", "attention", "sum"])
def test_every_pooling_and_length(pool):
    made, step, batch = assembled(PARTICLES, jets((6, 1, 9, 3)), pool=pool)
    found = attribute(step, made, batch)
    assert [len(each) for each in found.attention] == [6, 1, 9, 3] == [len(each) for each in found.gradient]
    assert all((each >= -1e-6).all() and each.max() > 0 for each in found.attention)
    alone = attribute(step, made, batch.take(np.array([3])))
    assert found.attention[3] == pytest.approx(alone.attention[0], rel=1e-3, abs=1e-6)
    assert found.gradient[3] == pytest.approx(alone.gradient[0], rel=1e-3, abs=1e-6)


def test_gradient_times_input_is_exact_for_a_linear_model():
    made, step, batch = assembled(PATCHES, IMAGES, pool="sum", depth=0, last_norm=False)
    found = attribute(step, made, batch, which=np.ones(4))
    with torch.no_grad():
        bias = step.model.heads["class"](torch.zeros(1, 16))
        said, _ = model_answers(step.model, prepare_inputs(step, made, batch))
    assert found.attention == []
    offset = float(bias[0, 1] - bias[0, 0])
    assert [each.sum() + offset for each in found.gradient] == pytest.approx(said[:, 1].tolist(), rel=1e-4)


def test_log_odds_are_those_of_the_probabilities():
    made, step, batch = assembled(PATCHES, IMAGES)
    made.objective.state.update(classes=["a", "b", "c"], counts=[1, 1, 1])
    step.model.heads["class"] = nn.Linear(16, 3)
    view = prepare_inputs(step, made, batch)
    with torch.no_grad():
        odds, values = model_answers(step.model, view)
        p = step.model.heads["class"](step.model.pool(step.model.encode(view))).softmax(-1)
    assert not values
    assert torch.allclose(odds, (p / (1 - p)).log(), atol=1e-4)


@pytest.mark.parametrize("form", ["gaussian", "quantiles"])
def test_values_move_either_way(form):
    made, step, batch = assembled(PATCHES, IMAGES, objective={"kind": "regress", "targets": ["x"], "form": form})
    assert has_single_answer(step, made)
    found = attribute(step, made, batch)
    assert all((each >= 0).all() and each.max() > 0 for each in (*found.attention, *found.gradient))


def test_the_kernels_come_back_and_nothing_else_changes():
    made, step, batch = assembled(PATCHES, IMAGES)
    step.train()
    before = {name: weight.clone() for name, weight in step.state_dict().items()}
    attribute(step, made, batch)
    attention_maps(step, made, batch)
    assert step.training
    assert all(part.kernel == "auto" for part in step.modules() if isinstance(part, Attention))
    assert all(torch.equal(weight, before[name]) for name, weight in step.state_dict().items())
    assert all(weight.grad is None for weight in step.parameters())
    assert not step.model.entrance._forward_hooks


def test_who_has_no_one_answer():
    made, step, batch = assembled(PATCHES, IMAGES, objective={"kind": "masked"})
    assert not has_single_answer(step, made)
    with refuses("masked", key="objective.kind"):
        attribute(step, made, batch)


@pytest.mark.parametrize("model", [{"trunk": "convolution"}, {"compress": 3, "position": "learned"}])
def test_a_trunk_without_maps_of_tokens_has_a_gradient(model):
    made, step, batch = assembled(PATCHES, IMAGES, **model)
    look = attention_maps(step, made, batch)
    assert look.watch.attention == {}
    assert rollout_samples(look) == []
    found = attribute(step, made, batch)
    assert found.attention == []
    assert [len(each) for each in found.gradient] == [6] * 4
    assert list(score_tokens(step, made, batch)) == ["gradient"]
