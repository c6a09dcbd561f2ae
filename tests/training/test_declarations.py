"""What an objective may declare: a loss of the whole batch, carried tensors, a preconditioner of the gradient."""

import json
import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.objectives.base import CARRIED, Carried, Objective
from sciformer.recipe.registry import REGISTERED
from sciformer.run import Run
from tests.errors import refuses
from tests.training.tiny import assert_near, assert_same, engine, go, image_recipe, in_ranks, left


class Contrast(Objective):
    """-sum_b ln softmax_b'(z_b . z'_b' / t), z' of the sample next to it with the same label: toy of SimCLR."""

    whole_batch: ClassVar[bool] = True
    temperature: float = 0.5

    @property
    def sends(self):
        return ("label",)

    def heads(self, dim, tokens):
        return {"project": nn.Linear(dim, 4), "view": nn.Linear(dim, 4)}

    def step(self, model, inputs, outputs):
        pooled = model.pool(model.encode(inputs.stream))
        first, mine = inputs.gathered(nn.functional.normalize(model.heads["project"](pooled), dim=-1))
        second, _ = inputs.gathered(nn.functional.normalize(model.heads["view"](pooled), dim=-1))
        label, _ = inputs.gathered(inputs.samples["label"])
        same = (label[:, None] == label).float()
        each = -(same * (first @ second.T / self.temperature).log_softmax(-1)).sum(-1) / same.sum(-1)
        return each.sum(), {"loss": each[mine]} if outputs else {}


class Chains(Objective):
    """Loss sum_b (w . h_b - m)^2, with the mean m of Markov chains that every step moves; toy of a wave function."""

    def carried(self, tokens):
        chains = torch.randn(6, 2, dtype=torch.float64)
        return {"chains": Carried(chains, divided=True), "steps": Carried(torch.zeros(()))}

    def heads(self, dim, tokens):
        return {"value": nn.Linear(dim, 1)}

    def step(self, model, inputs, outputs):
        chains, steps = inputs.carried["chains"], inputs.carried["steps"]
        if not outputs:
            chains = 0.9 * chains + torch.randn_like(chains)
        value = model.heads["value"](model.pool(model.encode(inputs.stream)))[:, 0]
        loss = (value - chains.mean().float()) ** 2
        return loss.sum(), {"loss": loss, CARRIED + "chains": chains, CARRIED + "steps": steps + 1}


class Newton(Objective):
    """sum_b (w . x_b - y_b)^2 / 2, with the inverse of the mean of x x^T before the gradient: from w = 0 one step of
    length 1 leads to the least squares solution (X^T X)^-1 X^T y."""

    preconditions: ClassVar[bool] = True

    @property
    def sends(self):
        return ("label",)

    def heads(self, dim, tokens):
        made = nn.Linear(4, 1, bias=False)
        nn.init.zeros_(made.weight)
        return {"weights": made}

    @staticmethod
    def numbers(inputs):
        return inputs.stream.columns["patch"][..., 0]

    def step(self, model, inputs, outputs):
        unused = 0 * model.pool(model.encode(inputs.stream)).sum(-1)  # DDP wants a gradient of every weight
        loss = (model.heads["weights"](self.numbers(inputs))[:, 0] + unused - inputs.samples["label"]) ** 2 / 2
        return loss.sum(), {"loss": loss} if outputs else {}

    def precondition(self, model, inputs, gradients):
        x, _ = inputs.gathered(self.numbers(inputs))
        name = "heads.weights.weight"
        return {**gradients, name: torch.linalg.solve(x.T @ x / len(x), gradients[name].T).T}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    toys = {"contrast": Contrast, "chains": Chains, "newton": Newton}
    monkeypatch.setitem(REGISTERED, "objective", {**REGISTERED["objective"], **toys})


def recipe(folder, kind, **changes):
    return image_recipe(folder, objective={"kind": kind}, **changes)


