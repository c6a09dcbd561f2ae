"""Light curves in memory: arrays, tables of astropy and other packages, and files."""

import numpy as np
import pyarrow as pa
import pytest
from astropy import units
from astropy.table import MaskedColumn, Table
from astropy.time import Time
from astropy.timeseries import TimeSeries
from astropy.utils.masked import Masked

import sciformer.data
from sciformer.data import read_series, write_series
from sciformer.data.columns import rows_of
from tests.data.readers.series.examples import apart, objects, same, section, whole
from tests.errors import refuses

TIME, VALUE = np.array([60000.25, 60001.5, 60003.0]), np.array([15.0, 15.5, 14.5])
ROWS = objects(6)


def lists(rows, name):
    return [row[name] for row in rows]


def test_arrays_of_one_object():
    table = read_series(TIME, VALUE)
    assert set(table) == {"time", "value", "id"}
    np.testing.assert_array_equal(table["time"].values, TIME)
    table = read_series(TIME, VALUE, 0.1, "ggr", limit=[0, 0, 1], id="V1", label="RRAB", meta={"z": 0.5})
    assert table["error"].values.tolist() == pytest.approx([0.1] * 3)
    assert table["band"].values.tolist() == ["g", "g", "r"]
    assert table["limit"].values.tolist() == [False, False, True]
    assert [table[name].tolist() for name in ("id", "label", "z")] == [["V1"], ["RRAB"], [0.5]]
    assert read_series(list(TIME), list(VALUE), band="V")["band"].values.tolist() == ["V"] * 3


def series_of(rows, **more):
    points = (lists(rows, name) for name in ("mjd", "mag", "magerr", "filter"))
    return read_series(*points, id=lists(rows, "objectId"), label=lists(rows, "type"), **more)


def test_arrays_of_many():
    table = series_of(ROWS, meta={"redshift": lists(ROWS, "redshift")})
    same(table, ROWS)
    assert table["label"].tolist() == lists(ROWS, "type")
    assert table["redshift"].tolist() == lists(ROWS, "redshift")


def test_what_is_left_out_is_said():
    with pytest.warns(UserWarning, match=r"1 of 3 points have a time or value that is not finite: left out"):
        table = read_series(TIME, [np.nan, 1.0, 2.0])
    assert len(table["time"].values) == 2
    with refuses(1, "3 of 3"):
        read_series(TIME, [np.nan] * 3)
    with refuses("`value`", 3, 2, "object 0"):
        read_series(TIME, VALUE[:2])
    with refuses("`label`", 2, 3):
        read_series([TIME, TIME], [VALUE, VALUE], label=["a", "b", "c"])
    with refuses("`value`", hint="read_series(time, value, error, band)"):
        read_series(TIME)
    with refuses("`value`", "ndarray"):
        read_series({"time": TIME, "mag": VALUE}, VALUE)


def test_tables_of_astropy():
    table = Table({"star": [7, 7, 9], "hjd": TIME, "Vmag": VALUE, "e_Vmag": [0.1, 0.2, 0.3], "type": ["A", "A", "B"]})
    found = read_series(table)
    assert found["id"].tolist() == ["7", "9"]
    assert found["label"].tolist() == ["A", "B"]
    assert found["error"].values.tolist() == pytest.approx([0.1, 0.2, 0.3])
    table["Vmag"] = MaskedColumn(VALUE, mask=[True, False, False])
    with pytest.warns(UserWarning, match="1 of 3 points have a time or value that is not finite"):
        assert apart(read_series(table), "value")[0].tolist() == [15.5]


def test_time_series():
    series = TimeSeries(
        time=Time(TIME, format="mjd"), data={"flux": -VALUE * units.Jy, "flux_err": [0.1] * 3 * units.Jy}
    )
    found = read_series(series)
    np.testing.assert_array_equal(found["time"].values, TIME)
    np.testing.assert_array_equal(found["value"].values, -VALUE)
    days = TimeSeries(time=Time(TIME, format="mjd").isot, data={"flux": VALUE})
    np.testing.assert_allclose(read_series(days)["time"].values, TIME, atol=1e-8)
    series.meta["OBJECT"] = "TIC 7"
    both = read_series([series, series[:2]], label=None)
    assert both["id"].tolist() == ["TIC 7", "TIC 7"]
    assert both["time"].lengths.tolist() == [3, 2]
    series["flux"] = Masked(series["flux"], mask=[False, True, False])
    with pytest.warns(UserWarning, match="1 of 3 points have a time or value that is not finite"):
        assert read_series(series)["value"].values.tolist() == [-15.0, -14.5]
    seconds = Table({"time": TIME * 86400 * units.s, "mag": VALUE})
    np.testing.assert_allclose(read_series(seconds)["time"].values, TIME, rtol=1e-15)


def test_a_series_in_ecsv(tmp_path):
    series = TimeSeries(time=Time(TIME, format="mjd"), data={"flux": VALUE * units.Jy})
    series.write(tmp_path / "a.ecsv", format="ascii.ecsv")
    np.testing.assert_array_equal(whole(section().read([tmp_path / "a.ecsv"]))["time"].values, TIME)


def test_tables_of_arrow_and_mappings():
    columns = {name: [np.asarray(row[name]).tolist() for row in ROWS] for name in ROWS[0]}
    same(read_series(pa.table(columns)), ROWS)
    frame = type("Frame", (), {"columns": list(columns), "to_arrow": lambda self: pa.table(columns)})()  # as Polars has
    same(read_series(frame), ROWS)
    nested = [{name: columns[name][place] for name in ("mjd", "mag", "magerr", "filter")} for place in range(6)]
    same(read_series(pa.table({"objectId": columns["objectId"], "lc": nested})), ROWS)
    same(read_series(columns), ROWS)
    found = read_series({"t": TIME, "a": VALUE, "b": VALUE * 2}, "b")
    assert found["value"].values.tolist() == (VALUE * 2).tolist()


def test_a_file_and_back(tmp_path):
    table = series_of(ROWS)
    path = write_series(tmp_path / "a.parquet", table)
    found = whole(section().read([path]))
    same(found, ROWS)
    assert {name: column.dtype for name, column in found.items() if isinstance(column, np.ndarray)} == {
        name: column.dtype for name, column in table.items() if isinstance(column, np.ndarray)
    }
    with refuses(path, file=path, hint="overwrite=True"):
        write_series(path, table)
    assert rows_of(whole(section().read([write_series(path, table, overwrite=True)]))) == 6
    with refuses(".parquet", file=tmp_path / "a.csv", hint="a.parquet"):
        write_series(tmp_path / "a.csv", table)
    with pytest.raises(AttributeError):
        sciformer.data.nothing  # noqa: B018
