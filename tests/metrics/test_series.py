"""Series out of noise, intervals, detections: against loops."""

import math

import numpy as np
import pytest

from sciformer.metrics import coverage_68, coverage_95, efficiency_1, noise_left, overlap, scatter

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
