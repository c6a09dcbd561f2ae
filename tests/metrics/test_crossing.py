"""Crossings: the place, the choice among several, and the error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.metrics.crossing import crossing
from tests.errors import refuses


def noisy(seed, n=40, middle=2.27):
    """Outputs that fall around the middle, with noise, for n samples at each of eleven places."""
    generator = np.random.default_rng(seed)
    x = np.repeat(np.linspace(1.5, 3.0, 11), n)
    p = 1 / (1 + np.exp(6 * (x - middle))) + generator.normal(scale=0.2, size=x.size)
    order = generator.permutation(x.size)
    return x[order], p[order]


def test_a_line_crosses_where_it_should():
    assert crossing([0, 1], [0.0, 1.0]).value == 0.5
    assert crossing([1, 0], [0.8, 0.0], level=0.2).value == 0.25
    assert crossing([3, 3, 5, 5], [1.0, 0.6, 0.1, 0.3]).value == pytest.approx(4)  # means 0.8 and 0.2


@pytest.mark.parametrize(
    ("p", "value"),
    [
        ([0.0, 0.5, 1.0], 1.0),
        ([0.0, 0.5, 0.5, 0.5, 1.0], 2.0),
        ([0.0, 0.5, 0.0], np.nan),  # touches
        ([0.0, 0.2, 0.5], np.nan),  # ends on the level
        ([0.5, 0.5], np.nan),
        ([0.6, 0.9], np.nan),
        ([0.7], np.nan),
        ([0.0, np.nan, 1.0], np.nan),
    ],
)
def test_levels_that_are_met_but_not_passed(p, value):
    found = crossing(np.arange(len(p)), p)
    np.testing.assert_equal(found.value, value)
    if np.isnan(value):
        assert np.isnan(found.error)
    assert np.isnan(crossing([0, 1, 1, 1, 2], [0, 0.1, 0.7, 0.7, 0]).value)  # touches in spite of rounding


def test_of_several_crossings_the_one_that_divides_best():
    x = np.arange(10)
    p = np.array([0, 0.6, 0, 0, 0, 1, 1, 1, 1, 1])
    assert crossing(x, p).value == 4.5
    assert crossing(x, 1 - p).value == 4.5
    counted = np.concatenate([[0, 0, 0], np.full(99, 1), [2, 3, 4, 5, 6]])  # many samples say that 1 is above
    outputs = np.concatenate([[0, 0, 0], np.full(99, 0.6), [0, 1, 1, 1, 1]])
    assert crossing(counted, outputs).value == pytest.approx(5 / 6)


@given(st.integers(0, 1000), st.floats(0.5, 20), st.floats(-5, 5))
@settings(max_examples=20, deadline=None)
def test_the_place_moves_with_the_axis_and_not_with_the_sign(seed, scale, shift):
    x, p = noisy(seed, n=5)
    value, error = crossing(x, p, draws=20)
    moved = crossing(scale * x + shift, p, draws=20)
    assert moved == pytest.approx((scale * value + shift, scale * error), rel=1e-6, nan_ok=True)
    assert crossing(x, 1 - p, draws=20).value == pytest.approx(value)


def test_the_error_is_the_spread_over_repetitions():
    found = [crossing(*noisy(seed)) for seed in range(30)]
    values, errors = (np.array(column) for column in zip(*found))
    assert values.mean() == pytest.approx(2.27, abs=0.01)
    assert np.mean(errors) == pytest.approx(values.std(ddof=1), rel=0.4)


def test_groups_are_drawn_whole():
    x = np.tile(np.linspace(0, 1, 9), 20 * 10)
    group = np.repeat(np.arange(20), 9 * 10)
    offset = np.random.default_rng(1).normal(scale=0.1, size=20)
    p = x + offset[group]  # the samples of a group err together
    alone, together = crossing(x, p), crossing(x, p, group=[f"run {i}" for i in group])
    assert alone.value == together.value == pytest.approx(0.5 - offset.mean())
    assert together.error == pytest.approx(offset.std() / np.sqrt(20), rel=0.25)
    assert alone.error < together.error / 2
    assert np.isnan(crossing(x, p, group=np.zeros(x.size)).error)


def test_the_seed_fixes_the_error():
    first, again, other = (crossing(*noisy(0), seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert (first.value == other.value, first.error == other.error) == (True, False)
    assert np.isnan(crossing([0, 1], [0.0, 1.0]).error)  # too few draws cross: half of them hold one sample twice


@pytest.mark.parametrize(
    ("arguments", "options", "mentions"),
    [
        (([], []), {}, ("`x`", "(0,)")),
        (([0, 1], [0.0]), {}, ("`x` and `p`", "(2,) and (1,)")),
        ((np.zeros((2, 2)), np.zeros((2, 2))), {}, ("`x` and `p`", "(2, 2) and (2, 2)")),
        (([0, np.nan], [0.0, 1.0]), {}, ("`x`", "1 of 2")),
        (([0, 1], [0.0, 1.0]), {"group": [0]}, ("`group`", "(2,)", "(1,)")),
        (([0, 1], [0.0, 1.0]), {"level": np.nan}, ("`level`", "nan")),
        (([0, 1], [0.0, 1.0]), {"draws": 1}, ("`draws`", "draws = 1")),
    ],
)
def test_mistakes(arguments, options, mentions):
    with refuses(*mentions):
        crossing(*arguments, **options)
