"""Fields from files: the same neighbourhoods however the files are written, and errors that say what is wrong."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.domains.atmosphere.reader.files import find_stores, fingerprints, release, runs, time_axis
from sciformer.domains.atmosphere.reader.neighbourhoods import Boxes
from sciformer.domains.atmosphere.reader.reader import FieldFiles
from tests.domains.atmosphere.maps import dataset, values, write
from tests.errors import refuses

SIZE = (6, 4, 5)


def section(*files, **keys):
    return FieldFiles(kind="fields", files=[str(file) for file in files], **{"neighbourhood": SIZE, **keys})


def tables(splits, part="train"):
    source = splits.sources[part]
    return [source.load(piece) for piece in range(len(source.sizes))]


def same(one, other, close=False):
    assert one.keys() == other.keys()
    for name, column in one.items():
        if close and column.dtype.kind == "f":
            np.testing.assert_allclose(column, other[name], rtol=1e-5, atol=2e-3)
        else:
            np.testing.assert_array_equal(column, other[name], err_msg=name)


def swapped_longitudes(found):
    return found.assign_coords(longitude=("longitude", np.mod(found.longitude.values, 360), found.longitude.attrs))


FORMS = {
    "latitudes from north to south": lambda found: found.isel(latitude=slice(None, None, -1)),
    "longitudes from 0 to 360": swapped_longitudes,
    "longitudes in the order 0 to 360": lambda found: swapped_longitudes(found).sortby("longitude"),
    "times backwards": lambda found: found.isel(time=slice(None, None, -1)),
    "another order of the axes": lambda found: found.transpose("longitude", "time", "latitude"),
    "other names": lambda found: found.rename(time="valid_time", latitude="y0", longitude="x0"),
    "names without attributes": lambda found: bare(found),
    "days instead of hours": lambda found: found.assign_coords(
        time=("time", found.time.values / 24, {**found.time.attrs, "units": "days since 2020-01-30"})
    ),
    "another dimension of length 1": lambda found: found.expand_dims("surface"),
}


def bare(found):
    for name in ("latitude", "longitude"):
        found[name].attrs.clear()
    return found.rename(latitude="lat", longitude="lon")


@pytest.fixture(autouse=True)
def _closed():
    yield
    release()


@pytest.fixture
def expected(tmp_path):
    return section(write(dataset(), tmp_path / "first.nc")).open()


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_file_changes_nothing(form, tmp_path, expected):
    found = section(write(FORMS[form](dataset()), tmp_path / "other.nc")).open()
    assert {part: source.sizes for part, source in found.sources.items()} == {
        part: source.sizes for part, source in expected.sources.items()
    }
    for part in ("train", "valid", "test"):
        for one, other in zip(tables(expected, part), tables(found, part)):
            same(one, other)
    assert found.learned == expected.learned


def test_packed_values_are_read_up_to_their_step(tmp_path, expected):
    packing = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 280.0, "_FillValue": -32768}
    found = section(write(dataset(), tmp_path / "packed.nc", **packing)).open()
    same(tables(expected)[0], tables(found)[0], close=True)


@pytest.mark.parametrize("chunks", [(7, 3, 5), (60, 8, 12), (1, 8, 12)])
def test_a_zarr_store_of_any_chunks_has_the_same_samples(chunks, tmp_path, expected):
    found = section(write(dataset(), tmp_path / "maps.zarr", chunks=chunks)).open()
    same(tables(expected)[0], tables(found)[0])
    assert found.learned == expected.learned


def test_several_files_are_one_time_axis_in_any_order(tmp_path, expected):
    whole = dataset()
    names = [write(whole.isel(time=slice(first, first + 20)), tmp_path / f"part{first}.nc") for first in (0, 20, 40)]
    for order in itertools.permutations(names):
        found = section(*order).open()
        same(tables(expected)[0], tables(found)[0])
        assert found.learned == expected.learned


def test_fields_may_be_in_different_files(tmp_path):
    both = dataset(("t", "u"))
    together = section(write(both, tmp_path / "both.nc")).open()
    apart = (
        section(write(both[["u"]], tmp_path / "u.nc"), write(both[["t"]], tmp_path / "t.nc")).want(["t", "u"]).open()
    )
    same(tables(together)[0], tables(apart)[0])


def test_the_values_of_a_neighbourhood_are_those_of_the_map(tmp_path):
    source = section(write(dataset(), tmp_path / "maps.nc")).open().sources["train"]
    whole, table = values(), source.load(0)
    for number in (0, 7, 30):
        box = source.boxes.box(number)
        rows, columns = (slice(start, start + length) for start, length in zip(box[2:], SIZE[1:]))
        np.testing.assert_array_equal(table["t"][number, 0], whole[box.time : box.time + SIZE[0], rows, columns])
        np.testing.assert_array_equal(table["latitude"][number], 50.0 + np.arange(8)[rows])
        np.testing.assert_array_equal(table["longitude"][number], -6.0 + np.arange(12)[columns])
    assert table["start"][0] == "2020-01-30T00:00"


# Parts


def test_parts_are_ranges_of_time_and_no_sample_crosses_their_border(tmp_path):
    name = write(dataset(times=24 * 9), tmp_path / "maps.nc")
    found = section(name, valid=("2020-02-02", "2020-02-03"), test=("2020-02-06T00:00", "2020-02-07")).open()
    days = {"valid": (3, 5), "test": (7, 9)}
    for part, (first, after) in days.items():
        hours = np.concatenate([table["hours"] for table in tables(found, part)])
        start = hours.min()
        assert np.ptp(hours) == (after - first) * 24 - 1
        days[part] = start, start + np.ptp(hours)
    train = np.concatenate([table["hours"] for table in tables(found)])
    assert not any(((train >= low) & (train <= high)).any() for low, high in days.values())
    assert (np.ptp(train, 1) == SIZE[0] - 1).all()  # no sample jumps over a held out day


def test_the_climatology_is_learned_from_the_training_part_alone(tmp_path):
    first = section(write(dataset(times=120), tmp_path / "one.nc")).open()
    other = dataset(times=120)
    other["t"][100:] += 1000  # in valid and test
    second = section(write(other, tmp_path / "two.nc")).open()
    assert first.learned == second.learned
    assert tables(second, "test")[0]["t"].max() > 1000


def test_the_climatology_is_the_mean_of_each_hour_and_cell(tmp_path):
    found = section(write(dataset(times=240), tmp_path / "one.nc"), valid=0.0, test=0.0).open()
    table, whole = tables(found)[0], values(times=240)
    source = found.sources["train"]
    for number in (0, 11):
        box = source.boxes.box(number)
        usual = np.stack([whole[(box.time + hour) % 24 :: 24].mean(0) for hour in range(SIZE[0])])
        cut = usual[:, box.row : box.row + SIZE[1], box.column : box.column + SIZE[2]]
        np.testing.assert_allclose(table["t climatology"][number, 0], cut, rtol=1e-5)
    anomalies = whole - np.stack([whole[hour % 24 :: 24].mean(0) for hour in range(240)])
    assert table["t deviation"][0, 0] == pytest.approx(anomalies.std(), rel=1e-4)


def test_years_of_data_have_a_climatology_of_the_day_of_the_year(tmp_path):
    whole = dataset(times=4 * 730, rows=3, columns=3, step=6)
    whole["t"][:] += 10 * np.cos(2 * np.pi * np.arange(4 * 730) / (4 * 365.25))[:, None, None]
    keys = {"neighbourhood": (4, 3, 3), "valid": 0.0, "test": 0.0}
    found = section(write(whole, tmp_path / "years.nc"), **keys).open()
    season = np.var(whole["t"].values, axis=0).mean() ** 0.5
    assert season > 7  # of which the wave of 24 steps and the noise are left
    assert tables(found)[0]["t deviation"][0, 0] == pytest.approx((9 / 2 + 1) ** 0.5, rel=0.02)


# Missing values, members, levels, calendars


def test_missing_cells_and_steps_stay_missing(tmp_path):
    whole = dataset()
    whole["t"][10:12, 2, 3] = np.nan
    gap = whole.isel(time=[time for time in range(60) if time != 20])
    found = section(write(gap, tmp_path / "gap.nc")).open()
    full = section(write(whole, tmp_path / "full.nc")).open()
    one, other = tables(found)[0], tables(full)[0]
    np.testing.assert_array_equal(one["hours"], other["hours"])
    lost = one["hours"] == one["hours"].min() + 20
    assert np.isnan(one["t"][:, 0][lost]).all()
    kept = np.broadcast_to(~lost[:, None, :, None, None], one["t"].shape)
    np.testing.assert_array_equal(one["t"][kept], other["t"][kept])
    assert np.isnan(other["t"]).any()
    assert np.isfinite(one["t climatology"]).all()
    assert any("`t`" in note and "1 of 60" in note for note in found.notes)


def test_members_are_samples_and_levels_ascend_in_pressure(tmp_path):
    one = dataset(times=12)
    layers = [one["t"] + 10 * level + 100 * member for member in range(3) for level in range(2)]
    stacked = np.stack([layer.values for layer in layers]).reshape(3, 2, 12, 8, 12)
    whole = one.assign(t=(("number", "level", "time", "latitude", "longitude"), stacked, {"units": "K"}))
    whole = whole.assign_coords(level=("level", [85000.0, 50000.0], {"units": "Pa"}), number=[0, 1, 2])
    name = write(whole, tmp_path / "members.nc")
    found = section(name, valid=0.0, test=0.0).open()
    table = tables(found)[0]
    assert table["t level"][0].tolist() == [500.0, 850.0]
    assert sorted(set(np.concatenate([t["member"] for t in tables(found)]))) == [0, 1, 2]
    np.testing.assert_allclose(table["t"][:, 0] - table["t"][:, 1], 10, atol=1e-3)
    only = section(name, valid=0.0, test=0.0, levels=[850]).open()
    np.testing.assert_array_equal(tables(only)[0]["t"][:, 0], table["t"][:, 1])
    with refuses(700, key="data.levels"):
        section(name, levels=[700]).open()


def test_calendars_have_their_own_days(tmp_path):
    long = {"times": 120, "step": 24, "calendar": "360_day", "rows": 4, "columns": 5}
    found = section(write(dataset(**long), tmp_path / "year.nc"), valid=("2020-02-30", "2020-03-30"), test=0.0).open()
    table = tables(found, "valid")[0]
    assert table["start"][0] == "2020-02-30T00:00"
    assert sum(found.sources["valid"].sizes) == 31 - SIZE[0] + 1
    assert table["date"][0, 0, 1] == pytest.approx(59 / 360)
    with refuses("2020-02-30", key="data.valid"):
        section(write(dataset(times=120, step=24), tmp_path / "other.nc"), valid=("2020-02-30", "2020-03-30")).open()


def test_months_are_an_axis_without_gaps():
    months = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31]) * 24.0
    axis, step = time_axis(months)
    assert len(axis) == 8
    assert step == 31 * 24
    assert len(time_axis(np.array([0.0, 6, 12, 30]))[0]) == 6


def test_a_globe_is_cut_across_its_border(tmp_path):
    globe = dataset(rows=6, columns=24, west=0.0, spacing=15.0).assign_coords(
        latitude=("latitude", -75.0 + 30 * np.arange(6), {"units": "degrees_north"})
    )
    keys = {"neighbourhood": (6, 6, 8), "stride": (1, 3, 1)}
    found = section(write(globe, tmp_path / "globe.nc"), **keys).open()
    shifted = globe.roll(longitude=12, roll_coords=True)
    shifted = shifted.assign_coords(longitude=("longitude", np.mod(shifted.longitude.values + 180, 360) - 180))
    shifted.longitude.attrs["units"] = "degrees_east"
    again = section(write(shifted, tmp_path / "shifted.nc"), **keys).open()
    table = tables(found)[0]
    same(table, tables(again)[0])
    assert (np.diff(table["longitude"], axis=1) == 15).all()
    assert table["longitude"].max() > 360
    first = {found.sources["train"].boxes.box(number).column for number in range(24)}
    assert first == set(range(24))


# Neighbourhoods as a function of their number


@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 3),
    st.booleans(), st.booleans(), st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_neighbourhoods_are_inside_and_numbered_without_gaps(T, H, rows, columns, stride, periodic, random, members):
    H, W = min(H, rows), min(3, columns)
    boxes = Boxes(
        ((0, 7), (9, 10), (20, 31)), (T, H, W), (stride, min(stride, H), min(stride, W)), (rows, columns), periodic,
        members, random,
    )  # fmt: skip
    pieces = boxes.pieces(4 << 20)
    assert [number for piece in pieces for number in piece] == list(range(len(boxes)))
    seen = set()
    for number in range(len(boxes)):
        box = boxes.box(number)
        assert box == boxes.box(number)
        assert any(start <= box.time and box.time + T <= stop for start, stop in boxes.segments)
        assert 0 <= box.row <= rows - H
        assert 0 <= box.column < columns
        assert periodic or box.column <= columns - W
        seen |= {(box.row + down, (box.column + aside) % columns) for down in range(H) for aside in range(W)}
    if len(boxes) and not random:
        assert len(seen) == rows * columns


@given(st.lists(st.integers(0, 30), max_size=20, unique=True))
def test_runs_are_the_indices_again(index):
    made = np.full(len(index), -1)
    for start, stop, low, high, flip in runs(np.array(index, np.int64)):
        made[start:stop] = np.arange(low, high)[:: -1 if flip else 1]
    assert made.tolist() == index


# Other files for a prediction


def test_other_files_are_read_with_the_climatology_of_the_training(tmp_path, expected):
    other = dataset(times=30, seed=5)
    reader = section("none").want(["t"])
    reader.state["learned"] = expected.learned
    found = reader.read([write(other.isel(latitude=slice(2, None)), tmp_path / "later.nc")])
    table = found.load(0)
    whole = section(write(other, tmp_path / "whole.nc")).want(["t"])
    whole.state["learned"] = expected.learned
    same_rows = whole.read([tmp_path / "whole.nc"]).load(0)
    assert table["t"].shape[1:] == (1, *SIZE)
    place = [same_rows["latitude"][0].tolist().index(2 + 50.0)]
    np.testing.assert_array_equal(
        table["t climatology"][0, 0, :, 0, 0], same_rows["t climatology"][0, 0, :, place[0], 0]
    )
    renamed = reader.with_columns({"t": "t2m"})
    again = renamed.read([write(other.isel(latitude=slice(2, None)).rename(t="t2m"), tmp_path / "named.nc")])
    same(table, again.load(0))


@pytest.mark.parametrize(
    ("change", "mention"),
    [
        (lambda found: found.assign(t=found["t"].assign_attrs(units="degC")), "degC"),
        (lambda found: found.isel(time=slice(None, None, 3)), "3 h"),
        (lambda found: found.isel(longitude=slice(None, None, 2)), "2 degrees"),
        (lambda found: found.rename(t="temperature"), "temperature"),
    ],
)
def test_files_of_another_form_are_refused(change, mention, tmp_path, expected):
    reader = section("none").want(["t"])
    reader.state["learned"] = expected.learned
    path = write(change(dataset()), tmp_path / "other.nc")
    with refuses(mention):
        reader.read([path])


# Bad input


def without(name):
    def change(found):
        return found.drop_vars(name).rename({name: "cell"} if name != "time" else {"time": "moment"})

    return change


def set_units(found, units):
    found.time.attrs["units"] = units
    return found


BAD = {
    "no latitude": (without("latitude"), {}, "latitude"),
    "no time": (without("time"), {}, "moment"),
    "unknown calendar": (lambda found: dated(found, "martian"), {}, "martian"),
    "no unit of time": (lambda found: set_units(found, "hours"), {}, "'hours'"),
    "all missing": (lambda found: found * np.nan, {}, "`t`"),
    "too many rows": (lambda found: found, {"neighbourhood": (6, 9, 5)}, 9),
    "too many steps": (lambda found: found, {"neighbourhood": (61, 4, 5)}, 61),
    "a part without times": (lambda found: found, {"valid": ("2031-01-01", "2031-01-02")}, "2020-01-30"),
    "a part that is too short": (lambda found: found, {"test": ("2020-01-31T00", "2020-01-31T02")}, "test"),
    "an unknown field": (lambda found: found.rename(t="tt"), {}, "tt"),
    "two values of a latitude": (lambda found: found.isel(latitude=[0, 1, 1, 2, 3]), {}, "latitude"),
    "no field": (lambda found: found.isel(time=0), {}, "time"),
}


def dated(found, calendar):
    found.time.attrs["calendar"] = calendar
    return found


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused(case, tmp_path):
    change, keys, mention = BAD[case]
    path = write(change(dataset()), tmp_path / "bad.nc")
    with refuses(mention):
        section(path, **keys).want(["t"]).open()


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    one = write(dataset(times=30), tmp_path / "one.nc")
    later = dataset().isel(time=slice(30, None))
    celsius = later.assign(t=later["t"].assign_attrs(units="degC"))
    for found, mention in (
        (celsius, "degC"),
        (later.isel(latitude=slice(1, None)), "7 x 12"),
        (dated(later, "noleap"), "noleap"),
        (dataset(times=30), "same times"),
    ):
        path = write(found, tmp_path / f"{mention}.nc")
        with refuses(mention, file=path):
            section(one, path).open()
    with refuses("data.files", key="data.files"):
        section().open()


def test_a_truncated_file_or_chunk_is_named(tmp_path):
    path = Path(write(dataset(), tmp_path / "short.nc"))
    path.write_bytes(path.read_bytes()[:-6000])
    with refuses(path.name, file=path):
        section(path).open()
    store = Path(write(dataset(), tmp_path / "short.zarr", chunks=(10, 8, 12)))
    chunk = max((part for part in store.rglob("*") if part.is_file()), key=lambda part: part.stat().st_size)
    chunk.write_bytes(chunk.read_bytes()[:40])
    with refuses(store.name, file=store):
        section(store).open()


def test_globs_find_stores_and_a_change_is_seen(tmp_path):
    store = write(dataset(), tmp_path / "a.zarr")
    assert [str(path) for path in find_stores([f"{tmp_path}/*.zarr"])] == [store]
    before = fingerprints([Path(store)])
    chunk = max((part for part in Path(store).rglob("*") if part.is_file()), key=lambda part: part.stat().st_size)
    chunk.write_bytes(chunk.read_bytes() + b"0")
    assert fingerprints([Path(store)]) != before
    with refuses("nothing"):
        find_stores([tmp_path / "nothing.nc"])
