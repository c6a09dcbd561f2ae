"""The benchmark of pictures from words, at a tiny size on the CPU."""

import json

import pytest

import pictures_from_words as bench
import stale


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("sklearn")
    return tmp_path_factory.mktemp("words")


@pytest.mark.parametrize(("task", "way", "seed"), bench.jobs("tiny"), ids=lambda one: str(one))
def test_each_task_writes_its_numbers(folder, task, way, seed, capsys):
    bench.one(task, way, seed, "tiny", folder, 0)
    name = "ceiling" if task == "ceiling" else f"{task}-{way}-{seed}"
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["task"] == task
    assert name in capsys.readouterr().out


def test_rows_have_the_ids_of_the_issue(folder, tmp_path, monkeypatch):
    if len(list(folder.glob("*.json"))) < 7:
        pytest.skip("runs after the tasks")
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


def test_every_task_of_the_gpu_plan_fits_the_call():
    jobs = bench.jobs("gpu")
    assert len(jobs) == 19
    assert {task for task, _, _ in jobs} == {"ceiling", "scenes", "digits", "ising"}
    assert bench.PLANS["gpu"]["prefix"] == ""
