"""Data and recipes that are no longer those of a run; names that mean the same from every folder."""

import json
import os

import numpy as np
import pytest

from sciformer.data import source
from sciformer.data.readers.arrays import Arrays
from sciformer.data.source import find_files, fingerprint
from sciformer.domains.spins.simulation import IsingLattices
from sciformer.inspection.report.figures import inspect_run
from sciformer.recipe import Recipe
from sciformer.run import Run
from sciformer.training.resume import Changed
from tests.errors import refuses
from tests.training.tiny import go, image_recipe, text_recipe


def test_one_byte_anywhere_is_noticed(tmp_path):
    path, found = tmp_path / "a", []
    for data in (bytes(1_000_000), bytes(333_333) + b"\1" + bytes(666_666)):
        path.write_bytes(data)
        found.append(fingerprint(path))
    assert found[0] != found[1]
    assert found[1].startswith("1000000 bytes, ")


def test_of_a_long_file_both_ends_and_places_between_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_BYTES_HASHED_WHOLE", 1000)
    monkeypatch.setattr(source, "SAMPLED_BLOCK_BYTES", 10)
    path = tmp_path / "a"
    path.write_bytes(bytes(20_000))
    seen = {fingerprint(path)}
    for place in (0, 9, 19_990 * 7 // 65, 19_990 * 40 // 65 + 9, 19_990, 19_999):
        data = bytearray(20_000)
        data[place] = 1
        path.write_bytes(data)
        seen.add(fingerprint(path))
    assert len(seen) == 7
    path.write_bytes(bytes(20_001))
    assert fingerprint(path) not in seen


def test_names_are_located(tmp_path, monkeypatch):
    here = tmp_path / "odd [1]"
    here.mkdir()
    for name in ("a.npz", "b.npz"):
        np.savez(here / name, x=np.arange(3))
    (here / "link.npz").symlink_to("a.npz")
    monkeypatch.chdir(here)

    def absolute_paths(*names):
        return Arrays(kind="arrays", files=list(names)).absolute_paths().files

    for name in ("a.npz", "./a.npz", f"../{here.name}/a.npz", str(here / "a.npz")):
        assert absolute_paths(name) == [str(here / "a.npz")]
    assert absolute_paths("link.npz") == [str(here / "link.npz")]  # its own name: a suffix may tell what is inside
    monkeypatch.setenv("HOME", str(here))
    assert absolute_paths("~/b.npz", "gone.npz") == [str(here / "b.npz"), str(here / "gone.npz")]
    (glob,) = absolute_paths("[ab].npz")
    monkeypatch.chdir("/")
    assert find_files([glob]) == [here / "a.npz", here / "b.npz"]  # the folder's own brackets are no glob
    assert absolute_paths(glob) == [glob]
    lattices = IsingLattices(kind="lattices")
    assert lattices.absolute_paths() is lattices


def test_a_run_means_the_same_from_every_folder(tmp_path, monkeypatch):
    recipe = text_recipe(tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    go(recipe.change({"data.files": ["lines.txt"]}), tmp_path / "run", stop_after=6)
    assert Recipe.load(tmp_path / "run").data.files == [str(tmp_path / "lines.txt")]
    monkeypatch.chdir(tmp_path / "other")
    run = go(recipe.change({"data.files": ["../lines.txt"]}), "../run")
    assert run.evaluate("valid").scores["loss"] == pytest.approx(run.scores["loss"], rel=1e-5)
    (tmp_path / "lines.txt").rename(tmp_path / "moved.txt")
    with refuses("lines.txt'"):
        run.evaluate("valid")
    assert np.isfinite(run.evaluate(files=[tmp_path / "moved.txt"]).scores["loss"])


def test_changed_data_are_not_judged(tmp_path):
    run = go(image_recipe(tmp_path), tmp_path / "run", report=True)
    scores, page = (tmp_path / "run" / "scores.json"), (tmp_path / "run" / "report.html")
    before = scores.read_text()
    path = tmp_path / "images.npz"
    table = dict(np.load(path))
    order = np.random.default_rng(1).permutation(30)
    np.savez(path, **{name: column[order] for name, column in table.items()})
    again = Run(run.path)
    for attempt in (again.data, lambda: again.evaluate("valid"), lambda: inspect_run(again, tmp_path / "pictures")):
        with refuses("images.npz", hint="accept_changes=True", error=Changed):
            attempt()
    assert len(again.predict(path)["class"]) == 30  # needs none of the run's data
    again.report()
    assert scores.read_text() == before
    assert f"{json.loads(before)['parts']['valid']['scores']['loss']}" in page.read_text()
    accepted = Run(run.path, accept_changes=True)
    accepted.evaluate("valid")
    accepted.report()
    assert scores.read_text() != before
    path.unlink()
    kept = scores.read_text()
    Run(run.path).report()
    assert scores.read_text() == kept


def test_a_run_writes_no_cache_where_its_recipe_points(tmp_path):
    small = {"kind": "lattices", "size": 4, "number": 4, "chains": 8, "samples": 1}
    recipe = image_recipe(tmp_path).change({"data": {**small, "cache": str(tmp_path / "cache")}, "train.steps": 2})
    run = go(recipe.change({"objective.label": "phase"}), tmp_path / "run")
    (kept,) = (tmp_path / "cache").iterdir()
    wanted = run.evaluate("valid").scores
    kept.unlink()
    assert Run(run.path).evaluate("valid").scores == wanted
    assert os.listdir(tmp_path / "cache") == []


def test_a_device_that_is_not_there_is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with refuses("cuda", key="train.device", hint="train.device: cpu"):
        go(text_recipe(tmp_path, train__device="cuda"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
