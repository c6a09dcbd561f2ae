"""AdamW: which weights decay, the learning rate at every step, a step left out."""

import copy
import math
import re

import pytest
import torch
from torch import nn

from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from sciformer.training.config import Train
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import learning_rate, make_optimizer, optimizer_state, scales
from sciformer.training.step import OptimizerStep
from tests.objectives.examples import make, ready

CPU = torch.device("cpu")


def test_matrices_decay_and_vectors_do_not():
    model = nn.ModuleDict({"a": nn.Linear(3, 4), "n": nn.LayerNorm(4), "e": nn.Embedding(5, 3)})
    model["frozen"] = nn.Linear(2, 2).requires_grad_(False)
    optimizer = make_optimizer(model, Train(weight_decay=0.3, learning_rate=0.02, betas=(0.8, 0.9), epsilon=1e-6), CPU)
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = {group["weight_decay"]: {names[id(w)] for w in group["params"]} for group in optimizer.param_groups}
    assert groups == {0.3: {"a.weight", "e.weight"}, 0.0: {"a.bias", "n.weight", "n.bias"}}
    assert {(group["lr"], group["betas"], group["eps"]) for group in optimizer.param_groups} == {
        (0.02, (0.8, 0.9), 1e-6)
    }
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
    optimizer.step()
    for name, weight in model.named_parameters():  # with no gradient, only the decay is left
        shrunk = before[name] * (1 - 0.02 * 0.3) if name in groups[0.3] else before[name]
        torch.testing.assert_close(weight.detach(), shrunk)
    assert len(make_optimizer(nn.LayerNorm(3), Train(), CPU).param_groups) == 1


@pytest.mark.parametrize("trunk", ["transformer", "lstm", "convolution"])
def test_lower_blocks_learn_more_slowly_and_heads_faster(trunk):
    parts = make("text", "classify")
    pool = "class_attention" if trunk == "transformer" else "auto"
    model = Encoder(kind="encoder", trunk=trunk, dim=8, depth=3, pool=pool).build(parts[0], parts[1])
    optimizer = make_optimizer(Step(model, parts[1]), Train(layer_decay=0.5, head_lr_scale=4.0, weight_decay=0.3), CPU)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {names[id(weight)]: group for group in optimizer.param_groups for weight in group["params"]}
    assert found.keys() == dict(model.named_parameters()).keys()
    for name, group in found.items():
        layer = re.match(r"trunk\.(?:blocks|layers)\.(\d)\.", name)
        if name.startswith(("heads.", "pooling.")):
            expected = 4.0
        elif layer:
            expected = 0.5 ** (2 - int(layer[1]))
        else:
            expected = 1.0 if name.startswith("trunk.norm") else 0.125
        assert (name, group["scale"]) == (name, expected)
        assert group["weight_decay"] == (0.3 if model.get_parameter(name).dim() >= 2 else 0.0)
    assert {group["scale"] for group in found.values()} >= {0.125, 0.25, 0.5, 1.0, 4.0}


def test_scales_of_two_stacks_and_of_none():
    settings = Train(layer_decay=0.5, head_lr_scale=3.0)
    names = ["source.embedding.table.weight", "target.embedding.table.weight", "encoder.position.table"]
    names += [f"encoder.blocks.{i}.up.weight" for i in range(2)] + [f"decoder.blocks.{i}.up.weight" for i in range(3)]
    names += ["encoder.norm.weight", "decoder.embedding_norm.bias", "readout.linear.weight"]
    assert [*scales(names, settings).values()] == [0.125, 0.125, 0.25, 0.5, 1, 0.25, 0.5, 1, 1, 0.125, 3]
    assert scales(["entrance.table", "heads.class.weight"], settings) == {"entrance.table": 1, "heads.class.weight": 3}
    assert set(scales(names, Train()).values()) == {1}


def test_the_rate_of_a_step_is_scaled_group_by_group():
    parts = make("text", "classify")
    model = Encoder(kind="encoder", dim=8, depth=2, heads=2).build(parts[0], parts[1])
    step, settings = Step(model, parts[1]), Train(layer_decay=0.5, head_lr_scale=4.0, learning_rate=0.1, warmup=4)
    optimizer = make_optimizer(step, settings, CPU)
    updater = OptimizerStep(step, step, optimizer, settings, Ranks(CPU), 10, 8, print)
    batch = ready(parts)
    for number in range(3):
        updater(batch, number, batch.count)
        for group in optimizer.param_groups:
            assert group["lr"] == learning_rate(number, 10, settings) * group["scale"]


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_schedules_against_their_formulas(warmup):
    total, peak, floor, flat = 50, 0.5, 0.1, 0.6
    formulas = {
        "constant": lambda n: 1.0,
        "inverse_sqrt": lambda n: math.sqrt(max(1, warmup) / (n + 1)),
        "cosine": lambda n: floor + (1 - floor) * (1 + math.cos(math.pi * (n - warmup) / (total - warmup))) / 2,
        "flat": lambda n: floor ** (max(0, n - flat * total) / (total - flat * total)),
    }
    for name, formula in formulas.items():
        settings = Train(learning_rate=peak, warmup=warmup, schedule=name, min_lr_ratio=floor, flat=flat)
        rates = [learning_rate(step, total, settings) for step in range(total)]
        assert rates[:warmup] == pytest.approx([peak * (n + 1) / warmup for n in range(warmup)])
        assert rates[warmup:] == pytest.approx([peak * formula(n) for n in range(warmup, total)])
        assert 0 < min(rates) <= max(rates) <= peak * (1 + 1e-12)
        after = rates[max(0, warmup - 1) :]
        assert after == sorted(after, reverse=True)
        assert learning_rate(10 * total, total, settings) >= 0  # a run that goes on beyond its end


def test_rates_at_the_ends():
    for name in ("cosine", "flat"):
        settings = Train(learning_rate=1.0, warmup=4, schedule=name, min_lr_ratio=0.2)
        assert learning_rate(3, 100, settings) == 1.0
        assert learning_rate(0, 100, settings) == 0.25
        assert learning_rate(100, 100, settings) == pytest.approx(0.2)
    assert learning_rate(0, 1, Train(learning_rate=1.0, warmup=0)) == 1.0
    assert learning_rate(2, 3, Train(learning_rate=1.0, warmup=10)) == pytest.approx(0.3)  # shorter than its warm-up
    assert learning_rate(5, 5, Train(learning_rate=1.0, warmup=5, flat=1.0, schedule="flat")) == 1.0


def test_a_step_left_out_leaves_the_state_as_it_was():
    """What step.py relies on: `found_inf` of the fused AdamW, also at the very first step."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = make_optimizer(model, Train(), CPU)
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert optimizer.defaults["fused"]
    for step, bad in enumerate([True, False, False, True, False]):
        before, weights = copy.deepcopy(optimizer_state(optimizer, names)), copy.deepcopy(model.state_dict())
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, math.nan if bad else 1.0)
        optimizer.found_inf = torch.tensor(float(bad))
        optimizer.grad_scale = None
        optimizer.step()
        after = optimizer_state(optimizer, names)
        assert bad == all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
        if bad and step:
            assert all(torch.equal(before[name], after[name]) for name in after)
        assert all(tensor.isfinite().all() for tensor in after.values())
    assert {float(value) for name, value in after.items() if name.startswith("step ")} == {3.0}
