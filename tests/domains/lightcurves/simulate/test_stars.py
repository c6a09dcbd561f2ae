"""Stars: periods come back from the points, amplitudes and errors are what is told, cadences have seasons."""

import numpy as np
import pytest

from sciformer.domains.lightcurves.simulate import cadence, stars
from sciformer.domains.lightcurves.simulate.cadence import Epochs
from sciformer.domains.lightcurves.simulate.lightcurves import LightCurves
from sciformer.domains.lightcurves.simulate.stars import (
    CLASSES,
    PERCENTILE_SIGMAS,
    PERCENTILE_TABLES,
    damped_random_walk,
    draw_parameters,
    eclipse_dip,
)

PERIODIC = ("RRAB", "RRC", "CEP_F", "CEP_1O", "DSCT", "ED", "ESD", "EC", "ACV")


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def spread_of(time, value, period, bins=20):
    """The scatter within bins of phase against that of all."""
    cell = (np.remainder(time / period, 1) * bins).astype(int)
    count = np.maximum(np.bincount(cell, minlength=bins), 1)
    mean = np.bincount(cell, value, bins) / count
    return ((value - mean[cell]) ** 2).mean() / max(value.var(), 1e-12)


def curves(name, number=12, **more):
    table = LightCurves(what="stars", seed=2, classes=[name], **more).make(number)
    starts = np.cumsum(table["time"].lengths) - table["time"].lengths
    for row, (start, length) in enumerate(zip(starts, table["time"].lengths)):
        inside = slice(start, start + length)
        columns = {key: table[key].values[inside] for key in ("time", "value", "error", "clean")}
        yield columns | {key: table[key][row] for key in ("period", "amplitude")}


@pytest.mark.parametrize("name", PERIODIC)
def test_folding_at_the_period_is_better_than_at_others(name):
    found = 0
    for curve in curves(name, cadence="asas"):
        time, clean, period = curve["time"], curve["clean"].astype(float), curve["period"]
        own = spread_of(time, clean, period)
        others = [spread_of(time, clean, period * factor) for factor in (0.93, 1.0137, 1.117, 0.789)]
        found += own < 0.5 * min(others)
    assert found >= 9  # some have a second period, or eclipses that were missed


def test_miras_come_back_in_a_period_and_never_quite():
    for curve in curves("MIRA", cadence="asas"):
        time, clean = curve["time"], curve["clean"].astype(float)
        if np.ptp(time) > 4 * curve["period"]:
            own, other = (spread_of(time, clean, curve["period"] * factor) for factor in (1, 1.3))
            assert 0.003 < own < 0.4
            assert own < other
        assert 1.0 < curve["amplitude"] <= 6


@pytest.mark.parametrize("name", PERIODIC)
def test_amplitudes_are_those_told(name):
    for curve in curves(name, points=400):
        full = np.ptp(curve["clean"])
        assert full < 1.7 * curve["amplitude"] + 1e-3
        if name not in ("ED", "ESD") and len(curve["time"]) > 100:
            assert full > 0.5 * curve["amplitude"]


def test_stars_without_period_have_none():
    for name in ("DRW", "CONST"):
        assert all(np.isnan(curve["period"]) for curve in curves(name))
    assert all(curve["period"] > 0 for name in ("SR", "MIRA") for curve in curves(name))


@pytest.mark.parametrize("name", PERCENTILE_TABLES)
def test_numbers_of_pulsators_have_the_percentiles_of_the_catalogue(name, rng):
    drawn = draw_parameters(name, 4000, rng)
    for row, table in zip(drawn, PERCENTILE_TABLES[name]):
        for share, value in zip((25, 50, 75), table[1:4]):
            width = max(table[3] - table[1], 1e-6)
            assert abs(np.percentile(row, share) - value) < 0.25 * width + 1e-9
    assert len(PERCENTILE_SIGMAS) == len(PERCENTILE_TABLES[name][0])
    if name == "RRAB":
        assert np.corrcoef(drawn[0], drawn[1])[0, 1] < -0.4
    grid = np.exp(2j * np.pi * np.outer(np.arange(1, 9), np.arange(500) / 500))
    np.testing.assert_allclose(np.ptp((stars.fourier_coefficients(drawn[:, :50]) @ grid).real, axis=1), 1, rtol=0.02)


