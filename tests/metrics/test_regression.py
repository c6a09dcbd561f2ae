"""Regression and text metrics, and the table of all metrics."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer import metrics
from sciformer.metrics import (
    METRICS,
    coverage,
    mae,
    negative_log_likelihood,
    perplexity,
    quantile_error,
    rmse,
    token_accuracy,
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
    assert coverage(mean, std, target) == np.mean([abs(m - t) <= s for m, t, s in found])
    below = np.array([NormalDist(m, s).cdf(t) for m, t, s in found])
    q = (np.arange(20000) + 0.5) / 20000
    shares = np.searchsorted(np.sort(below), q, side="right") / len(below)
    assert quantile_error(mean, std, target) == pytest.approx(np.mean(np.abs(shares - q)), abs=1e-4)


def test_spreads_that_are_true_too_small_and_too_large():
    target = np.random.default_rng(0).normal(size=20000)
    mean = np.zeros(20000)
    assert coverage(mean, mean + 1, target) == pytest.approx(0.683, abs=0.01)
    assert quantile_error(mean, mean + 1, target) < 0.01
    assert quantile_error(mean, mean + 1e-3, target) == pytest.approx(0.25, abs=0.01)
    assert quantile_error(mean, mean + 1e3, target) == pytest.approx(0.25, abs=0.01)
    assert quantile_error(mean + 99, mean + 1, target) == pytest.approx(0.5, abs=0.01)
    true = negative_log_likelihood(mean, mean + 1, target)
    assert true < negative_log_likelihood(mean, mean + 0.5, target)
    assert true < negative_log_likelihood(mean, mean + 2, target)


def test_several_targets_and_weights_of_samples():
    mean, target = [[0.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 1.0]]
    assert rmse(mean, target) == 1.0
    assert mae(mean, target) == 0.5
    assert mae(mean, target, weight=[0, 1]) == 0.0
    assert coverage(mean, np.ones((2, 2)), target) == 0.75


def test_numbers_that_are_none():
    good, bad = [1.0, 2.0], [1.0, np.nan]
    for broken in (bad, [1.0, np.inf]):
        assert np.isnan(rmse(broken, good))
        assert np.isnan(mae(broken, good))
        for metric in (coverage, quantile_error, negative_log_likelihood):
            assert np.isnan(metric(broken, good, good)), metric
            assert np.isnan(metric(good, broken, good)), metric
    for metric in (coverage, quantile_error, negative_log_likelihood):
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
    assert coverage([1e200], [1e-200], [0.0]) == 0.0
    assert quantile_error([1e200], [1e-200], [0.0]) == 0.5


def test_perplexity_and_token_accuracy():
    assert perplexity([math.log(4) * 3, 0.0], [3, 0]) == pytest.approx(4)
    assert perplexity([10 * math.log(50), math.log(2)], [10, 1]) == pytest.approx((50**10 * 2) ** (1 / 11))
    assert perplexity([1e9], [1]) == math.inf
    assert token_accuracy([1, 2], [4, 2]) == 0.5
    for metric in (perplexity, token_accuracy):
        assert np.isnan(metric([0.0], [0]))
        assert np.isnan(metric([0.0, np.nan], [1, 1]))
        with refuses("`count`", -1):
            metric([0.0, 0.0], [1, -1])
        with refuses("(0,)"):
            metric([], [])
    with refuses("`correct`", "`count`"):
        token_accuracy([3], [2])


def test_every_metric_is_called_by_what_it_needs():
    outputs = {
        "probabilities": np.eye(2),
        "label": np.array([0, 1]),
        "mean": np.zeros(2),
        "std": np.ones(2),
        "target": np.array([-1.0, 1.0]),
        "loss": np.ones(2),
        "count": np.ones(2),
        "correct": np.ones(2),
        **dict.fromkeys(("low_68", "low_95"), np.full(2, -1.0)),
        **dict.fromkeys(("high_68", "high_95"), np.full(2, 1.0)),
        **dict.fromkeys(("residual", "noise", "inner", "power", "true_power"), np.ones(2)),
        "translation": ["the cat sat on the mat"],
        "reference": ["the cat sat on a mat"],
        "tags": [["B-a", "O"], ["O"]],
        "truth": [["B-a", "O"], ["B-a"]],
    }
    found = {name: metric(outputs) for name, metric in METRICS.items()}
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    assert list(found) == sorted(found)
    for name, metric in METRICS.items():
        assert metric.function is getattr(metrics, name)
        assert metric.better in ("higher", "lower", "neither")
        assert metric.help
        for missing in metric.needs:
            with refuses(missing, metric.function.__name__):
                metric({key: value for key, value in outputs.items() if key != missing})


def test_higher_is_better_where_it_says_so():
    worse = {
        "probabilities": np.eye(2)[::-1],
        "label": np.array([0, 1]),
        "mean": np.full(2, 9.0),
        "std": np.ones(2),
        "target": np.array([-1.0, 1.0]),
        "loss": np.full(2, 9.0),
        "count": np.ones(2),
        "correct": np.zeros(2),
        "residual": np.full(2, 9.0),
        "noise": np.full(2, 9.0),
        "inner": np.zeros(2),
        "power": np.ones(2),
        "true_power": np.ones(2),
        "translation": ["a dog ran off"],
        "reference": ["the cat sat on the mat"],
        "tags": [["O", "B-a"]],
        "truth": [["B-a", "O"]],
    }
    better = (
        worse
        | {"tags": [["B-a", "O"]], "translation": ["the cat sat on the mat"]}
        | {"probabilities": np.eye(2), "mean": np.zeros(2), "loss": np.ones(2), "correct": np.ones(2)}
        | {"residual": np.ones(2), "inner": np.ones(2)}
    )
    for metric in [one for one in METRICS.values() if one.better != "neither"]:
        assert (metric(better) > metric(worse)) is (metric.better == "higher")


def test_public_names():
    assert all(getattr(metrics, name).__doc__ or name == "METRICS" for name in metrics.__all__)
