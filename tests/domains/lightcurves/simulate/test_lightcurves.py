"""Simulated series of all kinds: whole and finite, a row for each observation in long tables."""

import csv

import numpy as np
import pytest

from sciformer.data.columns import Lists, rows_of
from sciformer.data.readers.simulation import write_simulation
from sciformer.domains.lightcurves.simulate.lightcurves import CURVE_KINDS, LightCurves

UNKNOWN = {"period", "epoch", "mass", "eta", "merger"}  # NaN where there is none
OTHERS = [
    ("stars", {"cadence": "asas"}),
    ("stars", {"points": 40}),
    ("supernovae", {"unit": "flux", "bands": ("r",)}),
    ("oscillators", {"points": 501, "gaps": False}),
    ("transits", {"points": 64}),
    ("signals", {"white": True, "points": 512}),
]


@pytest.mark.parametrize(("what", "more"), [(what, {}) for what in CURVE_KINDS] + OTHERS)
def test_columns_are_whole_and_finite(what, more):
    table = LightCurves(what=what, seed=1, **more).make(60)
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


def test_pieces_of_long_series_are_smaller():
    sizes = [LightCurves(number=5000, what=what).open().sources["train"].sizes[0] for what in ("stars", "signals")]
    assert sizes == [4096, 512]


def test_a_long_table_has_a_row_for_each_observation(tmp_path):
    write_simulation(LightCurves(number=3), tmp_path / "a.csv")
    made = LightCurves().make(3)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(made["time"].values)
    assert [float(row["time"]) for row in rows] == made["time"].values.tolist()
    assert [row["id"] for row in rows] == np.repeat(made["id"], made["time"].lengths).tolist()
