"""Ranger: RAdam and Lookahead as others write them, and a run that goes on bit for bit."""

import copy
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.data.loader import Fetch
from sciformer.training.config import Train
from sciformer.training.distributed import place
from sciformer.training.optimizers import Ranger, make_optimizer, optimizer_state, restore_optimizer
from tests.training.tiny import STEPS, assert_same, at_step, fate, go, image_recipe, left, start, text_recipe

CPU = torch.device("cpu")
SETTINGS = {"train.optimizer": "ranger", "train.betas": [0.95, 0.999], "train.epsilon": 1e-5, "train.schedule": "flat"}


def a_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def gradients(model, seed):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
    model.zero_grad()
    model(x).square().sum().backward()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_is_radam_with_lookahead(decay):
    ours, theirs = a_model(), a_model()
    options = {"lr": 0.02, "betas": (0.95, 0.999), "eps": 1e-5, "weight_decay": decay}
    ranger = Ranger(ours.parameters(), **options)
    radam = torch.optim.RAdam(theirs.parameters(), decoupled_weight_decay=True, **options)
    slow = [weight.detach().clone() for weight in theirs.parameters()]
    for step in range(1, 27):
        gradients(ours, step)
        ranger.step()
        gradients(theirs, step)
        radam.step()
        if step % 6 == 0:
            with torch.no_grad():
                for weight, kept in zip(theirs.parameters(), slow):
                    weight.copy_(kept + 0.5 * (weight - kept))
                    kept.copy_(weight)
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_rates_and_decay_reach_it_through_the_recipe():
    model = a_model()
    settings = Train(
        optimizer="ranger", learning_rate=0.02, betas=(0.95, 0.999), epsilon=1e-5, weight_decay=0.3, head_lr_scale=5
    )
    optimizer = make_optimizer(nn.ModuleDict({"trunk": model, "heads": nn.Linear(2, 2)}), settings, CPU)
    assert isinstance(optimizer, Ranger)
    found = {(group["weight_decay"], group["scale"]) for group in optimizer.param_groups}
    assert found == {(0.3, 1.0), (0.0, 1.0), (0.3, 5.0), (0.0, 5.0)}
    assert all(group["decoupled_weight_decay"] and group["eps"] == 1e-5 for group in optimizer.param_groups)


@pytest.mark.parametrize(("kind", "stop"), [("adamw", 1), ("ranger", 1), ("ranger", 4), ("ranger", 6), ("ranger", 11)])
def test_the_state_goes_out_and_back_by_name(kind, stop):
    model = a_model()
    optimizer = make_optimizer(model, Train(optimizer=kind, learning_rate=0.02), CPU)
    for step in range(stop):
        gradients(model, step)
        optimizer.step()
    names = {id(weight): name for name, weight in model.named_parameters()}
    state = copy.deepcopy(optimizer_state(optimizer, names))
    keys = ("step", "exp_avg", "exp_avg_sq", *(["slow"] if kind == "ranger" else []))
    assert set(state) == {f"{key} {name}" for key in keys for name in names.values()}
    twin = copy.deepcopy(model)
    other = make_optimizer(twin, Train(optimizer=kind, learning_rate=0.02), CPU)
    restore_optimizer(other, {id(weight): name for name, weight in twin.named_parameters()}, state, place)
    for step in range(stop, stop + 13):
        for one, its in ((model, optimizer), (twin, other)):
            gradients(one, step)
            its.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))


TRUNKS = ["edge_conv", "point_cloud_transformer", "resnet"]  # with norms over a batch


@pytest.mark.parametrize(("trunk", "stop"), [*((None, n) for n in (1, 5, 6, STEPS - 1)), *((one, 7) for one in TRUNKS)])
def test_a_run_stopped_anywhere_ends_the_same(tmp_path, trunk, stop):
    images = {"model.trunk": trunk, "model.depth": 2}
    recipe = (image_recipe(tmp_path).change(images) if trunk else text_recipe(tmp_path)).change(SETTINGS)
    whole = go(recipe, tmp_path / "whole")
    go(recipe, tmp_path / "run", stop_after=stop)
    assert_same(go(recipe, tmp_path / "run"), left(whole))


def test_a_killed_run_ends_the_same(tmp_path):
    recipe = text_recipe(tmp_path).change(SETTINGS)
    whole = left(go(recipe, tmp_path / "whole"))
    with at_step(11, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        assert fate(start(lambda: go(recipe, tmp_path / "run"))) == -signal.SIGKILL
    assert_same(go(recipe, tmp_path / "run"), whole)


def test_a_batch_that_is_not_finite_spoils_no_norm(tmp_path, monkeypatch):
    recipe = image_recipe(tmp_path).change({**SETTINGS, "model.trunk": "edge_conv", "model.depth": 2})
    fetch = Fetch.__getitem__

    def spoilt(self, step):
        batch = fetch(self, step)
        if step == 6:
            batch.stream.columns["patch"] = batch.stream.columns["patch"].astype(np.float32)
            batch.stream.columns["patch"][0, 0] = np.nan
        return batch

    monkeypatch.setattr(Fetch, "__getitem__", spoilt)
    run = go(recipe, tmp_path / "run")
    assert [line["step"] for line in run.records if "left_out" in line] == [7]
    tensors = left(run)[0]
    assert any("running_var" in name for name in tensors)
    assert all(tensor.isfinite().all() for tensor in tensors.values())
