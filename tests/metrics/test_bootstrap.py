"""Intervals of scores: as wide as they should be, the same every time, and none where samples say nothing."""

import numpy as np
import pytest

from sciformer.metrics import METRICS
from sciformer.metrics.bootstrap import score_intervals, too_few_samples


def outputs(count, right=0.8, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    label = np.arange(count) % classes
    guess = np.where(rng.random(count) < right, label, (label + 1) % classes)
    return {"probabilities": np.eye(classes)[guess], "label": label}


def test_an_interval_is_as_wide_as_the_binomial_one():
    made = outputs(400)
    low, high = score_intervals(made, ["accuracy"])["accuracy"]
    assert low < METRICS["accuracy"](made) < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.8 * 0.2 / 400), rel=0.2)
    assert score_intervals(made, ["accuracy", "auc"])["accuracy"] == (low, high)
    wide = np.subtract(*score_intervals(outputs(40), ["accuracy"])["accuracy"])
    assert abs(wide) > 2 * (high - low)


def test_an_interval_covers_the_true_value():
    found = [score_intervals(outputs(100, seed=seed), ["accuracy"], seed)["accuracy"] for seed in range(60)]
    assert np.mean([low <= 0.8 <= high for low, high in found]) > 0.85


def test_no_interval_without_rows_of_numbers_or_with_few_samples():
    words = np.empty(20, object)
    words[:] = [["a"]] * 20
    assert score_intervals({"tags": words, "truth": words}, ["entity_f1"]) == {}
    assert score_intervals(outputs(9), ["accuracy"]) == {}
    assert score_intervals({"mean": np.zeros((50, 2)), "target": np.ones((50, 2))}, ["rmse"]) == {"rmse": (1, 1)}


def test_an_area_of_few_samples_is_not_said():
    names = ["accuracy", "auc"]
    four = {"probabilities": np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]]), "label": [1, 1, 0, 0]}
    assert METRICS["auc"](four) == 0
    assert too_few_samples(four, names) == ["auc"]
    assert too_few_samples(outputs(20, classes=2), names) == []
    assert too_few_samples(outputs(19, classes=2), names) == ["auc"]
    assert "auc" not in score_intervals(outputs(19, classes=2), names)
    assert too_few_samples({"mean": 1}, ["rmse"]) == []
