"""Patches of regular series: on the grid, gaps marked and never filled."""

import numpy as np
import pytest

from tests.domains.lightcurves.curves_table import curves, fitted, regular, series
from tests.errors import refuses


def made(table, **fields):
    return fitted(table, **{"patch": 4, "scale": "none", **fields})


def test_points_stand_on_the_grid():
    table = regular((40, 7, 25), share=0.3, hole=False)
    tokens = made(table)
    assert tokens.spacing == pytest.approx(0.02, rel=0.05)
    raw = tokens.tokenize(table)
    values = raw.columns["value"]
    assert values.shape[1] == 4
    assert np.isfinite(values).sum() == len(table["value"].values)
    np.testing.assert_array_equal(values[np.isfinite(values)], table["value"].values)
    slots = raw.columns["at"][:, None] + (np.arange(4) - 1.5) * tokens.spacing
    np.testing.assert_allclose(slots[np.isfinite(values)], table["time"].values, atol=0.3 * tokens.spacing)


def test_gaps_are_marked_not_filled():
    table = regular()
    tokens = made(table)
    raw = tokens.tokenize(table)
    empty = ~np.isfinite(raw.columns["value"]).any(1)
    assert empty.sum() >= 2
    assert not tokens.maskable(raw)[empty].any()
    stream = tokens.normalise(raw)
    value, flags = stream.columns["features"][:, :4], stream.columns["features"][:, 4:8]
    missing = np.isnan(raw.columns["value"])
    np.testing.assert_array_equal(flags, missing)
    assert (value[missing] == 0).all()
    seen = value[~missing].astype(float)
    sample = np.repeat(stream.sample, 4).reshape(-1, 4)[~missing]
    np.testing.assert_allclose(np.bincount(sample, seen), 0, atol=1e-3)  # centred on what is there
    less = made(table, gaps="drop").tokenize(table)
    assert less.lengths.sum() == raw.lengths.sum() - empty.sum()
    np.testing.assert_array_equal(less.columns["value"], raw.columns["value"][~empty])
    np.testing.assert_allclose(np.diff(raw.columns["at"][raw.sample == 0]), 4 * tokens.spacing, rtol=1e-6)


def test_several_bands_have_patches_of_their_own():
    table = series([0, 0, 1, 1, 2, 2, 3, 3], range(8), band=["g", "r"] * 4)
    raw = made(table, patch=2).tokenize(table)
    assert raw.columns["value"].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert raw.columns["band"].tolist() == [0, 1, 0, 1]
    assert raw.columns["at"].tolist() == [0.5, 0.5, 2.5, 2.5]


def test_points_at_one_time_are_their_mean():
    table = series([0, 1, 1.01, 2], [1, 2, 4, 5])
    raw = made(table, patch=2, cadence=1.0).tokenize(table)
    assert raw.columns["value"][0].tolist() == [1, 3]
    assert raw.columns["value"][1, 0] == 5
    assert np.isnan(raw.columns["value"][1, 1])


def test_a_series_that_is_not_regular_is_refused():
    table = curves((30, 40))
    with refuses("70 points", key="tokens.patch", hint="tokens.patch: 1"):
        made(table, cadence=1e-6).tokenize(table)
    single = curves((1, 1))
    with refuses(key="tokens.cadence", hint="tokens.cadence"):
        made(single)
