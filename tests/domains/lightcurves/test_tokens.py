"""Observations: levels, times, errors, bands, limits, what is given beside, and windows."""

import itertools
import json
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data import batch
from sciformer.data.batch import Batch
from sciformer.data.columns import Lists, select
from sciformer.data.random import SampleRandom
from sciformer.domains.lightcurves.scaling import compute_level, error_weights, group_medians
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.recipe.registry import find
from sciformer.testing import check_tokens
from tests.domains.lightcurves.curves_table import curves, fitted, regular, series
from tests.errors import refuses


def seen(table, **fields):
    tokens = fitted(table, **fields)
    return tokens.normalise(tokens.tokenize(table))


PROMISES = [
    ({}, curves()),
    ({"errors": "both", "gaussian": True, "augment": ["noise", "thin"]}, curves(limits=True, clean=True)),
    (
        {"errors": "both", "weighting": "chi2", "times": "both", "centre": "median", "scale": "deviation"},
        curves(bands=("g", "r"), limits=True),
    ),
    ({"times": "differences", "errors": "none", "centre": "learned"}, curves(errors=False)),
    ({"extra": ["redshift", "field"], "by_band": True, "window": 8}, curves(bands=("g", "r", "i"), extra=True)),
    ({"patch": 4, "errors": "both", "scale": "none"}, regular()),
    ({"patch": 4, "gaps": "drop", "gaussian": True, "augment": ["noise", "thin"]}, regular()),
]


@pytest.mark.parametrize(("fields", "table"), PROMISES)
def test_they_keep_every_promise(fields, table):
    assert find("tokens", "observations") is Observations
    tokens = Observations(kind="observations", **fields)
    assert check_tokens(tokens, table, missing=("value", "error"), draw=fields in ({}, {"patch": 4})) == []


def test_times_lose_nothing_at_a_modified_julian_date():
    """Single precision alone is off by minutes there."""
    time = 60000 + np.array([0.0, 1 / 1440, 2 / 1440, 0.5, 0.5 + 1 / 86400])
    assert np.abs(time.astype(np.float32) - time).max() * 86400 > 60
    table = series(time, range(5))
    tokens = fitted(table, times="both")
    raw = tokens.tokenize(table)
    assert raw.columns["at"].dtype == np.float64
    np.testing.assert_array_equal(raw.columns["at"], time)
    at = tokens.normalise(raw).columns["at"]
    assert at.dtype == np.float32
    np.testing.assert_allclose(np.diff(at) * 86400, np.diff(time) * 86400, atol=0.01)  # a hundredth of a second
    since = tokens.normalise(raw).columns["features"][:, tokens.input_features.index("since")]
    np.testing.assert_allclose(np.expm1(since[1:].astype(float)) * 86400, np.diff(time) * 86400, atol=0.05)
    moved = series(time - 59990.25, range(5))
    np.testing.assert_allclose(tokens.normalise(tokens.tokenize(moved)).columns["at"], at, atol=1e-6)


def test_time_units_and_positions():
    table = curves()
    days, years = (seen(table, time_unit=unit).columns["at"] for unit in (1.0, 365.25))
    np.testing.assert_allclose(days, years * 365.25, rtol=1e-5)
    stream = seen(table)
    np.testing.assert_allclose(np.bincount(stream.sample, stream.columns["at"]), 0, atol=1e-2)
    assert "at" not in seen(table, times="differences").columns
    assert Observations().grid_shape is None
    assert Observations().axes == 1


@pytest.mark.parametrize("scale", ["none", "deviation", "learned"])
@pytest.mark.parametrize("centre", ["mean", "median", "learned", "none"])
def test_levels_are_those_of_each_series(centre, scale):
    table = curves((40, 30, 1), seed=3)
    tokens = fitted(table, centre=centre, scale=scale, errors="none")
    value = tokens.normalise(tokens.tokenize(table)).columns["features"][:, 0].astype(float)
    raw, lengths = table["value"].values.astype(float), table["value"].lengths
    middle, wide = tokens.state["level"]
    for start, long in zip(lengths.cumsum() - lengths, lengths):
        one = raw[start : start + long]
        about = {"mean": one.mean(), "median": np.median(one), "learned": middle, "none": 0.0}[centre]
        spread = np.sqrt(((one - about) ** 2).mean()) if long > 1 else wide
        by = {"none": 1.0, "deviation": spread, "learned": wide}[scale]
        np.testing.assert_allclose(value[start : start + long], (one - about) / by, atol=2e-5)


