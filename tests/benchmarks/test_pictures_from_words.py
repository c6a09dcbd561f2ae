"""The benchmark of pictures from words, at a tiny size on the CPU."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

import pictures_from_words as bench
import stale
from call import results_in
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.recipe import Recipe
from sciformer.run import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("sklearn")
    return tmp_path_factory.mktemp("words")


@pytest.mark.parametrize(("task", "way", "seed"), bench.jobs("tiny"), ids=lambda one: str(one))
def test_each_task_writes_its_numbers(folder, task, way, seed, capsys):
    bench.one(task, way, seed, "tiny", folder)
    name = bench.name_of(task, way, seed)
    found = json.loads((folder / name / "found.json").read_text())
    assert found["task"] == task
    assert "errors" not in found
    assert name in capsys.readouterr().out
    if task == "scenes":
        with np.load(folder / name / f"pictures-{way}-0.npz") as kept:
            assert kept["guided-one"].shape == (2, 64, 64, 3)
    assert (folder / name / "codes.tar.0").exists() == (task == "scenes" and way == "codes")


def test_rows_have_the_ids_of_the_issue(folder, tmp_path):
    found = results_in(folder)
    if len(found) < 7:
        pytest.skip("needs the results of the tasks, which the tests before write; one of them failed or was left out")
    (folder / "pictures.json").write_text(json.dumps(found))
    path = tmp_path / "rows.json"
    bench.collect("tiny", folder, path)
    ids = {row["id"]: row for row in json.loads(path.read_text())}
    for way in bench.WAYS:
        for name in ("wrong_binding", "wrong_count", "wrong_relation", "pictures_per_s", "unseen.right", "one.right"):
            assert f"from_text_tiny.{way}.{name}" in ids
    assert {"from_text_tiny.ceiling", "generate_ising_tiny.energy_error", "generate_digits_tiny.accuracy"} <= set(ids)
    for row in ids.values():
        assert {"id", "value", "unit", "better", "spread", "seeds", "command", "hardware", "versions"} <= set(row)
        assert list(row["depends"]) == stale.depends_on(row["id"])
        assert row["value"] >= 0 or row["better"] == "lower"


def test_a_captioner_reads_the_kept_pictures(tmp_path):
    changes = bench.SHORT | {"data.number": 40, "data.valid": 8, "data.test": 8, "train.device": "cpu"}
    captioner = train(Recipe.load("images/caption-transformer", changes), tmp_path / "run", report=False, show=False)
    scene = Scenes().make(6, part="test")
    (tmp_path / "scenes-codes-0").mkdir()
    np.savez(tmp_path / "scenes-codes-0" / "pictures-codes-0.npz", **{"plain-one": scene["image"]})
    bench.measure_captioner("tiny", tmp_path, tmp_path / "run", tmp_path / "rows.json")
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["id"] == "from_text_tiny.codes.captioner_agreement"
    assert row["pictures"] == 6
    wrong, count = bench.captioner_agreement(captioner, np.zeros((2, 64, 64, 3), np.uint8))
    assert (wrong, count) == (0, 0)  # pictures of nothing


def test_the_steps_of_a_training_fit_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "TRIAL_STEPS", 20)
    monkeypatch.setattr(bench, "TRIAL_LINES", 2)
    monkeypatch.setattr(bench, "SETUP_SECONDS", 2.0)
    plan = bench.PLANS["tiny"]
    recipe = bench.make_recipe("scenes", "codes", 0, plan, tmp_path).change({"train.steps": 10**6})
    (tmp_path / "job").mkdir()
    trial = {"data.number": 20, "data.cache": ""}
    began = time.time()
    _, found = bench.train_within(recipe, tmp_path / "job", began + 25, trial)
    assert time.time() - began < 60
    assert 20 < found["asked_steps"] < 10**6
    assert 0 < found["steps"] <= found["asked_steps"]


def test_every_task_of_the_gpu_plan_fits_the_call():
    jobs = bench.jobs("gpu")
    assert len(jobs) == 7
    assert [one for one in jobs if one[0] == "scenes"] == [
        *(("scenes", "codes", seed) for seed in range(3)),
        ("scenes", "diffusion", 0),
    ]
    plan = bench.PLANS["gpu"]
    data = bench.scenes_of("gpu", Path("out"))
    assert data.number <= 8 * data.samples_per_chunk()  # all pieces stay in memory
    assert plan["prefix"] == ""
    assert [task for task, *_ in bench.jobs("gpu", ["digits"])] == ["digits"] * 2
