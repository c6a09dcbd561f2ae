"""Counterfactuals: answers for a changed input, their differences as maps, and changes that are refused."""

from pathlib import Path

import numpy as np
import pytest
import xarray

from sciformer.cli.main import main
from sciformer.domains.atmosphere.counterfactual import draw_differences
from sciformer.domains.atmosphere.reader.files import Catalog, release
from sciformer.evaluation.restore import parse_change, write_task
from tests.domains.atmosphere.maps import dataset, write
from tests.domains.atmosphere.test_output import CUBES, maps_of, trained
from tests.errors import refuses


@pytest.fixture(scope="module")
def coupled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    tokens = f"{{t: {CUBES.replace('NAME', 't')}, u: {CUBES.replace('NAME', 'u').replace('2, 2, 3', '2, 4, 6')}}}"
    maps = dataset(("t", "u"), times=80)
    maps["t"][-1, 2, 3] = np.nan
    maps = maps.isel(latitude=slice(None, None, -1))  # north to south
    yield trained(folder, [write(maps, folder / "maps.nc")], tokens, "multistream", ", every_stream: true")
    release()


def opened(path):
    with xarray.open_dataset(path, decode_times=False) as found:
        return found.load()


@pytest.mark.parametrize(("mask", "length"), [("forecast", 4), ("inpaint", None)])
def test_the_answer_is_that_for_a_file_with_the_change(coupled, tmp_path, mask, length):
    files = [maps_of(coupled)]
    write_task(coupled, files, tmp_path / "before.nc", mask, length)
    write_task(coupled, files, tmp_path / "after.nc", mask, length, changes=["t=+2K", "u=-1"])
    given = opened(files[0])
    given["t"] = given["t"] + np.float32(2)
    given["u"] = given["u"] - np.float32(1)
    given["t"].attrs["units"] = given["u"].attrs["units"] = "K"
    write_task(coupled, [write(given, tmp_path / "warm.nc")], tmp_path / "by_hand.nc", mask, length)
    before, after, by_hand = (opened(tmp_path / f"{name}.nc") for name in ("before", "after", "by_hand"))
    for name in ("t", "u"):
        np.testing.assert_array_equal(after[name], by_hand[name])
        np.testing.assert_allclose(after[f"{name}_change"], after[name] - before[name], atol=1e-4)
        assert np.nanmax(np.abs(after[f"{name}_change"])) > 1e-3
        assert after[f"{name}_change"].attrs["units"] == "K"
        assert after[f"{name}_change"].dims == ("time", "latitude", "longitude")
    for axis in ("latitude", "longitude"):
        np.testing.assert_array_equal(after[axis], given[axis])
    assert "t_change" not in before
    assert (tmp_path / "after.png").stat().st_size > 1000
    assert not (tmp_path / "before.png").exists()
    (tmp_path / "after.nc").unlink()
    with refuses(file=tmp_path / "after.png"):
        write_task(coupled, files, tmp_path / "after.nc", mask, length, changes=["t=+2K"])


def test_one_changed_field_changes_the_other_field_too(coupled, tmp_path):
    out = tmp_path / "x.nc"
    command = ["predict", str(coupled.path), maps_of(coupled), "--mask", "forecast", "--hours", "2"]
    assert main([*command, "--change", "t=+2K", "--out", str(out)]) == 0
    assert np.abs(opened(out)["u_change"]).max() > 1e-5
    assert main(["predict", str(coupled.path), maps_of(coupled), "--change", "t=+2K"]) != 0  # without --mask


def test_maps_have_a_row_for_each_field_and_at_most_four_times(coupled):
    catalog = Catalog([Path(maps_of(coupled))])
    shape = (1, 9, *catalog.grid.shape)
    differences = {"t": np.full(shape, np.nan), "u": np.zeros(shape)}
    assert draw_differences({"t": differences["t"]}, catalog.hours[:9], catalog) is None
    differences["t"][:, [2, 5]] = 1.5
    figure = draw_differences(differences, catalog.hours[:9], catalog)
    maps = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in maps][:2] == ["2020-01-30 02:00", "2020-01-30 05:00"]
    assert len(maps) == 2 + 4
    assert maps[0].collections[0].get_clim() == (-1.5, 1.5)
    bars = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel().startswith("change")]
    assert bars == ["change of t (K)", "change of u (K)"]


def test_changes_are_read():
    assert parse_change("t2m=+2") == ("t2m", 2.0, "")
    assert parse_change(" t2m = -0.5K") == ("t2m", -0.5, "K")
    assert parse_change("u=+1e-3 m s**-1") == ("u", 1e-3, "m s**-1")


@pytest.mark.parametrize("text", ["t2m", "t2m=2", "=+2", "t2m=+", "t2m=+K", "t2m=*2"])
def test_other_texts_are_refused(text):
    with refuses(text, key="--change"):
        parse_change(text)


@pytest.mark.parametrize(("text", "word"), [("tt=+2", "tt"), ("t=+2degC", "degC"), ("t=+0", "+0")])
def test_impossible_changes_are_refused(coupled, tmp_path, text, word):
    with refuses(word, key="--change"):
        write_task(coupled, [maps_of(coupled)], tmp_path / "x.nc", "forecast", 2, changes=[text])
    assert not (tmp_path / "x.nc").exists()
