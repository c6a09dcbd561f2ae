"""A simulated sphere: its physics, its parts, and its files."""

import numpy as np
import pytest

from sciformer.data.readers.simulation import write_simulation
from sciformer.domains.atmosphere.reader.reader import FieldFiles
from sciformer.domains.atmosphere.simulate.flows import Flows
from sciformer.domains.atmosphere.simulate.sphere import RADIUS, Flow, Sphere
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.errors import refuses

KEYS = {"number": 60, "rows": 8, "columns": 16, "neighbourhood": (6, 4, 6)}


def test_the_same_arguments_give_the_same_maps_and_others_do_not():
    one, again, other = (Flow(6, 8, seed).run(5) for seed in (0, 0, 1))
    for name in one:
        np.testing.assert_array_equal(one[name], again[name])
        assert not np.array_equal(one[name], other[name])
    longer = Flow(6, 8, 0).run(8)
    np.testing.assert_array_equal(longer["temperature"][:5], one["temperature"])


def test_the_daily_cycle_follows_the_sun_to_the_west():
    maps = Flow(16, 24, 0, wind=0.0, diffusion=0.0).run(24)["temperature"]
    row = 8  # at the equator
    warmest = maps[:, row].argmax(0)
    expected = (12 - np.arange(24)) % 24  # noon
    late = (warmest - expected) % 24
    assert (late <= 7).all()
    assert (late >= 3).all()  # it is warmest in the afternoon
    assert np.ptp(maps, 0)[row].mean() > 3 * np.ptp(maps, 0)[0].mean()


def test_the_wind_has_no_divergence():
    flow = Flow(48, 96, 0)
    u, v = flow.winds()
    north, width = flow.north, 2 * np.pi / 96
    along = (np.roll(u, -1, 1) - np.roll(u, 1, 1)) / (2 * width)
    across = np.gradient(v * np.cos(north), north[:, 0], axis=0)
    scale = np.abs(along[8:-8]).mean()
    assert np.abs((along + across)[8:-8]).mean() < 0.1 * scale
    assert 3 < np.abs(u).mean() < 40
    assert np.isfinite(v).all()
    assert RADIUS > 6e6


def test_interpolation_is_exact_at_cells_and_goes_across_the_poles():
    sphere = Sphere.of(6, 8)
    values = np.random.default_rng(0).normal(size=(6, 8))
    north, east = np.meshgrid(sphere.latitude, sphere.longitude, indexing="ij")
    np.testing.assert_allclose(sphere.interpolate(values, north, east), values)
    np.testing.assert_allclose(sphere.interpolate(values, north, east + 45), np.roll(values, -1, 1))
    over = sphere.interpolate(values, north[-1:] + 30, east[-1:])  # from 75 over the pole to 75 on the other side
    np.testing.assert_allclose(over[0], np.roll(values[-1], 4))
    constant = np.full((6, 8), 3.0)
    rng = np.random.default_rng(1)
    np.testing.assert_allclose(sphere.interpolate(constant, 90 * rng.random((6, 8)), 720 * rng.random((6, 8))), 3)


def test_diffusion_keeps_the_mean_and_lowers_the_variance():
    sphere = Sphere.of(6, 8)
    values = np.random.default_rng(0).normal(size=(6, 8))
    smooth = sphere.smooth(values, 0.2)
    assert smooth.mean() == pytest.approx(values.mean())
    assert smooth.var() < 0.8 * values.var()


def test_parts_and_files_have_the_same_neighbourhoods(tmp_path):
    section = Flows(kind="flows", **KEYS).want(["temperature"])
    write_simulation(section, tmp_path / "flows.nc")
    reader = FieldFiles(kind="fields", files=[str(tmp_path / "flows.nc")], neighbourhood=KEYS["neighbourhood"])
    one, other = section.open(), reader.want(["temperature"]).open()
    for part in ("train", "valid", "test"):
        first, second = (found.sources[part].load(0) for found in (one, other))
        for name in ("temperature", "hours", "longitude", "temperature climatology"):
            np.testing.assert_allclose(first[name], second[name], rtol=1e-6)
    section.state["learned"] = one.learned
    read = section.read([tmp_path / "flows.nc"])
    assert sum(read.sizes) > 0
    with refuses("vorticity"):
        Flows(kind="flows", **KEYS).want(["vorticity"]).open()
    with refuses(7, key="data.columns"):
        Flows(kind="flows", columns=7).make()


def test_a_model_trains_on_a_flow_and_evaluates_a_file(tmp_path):
    recipe = {
        "data": {"kind": "flows", **KEYS},
        "tokens": {"kind": "cubes", "field": "temperature", "cube": (2, 2, 3)},
        "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
        "objective": {"kind": "masked", "mask": "forecast", "mask_length": 2},
        "train": {"steps": 2, "batch": 8, "evaluate_every": 2, "device": "cpu", "warmup": 1},
    }
    run = train(Recipe.from_dict(recipe), tmp_path / "run", show=False, report=False)
    write_simulation(Flows(kind="flows", **{**KEYS, "seed": 5}), tmp_path / "other.nc")
    assert run.evaluate(files=[tmp_path / "other.nc"]).scores["loss"] > 0
