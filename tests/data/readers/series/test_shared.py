"""Real light curves of the shared folder, skipped without it."""

import numpy as np
import pytest

from sciformer.data.columns import Lists, rows_of
from sciformer.data.split import Split
from tests.data.readers.series.examples import ALL, SHARED, section, whole

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the repository")
WISHES = ["error", "band", "limit", "clean", "period"]


def read(name, truth, **more):
    opened = section(SHARED / name, **{"split": ALL, **more}).want(["time", "value"], truth, WISHES).open()
    return whole(opened.sources["train"]), opened


def points(table):
    assert isinstance(table["time"], Lists)
    assert all(column.lengths is table["time"].lengths for column in table.values() if isinstance(column, Lists))
    return len(table["time"].values)


def test_asas():
    table, opened = read("asas_variables.parquet", ["label"])
    assert opened.notes == []
    assert (rows_of(table), points(table)) == (3110, 752062)
    assert dict(zip(*np.unique(table["label"], return_counts=True))) == {
        **dict.fromkeys(("MIRA", "EC", "ED", "ESD", "RRAB", "DSCT"), 450),
        "RRC": 329,
        "ACV": 81,
    }
    assert "band" not in table
    split = Split(valid=0.1, folds=5, fold=2, stratify="label")
    _, opened = read("asas_variables.parquet", ["label"], split=split, labels_per_class=20)
    assert {part: sum(source.sizes) for part, source in opened.sources.items()} == {
        "train": 160,
        "valid": 311,
        "test": 622,
    }


def test_stripe_82():
    table, opened = read("sdss_s82_rrlyrae.parquet", ["label", "period"])
    assert [note.startswith("8 of 136,196 points") and "mean" in note for note in opened.notes] == [True]
    assert (rows_of(table), points(table)) == (483, 136188)
    assert dict(zip(*np.unique(table["label"], return_counts=True))) == {"ab": 379, "c": 104}
    assert set(table["band"].values) == set("ugriz")
    assert 0.2 < table["period"].min() < table["period"].max() < 1.0
    table, opened = read("sdss_s82_rrlyrae.parquet", ["period"], bands=["g", "r"])
    assert set(table["band"].values) == {"g", "r"}


def test_supernovae():
    table, opened = read("ztf_bts_snia.parquet", ["redshift"])
    assert opened.notes == ["2 of 2,289 objects have no `redshift`: left out."]
    assert rows_of(table) == 2287
    table, opened = read("ztf_bts_snia.parquet", [])
    assert opened.notes == []
    assert (rows_of(table), points(table)) == (2289, 44339)
    assert set(table["band"].values) == {"g", "R", "i"}
    assert table["time"].values.dtype == np.float64
    short, opened = read("ztf_bts_snia.parquet", [], min_points=10)
    assert rows_of(short) == (table["time"].lengths >= 10).sum() < 2289
    assert "have fewer than 10 points: left out." in opened.notes[0]
