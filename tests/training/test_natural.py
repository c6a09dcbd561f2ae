"""Natural gradients: the Fisher matrix of a classifier, both ways to solve, and trainings that are resumed."""

import numpy as np
import pytest
import torch

from sciformer.training.natural import fisher_rows, natural_gradient, solve
from tests.errors import refuses
from tests.training.tiny import assert_same, engine, go, image_recipe, left, text_recipe

NATURAL = {"train__optimizer": "natural", "train__damping": 0.01, "train__clip_norm": 0, "train__precision": "float64"}


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (6, 6)])
def test_both_spaces_solve_the_same_equations(shape):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(shape, generator=generator, dtype=torch.float64)
    gradient = torch.randn(shape[1], generator=generator, dtype=torch.float64)
    exact = torch.linalg.solve(rows.T @ rows + 0.1 * torch.eye(shape[1]), gradient)
    torch.testing.assert_close(solve(rows, gradient, 0.1), exact)


def classifier(folder, **changes):
    """An engine with its first batch, and the names of its weights."""
    one = engine(image_recipe(folder, **NATURAL, **changes), folder / "never")
    part = one.fetch[0]
    one.updater.gradient(part, 0, part.count)
    names = sorted(name for name, weight in one.step.model.named_parameters() if weight.requires_grad)
    return one, one.updater.last, names


def scores(one, inputs, names):
    """Derivatives of ln p(class) of each sample (B, classes, P), one backward pass at a time, and p (B, classes)."""
    model = one.step.model
    logits = model.heads["class"](model.pool(model.encode(inputs.stream)))
    found = []
    for value in logits.log_softmax(-1).flatten():
        weights = dict(model.named_parameters())
        parts = torch.autograd.grad(value, [weights[name] for name in names], retain_graph=True)
        found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found).view(*logits.shape, -1), logits.softmax(-1).detach()


def test_the_fisher_matrix_of_a_classifier(tmp_path):
    one, inputs, names = classifier(tmp_path)
    rows = fisher_rows(one.step.model, one.step.objective.fisher(one.step.model, inputs), names)
    score, p = scores(one, inputs, names)
    exact = torch.einsum("bk,bkp,bkq->pq", p, score, score) / len(p)  # mean over samples of E_k[score score^T]
    torch.testing.assert_close(rows.T @ rows, exact)
    assert rows.dtype == torch.float64
    assert torch.linalg.matrix_rank(exact) <= len(p) * (p.shape[1] - 1)


def test_a_step_follows_the_natural_gradient(tmp_path):
    one, inputs, names = classifier(tmp_path)
    model, step = one.step.model, one.step.objective
    weights = dict(model.named_parameters())
    gradients = {name: weights[name].grad.clone() for name in names}
    before = {name: weights[name].detach().clone() for name in names}
    found = natural_gradient(model, step.fisher(model, inputs), gradients, 0.01)
    part = one.fetch[0]
    one.updater.settings = one.settings.model_copy(update={"learning_rate": 0.5, "schedule": "constant", "warmup": 0})
    for group in one.updater.optimizer.param_groups:
        group["weight_decay"] = 0.0
    one.updater(part, 0, part.count)
    for name in names:
        torch.testing.assert_close(weights[name].detach(), before[name] - 0.5 * found[name])


def test_a_training_learns_and_is_resumed_bit_for_bit(tmp_path):
    made = image_recipe(tmp_path, **NATURAL | {"train__learning_rate": 0.1, "train__clip_norm": 1.0})
    one = go(made, tmp_path / "one")
    losses = [record["loss"] for record in one.records if "loss" in record]
    assert losses[-1] < 0.8 * losses[0]
    reference = left(one)
    go(made, tmp_path / "two", stop_after=6)
    assert_same(go(made, tmp_path / "two"), reference)


def test_refusals(tmp_path):
    with refuses("masked", key="train.optimizer"):
        go(image_recipe(tmp_path, **NATURAL, objective={"kind": "masked"}), tmp_path / "run")
    with refuses("natural", key="train.micro_batch"):
        go(image_recipe(tmp_path, **NATURAL, train__micro_batch=2), tmp_path / "run")
    with refuses("padded", key="train.optimizer"):
        go(image_recipe(tmp_path, **NATURAL, train__packed=True), tmp_path / "run")


def test_double_precision_reaches_weights_inputs_and_predictions(tmp_path):
    made = image_recipe(tmp_path, train__precision="float64")
    run = go(made, tmp_path / "run")
    assert {weight.dtype for weight in run.step.model.parameters()} == {torch.float64}
    inputs = run.samples("valid").batch(np.arange(3)).inputs()
    assert inputs.stream.columns["patch"].dtype == torch.float64
    probabilities = run.evaluate("valid").outputs["probabilities"]
    assert probabilities.dtype == np.float64
    assert np.abs(probabilities - probabilities.astype(np.float32)).max() > 0
    single = go(made.change({"train.precision": "float32"}), tmp_path / "single")
    np.testing.assert_allclose(single.evaluate("valid").outputs["probabilities"], probabilities, atol=1e-3)
    text = go(text_recipe(tmp_path, train__precision="float64"), tmp_path / "text")
    assert {weight.dtype for weight in text.step.model.parameters()} == {torch.float64}
