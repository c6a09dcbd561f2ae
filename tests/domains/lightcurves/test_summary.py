"""Summary features of series: values, invariances, windows, and where they are refused."""

import numpy as np
import pytest

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists
from sciformer.data.random import SampleRandom
from sciformer.domains.lightcurves.summary import FOLDED, MOMENTS, summarise, summary_names
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.objectives.masked import Masked
from sciformer.testing import check_tokens
from tests.domains.lightcurves.curves_table import curves, fitted, regular
from tests.errors import refuses

LENGTHS = (60, 1, 40, 3, 2, 50)


def made(table, **fields):
    return fitted(table, **{"summary": True, "periods": 1, "shortest": 1.0, **fields})


def of_summary(tokens, stream):
    names = summary_names(tokens.periods > 0)
    start = tokens.input_features.index(names[0])
    return tokens.normalise(stream).columns["features"][:, start : start + len(names)]


def test_values_of_a_known_curve():
    """Skewness and kurtosis as NumPy has them; harmonics as the curve was made."""
    rng = np.random.default_rng(0)
    time = np.sort(rng.uniform(0, 100, 400))
    turn = 2 * np.pi * time / 3.7
    value = 12 + 2 * np.cos(turn) + 0.6 * np.cos(2 * turn + 1.0)
    names, found = summary_names(True), summarise(time, value, np.full(400, 0.01), None, 3.7)
    of = dict(zip(names, found))
    assert len(names) == len(set(names)) == len(found) == len(MOMENTS) + 2 * len(FOLDED)
    z = (value - value.mean()) / value.std()
    assert of["ln deviation"] == pytest.approx(np.log(value.std()))
    assert of["skewness"] == pytest.approx((z**3).mean())
    assert of["ln error"] == pytest.approx(np.log(0.01 / value.std()))
    assert of["explained, folded with the period"] == pytest.approx(1, abs=1e-3)
    assert of["second harmonic, folded with the period"] == pytest.approx(0.3, abs=1e-3)
    turned = of["cos of second, folded with the period"] + 1j * of["sin of second, folded with the period"]
    assert np.exp(-1j * 1.0) == pytest.approx(turned, abs=1e-2)
    assert of["second harmonic, folded with twice the period"] == 3  # the largest that is kept
    later = summarise(time + 1234.5, value + 3, np.full(400, 0.01), None, 3.7)
    np.testing.assert_allclose(later, found, atol=0.02)  # neither time nor value has an origin
    louder = summarise(time, 5 * value, np.full(400, 0.05), None, 3.7)
    np.testing.assert_allclose(louder[1:], found[1:], atol=1e-6)  # only the deviation has a unit
    assert summarise(time[:4], value[:4], np.full(4, 0.01)) is None
    assert summarise(time, np.full(400, 12.0), np.full(400, 0.01)) is None


@pytest.mark.filterwarnings("error")
def test_all_tokens_of_a_series_have_its_summary():
    table = curves(LENGTHS, bands=("g", "r"), limits=True, extra=True)
    tokens = made(table, extra=["redshift"])
    raw = tokens.tokenize(table)
    features = of_summary(tokens, raw)
    own = raw.columns["entry"] == 0
    for row in range(len(LENGTHS)):
        mine = features[(raw.sample == row) & own]
        assert (mine == mine[:1]).all()
        assert (mine != 0).any() == (LENGTHS[row] > 5)
    assert np.isfinite(features).all()
    assert np.abs(features).max() <= 5
    assert (features[~own] == 0).all()
    assert "ln deviation" in tokens.preprocessing()["features"]
    unit_free = made(table, scale="deviation")
    assert (of_summary(unit_free, unit_free.tokenize(table))[:, 0] == 0).all()


def test_windows_and_augmentation_keep_the_summary_and_the_beginning_has_its_own():
    table = curves((60, 40))
    tokens = made(table, augment=["thin"], drop_points=0.5)
    raw = tokens.tokenize(table)
    varied = tokens.augment_stream(raw, SampleRandom(0, 0, np.arange(2)))
    assert varied.lengths.sum() < raw.lengths.sum()
    np.testing.assert_array_equal(varied.columns["summary"][0], raw.columns["summary"][0])
    window = raw.cut(np.array([7]), np.array([20]))
    np.testing.assert_array_equal(window.columns["summary"], raw.columns["summary"][7:27])
    early = tokens.truncate(raw, 150)
    count = int(early.lengths[0])
    alone = {name: Lists(table[name].values[:count], np.array([count])) for name in ("time", "value", "error")}
    np.testing.assert_array_equal(early.columns["summary"][:count], tokens.tokenize(alone).columns["summary"])


@pytest.mark.parametrize(
    ("fields", "table"),
    [({"periods": 0}, curves((30, 1, 12))), ({"periods": 1, "patch": 4, "shortest": 0.05}, regular())],
)
def test_promises_of_tokens(fields, table):
    tokens = Observations(kind="observations", summary=True, **fields)
    assert not tokens.can_hide
    assert check_tokens(tokens, table, missing=("value", "error", "summary")) == []


def test_refused_with_hidden_values():
    table = curves()
    tokens = made(table, periods=0)
    batch = Batch({"tokens": tokens.tokenize(table)}, ids=np.arange(5))
    with refuses(key="tokens.summary"):
        Masked(kind="masked", mask_ratio=0.5).corrupt(batch, {"tokens": tokens}, SampleRandom(0, 0, batch.ids))
