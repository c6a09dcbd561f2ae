"""Simulated series of all kinds: the same ones each time, whatever is asked for in one go; whole; refused when asked
for nonsense."""

import numpy as np
import pytest

from sciformer.data.columns import Lists, concatenate, rows_of
from sciformer.domains.lightcurves.simulate import lightcurves as lightcurves_module
from sciformer.domains.lightcurves.simulate.lightcurves import CLASSES, CURVE_KINDS, Options, lightcurves
from tests.errors import refuses

UNKNOWN = {"period", "epoch", "mass", "eta", "merger"}  # NaN where there is none
OTHERS = [
    ("stars", {"cadence": "asas"}),
    ("stars", {"points": 40}),
    ("supernovae", {"unit": "flux", "bands": ("r",)}),
    ("oscillators", {"points": 501, "gaps": False}),
    ("transits", {"points": 64}),
    ("signals", {"white": True, "points": 512}),
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(
        lightcurves_module,
        "CURVES_PER_CHUNK",
        {"stars": 52, "supernovae": 16, "oscillators": 8, "transits": 8, "signals": 8},
    )
    lightcurves_module.make_chunk.cache_clear()
    yield
    lightcurves_module.make_chunk.cache_clear()


def assert_same(one, two):
    assert list(one) == list(two)
    for name, column in one.items():
        if isinstance(column, Lists):
            np.testing.assert_array_equal(column.lengths, two[name].lengths)
            np.testing.assert_array_equal(column.values, two[name].values)
        else:
            np.testing.assert_array_equal(column, two[name])


@pytest.mark.parametrize("what", CURVE_KINDS)
def test_a_curve_is_the_same_whatever_it_is_asked_for_with(what):
    whole = lightcurves(60, what, seed=3, part="train")
    pieces = [lightcurves(n, what, 3, first=first, part="train") for first, n in ((0, 7), (7, 30), (37, 23))]
    assert_same(whole, concatenate(pieces))
    assert_same(whole, lightcurves(60, what, seed=3, part="train"))


@pytest.mark.parametrize("what", CURVE_KINDS)
def test_seeds_and_parts_have_no_curve_in_common(what):
    tables = [lightcurves(8, what, seed, part=part) for seed, part in ((0, "train"), (0, "valid"), (1, "train"))]
    values = [table["value"].values for table in tables]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not np.isin(values[i][:40], values[j]).all()
    assert len({str(table["id"]) for table in tables}) == 3


@pytest.mark.parametrize(("what", "more"), [(what, {}) for what in CURVE_KINDS] + OTHERS)
def test_columns_are_whole_and_finite(what, more):
    table = lightcurves(60, what, seed=1, **more)
    assert rows_of(table) == 60
    lengths = table["time"].lengths
    assert lengths.min() >= 5
    assert table["time"].values.dtype == np.float64
    for name, column in table.items():
        values = column.values if isinstance(column, Lists) else column
        if isinstance(column, Lists):
            np.testing.assert_array_equal(column.lengths, lengths)
            assert len(values) == lengths.sum()
            assert name in ("time", "band", "limit") or values.dtype == np.float32
        assert values.dtype.kind in "Ub" or name in UNKNOWN or np.isfinite(values).all(), name
    inside = np.ones(lengths.sum(), bool)
    inside[(lengths.cumsum() - lengths)] = False
    assert (np.diff(table["time"].values, prepend=0)[inside] > 0).all()
    assert "error" not in table or (table["error"].values > 0).all()


@pytest.mark.parametrize("what", CURVE_KINDS)
def test_classes_are_equally_frequent(what):
    known = CLASSES[what]
    some = known[: max(1, len(known) - 1)]
    label = lightcurves(4 * 52, what, classes=some)["label"]
    counts = [np.count_nonzero(label == name) for name in some]
    assert sum(counts) == 4 * 52
    assert max(counts) - min(counts) <= 0.1 * sum(counts)


@pytest.mark.parametrize(
    ("arguments", "more", "mentions", "hint"),
    [
        ((0,), {}, ("number", 0), ""),
        ((5, "stras"), {}, ("stras",), "'stars'"),
        ((5, "stars", -1), {}, ("seed", -1), ""),
        ((5, "stars", 0, ["RRAB", "RRD"]), {}, ("stars", "RRD"), ""),
        ((5, "stars", 0, ["RRAB", "RRAB"]), {}, ("stars", "RRAB, RRAB"), ""),
        ((5, "stars", 0, (), 0, "tset"), {}, ("part", "tset"), "'test'"),
        ((5, "stars"), {"cadence": "servey"}, ("cadence", "servey"), "'survey'"),
        ((5, "stars"), {"points": 3}, ("points", 32, "65,536", 3), ""),
        ((5, "stars"), {"snr": (3.0, 4.0)}, ("`snr`", "stars"), ""),
        ((5, "signals"), {"cadence": "asas"}, ("`cadence`", "signals"), ""),
        ((5, "signals"), {"snr": (9.0, 4.0)}, ("snr", "9.0 to 4.0"), ""),
        ((5, "supernovae"), {"bands": ("g", "u")}, ("band", "'u'"), ""),
        ((5, "supernovae"), {"bands": ()}, ("bands",), ""),
        ((5, "supernovae"), {"unit": "lux"}, ("unit", "lux"), ""),
    ],
)
def test_nonsense_is_refused(arguments, more, mentions, hint):
    with refuses(*mentions, hint=hint):
        lightcurves(*arguments, **more)


def test_every_option_is_used_by_some_kind():
    assert {name for names in lightcurves_module.OPTIONS_BY_KIND.values() for name in names} == set(
        Options.__dataclass_fields__
    )
