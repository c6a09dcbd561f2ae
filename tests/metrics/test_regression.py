"""Regression and text metrics, and the table of all metrics."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.metrics import METRICS
from sciformer.metrics.classification import efficiency_1
from sciformer.metrics.regression import (
    coverage_68,
    coverage_95,
    mae,
    negative_log_likelihood,
    noise_left,
    overlap,
    quantile_error,
    rmse,
    scatter,
)
from tests.errors import refuses

sizes = st.floats(-1e3, 1e3)
triples = st.lists(st.tuples(sizes, sizes, st.floats(0.01, 10)), min_size=1, max_size=30)


@given(triples)
@settings(max_examples=60, deadline=None)
def test_errors_are_sums_over_samples(found):
    mean, target, weight = (np.array(column) for column in zip(*found))
    squares = sum(w * (m - t) ** 2 for m, t, w in found) / sum(w for *_, w in found)
    assert rmse(mean, target, weight) == pytest.approx(math.sqrt(squares))
    absolute = sum(w * abs(m - t) for m, t, w in found) / sum(w for *_, w in found)
    assert mae(mean, target, weight) == pytest.approx(absolute)
    assert mae(mean, target) <= rmse(mean, target) + 1e-9


@given(triples)
@settings(max_examples=60, deadline=None)
def test_gaussians_are_those_of_the_standard_library(found):
    mean, target, std = (np.array(column) for column in zip(*found))
    expected = np.mean([((m - t) / s) ** 2 / 2 + math.log(s * math.sqrt(2 * math.pi)) for m, t, s in found])
    assert negative_log_likelihood(mean, std, target) == pytest.approx(expected)
    below = np.array([NormalDist(m, s).cdf(t) for m, t, s in found])
    q = (np.arange(20000) + 0.5) / 20000
    shares = np.searchsorted(np.sort(below), q, side="right") / len(below)
    assert quantile_error(mean, std, target) == pytest.approx(np.mean(np.abs(shares - q)), abs=1e-4)


def test_spreads_that_are_true_too_small_and_too_large():
    target = np.random.default_rng(0).normal(size=20000)
    mean = np.zeros(20000)
    for shift, std, error in ((0, 1, 0), (0, 1e-3, 0.25), (0, 1e3, 0.25), (99, 1, 0.5)):
        assert quantile_error(mean + shift, mean + std, target) == pytest.approx(error, abs=0.01)
    small, true, large = (negative_log_likelihood(mean, mean + std, target) for std in (0.5, 1, 2))
    assert true < min(small, large)


def test_several_targets_and_weights_of_samples():
    mean, target = [[0.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 1.0]]
    assert rmse(mean, target) == 1.0
    assert mae(mean, target) == 0.5
    assert mae(mean, target, weight=[0, 1]) == 0.0


def test_numbers_that_are_none():
    good, bad = [1.0, 2.0], [1.0, np.nan]
    for broken in (bad, [1.0, np.inf]):
        assert np.isnan(rmse(broken, good))
        assert np.isnan(mae(broken, good))
        for metric in (quantile_error, negative_log_likelihood):
            assert np.isnan(metric(broken, good, good)), metric
            assert np.isnan(metric(good, broken, good)), metric
    for metric in (quantile_error, negative_log_likelihood):
        for std in ([0.0, 1.0], [-1.0, np.nan]):
            with refuses("`std`", f"{np.nanmin(std):g}"):
                metric(good, std, good)
        with refuses("`target`", "1 of 2"):
            metric(good, good, bad)
        with refuses("`std`", "(2,)", "(1,)"):
            metric(good, [1.0], good)
    for metric in (rmse, mae):
        with refuses("`target`", "1 of 2"):
            metric(good, bad)
        with refuses("`target`", "(2,)", "(3,)"):
            metric(good, [1.0, 2.0, 3.0])
        with refuses("`mean`", "(0,)"):
            metric([], [])
        with refuses("weight", "-1 to 2"):
            metric(good, good, [-1, 2])


def test_numbers_that_are_huge_do_not_warn():
    assert rmse([1e200], [0.0]) == math.inf
    assert negative_log_likelihood([1e200], [1e-200], [0.0]) == math.inf
    assert quantile_error([1e200], [1e-200], [0.0]) == 0.5


OUTPUTS = {
    "probabilities": np.eye(2),
    "label": np.array([0, 1]),
    "mean": np.zeros(2),
    "target": np.array([-1.0, 1.0]),
    **dict.fromkeys(("std", "loss", "count", "correct"), np.ones(2)),
    **dict.fromkeys(("low_68", "low_95"), np.full(2, -1.0)),
    **dict.fromkeys(("high_68", "high_95"), np.full(2, 1.0)),
    **dict.fromkeys(("residual", "noise", "inner", "power", "true_power"), np.ones(2)),
    "translation": ["the cat sat on the mat", "a dog"],
    "reference": ["the cat sat on a mat", "a dog"],
    **dict.fromkeys(("rank", "reverse_rank", "matched"), np.ones(2)),
    "tags": [["B-a", "O"], ["O"]],
    "truth": [["B-a", "O"], ["B-a"]],
}
WORSE = OUTPUTS | {
    "probabilities": np.eye(2)[::-1],
    **dict.fromkeys(("mean", "loss", "residual"), np.full(2, 9.0)),
    **dict.fromkeys(("rank", "reverse_rank"), np.full(2, 9.0)),
    **dict.fromkeys(("correct", "inner", "matched"), np.zeros(2)),
    "translation": ["a dog ran off", "two dogs"],
    "tags": [["O", "B-a"], ["O"]],
}


def test_every_metric_is_called_by_what_it_needs():
    found = {name: metric(OUTPUTS) for name, metric in METRICS.items()}
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    assert list(found) == sorted(found)
    for name, metric in METRICS.items():
        assert metric.function.__name__ == name
        assert metric.better in ("higher", "lower", "neither")
        assert metric.help
        for missing in metric.needs:
            with refuses(missing, metric.function.__name__):
                metric({key: value for key, value in OUTPUTS.items() if key != missing})
        if metric.better != "neither":
            assert (metric(OUTPUTS) > metric(WORSE)) is (metric.better == "higher")


# Series out of noise, intervals, detections: against loops


RNG = np.random.default_rng(0)


def test_scatter_and_noise_are_those_of_all_points():
    true = [RNG.normal(size=n) for n in (3, 1, 5)]
    found, data = ([one + RNG.normal(size=len(one)) * size for one in true] for size in (0.3, 1))
    residual = [((a - b) ** 2).sum() for a, b in zip(found, true)]
    noise = [((a - b) ** 2).sum() for a, b in zip(data, true)]
    flat = np.concatenate(found) - np.concatenate(true)
    assert scatter(residual, [3, 1, 5]) == pytest.approx(np.sqrt((flat**2).mean()))
    before = np.concatenate(data) - np.concatenate(true)
    assert noise_left(residual, noise) == pytest.approx(np.sqrt((flat**2).mean() / (before**2).mean()))
    assert math.isnan(scatter([0.0], [0]))
    assert math.isnan(noise_left([1.0], [0.0]))
    assert math.isnan(scatter([np.nan], [1]))


def test_overlap_counts_samples_with_a_form():
    true = np.array([[1.0, 2, 3], [0, 0, 0], [1, -1, 0]])
    found = np.array([[2.0, 4, 6], [1, 1, 1], [0, 0, 0]])
    sums = (found * true).sum(1), (found**2).sum(1), (true**2).sum(1)
    assert overlap(*sums) == pytest.approx(0.5)  # 1 for the first, 0 for the last
    assert overlap(-sums[0], *sums[1:]) == pytest.approx(-0.5)
    assert math.isnan(overlap([0.0], [1.0], [0.0]))
    assert math.isnan(overlap([np.nan], [1.0], [1.0]))


def test_intervals():
    target, zero = RNG.normal(size=(4000, 2)), np.zeros((4000, 2))
    assert coverage_68(zero - 0.9945, zero + 0.9945, target) == pytest.approx(0.68, abs=0.02)
    assert coverage_95(zero - 1.96, zero + 1.96, target) == pytest.approx(0.95, abs=0.02)
    assert math.isnan(coverage_68(zero * np.nan, zero, target))


def test_detections_at_one_false_alarm_in_a_hundred():
    score = np.concatenate([np.arange(200) / 200, np.full(50, 0.9849), np.full(50, 0.5)])
    label = np.repeat([0, 1], [200, 100])
    assert efficiency_1(np.stack([1 - score, score], 1), label) == 0  # three of 200 pass at 0.9849
    score[200:250] += 2e-4
    assert efficiency_1(np.stack([1 - score, score], 1), label) == 0.5
    assert math.isnan(efficiency_1(np.eye(3), [0, 1, 2]))
    assert math.isnan(efficiency_1(np.eye(2), [1, 1]))