def test_bands_keep_their_colours_or_not():
    bare = series(range(6), [10, 12, 11, 13, 5, 7], [4, 2])
    bands = {name: Lists(np.array(list(name)), np.array([4, 2])) for name in ("grgrrr", "grirrr", "VVVVVV")}
    table = {**bare, "band": bands["grgrrr"]}
    own = {"errors": "none", "scale": "none"}
    assert seen(table, **own).columns["features"][:, 0].tolist() == [-1.5, 0.5, -0.5, 1.5, -1, 1]
    assert seen(table, by_band=True, **own).columns["features"][:, 0].tolist() == [-0.5, -0.5, 0.5, 0.5, -1, 1]
    assert seen(table).columns["band"].tolist() == [0, 1, 0, 1, 1, 1]
    assert seen(table, bands=["r", "i", "g"]).columns["band"].tolist() == [2, 0, 2, 0, 0, 0]
    tokens = fitted(table)
    assert tokens.state["bands"] == ["g", "r"]
    with refuses("g, r", ": i;", key="tokens.bands", hint="tokens.bands"):
        tokens.tokenize({**bare, "band": bands["grirrr"]})
    with refuses("g, r", key="tokens.bands"):
        fitted(bare).tokenize(table)
    with refuses("`band`"):
        tokens.tokenize(bare)
    single = {**bare, "band": bands["VVVVVV"]}
    assert "band" not in seen(single).columns
    assert fitted(single).embedding(8).bands is None


def test_limits_are_marked_and_count_in_no_centre():
    table = curves(limits=True)
    tokens = fitted(table, scale="none")
    raw = tokens.tokenize(table)
    limit = table["limit"].values
    stream = tokens.normalise(raw)
    np.testing.assert_array_equal(stream.columns["features"][:, -1], limit)
    assert tokens.input_features[-1] == "limit"
    assert not tokens.maskable(raw)[limit].any()
    wild = np.where(limit, 99, table["value"].values).astype(np.float32)
    again = tokens.normalise(tokens.tokenize({**table, "value": Lists(wild, table["limit"].lengths)}))
    np.testing.assert_array_equal(again.columns["features"][~limit], stream.columns["features"][~limit])
    dropped = seen(table, limits="drop")
    assert len(dropped.columns["at"]) == (~limit).sum()
    bare = fitted({name: column for name, column in table.items() if name != "limit"})
    assert "limit" not in bare.input_features
    assert len(bare.tokenize(table).columns["at"]) == (~limit).sum()  # it never learned what a limit is


def test_errors_enter_as_logarithms_and_may_be_unknown():
    table = curves((30, 20), seed=1)
    bad = table["error"].values.copy()
    bad[:4] = [0, -1, np.nan, np.inf]
    tokens = fitted(table, scale="none")
    features = tokens.normalise(tokens.tokenize({**table, "error": Lists(bad, table["error"].lengths)}))
    error, unknown = features.columns["features"][:, 1], features.columns["features"][:, 2]
    assert unknown.tolist() == [1] * 4 + [0] * 46
    assert (error[:4] == 0).all()
    middle, wide = tokens.state["error"]
    np.testing.assert_allclose(error[4:], (np.log(bad[4:].astype(float)) - middle) / wide, rtol=1e-4)
    assert fitted(table, errors="weight").input_features == fitted(table, errors="none").input_features == ["value"]
    without = curves(errors=False)
    assert fitted(without, errors="both").input_features == ["value"]


def test_what_is_given_beside_stands_in_front():
    table = curves((3, 0, 2), extra=True)
    tokens = fitted(table, extra=["redshift", "field"], errors="none")
    raw = tokens.tokenize(table)
    assert raw.lengths.tolist() == [5, 2, 4]
    assert raw.columns["entry"].tolist() == [1, 3, 0, 0, 0, 2, 4, 1, 3, 0, 0]  # the second has no redshift
    stream = tokens.normalise(raw)
    known = table["redshift"][[0, 2]]
    expected = (known - known.mean()) / known.std()
    np.testing.assert_allclose(stream.columns["given"][[0, 7]], expected, atol=1e-5)
    assert not tokens.maskable(raw)[raw.columns["entry"] > 0].any()
    other = tokens.tokenize({**table, "field": np.array(["north", "west", "south"])})
    assert other.columns["entry"][other.starts + 1].tolist() == [3, 5, 4]
    assert tokens.token_labels(raw.take(np.array([0])))[:2] == ["redshift", "field"]
    with refuses("redshift", key="tokens.extra"):
        fitted(curves(), extra=["redshift"])