@pytest.mark.parametrize("kind", ["contrast", "newton"])
@pytest.mark.parametrize("batch", [4, 5])
def test_two_ranks_have_the_gradient_of_one(tmp_path, kind, batch):
    made = recipe(tmp_path, kind, train__batch=batch)

    def gradients():
        one = engine(made, tmp_path / "never")
        for step in range(2):
            part = one.fetch[step]
            one.updater(part, step, one.ranks.sum(part.count)[0])
        return json.dumps({name: weight.grad.tolist() for name, weight in one.step.model.named_parameters()})

    alone = json.loads(gradients())
    assert any(np.abs(value).max() > 1e-3 for value in alone.values())
    for answer in in_ranks(gradients, tmp_path):
        found = json.loads(answer)
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_a_loss_of_the_whole_batch_is_judged_alike_by_any_number_of_ranks(tmp_path):
    made = recipe(tmp_path, "contrast", train__batch=5, train__epsilon=1e-6, train__schedule="constant")
    one = go(made, tmp_path / "one")
    in_ranks(lambda: go(made, tmp_path / "two"), tmp_path)
    assert_near(tmp_path / "two", left(one), 1e-5)
    # Six samples are kept for judging: batches of five and of one, each by itself.
    loss = [one.evaluate("valid").outputs["loss"] for one in (one, Run(tmp_path / "two"))]
    assert len(loss[0]) == 6
    assert loss[0][5] == pytest.approx(0, abs=1e-6)
    assert loss[0].mean() == pytest.approx(one.scores["loss"], abs=1e-6)
    np.testing.assert_allclose(loss[1], loss[0], atol=1e-4)


@pytest.mark.parametrize("kind", ["contrast", "newton"])
def test_micro_batches_are_refused_where_a_step_needs_the_batch(tmp_path, kind, monkeypatch):
    with refuses(kind, key="train.micro_batch"):
        go(recipe(tmp_path, kind, train__micro_batch=2), tmp_path / "run")

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr({"contrast": Contrast, "newton": Newton}[kind], "step", full)
    with refuses("4 samples", kind, key="train.batch"):
        go(recipe(tmp_path, kind), tmp_path / "run")


@pytest.mark.parametrize("kind", ["contrast", "chains", "newton"])
def test_each_trains_and_is_resumed_bit_for_bit(tmp_path, kind):
    made = recipe(tmp_path, kind)
    one = go(made, tmp_path / "one")
    reference = left(one)
    go(made, tmp_path / "two", stop_after=6)
    if kind == "chains":
        assert reference[0]["carried steps"] == 14
        assert left(tmp_path / "two")[0]["carried steps"] == 6
    else:
        losses = [record["loss"] for record in one.records if "loss" in record]
        assert losses[-1] < losses[0]
    assert_same(go(made, tmp_path / "two"), reference)


def test_carried_tensors_are_divided_over_ranks(tmp_path):
    made = recipe(tmp_path, "chains")
    in_ranks(lambda: go(made, tmp_path / "two"), tmp_path)
    reference = left(tmp_path / "two")
    assert reference[0]["carried chains"].shape == (6, 2)
    in_ranks(lambda: go(made, tmp_path / "again", stop_after=6), tmp_path)
    before = left(tmp_path / "again")[0]["carried chains"]
    in_ranks(lambda: go(made, tmp_path / "again"), tmp_path)
    assert_same(tmp_path / "again", reference)
    assert not torch.equal(before, reference[0]["carried chains"])
    go(made.change({"train.steps": 15}), tmp_path / "two", accept_changes=True)  # by one process: all chains go on
    assert left(tmp_path / "two")[0]["carried chains"].shape == (6, 2)


def test_a_step_that_is_left_out_leaves_carried_tensors(tmp_path, monkeypatch):
    one, step = engine(recipe(tmp_path, "chains"), tmp_path / "never"), Chains.step

    def bad(*given):
        loss, outputs = step(*given)
        return loss * math.nan, outputs

    part, before = one.fetch[0], one.updater.carried
    monkeypatch.setattr(Chains, "step", bad)
    one.updater(part, 0, part.count)
    assert one.updater.carried is before
    one.updater._carry(torch.tensor(False))
    monkeypatch.setattr(Chains, "step", step)
    one.updater(part, 0, part.count)
    assert one.updater.carried["steps"] == 1
    assert not torch.equal(one.updater.carried["chains"], before["chains"])


@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_a_preconditioned_step_leads_to_the_closed_form(tmp_path, clip):
    one = engine(
        recipe(tmp_path, "newton", train__batch=24, train__warmup=0, train__clip_norm=clip), tmp_path / "never"
    )
    one.updater.optimizer = torch.optim.SGD(one.step.parameters())
    one.updater.settings = one.settings.model_copy(update={"learning_rate": 1.0, "schedule": "constant"})
    part = one.fetch[0]
    _, norm = one.updater(part, 0, part.count).read()
    x = part.stream.columns["patch"].reshape(24, 4, 4)[..., 0]
    exact = np.linalg.lstsq(x, part.samples["label"].astype(float), rcond=None)[0]
    assert norm == pytest.approx(np.linalg.norm(exact), rel=1e-4)  # clipping comes after
    exact *= min(1, clip / np.linalg.norm(exact)) if clip else 1
    np.testing.assert_allclose(one.step.model.heads["weights"].weight.detach()[0], exact, atol=1e-5)
