"""The reader that simulates light curves: parts, pieces, fewer columns, what is kept."""

import numpy as np

from sciformer.data.columns import Lists
from sciformer.data.source import pieces
from sciformer.domains.lightcurves.simulate.lightcurves import lightcurves
from sciformer.domains.lightcurves.simulate.sections import LightCurves
from sciformer.recipe.registry import find
from tests.errors import refuses


def section(**more):
    return LightCurves(kind="lightcurves", **{"number": 100, "chunk_size": 40} | more)


def test_parts_come_in_pieces_and_have_no_curve_in_common():
    opened = section(valid=30).open()
    assert find("data", "lightcurves") is LightCurves
    assert {part: source.sizes for part, source in opened.sources.items()} == {
        "train": [40, 40, 20],
        "valid": [30],
        "test": [10],
    }
    train = np.concatenate([table["value"].values for table in pieces(opened.sources["train"])])
    np.testing.assert_array_equal(train, lightcurves(100, part="train")["value"].values)
    for part in ("valid", "test"):
        assert np.isin(opened.sources[part].load(0)["value"].values, train).mean() < 0.05
    assert list(section(valid=0, test=0).open().sources) == ["train"]
    sizes = [
        section(number=5000, chunk_size=None, what=what).open().sources["train"].sizes[0]
        for what in ("stars", "signals")
    ]
    assert sizes == [4096, 512]


def test_what_names_the_data_changes_with_them():
    changes = ({}, {"seed": 1}, {"number": 99}, {"cadence": "asas"}, {"points": 60}, {"classes": ["RRAB", "EC"]})
    changes += ({"what": "signals"}, {"what": "signals", "snr": (8.0, 8.0)}, {"what": "supernovae", "unit": "flux"})
    assert len({str(section(**more).open().fingerprint) for more in changes}) == len(changes)
    assert section().open().fingerprint == section(cache="x").open().fingerprint


def test_only_wanted_lists():
    told = section().want(["time", "value"], ["label"], ["band", "nothing"])
    table = told.open().sources["train"].load(1)
    assert {name for name, column in table.items() if isinstance(column, Lists)} == {"time", "value"}
    assert {"id", "label", "period"} <= set(table)
    whole = lightcurves(40, first=40, part="train")
    np.testing.assert_array_equal(table["value"].values, whole["value"].values)


def test_pieces_are_kept_where_asked_for_and_made_again_when_damaged(tmp_path):
    told = section(what="supernovae", cache=str(tmp_path / "kept"), valid=0, test=0)
    first = told.open().sources["train"].load(0)
    (path,) = (tmp_path / "kept").iterdir()
    again = told.open().sources["train"].load(0)
    assert list(first) == list(again)
    for name in ("value", "band", "limit"):
        np.testing.assert_array_equal(first[name].values, again[name].values)
    other = section(what="supernovae", cache=str(tmp_path / "kept"), bands=["g"], valid=0, test=0)
    assert set(other.open().sources["train"].load(0)["band"].values) == {"g"}
    path.write_bytes(b"cut off")
    np.testing.assert_array_equal(told.open().sources["train"].load(0)["redshift"], first["redshift"])
    none = section(cache=str(tmp_path / "none"), valid=0, test=0)
    none.reopen().sources["train"].load(0)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with refuses(file=tmp_path / "file", hint="data.cache"):
        section(cache=str(tmp_path / "file")).open().sources["train"].load(0)


def test_what_makes_no_sense():
    with refuses("'RRX'", hint="'RRC'"):
        section(classes=["RRX"]).open()
    with refuses("`white`", "stars"):
        section(white=True).open()
