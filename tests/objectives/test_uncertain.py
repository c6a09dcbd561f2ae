"""Quantiles beside Gaussians, heads of several layers, classes that count alike."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from sciformer.data.dataset import Dataset
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches
from sciformer.evaluation.evaluate import evaluate
from sciformer.evaluation.predictions import flatten_columns
from sciformer.metrics import METRICS
from sciformer.nn import QuantileHead, pinball
from sciformer.objectives.classify import Classify
from sciformer.objectives.regress import Regress
from tests.objectives.examples import COUNT, TRUTH, assembly_of, learn, make, ready, step_of

LEVELS = [0.025, 0.16, 0.5, 0.84, 0.975]


def test_quantiles_rise_and_their_loss_is_least_at_the_true_ones():
    torch.manual_seed(0)
    head = QuantileHead(4, 2, 5, 2, hidden=[6, 3])
    found = head(10 * torch.randn(50, 4))
    assert found.shape == (50, 2, 5)
    assert (found.diff(dim=-1) > 0).all()
    levels, target = torch.tensor(LEVELS), torch.randn(20000, 1)
    true = torch.quantile(target, levels)[None, None]

    def loss(quantiles):
        return pinball(quantiles, levels, target).mean()

    assert all(loss(true) < loss(true + move * torch.eye(5)[i]) for i in range(5) for move in (-0.3, 0.3))
    y, z = 1.0, torch.tensor([[[0.5, 2.0]]])
    assert float(pinball(z, torch.tensor([0.2, 0.9]), torch.tensor([[y]]))) == pytest.approx(0.2 * 0.5 + 0.1 * 1.0)


def test_regress_with_quantiles_learns_a_skewed_spread():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (600, 2, 2))
    target = 5 + 3 * x[:, 0, 0] + rng.exponential(1.0, 600)
    table = {"image": x, "target": target}
    tokens = {"tokens": Patches(kind="patches", patch=2)}
    tokens["tokens"].fit([table])
    objective, dataset = Regress(kind="regress", form="quantiles", hidden=[16]), Dataset(Memory(table), tokens)
    objective.fit(dataset)
    parts = tokens, objective, dataset
    step = step_of(parts)
    inputs = ready(parts).inputs()
    learn(step, lambda: step(inputs)[0] / 600, 150, 0.02)
    found = evaluate(step, assembly_of(parts), dataset, batch=600)
    assert list(found.scores) == ["loss", "rmse", "mae", "coverage_68", "coverage_95"]
    assert found.scores["coverage_68"] == pytest.approx(0.68, abs=0.06)
    assert found.scores["coverage_95"] == pytest.approx(0.95, abs=0.03)
    low, middle, high = (np.median(found.outputs["quantiles"][:, 0, i] - 3 * x[:, 0, 0] - 5) for i in (1, 2, 3))
    assert high - middle > 1.5 * (middle - low)  # a Gaussian could not say so
    assert abs(middle - np.log(2)) < 0.25
    np.testing.assert_array_equal(found.outputs["mean"], found.outputs["quantiles"][..., 2])


def test_gaussians_have_intervals_too_and_several_values_a_row_each():
    parts = make("text", "regress")
    found = evaluate(step_of(parts), assembly_of(parts), parts[2])
    outputs = found.outputs
    within = np.abs(outputs["target"] - outputs["mean"]) <= 0.99445788 * outputs["std"]
    assert found.scores["coverage_68"] == within.mean()
    rows = parts[1].details(outputs)["Targets"]
    assert [row["value"] for row in rows] == ["target", "other"]
    assert rows[0]["rmse"] == METRICS["rmse"]({key: outputs[key][:, 0] for key in ("mean", "target")})
    assert np.mean([row["coverage_95"] for row in rows]) == pytest.approx(found.scores["coverage_95"])
    assert "coverage_68" not in parts[1].measured  # no model is chosen by it
    assert "rmse" in parts[1].measured


def test_quantiles_in_a_table_and_those_that_are_refused():
    parts = make("text", Regress(kind="regress", targets=["target", "other"], form="quantiles"))
    step = step_of(parts)
    answers = parts[1].predict(step.model, ready(parts).inputs())
    plain = parts[1].units({key: one.detach().double().numpy() for key, one in answers.items()}, TRUTH)
    columns = flatten_columns(plain, parts[1])
    assert {"mean_target", "std_other", "target_q2.5", "other_q84"} <= set(columns)
    np.testing.assert_array_equal(columns["other_q16"], plain["quantiles"][:, 1, 1])
    few = Regress(kind="regress", form="quantiles", quantiles=[0.1, 0.5, 0.9])
    assert few.chosen() == ["rmse", "mae"]
    for wrong in ([0.1, 0.9], [0.5], [0.1, 0.5, 0.8], [0.9, 0.5, 0.1], [0.0, 0.5, 1.0]):
        with pytest.raises(ValidationError, match="quantiles"):
            Regress(kind="regress", quantiles=wrong)


@pytest.mark.parametrize("form", ["gaussian", "quantiles"])
def test_heads_of_several_layers(form):
    parts = make("text", Regress(kind="regress", form=form, hidden=[7, 5]))
    shapes = [tuple(weight.shape) for weight in step_of(parts).model.heads.parameters() if weight.dim() == 2]
    assert shapes == [(7, 8), (5, 7), (2 if form == "gaussian" else 5, 5)]
    loss, found = step_of(parts)(ready(parts).inputs(), True)
    assert loss.isfinite()
    assert found["mean"].shape == (COUNT, 1)


def test_balance_by_its_names():
    assert Classify(kind="classify", balance=True).balance == "classes"
    assert Classify(kind="classify", balance=False).balance == Classify(kind="classify").balance == "none"
    with pytest.raises(ValidationError):
        Classify(kind="classify", balance="some")
    assert {"macro_f1", "accuracy"} <= set(Classify(kind="classify").measured)
