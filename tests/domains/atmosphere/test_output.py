"""A trained run: other masks than in training, answers as NetCDF, forecasts step by step."""

import numpy as np
import pytest
import xarray

from sciformer.cli.main import main
from sciformer.domains.atmosphere.reader.files import release
from sciformer.evaluation.restore import evaluate_task, make_task, restored_batches, write_task
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.domains.atmosphere.maps import dataset, write
from tests.errors import refuses

RECIPE = """
data: {kind: fields, files: [FILES], neighbourhood: [8, 4, 6], stride: [2, 2, 2], valid: 0.2, test: 0.2}
tokens: TOKENS
model: {kind: MODEL, dim: 8, depth: 1, heads: 2, position: learned}
objective: {kind: masked, mask_ratio: [0.2, 0.5]MORE}
train: {steps: 3, batch: 8, evaluate_every: 3, device: cpu, warmup: 1}
"""
CUBES = "{kind: cubes, field: NAME, cube: [2, 2, 3], loss: crps, members: 3}"


def trained(folder, files, tokens, model="encoder", more=""):
    text = RECIPE.replace("FILES", ", ".join(files)).replace("TOKENS", tokens).replace("MODEL", model)
    (folder / "mine.yaml").write_text(text.replace("MORE", more))
    return train(Recipe.load(folder / "mine.yaml"), folder / "run", show=False, report=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    maps = dataset(times=80)
    maps["t"][10, 2, 3] = np.nan
    yield trained(folder, [write(maps, folder / "maps.nc")], CUBES.replace("NAME", "t"))
    release()


@pytest.fixture(scope="module")
def coupled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    tokens = f"{{t: {CUBES.replace('NAME', 't')}, u: {CUBES.replace('NAME', 'u').replace('2, 2, 3', '2, 4, 6')}}}"
    maps = write(dataset(("t", "u"), times=80), folder / "maps.nc")
    yield trained(folder, [maps], tokens, "multistream", ", every_stream: true")
    release()


def maps_of(run):
    return run.recipe.data.files[0]


@pytest.mark.parametrize(("mask", "length"), [("forecast", 4), ("between", 3), ("inpaint", None), ("downscale", None)])
def test_one_checkpoint_is_evaluated_on_other_masks(run, mask, length):
    factor = 2 if mask == "downscale" else None
    if mask == "downscale":  # blocks of 2 x 2 do not fit into 2 x 3 cells
        with refuses(2, key="objective.coarse_factor"):
            evaluate_task(run, run.samples("test"), make_task(run, mask, length, factor))
        return
    rows = evaluate_task(run, run.samples("test"), make_task(run, mask, length, factor))
    leads = [row["lead"] for row in rows if "lead" in row]
    assert leads == {"forecast": ["1 h", "2 h", "3 h", "4 h"], "between": ["1 h", "2 h"], "inpaint": []}[mask]
    assert all(0 < row["rmse"] < 10 for row in rows)
    assert all(row["climatology"] == pytest.approx(1.2, abs=0.3) for row in rows)


def test_answers_are_in_the_units_of_the_data(run):
    dataset_ = run.samples("test")
    seen, found = next(restored_batches(run, dataset_, make_task(run, "forecast", 2)))
    answer = found["tokens"]
    asked = seen.stream.columns["asked"]
    assert answer["value"].shape == (asked.sum(), 12)
    assert answer["members"].shape == (asked.sum(), 3, 12)
    np.testing.assert_allclose(answer["members"].mean(1), answer["value"], rtol=1e-5)
    assert np.abs(answer["value"] - seen.stream.columns["climate"][asked]).max() < 10


def test_a_forecast_goes_on_beyond_the_file_with_its_coordinates(run, tmp_path):
    out, given = tmp_path / "ahead.nc", xarray.open_dataset(maps_of(run))
    assert write_task(run, [maps_of(run)], out, "forecast", 7) == 7
    found = xarray.open_dataset(out)
    assert found["t"].dims == ("time", "latitude", "longitude")
    assert found["t"].attrs["units"] == "K"
    np.testing.assert_array_equal(found.latitude, given.latitude)
    np.testing.assert_array_equal(found.longitude, given.longitude)
    hours = (found.time.values - given.time.values[-1]) / np.timedelta64(1, "h")
    assert hours.tolist() == list(range(1, 8))
    assert np.isfinite(found["t"]).all()
    assert found["t_members"].shape == (3, 7, 8, 12)
    np.testing.assert_allclose(found["t_members"].mean("number"), found["t"], rtol=1e-5)
    np.testing.assert_allclose(found["t_members"].std("number", ddof=1), found["t_spread"], rtol=1e-3, atol=1e-4)


def test_the_first_step_of_a_forecast_is_the_answer_to_the_mask(run, tmp_path):
    """A file that ends 2 hours earlier, and the same hours hidden at the end of the whole file."""
    whole = xarray.open_dataset(maps_of(run), decode_times=False).load()
    write(whole.isel(time=slice(None, -2)), tmp_path / "short.nc")
    write_task(run, [tmp_path / "short.nc"], tmp_path / "ahead.nc", "forecast", 2)
    found = xarray.open_dataset(tmp_path / "ahead.nc")["t"].values
    write(whole.isel(time=slice(-8, None), latitude=slice(0, 4), longitude=slice(0, 6)), tmp_path / "end.nc")
    samples = run.samples(files=[tmp_path / "end.nc"])
    seen, answer = next(restored_batches(run, samples, make_task(run, "forecast", 2)))
    tokens = run.assembly.tokens["tokens"]
    cubes = np.full((len(seen.stream.columns["at"]), 12), np.nan)
    cubes[seen.stream.columns["asked"]] = answer["tokens"]["value"]
    expected = tokens.maps(cubes, (1, 8, 4, 6))[0, 6:]
    np.testing.assert_allclose(found[:, :2, :3], expected[:, :2, :3], rtol=1e-5)  # no other tile covers them


def test_later_steps_see_the_predicted_hours_and_nothing_else(run, tmp_path):
    whole = xarray.open_dataset(maps_of(run), decode_times=False).load()
    write_task(run, [maps_of(run)], tmp_path / "one.nc", "forecast", 6)
    old = whole.copy(deep=True)
    old["t"][:-6] = old["t"][:-6] + 50  # before the known steps of the first neighbourhood
    write(old, tmp_path / "other.nc")
    write_task(run, [tmp_path / "other.nc"], tmp_path / "two.nc", "forecast", 6)
    one, two = (xarray.open_dataset(tmp_path / name)["t"].values for name in ("one.nc", "two.nc"))
    np.testing.assert_array_equal(one, two)
    warmer = whole.copy(deep=True)
    warmer["t"][-6:] = warmer["t"][-6:] + 2
    write(warmer, tmp_path / "warm.nc")
    write_task(run, [tmp_path / "warm.nc"], tmp_path / "three.nc", "forecast", 6)
    assert (xarray.open_dataset(tmp_path / "three.nc")["t"].values[-2:] != one[-2:]).any()


@pytest.mark.parametrize("form", ["north to south", "0 to 360"])
def test_the_form_of_the_input_is_the_form_of_the_answer(run, form, tmp_path):
    given = xarray.open_dataset(maps_of(run), decode_times=False).load()
    if form == "north to south":
        other = given.isel(latitude=slice(None, None, -1))
    else:
        east = np.mod(given.longitude.values, 360)
        other = given.assign_coords(longitude=("longitude", east, given.longitude.attrs)).sortby("longitude")
    write(other, tmp_path / "other.nc")
    for mask, length in (("forecast", 4), ("inpaint", None)):
        write_task(run, [maps_of(run)], tmp_path / "one.nc", mask, length, overwrite=True)
        write_task(run, [tmp_path / "other.nc"], tmp_path / "two.nc", mask, length, overwrite=True)
        with xarray.open_dataset(tmp_path / "one.nc") as one, xarray.open_dataset(tmp_path / "two.nc") as two:
            np.testing.assert_array_equal(two.latitude, other.latitude)
            np.testing.assert_array_equal(two.longitude, other.longitude)
            moved = two.assign_coords(longitude=(two.longitude + 180) % 360 - 180).sortby(["latitude", "longitude"])
            np.testing.assert_array_equal(moved["t"].values, one["t"].values)


def test_several_fields_are_forecast_together(coupled, tmp_path):
    write_task(coupled, [maps_of(coupled)], tmp_path / "ahead.nc", "forecast", 4)
    found = xarray.open_dataset(tmp_path / "ahead.nc")
    assert {"t", "u", "t_spread", "u_members"} <= {*found.data_vars}
    assert np.isfinite(found["u"]).all()
    rows = evaluate_task(coupled, coupled.samples("test"), make_task(coupled, "forecast", 2))
    assert [row["field"] for row in rows] == ["t", "t", "u", "u"]


def test_commands_evaluate_and_predict_masks(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "ahead.nc"
    assert main(["predict", str(run.path), maps_of(run), "--mask", "forecast", "--hours", "4", "--out", str(out)]) == 0
    assert out.exists()
    assert main(["evaluate", str(run.path), "--mask", "forecast", "--hours", "2"]) == 0
    assert "2 h" in capsys.readouterr().out
    assert main(["evaluate", str(run.path), "--hours", "2"]) != 0


def test_impossible_tasks_are_refused(run, tmp_path):
    files = [maps_of(run)]
    with refuses("forcast"):
        write_task(run, files, tmp_path / "x.nc", "forcast")
    with refuses(".nc"):
        write_task(run, files, tmp_path / "x.csv", "forecast", 4)
    with refuses(key="--length"):
        write_task(run, files, tmp_path / "x.nc", "forecast", 0.2)
    write_task(run, files, tmp_path / "x.nc", "forecast", 2)
    with refuses("x.nc"):
        write_task(run, files, tmp_path / "x.nc", "forecast", 2)
    write(dataset(times=5).isel(time=slice(0, 8)), tmp_path / "short.nc")
    with refuses("short.nc"):
        write_task(run, [tmp_path / "short.nc"], tmp_path / "y.nc", "forecast", 2)


def test_a_run_is_opened_again_with_its_climatology(run):
    again = Run(run.path)
    assert again.assembly.learned == run.assembly.learned
    task = make_task(again, "forecast", 2)
    assert evaluate_task(again, again.samples("test"), task) == evaluate_task(run, run.samples("test"), task)
