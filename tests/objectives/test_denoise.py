"""Series without their noise, and whether there is anything in them."""

import numpy as np
import pytest
import torch

from sciformer.data.columns import Lists
from sciformer.data.dataset import Dataset
from sciformer.data.source import Memory
from sciformer.domains.text.tokens import Text
from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.objectives.denoise import Denoise
from tests.domains.lightcurves.curves_table import fitted
from tests.errors import refuses
from tests.objectives.examples import assembly_of, learn, ready, step_of

RNG = np.random.default_rng(0)


def waves(lengths, label=None, level=100.0):
    """Sines of random phase in noise; where the label is `none`, noise alone."""
    lengths = np.asarray(lengths)
    time = np.concatenate([np.arange(n, dtype=np.float64) for n in lengths])
    phase, row = RNG.uniform(0, 6, len(lengths)), np.repeat(np.arange(len(lengths)), lengths)
    clean = 2 * np.sin(time / 2 + phase[row])
    table = {}
    if label is not None:
        clean = np.where(np.asarray(label)[row] == "none", 0, clean)
        table["label"] = np.asarray(label)
    value = clean + RNG.normal(size=len(time))
    lists = {"time": time, "value": (value + level).astype(np.float32), "clean": (clean + level).astype(np.float32)}
    return table | {name: Lists(values, lengths) for name, values in lists.items()}


def make(table, objective=None, **options):
    tokens = {"tokens": fitted(table, **options)}
    dataset = Dataset(Memory(table), tokens)
    objective = objective or Denoise(kind="denoise")
    objective.fit(dataset)
    return tokens, objective, dataset


@pytest.mark.parametrize("form", ["plain", "gaussian"])
@pytest.mark.parametrize("label", ["", "label"])
def test_loss_and_sums_against_a_loop_and_every_layout(form, label):
    table = waves([5, 0, 1, 9], np.array(["wave", "none", "none", "wave"]))
    objective = Denoise(kind="denoise", form=form, label=label, hidden=[6], label_weight=0.5)
    parts = make(table, objective)
    batch, step = ready(parts), step_of(parts)
    loss, found = step(batch.inputs(), True)
    assert batch.count == 4
    told = objective.units({k: v.detach().double().numpy() for k, v in found.items()}, batch.samples)
    series = predict(step, assembly_of(parts), parts[2], batch=2).outputs
    starts = np.concatenate([[0], np.cumsum(table["value"].lengths)])
    for row in range(4):
        here = slice(starts[row], starts[row + 1])
        value, clean = (table[name].values[here].astype(np.float64) for name in ("value", "clean"))
        recovered = series["recovered"][row]
        assert len(recovered) == len(clean)
        np.testing.assert_allclose(told["residual"][row], ((recovered - clean) ** 2).sum(), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(told["noise"][row], ((value - clean) ** 2).sum(), rtol=1e-4)
        np.testing.assert_allclose(told["inner"][row], (recovered * clean).sum(), rtol=1e-4)
        assert told["count"][row] == len(clean)
        if form == "plain" and not label and len(clean):
            scale = parts[0]["tokens"].centre_and_scale(ready(parts, [row]).stream)[1][0, 0]
            np.testing.assert_allclose(told["loss"][row], ((recovered - clean) ** 2).mean() / scale**2, rtol=1e-3)
    assert ("deviation" in series) is (form == "gaussian")
    assert ("probabilities" in series) is bool(label)
    for inputs in (batch.inputs(packed=True), batch.inputs(multiple=16), batch.inputs(packed=True, width=32, rows=6)):
        again, sums = step(inputs, True)
        torch.testing.assert_close(again, loss, rtol=1e-4, atol=1e-4)
        for name in found:
            torch.testing.assert_close(sums[name][:4], found[name], rtol=1e-4, atol=1e-3)
    (loss / batch.count).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in step.model.heads.parameters())


def test_it_learns_to_take_noise_away_and_to_tell_signals():
    label = np.where(np.arange(240) % 2 == 0, "wave", "none")
    parts = make(waves(np.full(240, 24), label, level=0.0), Denoise(kind="denoise", label="label"))
    step = step_of(parts, dim=32, depth=2, position="sinusoidal")
    inputs = ready(parts).inputs()
    learn(step, lambda: step(inputs)[0] / 240, 120, 0.005)
    found = evaluate(step, assembly_of(parts), parts[2], batch=240)
    assert list(found.scores) == [
        *("loss", "scatter", "noise_left", "overlap"),
        *("accuracy", "balanced_accuracy", "auc", "efficiency_1", "calibration_error"),
    ]
    assert found.scores["noise_left"] < 0.75
    assert found.scores["overlap"] > 0.85
    assert found.scores["accuracy"] > 0.9
    assert parts[1].classes == ["none", "wave"]
    assert "noise_left" in parts[1].measured


def test_windows_are_joined_and_tokens_beside_are_left_out():
    table = {**waves([30, 4, 11]), "period": np.array([1.0, 2, 3])}
    parts = make(table, window=9, extra=("period",))
    assembly = assembly_of(parts)
    step = step_of(parts)
    series = predict(step, assembly, assembly.samples(Memory(table)), batch=2).outputs["recovered"]
    assert [len(one) for one in series] == [30, 4, 11]
    assert all(np.isfinite(one).all() for one in series)
    found = evaluate(step, assembly, assembly.samples(Memory(table)), batch=2)
    assert len(found.outputs["residual"]) == 3
    blind = {name: column for name, column in table.items() if name != "clean"}
    told = predict(step, assembly, assembly.samples(Memory(blind))).outputs["recovered"]
    np.testing.assert_allclose(np.concatenate(told), np.concatenate(series), rtol=1e-4)


def test_patches_of_a_regular_series():
    table = waves([24, 16])
    parts = make(table, patch=4)
    assert parts[1].state["width"] == 4
    series = predict(step_of(parts), assembly_of(parts), parts[2]).outputs["recovered"]
    assert [len(one) for one in series] == [24, 16]


def test_what_is_missing_is_said():
    table = waves([5, 6])
    blind = {name: column for name, column in table.items() if name != "clean"}
    with refuses("`clean`", "observations", key="objective.target"):
        make(blind)
    parts = make(table)
    with refuses("`clean`", key="objective.target"):
        evaluate(step_of(parts), assembly_of(parts), assembly_of(parts).samples(Memory(blind)))
    with refuses("text", key="tokens.kind"):
        Text(kind="text").centre_and_scale(parts[2].all().stream)
