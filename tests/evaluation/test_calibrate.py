"""Answers as sure as they are right: temperatures, factors of deviations, and what else then has them."""

import json

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.evaluation.calibrate import calibrate, forget
from sciformer.metrics.calibration import spread, stretch, temperature
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses
from tests.training.tiny import go

rng = np.random.default_rng(0)


def softmax(logits):
    found = np.exp(logits - logits.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_temperature_of_probabilities(true):
    logits = rng.normal(0, 2, (20_000, 4))
    label = (softmax(logits).cumsum(1) > rng.random((20_000, 1))).argmax(1)
    found = temperature(softmax(true * logits), label)
    assert found == pytest.approx(true, rel=0.05)

    def loss(at):
        return -np.log(softmax(true * logits / at)[np.arange(len(label)), label]).mean()

    assert loss(found) < min(loss(1.02 * found), loss(0.98 * found))


def test_weights_of_samples_count():
    logits = rng.normal(0, 2, (4000, 3))
    label = (softmax(logits).cumsum(1) > rng.random((4000, 1))).argmax(1)
    label[2000:] = rng.integers(0, 3, 2000)  # half of them are chance
    weight = (np.arange(4000) < 2000).astype(float)
    assert temperature(softmax(logits), label, weight) == pytest.approx(1, rel=0.1)
    assert temperature(softmax(logits), label) > 1.5


def test_what_has_no_temperature():
    right = softmax(np.eye(3)[np.arange(30) % 3])
    with refuses(30) as flawless:
        temperature(right, np.arange(30) % 3)
    with refuses(30) as guessed:
        temperature(right, (np.arange(30) + 1) % 3)
    assert flawless.value.message != guessed.value.message
    with refuses():
        temperature(np.full((2, 2), np.nan), [0, 1])


def test_factors_of_deviations_and_quantiles():
    mean, truth = rng.normal(size=5000), rng.normal(size=5000)
    target = mean + 2.5 * truth
    assert spread(mean, np.ones(5000), target) == pytest.approx(2.5, rel=0.05)
    levels = mean[:, None] + np.array([-1.96, -1, 0, 1, 1.96])
    factor = stretch(levels, target, 1, 0.68)
    inside = np.abs(target - mean) < factor
    assert inside.mean() == pytest.approx(0.68, abs=0.01)
    with refuses():
        spread([1.0], [1.0], [1.0])


def images(folder, kind):
    """Small images whose class or value shows through noise."""
    label = rng.integers(0, 3, 400)
    image = rng.normal(0, 2, (400, 4, 4)) + label[:, None, None]
    value = image.mean((1, 2)) + rng.normal(0, 0.5, 400)
    np.savez(folder / "x.npz", image=image.astype(np.float32), label=label, value=value)
    regress = {"kind": "regress", "targets": ["value"], "form": "quantiles" if kind == "quantiles" else "gaussian"}
    base = {
        "data": {"kind": "arrays", "files": [str(folder / "x.npz")], "split": {"valid": 0.4, "test": 0.3}},
        "tokens": {"kind": "patches", "patch": 2},
        "model": {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2},
        "objective": {"kind": "classify"} if kind == "classify" else regress,
        "train": {"steps": 80, "batch": 32, "warmup": 5, "learning_rate": 0.01, "device": "cpu", "evaluate_every": 80},
    }
    return Recipe.from_dict(base)


@pytest.fixture(scope="module", params=["classify", "gaussian", "quantiles"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return go(images(folder, request.param), folder / "run").path


def test_a_run_is_calibrated_with_what_it_was_not_trained_on(run):
    found = calibrate(Run(run))
    before, after = found.before["valid"].scores, found.after["valid"].scores
    assert list(found.before) == ["valid", "test"]
    if "quantiles" in found.after["valid"].outputs:
        assert after["coverage_68"] == pytest.approx(0.68, abs=0.01)
    else:
        assert after["loss"] < before["loss"]
    kept = "accuracy" if "temperature" in found.state else "rmse"
    assert after[kept] == pytest.approx(before[kept])
    again = Run(run)  # another process has it
    assert again.evaluate("valid").scores == pytest.approx(after)
    second = calibrate(Run(run))  # from the model as it was trained, not from what was found
    assert second.state == found.state
    assert second.before["valid"].scores == pytest.approx(before)
    assert forget(Run(run))
    assert not forget(Run(run))
    assert Run(run).evaluate("valid").scores == pytest.approx(before)


def test_answers_for_new_samples_have_it(run):
    some = {"image": np.random.default_rng(1).normal(0, 2, (5, 4, 4))}
    plain = Run(run).predict(some)
    state = calibrate(Run(run)).state
    found = Run(run).predict(some)
    forget(Run(run))
    if "temperature" in state:
        expected = softmax(np.log(plain["probabilities"].astype(np.float64)) / state["temperature"])
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
        assert found["class"].tolist() == plain["class"].tolist()
        assert abs(state["temperature"] - 1) > 1e-3  # else nothing would be seen here
        return
    assert abs(state["spread"][0] - 1) > 1e-3
    np.testing.assert_allclose(found["mean"], plain["mean"], rtol=1e-6)
    np.testing.assert_allclose(found["std"], plain["std"] * state["spread"][0], rtol=1e-5)
    if "quantiles" in plain:
        off = (one["quantiles"] - one["mean"][..., None] for one in (found, plain))
        np.testing.assert_allclose(next(off), next(off) * state["spread"][0], rtol=1e-4, atol=1e-5)


def test_the_printed_loss_is_the_fitted_one(tmp_path):
    """Class weights and label smoothing belong to the training; they can rise while the fitted loss falls."""
    made = images(tmp_path, "classify").change({"objective.balance": "classes", "objective.smoothing": 0.3})
    found = calibrate(Run(go(made, tmp_path / "run").path))
    assert list(found.fitted) == ["valid", "test"]
    (before, after), judged = found.fitted["valid"], found.after["valid"]
    assert after["log_loss"] < before["log_loss"]
    p, label = judged.outputs["probabilities"], judged.outputs["label"]
    assert after["log_loss"] == pytest.approx(-np.log(p[np.arange(len(p)), label]).mean())
    assert judged.scores["loss"] > found.before["valid"].scores["loss"]  # what was printed


def test_the_command(run, capsys, monkeypatch):
    reported = "classify" in str(run)  # the others would have the same line
    if not reported:
        monkeypatch.setattr(Run, "report", lambda run: run.path / "report.html")
    main(["calibrate", str(run)])
    said = capsys.readouterr().out
    for mention in ("160 samples of valid", "note: a calibration with 160 samples", "valid, before", "test, after"):
        assert mention in said
    assert not reported or "Calibrated: temperature " in (run / "report.html").read_text()
    monkeypatch.setattr(Run, "report", lambda run: run.path / "report.html")
    main(["calibrate", str(run), "--undo"])
    assert "calibration removed" in capsys.readouterr().out
    assert not Run(run).calibration
    main(["calibrate", str(run), "--undo"])
    assert capsys.readouterr().out == "the run has no calibration\n"


def test_onnx_has_it_too(run, tmp_path):
    """The graph is checked against the library's answers, which are calibrated."""
    pytest.importorskip("onnxruntime")
    from sciformer.interop import export_model

    opened = Run(run)
    calibrate(opened)
    assert "checked in onnxruntime" in export_model(opened, tmp_path / "onnx", "onnx", False)[0]
    forget(opened)


def test_training_on_takes_it_back(tmp_path):
    recipe = images(tmp_path, "classify")
    train(recipe, tmp_path / "run", show=False, report=False, stop_after=40)
    (tmp_path / "run/model/calibration.json").write_text(json.dumps({"state": {"temperature": 9.0}, "part": "valid"}))
    done = train(recipe, tmp_path / "run", show=False, report=False)
    assert not done.calibration
    assert "temperature" not in done.assembly.objective.state
    whole = train(recipe, tmp_path / "whole", show=False, report=False)
    assert done.scores == pytest.approx(whole.scores)


def test_wrong_wishes(tmp_path):
    made = go(images(tmp_path, "classify"), tmp_path / "run")
    with refuses("valid, test", "'train'", key="--part"):
        calibrate(made, "train")
    bare = images(tmp_path, "classify").change({"data.split": {"valid": 0.0, "test": 0.0}})
    with refuses("`valid`", key="data.split", hint="data.split"):
        calibrate(go(bare, tmp_path / "bare"))
    hidden = images(tmp_path, "classify").change({"objective": {"kind": "masked"}})
    with refuses("masked", "classify", "regress", key="objective.kind"):
        calibrate(go(hidden, tmp_path / "hidden"))
