"""Rejections, trade-offs and sculpting against their definitions, and one-versus-one areas against scikit-learn."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from sciformer.domains.jets.discriminate import Discriminate
from sciformer.domains.jets.rejection import log_odds, rejection, sculpting, tradeoff
from sciformer.metrics import AtLeast
from sciformer.metrics.classification import auc
from tests.errors import refuses


def sample(seed, n=400, c=4, steps=None):
    """Probabilities that know something of the label, in steps if there are to be ties."""
    rng = np.random.default_rng(seed)
    label = rng.integers(c, size=n)
    p = np.exp(rng.normal(size=(n, c)) + 1.5 * np.eye(c)[label])
    p /= p.sum(1, keepdims=True)
    if steps:
        p = rng.multinomial(steps, p) / steps
    return p, label


@pytest.mark.parametrize("c", [3, 5, 10])
@pytest.mark.parametrize("steps", [None, 10])
def test_the_area_of_many_classes_is_that_of_scikit_learn(c, steps):
    p, label = sample(c, c=c, steps=steps)
    assert auc(p, label) == pytest.approx(roc_auc_score(label, p, multi_class="ovo"), rel=1e-12)
    p, label = sample(1, n=300, c=2)
    assert auc(p, label) == pytest.approx(roc_auc_score(label, p[:, 1]), rel=1e-12)


def test_the_area_does_not_depend_on_how_many_samples_a_class_has():
    p, label = sample(0, c=3)
    more = np.concatenate([np.arange(len(p)), np.repeat(np.flatnonzero(label == 2), 4)])
    weight = np.where(label == 2, 5.0, 1.0)
    assert auc(p[more], label[more]) == pytest.approx(auc(p, label)) == pytest.approx(auc(p, label, weight))
    lost = np.where(label == 1, 0.0, 1.0)  # a class without weight does not occur
    two = label != 1
    pairs = [roc_auc_score(label[two] == a, p[two, a]) for a in (0, 2)]
    assert auc(p, label, lost) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("efficiency", [0.3, 0.5, 0.99, 0.995, 1.0])
@pytest.mark.parametrize("steps", [None, 30])
def test_rejection_is_read_off_the_roc_curve(efficiency, steps):
    p, label = sample(2, n=3000, steps=steps)
    p = np.clip(p, 1e-9, None)
    p /= p.sum(1, keepdims=True)
    two = (label == 3) | (label == 1)
    score = p[two, 3] / (p[two, 3] + p[two, 1])
    false, true, _ = roc_curve(label[two] == 3, score, drop_intermediate=False)
    first = np.flatnonzero(true >= efficiency - 1e-12)[0]
    found = rejection(p, label, 3, 1, efficiency)
    assert not found.bound
    assert found.value == pytest.approx(1 / false[first])
    assert found.efficiency == pytest.approx(true[first])
    above = score[label[two] == 1] >= found.cut * (1 - 1e-12)
    assert found.left == above.sum()
    assert found.error == pytest.approx(found.value / math.sqrt(found.left))
    curve = tradeoff(p, label, 3, 1)
    rounding = 1e-3 if steps else 1e-12  # what is equal in one score may differ in the last digit of the other
    assert curve.area == pytest.approx(roc_auc_score(label[two] == 3, score), abs=rounding)


def test_where_nothing_is_left_the_value_is_a_bound():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    found = rejection(p, np.array([0, 0, 1, 1]), efficiency=1.0)
    assert (found.value, found.bound, found.left) == (2.0, True, 0)
    assert math.isnan(found.error)
    one = AtLeast(found.value)
    assert (f"{one:.4g}", str(one), f"{one * 2:.4g}") == ("≥ 2", "≥ 2", "4")


def test_a_sure_model_keeps_its_order():
    """Where p / (p + p) rounds to one, the cut still tells samples apart."""
    p = np.array([[1e-18, 1.0], [1e-20, 1.0], [1e-19, 1.0], [1.0, 0.0], [0.0, 1.0]])
    found = rejection(p, np.array([1, 1, 0, 0, 0]), efficiency=0.5)
    assert (found.left, found.value) == (1, 3.0)  # the one that is surer than any signal
    assert log_odds(np.zeros((1, 2)), 1, 0).tolist() == [0.0]


def test_other_classes_do_not_count():
    p, label = sample(3, c=3)
    others = label != 1
    assert rejection(p[others], label[others], 2, 0) == rejection(p, label, 2, 0)


def test_what_is_not_known_is_nan():
    p, label = sample(4, c=3)
    assert math.isnan(rejection(p, np.minimum(label, 1), 2, 0).value)
    p[0] = np.nan
    assert math.isnan(rejection(p, label, 2, 0).value)
    with refuses(hint="diverged"):
        tradeoff(p, label, 2, 0)
    with refuses("class 2", "class 0"):
        tradeoff(p[1:], np.minimum(label, 1)[1:], 2, 0)


def test_sculpting_is_the_divergence_of_two_histograms():
    from scipy.spatial.distance import jensenshannon

    rng = np.random.default_rng(0)
    x = rng.exponential(50, 20_000)
    passes = rng.random(len(x)) < np.where(x > 60, 0.3, 0.05)
    found = sculpting(x, passes)
    inside = np.clip(x, found.edges[0], found.edges[-1])
    before, after = (np.histogram(some, found.edges)[0] for some in (inside, inside[passes]))
    np.testing.assert_allclose(found.before, before / before.sum())
    np.testing.assert_allclose(found.after, after / after.sum())
    assert found.divergence == pytest.approx(jensenshannon(before, after, base=2) ** 2)
    assert found.passed == passes.sum()
    assert found.divergence > 5 * found.chance


def test_a_random_choice_does_not_sculpt():
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    found = sculpting(x, rng.random(4000) < 0.05)
    assert 0 < found.chance < 0.2
    assert found.divergence == pytest.approx(found.chance, rel=0.5)
    assert sculpting(x, np.ones(4000, bool)).divergence == 0
    assert sculpting(x, x > 0).divergence > 0.2
    none = sculpting(x, np.zeros(4000, bool))
    assert math.isnan(none.divergence)
    assert none.passed == 0
    apart = sculpting(np.array([0.0] * 99 + [1.0]), np.array([False] * 99 + [True]))
    assert 0.9 < apart.divergence <= 1
    assert sculpting(np.ones(5), np.ones(5, bool)).divergence == 0


def test_which_way_is_better():
    objective = Discriminate(kind="discriminate")
    names = ("loss", "auc", "rejection_50", "rejection_99.5_b")
    assert [objective.lower_is_better(name) for name in names] == [True, False, False, False]


def test_a_line_about_a_model_leaves_out_the_rejections_of_many_classes():
    objective = Discriminate(kind="discriminate")
    assert objective.headline(["loss", "rejection_30", "rejection_50"]) == ["loss", "rejection_30", "rejection_50"]
    assert objective.headline(["loss", *(f"rejection_50_{name}" for name in "abc")]) == ["loss"]