def test_faults_of_a_table_are_named():
    table = curves()
    tokens = fitted(table)
    odd = np.array([14, 1, 9, 4, 19])
    with refuses("sample 3", "4 points in `value`", "3 points in `time`"):
        tokens.tokenize({**table, "value": Lists(table["value"].values, odd)})
    time = table["time"].values.copy()
    time[2] = np.nan
    with refuses("`time`", "1 points"):
        tokens.tokenize({**table, "time": Lists(time, table["time"].lengths)})
    with refuses("`value`", "(5,)"):
        tokens.tokenize({**table, "value": np.zeros(5)})
    with refuses():
        fitted(select(table, np.zeros(0, np.int64)))
    shuffled = np.random.default_rng(0).permutation(14)
    mixed = {
        name: Lists(np.concatenate([column.values[:14][shuffled], column.values[14:]]), column.lengths)
        for name, column in table.items()
        if name != "period"
    }
    mixed["value"].values[3] = np.nan  # no value, no token
    raw, whole = tokens.tokenize(mixed), tokens.tokenize(table)
    assert raw.lengths.tolist() == [13, 1, 9, 3, 20]
    assert set(raw.columns["at"][:13]) == set(whole.columns["at"][:14]) - {mixed["time"].values[3]}
    assert (np.diff(raw.columns["at"][:13]) > 0).all()


def test_variations_keep_the_first_point_and_what_is_beside():
    table = curves((60, 1, 40), extra=True)
    tokens = fitted(table, augment=["noise", "thin"], drop_points=0.9, extra=["redshift"])
    raw = tokens.tokenize(table)
    varied = tokens.augment_stream(raw, SampleRandom(0, 0, np.arange(3)))
    assert (varied.lengths >= [2, 2, 2]).all()
    assert varied.lengths.sum() < raw.lengths.sum()
    assert (varied.columns["entry"][varied.starts] > 0).all()
    moved = np.isin(varied.columns["value"], raw.columns["value"])
    assert moved.sum() <= 3
    assert np.isin(varied.columns["at"], raw.columns["at"]).all()


def test_weights_of_errors_are_those_of_astromer_2():
    error, sample = np.array([0.1, 0.2, 0.4, 0.3, 0.3, 0.5])[:, None], np.array([0, 0, 0, 1, 1, 2])
    weight = error_weights(error, np.ones((6, 1), bool), sample)[:, 0]
    inverse = 1 / error[:3, 0]
    np.testing.assert_allclose(weight[:3], (inverse - inverse.min()) / (inverse.max() - inverse.min()) + 1e-3)
    assert weight[3:].tolist() == [1, 1, 1]  # all alike
    known = np.array([True, True, False, False, False, True])[:, None]
    some = error_weights(error, known, sample)[:, 0]
    np.testing.assert_allclose(some[:3], [1.001, 0.001, 0.501])
    assert some[3:].tolist() == [1, 1, 1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 2**31), st.integers(1, 3))
def test_medians_are_those_of_numpy(lengths, seed, size):
    rng = np.random.default_rng(seed)
    sample = np.repeat(np.arange(len(lengths)), lengths)
    values = rng.normal(size=(len(sample), size)).round(1)
    there = rng.random(values.shape) < 0.7
    mixed = rng.permutation(len(sample))  # bands come in any order
    for room, order in itertools.product((0, 8), (slice(None), mixed)):
        with mock.patch.object(batch, "MAX_PLACES_PER_VALUE", room):
            found, number = group_medians(values[order], there[order], sample[order], len(lengths))
        for row in range(len(lengths)):
            mine = values[sample == row][there[sample == row]]
            assert number[row] == len(mine)
            assert found[row] == pytest.approx(np.median(mine) if len(mine) else 0)
    about = compute_level(values, there, sample, None, "mean", "deviation", (7.0, 3.0))
    for row in np.unique(sample):
        mine, here = values[sample == row][there[sample == row]], np.flatnonzero(sample == row)[0]
        assert about.centre[here, 0] == pytest.approx(mine.mean() if len(mine) else 7.0)
        spread = mine.std() if len(mine) > 1 and np.ptp(mine) > 0 else 3.0
        assert about.scale[here, 0] == pytest.approx(spread, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "count"),
    [({"extra": ["redshift", "field"], "times": "both", "by_band": True}, 5), ({"periods": 2}, 4 + 16)],
)
def test_others_are_told_how_tokens_are_made(fields, count):
    table = curves(bands=("g", "r"), limits=True, extra=True)
    tokens = fitted(table, **fields)
    about = json.loads(json.dumps(tokens.preprocessing(), allow_nan=False))
    stream = tokens.normalise(tokens.tokenize(tokens.example()))
    assert about["features"] == tokens.input_features
    assert len(about["features"]) == stream.columns["features"].shape[1] == count
    assert ("Lomb-Scargle" in about["columns"]["features"]) is bool(tokens.periods)
    view = Batch({"tokens": stream}, aside={"tokens": tokens.host_columns}).inputs().stream
    assert set(about["columns"]) == set(view.columns)
    assert about["learned"]["bands"] == ["g", "r"]
    assert torch.isfinite(tokens.embedding(8)(view.columns)).all()
