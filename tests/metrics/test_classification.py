"""Classification metrics against their definitions, written as loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.metrics.calibration import calibration_error, reliability
from sciformer.metrics.classification import (
    accuracy,
    auc,
    balanced_accuracy,
    class_scores,
    confusion,
    log_loss,
    macro_f1,
    roc,
)
from tests.errors import refuses


def rows(scores):
    scores = np.asarray(scores, dtype=float)
    return np.stack([1 - scores, scores], axis=1)


def sample(seed, n=60, c=4, steps=10):
    """Probabilities in tenths, so that there are ties."""
    generator = np.random.default_rng(seed)
    p = generator.multinomial(steps, generator.dirichlet(np.ones(c), size=n)) / steps
    return p, generator.integers(c, size=n), generator.random(n)


def pairs(score, positive, weight):
    """The Mann-Whitney statistic over all pairs."""
    won = total = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            won += weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
            total += weight[i] * weight[j]
    return won / total


binary = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=40).filter(
    lambda found: len({label for _, label in found}) == 2
)


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_confusion_and_f1_are_counted(seed):
    p, label, weight = sample(seed)
    table = np.zeros((4, 4), dtype=int)
    for row, truth in zip(p, label):
        table[truth, list(row).index(max(row))] += 1
    np.testing.assert_array_equal(confusion(p, label), table)
    assert accuracy(p, label) == pytest.approx(np.trace(table) / 60)
    right = [list(row).index(max(row)) == truth for row, truth in zip(p, label)]
    assert accuracy(p, label, weight) == pytest.approx(sum(weight[right]) / sum(weight))
    scores, recalls = [], []
    found = class_scores(p, label)
    for c in range(4):
        precision, recall = table[c, c] / table[:, c].sum(), table[c, c] / table[c].sum()
        scores.append(2 * precision * recall / (precision + recall))
        recalls.append(recall)
        own = (found.precision[c], found.recall[c], found.f1[c], found.support[c])
        assert own == pytest.approx((precision, recall, scores[-1], table[c].sum()))
    assert macro_f1(p, label) == pytest.approx(np.mean(scores))
    assert balanced_accuracy(p, label) == pytest.approx(np.mean(recalls))
    own = np.maximum(p[np.arange(60), label], 1e-37)
    assert log_loss(p, label, weight) == pytest.approx(-(weight * np.log(own)).sum() / weight.sum())


def test_f1_counts_the_classes_that_occur():
    p = np.eye(4)[[0, 0, 1]]
    assert macro_f1(p, [0, 0, 1]) == 1.0  # classes 2 and 3 do not occur
    assert macro_f1(p, [0, 0, 2]) == pytest.approx((1 + 0 + 0) / 3)  # 1 predicted, 2 true
    assert balanced_accuracy(p, [0, 0, 2]) == 0.5  # classes without samples have no recall
    assert np.isnan(class_scores(p, [0, 0, 2]).recall[1])
    assert np.isnan(class_scores(p, [0, 0, 2]).precision[2])
    assert class_scores(p * np.nan, [0, 0, 2]) is None


@pytest.mark.parametrize("seed", range(3))
def test_auc_is_the_share_of_pairs_in_order(seed):
    p, label, weight = sample(seed, c=2)
    assert auc(p, label) == pytest.approx(pairs(p[:, 1], label == 1, np.ones(60)))
    assert auc(p, label, weight) == pytest.approx(pairs(p[:, 1], label == 1, weight))
    assert roc(p, label, weight).area == pytest.approx(auc(p, label, weight))
    p, label, weight = sample(seed, c=5)
    label[label == 3] = 2  # a class that does not occur does not count
    expected = []
    for a, b in itertools.permutations((0, 1, 2, 4), 2):
        two = (label == a) | (label == b)
        expected.append(pairs(p[two, a], label[two] == a, weight[two]))
    assert auc(p, label, weight) == pytest.approx(np.mean(expected))


def test_auc_of_hand_made_values():
    assert auc(rows([0.1, 0.4, 0.35, 0.8]), [0, 0, 1, 1]) == 0.75
    assert auc(rows([0.5, 0.5, 0.5]), [0, 1, 1]) == 0.5
    assert auc(rows([0.9, 0.1]), [0, 1]) == 0.0
    false, true = roc(rows([0.1, 0.4, 0.35, 0.8]), [0, 0, 1, 1])
    np.testing.assert_allclose(false, [0, 0, 0.5, 0.5, 1])
    np.testing.assert_allclose(true, [0, 0.5, 0.5, 1, 1])


@given(binary)
@settings(max_examples=60, deadline=None)
def test_auc_depends_on_the_order_alone(found):
    score, label = np.array([s for s, _ in found]) / 20, np.array([label for _, label in found])
    area = auc(rows(score), label)
    assert 0 <= area <= 1
    for mapped in (score**3, np.sqrt(score), 0.3 + score / 2, np.expm1(score) / 2):
        assert auc(rows(mapped), label) == pytest.approx(area)
    assert auc(rows(1 - score), label) == pytest.approx(1 - area)
    assert auc(rows(score), ~label) == pytest.approx(1 - area)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_bounds_and_sums(seed, n, c):
    p, label, _ = sample(seed, n, c, steps=10**8)
    assert 0 <= macro_f1(p, label) <= 1
    assert accuracy(p, label) == pytest.approx(np.trace(confusion(p, label)) / n)
    assert 0 <= calibration_error(p, label) <= 1
    assert accuracy(np.eye(c)[label], label) == macro_f1(np.eye(c)[label], label) == 1
    assert calibration_error(np.eye(c)[label], label) == 0
    if len(set(label)) > 1:
        assert auc(np.eye(c)[label], label) == pytest.approx(1)


def test_a_calibrated_model_has_a_small_error_and_a_sure_one_a_large_one():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(3), size=20000)
    label = (p.cumsum(axis=1) < generator.random((20000, 1))).sum(axis=1)
    assert calibration_error(p, label) < 0.02
    sure = p**6 / (p**6).sum(axis=1, keepdims=True)
    assert accuracy(sure, label) == accuracy(p, label)
    assert calibration_error(sure, label) > 0.2


def test_the_interval_of_a_bin_holds_its_accuracy_and_narrows():
    generator = np.random.default_rng(0)
    curves = [reliability(rows(np.full(n, 0.7)), generator.random(n) < 0.7, bins=5) for n in (10, 1000)]
    for curve in curves:
        low, high = (ends[3] for ends in curve.interval)
        assert 0 <= low < curve.accuracy[3] < high <= 1
        assert np.isnan(curve.interval[0][0])
    wide, narrow = (float(curve.interval[1][3] - curve.interval[0][3]) for curve in curves)
    assert narrow == pytest.approx(2 * np.sqrt(0.7 * 0.3 / 1000), rel=0.1)
    assert wide > 5 * narrow
    sure = reliability(rows([0.9] * 4), [1] * 4, bins=5)  # an accuracy of 1 in four samples is not certain
    assert sure.interval[0][4] < 0.9


def test_reliability_bins_by_hand():
    p, label = rows([0.9, 0.95, 0.4, 0.0]), [1, 0, 0, 0]
    curve = reliability(p, label, bins=5)
    np.testing.assert_allclose(curve.edges, [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_array_equal(curve.samples, [0, 0, 1, 0, 3])  # 0.6 closes its bin on the right
    np.testing.assert_allclose(curve.confidence, [np.nan, np.nan, 0.6, np.nan, 2.85 / 3])
    np.testing.assert_allclose(curve.accuracy, [np.nan, np.nan, 1, np.nan, 2 / 3])
    assert curve.error == calibration_error(p, label, 5) == pytest.approx(0.25 * 0.4 + 0.75 * (2.85 - 2) / 3)


def test_one_class_has_no_auc_but_an_accuracy():
    assert np.isnan(auc(rows([0.1, 0.8]), [1, 1]))
    assert np.isnan(auc(rows([0.1, 0.8]), [0, 1], weight=[0, 1]))
    assert accuracy(rows([0.1, 0.8]), [1, 1]) == 0.5
    with refuses("class 1"):
        roc(rows([0.1, 0.8]), [1, 1])
    with refuses(3):
        roc(np.eye(3), [0, 1, 2])


def test_outputs_that_are_not_numbers_are_seen():
    p = rows([0.1, np.nan, 0.8])
    for metric in (accuracy, macro_f1, auc, calibration_error):
        assert np.isnan(metric(p, [0, 1, 1])), metric
    for table in (confusion, reliability, roc):
        with refuses(hint="diverged"):
            table(p, [0, 1, 1])


@pytest.mark.parametrize("metric", [accuracy, macro_f1, auc, calibration_error, confusion, reliability, roc])
@pytest.mark.parametrize(
    ("p", "label", "mentions", "hint"),
    [
        (np.empty((0, 2)), np.empty(0, int), ("`probabilities`", "(0, 2)"), ""),
        ([0.1, 0.9], [0, 1], ("`probabilities`", "(2,)"), "np.stack"),
        ([[0.1], [0.9]], [0, 1], ("`probabilities`", "(2, 1)"), "np.stack"),
        ([[-3.0, 4.0]], [0], ("-3 to 4",), "softmax"),
        ([[0.2, 0.2]], [0], ("0.4 to 0.4",), "softmax"),
        (np.eye(2), [0, 2], ("0 to 1", "0 to 2"), ""),
        (np.eye(2), [-1, 0], ("0 to 1", "-1 to 0"), ""),
        (np.eye(2), [0.0, 1.0], ("`label`", "float64"), ""),
        (np.eye(2), [0, 1, 1], ("`label`", "2 integers", "(3,)"), ""),
        (np.eye(2).astype(str), [0, 1], ("`probabilities`", "<U"), ""),
    ],
)
def test_what_cannot_be_scored_is_refused(metric, p, label, mentions, hint):
    with refuses(*mentions, hint=hint):
        metric(p, label)


@pytest.mark.parametrize("weight", [[1, -1], [0, 0], [1, np.nan], [1]])
def test_weights_are_checked(weight):
    for metric in (accuracy, auc, roc):
        with refuses("weight"):
            metric(np.eye(2), [0, 1], weight)
    with refuses("`bins`", 0):
        reliability(np.eye(2), [0, 1], bins=0)


def test_half_precision_and_large_arrays():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(2), size=200_000)
    label = (generator.random(200_000) < p[:, 1]).astype(int)
    assert auc(p.astype(np.float16), label) == pytest.approx(auc(p, label), abs=1e-3)