def test_a_dip_is_as_deep_and_wide_as_told():
    phase = np.linspace(-0.5, 0.5, 2001)
    made = eclipse_dip(phase, np.full(2001, 0.4), np.full(2001, 0.05), np.full(2001, 2.0))
    assert made.max() == pytest.approx(0.4)
    assert made[np.abs(phase) > 0.16].max() == 0
    assert np.interp(0.05, phase, made) == pytest.approx(0.4 / np.e, rel=1e-3)


def test_a_random_walk_forgets_as_told(rng):
    time = np.tile(np.arange(400.0), 300)
    made = damped_random_walk(Epochs(time, np.full(300, 400)), np.full(300, 20.0), rng).reshape(300, 400)
    assert made.std() == pytest.approx(1, abs=0.05)
    assert (made[:, 20:] * made[:, :-20]).mean() == pytest.approx(np.exp(-1), abs=0.06)
    uneven = damped_random_walk(Epochs(np.arange(7.0), np.array([2, 4, 1])), np.full(3, 5.0), rng)
    assert np.isfinite(uneven).all()


@pytest.mark.parametrize("name", ["survey", "asas"])
def test_nights_seasons_and_hours(name, rng):
    epochs = getattr(cadence, f"{name}_epochs")(200, rng)
    starts = epochs.starts
    inside = np.ones(len(epochs.time), bool)
    inside[starts] = False
    step = np.diff(epochs.time, prepend=0)[inside]
    assert (step > 0).all()
    hours = [np.remainder(epochs.time[s : s + n] + 0.3, 1) for s, n in zip(starts, epochs.lengths)]
    assert max(map(np.ptp, hours)) < 0.8  # the sun is up for the rest
    gaps = np.array([(np.diff(epochs.time[s : s + n]) > 60).sum() for s, n in zip(starts, epochs.lengths)])
    years = np.array([np.ptp(epochs.time[s : s + n]) / 365.25 for s, n in zip(starts, epochs.lengths)])
    assert np.median(gaps / years) > 0.7
    assert 2 < np.median(years) < 7
    assert epochs.lengths.min() >= cadence.MIN_POINTS
    if name == "asas":
        assert epochs.lengths.max() == np.median(epochs.lengths) == 250
        assert 1.9 < np.median(step) < 3.1
    else:
        assert 100 < np.median(epochs.lengths) < 140


def test_errors_of_a_survey_describe_the_noise():
    table = LightCurves(what="stars", seed=4, classes=["CONST"]).make(400)
    pull = (table["value"].values - table["clean"].values) / table["error"].values
    low, high = np.percentile(pull, (16, 84))
    assert 0.9 < (high - low) / 2 < 1.3
    assert 0.003 < np.mean(np.abs(pull) > 5) < 0.015
    assert np.corrcoef(table["clean"].values, np.log(table["error"].values))[0, 1] > 0.5


def test_errors_in_the_manner_of_asas():
    table = LightCurves(what="stars", seed=4, cadence="asas").make(400)
    error, clean = table["error"].values, table["clean"].values
    low, middle, high = np.percentile(error, (5, 50, 95))
    assert 0.02 < low < middle < high < 0.065
    scatter = np.abs(table["value"].values - clean)
    bright, faint = (np.median(scatter[one]) for one in (clean < 11, (clean > 13) & (clean < 13.5)))
    assert faint > 3 * bright
    assert table["value"].lengths.max() == cadence.ASAS_POINTS
    assert middle == pytest.approx(stars.ASAS_QUOTED_ERROR, rel=0.05)


def test_most_of_a_curve_is_above_the_limit(rng):
    label = np.repeat(np.arange(len(CLASSES)), 30)
    table = stars.stars(label, rng, "asas", 0)
    mira = np.repeat(label, table["value"].lengths) == CLASSES.index("MIRA")
    assert table["value"].lengths.min() >= cadence.MIN_POINTS
    assert table["value"].lengths[label == CLASSES.index("MIRA")].mean() < 240  # some are lost when faint
    assert np.percentile(table["clean"].values[~mira], 99) < stars.ASAS_LIMIT
