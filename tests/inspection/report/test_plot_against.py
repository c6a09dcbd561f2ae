"""Where answers change along a column: only where that is one place."""

from types import SimpleNamespace

import numpy as np
import pytest

from sciformer.inspection.report.plot_against import answers_against

X = np.linspace(0, 10, 200)


def found(p, classes=("cold", "warm"), curve=""):
    """A report of answers p (n,) for the last class."""
    rest = np.repeat((1 - p)[:, None] / (len(classes) - 1), len(classes) - 1, 1)
    part = SimpleNamespace(samples={"t": X}, outputs={"probabilities": np.concatenate([rest, p[:, None]], 1)})
    objective = SimpleNamespace(plot_against="t", reference=None, classes=list(classes), curve=curve)
    run = SimpleNamespace(recipe=SimpleNamespace(data=SimpleNamespace()))
    return SimpleNamespace(objective=objective, evaluated={"test": part}, run=run, numbers={})


def test_a_place_that_is_known():
    along, trouble = answers_against(found(1 / (1 + np.exp(-4 * (X - 6)))))
    assert trouble == ""
    assert along.crossing.value == pytest.approx(6, abs=0.1)


def test_answers_that_do_not_depend_on_it_change_nowhere():
    noise = np.random.default_rng(0).random(200)
    along, _ = answers_against(report := found(noise))
    assert np.isnan(along.crossing).all()
    assert np.isnan(report.numbers["along"]["crossing"])


def test_of_several_classes_one_must_be_named():
    rising, three = 1 / (1 + np.exp(-4 * (X - 6))), ("a", "b", "c")
    assert answers_against(found(rising, three))[0].crossing is None
    assert answers_against(found(rising, three, "c"))[0].crossing.value == pytest.approx(6, abs=0.1)
