"""The periodogram is that of the definition and of astropy, and periods of made-up stars are found."""

import numpy as np
import pytest

from sciformer.domains.lightcurves.periods import (
    MAX_FREQUENCIES,
    PeriodSearch,
    find_peaks,
    find_periods,
    fit_harmonics,
    periodogram,
    trigonometric_sums,
)
from sciformer.domains.lightcurves.simulate.lightcurves import LightCurves
from tests.errors import refuses


def series(period=0.5634, points=120, seed=0, span=400.0, shape=np.sin):
    rng = np.random.default_rng(seed)
    time = 60000 + np.sort(np.floor(rng.uniform(0, span, points)) + rng.uniform(0.2, 0.6, points))
    error = rng.uniform(0.01, 0.05, points)
    value = 12 + 0.3 * shape(2 * np.pi * time / period) + error * rng.normal(size=points)
    return time, value, error


@pytest.mark.parametrize("counts", [(1, 5), (2048, 3), (7001, 4096)])
def test_sums_are_those_of_the_definition(counts):
    rng = np.random.default_rng(0)
    x, weights = rng.uniform(-0.5, 0.5, 40), rng.uniform(-1, 1, (2, 40))
    for found, row, count in zip(trigonometric_sums(x, weights, counts), weights, counts):
        assert found.shape == (count,)
        some = np.unique(np.linspace(0, count - 1, 50).astype(int))
        true = np.exp(2j * np.pi * np.outer(some, x)) @ row
        np.testing.assert_allclose(found[some], true, atol=3e-5 * np.abs(row).sum())


@pytest.mark.parametrize("known", [True, False])
def test_it_is_the_periodogram_of_astropy(known):
    timeseries = pytest.importorskip("astropy.timeseries")
    time, value, error = series()
    theirs = timeseries.LombScargle(time, value, error if known else None)
    frequency, power = periodogram(time, value, error if known else None, PeriodSearch(shortest=0.2, oversampling=5))
    assert frequency[0] == pytest.approx(1 / np.ptp(time))
    assert frequency[-1] == pytest.approx(5, abs=1e-3)
    np.testing.assert_allclose(power, theirs.power(frequency, method="cython"), atol=2e-5)
    some, w = frequency[::500], 1 / error**2 if known else np.ones(len(time))
    several = timeseries.LombScargle(time, value, error if known else None, nterms=3)
    np.testing.assert_allclose(fit_harmonics(time, value, w, some, 3)[1], several.power(some, method="chi2"), atol=1e-6)


def test_peaks_do_not_touch():
    frequency, power = np.arange(10.0), np.array([9, 1, 5, 6, 5, 7, 0, 1, 2, 3.0])
    assert find_peaks(frequency, power, 4, 0.5).tolist() == [0, 5, 3, 9]
    assert find_peaks(frequency, power, 4, 2.5).tolist() == [0, 5, 9]
    assert find_peaks(frequency[:0], power[:0], 4, 1.0).tolist() == []


@pytest.mark.parametrize(("label", "factor", "share"), [("RRAB", 1, 0.9), ("EC", 0.5, 0.8), ("MIRA", 1, 0.8)])
def test_periods_of_made_up_stars_are_found(label, factor, share):
    """Contact binaries have two like minima: the highest peak is at half of their period."""
    table = LightCurves(what="stars", seed=1, classes=[label], cadence="asas").make(12)
    stops = table["time"].lengths.cumsum()
    found = []
    for start, stop in zip(stops - table["time"].lengths, stops):
        time, value, error = (table[name].values[start:stop] for name in ("time", "value", "error"))
        found.append(find_periods(time, value, error).period[0])
    right = np.abs(np.array(found) / (factor * table["period"]) - 1) < (0.05 if label == "MIRA" else 1e-3)
    assert right.mean() >= share


def test_what_does_not_matter():
    time, value, error = series(shape=lambda x: np.exp(np.cos(x)))
    search = PeriodSearch(2, shortest=0.2)
    one = find_periods(time, value, error, None, search)
    assert one.period[0] == pytest.approx(0.5634, rel=1e-4)
    assert 0.5 < one.power[0] <= 1
    turn = np.round(one.epoch[0] / 0.5634) * 0.5634
    assert one.epoch[0] == pytest.approx(turn, abs=0.05)  # the curve is highest where its cosine is
    other = find_periods(time - 59000.5, 3 * value - 70, 3 * error, None, search)
    for found, expected in zip(other, (one.period, one.epoch - 59000.5, one.power)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    mixed = np.random.default_rng(0).permutation(len(time))
    np.testing.assert_allclose(find_periods(time[mixed], value[mixed], error[mixed], None, search).period, one.period)


def test_bands_share_a_period_and_have_levels_of_their_own():
    time, value, error = series()
    band = np.random.default_rng(0).integers(0, 3, len(time))
    apart = value + np.array([0.0, 5.0, -3.0])[band]
    found = find_periods(time, apart, error, band)
    assert found.period[0] == pytest.approx(0.5634, rel=1e-4)
    assert find_periods(time, apart, error).power[0] < 0.3 < 0.9 < found.power[0]


def test_unknown_errors_and_one_that_is_far_too_small():
    time, value, error = series()
    error[3], error[5:20] = 1e-9, np.nan
    value[3] += 1
    assert find_periods(time, value, error).period[0] == pytest.approx(0.5634, rel=1e-3)
    assert find_periods(time, value, np.full(len(time), np.nan)).period[0] == pytest.approx(0.5634, rel=1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("points", [0, 1, 2, 3, 4, 5, 6, 9, 17])
def test_few_points_and_constant_series(points):
    time, value, error = (part[:points] for part in series())
    found = find_periods(time, value, error, None, PeriodSearch(2))
    assert np.isnan(found.period).all() == (points < 5)
    assert np.isfinite([found.power, found.epoch]).all()
    for level in (0.0, 12.345):
        flat = find_periods(time, np.full(points, level), error, None, PeriodSearch(2))
        assert np.isnan(flat.period).all()
        assert (flat.power == 0).all()
    same = find_periods(np.full(points, 3.0), value, error)
    assert np.isnan(same.period).all()


def test_ranges():
    time, value, error = series(span=20.0)
    inside = find_periods(time, value, error, None, PeriodSearch(3, shortest=0.7, longest=5.0)).period
    assert ((inside > 0.68) & (inside < 5.3)).all()
    assert np.isnan(find_periods(time, value, error, None, PeriodSearch(shortest=30.0)).period).all()
    with refuses(f"{MAX_FREQUENCIES:,}"):
        find_periods(time * 1e5, value, error)
