"""Periods of series as features of observations: what they tell, what they keep, and where they are refused."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists, select
from sciformer.data.random import SampleRandom
from sciformer.domains.lightcurves import periods
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.objectives.base import Objective
from sciformer.objectives.masked import Masked
from sciformer.testing import check_tokens
from tests.domains.lightcurves.curves_table import curves, fitted, regular
from tests.errors import refuses

LENGTHS = (60, 1, 40, 3, 2, 50)


def made(table, **fields):
    return fitted(table, **{"periods": 1, "shortest": 1.0, **fields})


def told(tokens, stream, what):
    return tokens.normalise(stream).columns["features"][:, tokens.input_features.index(what)]


@pytest.mark.filterwarnings("error")
def test_every_observation_is_told_its_phase():
    table = curves(LENGTHS)
    tokens = made(table, periods=2)
    raw = tokens.tokenize(table)
    assert tokens.input_features == ["value", "error", "no error", *periods.feature_names(2)]
    features = tokens.normalise(raw).columns["features"]
    assert features.shape == (sum(LENGTHS), 3 + 16)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    for row in (0, 2, 5):
        mine = raw.sample == row
        period = raw.columns["period"][mine]
        assert (period == period[0]).all()
        assert period[0, 0] == pytest.approx(table["period"][row], rel=2e-3)
        time, middle = raw.columns["at"][mine], (raw.columns["at"][mine] - 60200)
        for name, times in (("half", 0.5), ("", 1), ("twice", 2)):
            sine, cosine = (told(tokens, raw, f"{w} {name}".strip() + " of period 1")[mine] for w in ("sin", "cos"))
            np.testing.assert_allclose(sine**2 + cosine**2, 1, atol=1e-5)
            turn = np.exp(-2j * np.pi * times * middle / float(period[0, 0])) * (cosine + 1j * sine)
            assert np.abs(turn - turn.mean()).max() < 2e-3, "the phase runs as time does"
        high = told(tokens, raw, "cos of period 1")[mine]
        assert np.corrcoef(high, table["value"].values[mine])[0, 1] > 0.9
        assert (np.diff(time) > 0).all()
        power = told(tokens, raw, "power of period 1")[mine]
        assert 0.9 < power[0] <= 1
        logs = (np.log(period[0, 0]) - tokens.state["period"][0]) / tokens.state["period"][1]
        np.testing.assert_allclose(told(tokens, raw, "ln of period 1")[mine], np.clip(logs, -5, 5), rtol=1e-4)
    few = np.isin(raw.sample, [1, 3, 4])
    assert (features[few, 3:] == 0).all()


def test_series_without_variation():
    table = {**curves(LENGTHS), "value": Lists(np.full(sum(LENGTHS), 12.3, np.float32), np.array(LENGTHS))}
    tokens = made(table)
    assert tokens.state["period"] == [0.0, 1.0]
    features = tokens.normalise(tokens.tokenize(table)).columns["features"]
    assert np.isfinite(features).all()
    assert (features[:, 3:] == 0).all()


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        ({"periods": 2}, curves((30, 1, 12))),
        (
            {"augment": ["noise", "thin"], "extra": ["redshift", "field"]},
            curves(extra=True, bands=("g", "r"), limits=True),
        ),
        ({"patch": 4, "shortest": 0.05}, regular()),
    ],
)
def test_they_keep_every_promise_but_hiding(fields, table):
    tokens = Observations(kind="observations", **{"periods": 1, **fields})
    assert not tokens.can_hide
    assert check_tokens(tokens, table, missing=("value", "error")) == []


def test_hidden_values_would_leak():
    table = curves()
    tokens = made(table)
    batch = Batch({"tokens": tokens.tokenize(table)}, ids=np.arange(5))
    masked = Masked(kind="masked", mask_ratio=0.5)
    with refuses("tokens.periods: 1", key="tokens.periods"):
        masked.corrupt(batch, {"tokens": tokens}, SampleRandom(0, 0, batch.ids))
    for refused in (tokens.mask_out, lambda *some: tokens.random_replacement(*some, SampleRandom(0, 0, batch.ids))):
        with refuses("tokens.periods: 1", key="tokens.periods"):
            refused(batch.stream, np.ones(sum(batch.stream.lengths), bool))
    other = made(table, periods=0)
    assert masked.corrupt(batch, {"tokens": other}, SampleRandom(0, 0, batch.ids))
    assert isinstance(Objective().corrupt(batch, {"tokens": tokens}, SampleRandom(0, 0, batch.ids)), Batch)


def test_windows_and_variations_keep_the_periods():
    table = curves(LENGTHS)
    tokens = made(table, augment=["noise", "thin"], drop_points=0.5)
    raw = tokens.tokenize(table)
    varied = tokens.augment_stream(raw, SampleRandom(0, 0, np.arange(len(raw))))
    assert varied.lengths.sum() < raw.lengths.sum()
    at = np.searchsorted(raw.columns["at"][:60], varied.columns["at"][: varied.lengths[0]])
    window = raw.cut(np.array([7]), np.array([20]))
    for name in periods.PERIOD_COLUMNS:
        np.testing.assert_array_equal(varied.columns[name][: varied.lengths[0]], raw.columns[name][:60][at])
        np.testing.assert_array_equal(window.columns[name], raw.columns[name][7:27])


def test_the_beginning_of_a_series_does_not_know_its_end():
    table = curves(LENGTHS)
    tokens = made(table)
    early = tokens.truncate(tokens.tokenize(table), 150)
    time, sample = table["time"].values, np.repeat(np.arange(6), LENGTHS)
    first = time[np.cumsum(LENGTHS) - LENGTHS]
    kept = time - first[sample] <= 150
    lengths = np.bincount(sample[kept])
    cut = {name: Lists(table[name].values[kept], lengths) for name in ("time", "value", "error")}
    alone = tokens.tokenize(cut)
    for name in ("at", *periods.PERIOD_COLUMNS):
        np.testing.assert_array_equal(early.columns[name], alone.columns[name])
    assert not np.array_equal(early.columns["period"], tokens.tokenize(table).columns["period"][kept])


def test_periods_are_found_once(monkeypatch):
    table, calls = curves((40, 30), seed=77), []
    found = periods.find_periods
    monkeypatch.setattr(periods, "find_periods", lambda *some: calls.append(1) or found(*some))
    tokens = made(table)
    assert len(calls) == 2
    raw = tokens.tokenize(table)
    again = tokens.tokenize(select(table, np.array([1])))
    assert len(calls) == 2
    np.testing.assert_array_equal(again.columns["phase"], raw.columns["phase"][40:])
    made(table, shortest=2.0).tokenize(table)
    assert len(calls) == 4  # another search
    monkeypatch.setattr(periods, "MAX_CACHED_SERIES", 1)
    tokens.tokenize(curves((20, 20), seed=78))
    assert len(calls) == 6


def test_limits_and_what_is_given_beside_have_no_say():
    table = curves((60, 40), limits=True, extra=True)
    tokens = made(table, extra=["redshift"])
    raw = tokens.tokenize(table)
    limit = table["limit"].values
    wild = np.where(limit, 99, table["value"].values).astype(np.float32)
    other = tokens.tokenize({**table, "value": Lists(wild, table["value"].lengths)})
    for name in periods.PERIOD_COLUMNS:
        np.testing.assert_array_equal(raw.columns[name], other.columns[name])
    beside = raw.columns["entry"] > 0
    features = tokens.normalise(raw).columns["features"]
    assert (features[beside, tokens.input_features.index("sin half of period 1") :] == 0).all()
    assert (raw.columns["period"][~beside] > 0).all()


def test_patches_have_the_phase_of_their_middle():
    table = regular((400, 300), share=0.1)
    tokens = made(table, patch=4, shortest=0.01)
    raw = tokens.tokenize(table)
    assert periods.period_search(tokens).shortest == pytest.approx(2 * tokens.spacing)
    np.testing.assert_allclose(raw.columns["period"][:, 0], 2 * np.pi * 3 * 0.02, rtol=0.02)
    assert raw.columns["phase"].shape == (len(raw.columns["at"]), 1)


def test_people_see_the_folded_curve():
    table = {name: column for name, column in curves(LENGTHS, bands=("g", "r")).items() if name != "period"}
    tokens = made(table, periods=2)
    one = Batch({"tokens": tokens.tokenize(select(table, np.array([0])))}, ids=np.zeros(1, np.int64))
    axes = Figure().add_subplot()
    tokens.alternative_drawings(one)["folded"](one, None, axes)
    assert f"period {one.stream.columns['period'][0, 0]:.6g}" in axes.get_xlabel()
    known = one.with_columns(period=np.array([7.25]))
    tokens.alternative_drawings(known)["folded"](known, None, axes)
    assert "period 7.25" in axes.get_xlabel()
    unknown = Batch({"tokens": tokens.tokenize(select(table, np.array([1])))}, {"period": np.array([np.nan])})
    assert tokens.alternative_drawings(unknown) == {}
