"""Steps on a GPU that is there for minutes: in order, within their limits, with all rows that were measured."""

import json
import sys
from pathlib import Path

import pytest

import gpu
import measure
from gpu import STEPS, Step
from tests.paths import BENCHMARKS

ROW = """
import json, pathlib, sys, time
open(sys.argv[-1] + ".calls", "a").write(sys.argv[1] + chr(10))
row = {"id": sys.argv[1], "value": 1, "unit": "x", "bar": 1, "commit": "c", "depends": {"src": "d"}}
pathlib.Path(sys.argv[-1]).write_text(json.dumps([row]))
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the steps; what is printed, and the states afterwards."""
    folder, copies = tmp_path / "benchmarks", tmp_path / "copies"
    for made in (folder, copies):
        made.mkdir()
    (folder / "fine.py").write_text(ROW)
    (folder / "slow.py").write_text(f"{ROW}\ntime.sleep(60)")
    (folder / "bad.py").write_text("raise SystemExit('no such file')")
    monkeypatch.setattr(gpu, "ROOT", tmp_path)

    def call(steps, seconds="30", *words):
        monkeypatch.setattr(gpu, "STEPS", steps)
        options = ["run", "--seconds", seconds, "--out", str(tmp_path / "out"), "--copy", str(copies)]
        monkeypatch.setattr(sys, "argv", ["gpu.py", *options, "--only", ",".join(steps), *words])
        gpu.main()
        kept = tmp_path / "out" / "steps.json"
        return capsys.readouterr().out, json.loads(kept.read_text()) if kept.exists() else {}

    return call


def test_a_step_that_is_ended_keeps_its_rows_and_comes_last_in_the_next_call(run, tmp_path):
    steps = {"slow": Step("slow.py a", "text-speed", 0, 3), "bad": Step("bad.py", "run", 0, 9)}
    said, states = run(steps)
    assert states == {"slow": "ended", "bad": "failed"}
    assert "no such file" in said
    assert "left: slow bad" in said
    assert json.loads((tmp_path / "copies" / "text-speed.json").read_text())[0]["id"] == "a"
    (tmp_path / "benchmarks" / "slow.py").write_text(ROW)
    said, states = run({**steps, "late": Step("fine.py b", "core", 0, 9), "long": Step("fine.py c", "core", 99, 99)})
    assert states == {"slow": "done", "bad": "failed", "late": "done"}
    assert said.splitlines()[0].endswith("late, long, slow, bad")
    assert "long: not started" in said
    assert (tmp_path / "out" / "core.json.calls").read_text() == "b\n"


def test_a_plan_runs_nothing(run, tmp_path):
    said, states = run({"one": Step("fine.py a", "core", 7, 9)}, "30", "--dry-run")
    assert "7 to   9 s" in said
    assert states == {}
    assert not list((tmp_path / "copies").iterdir())


def test_rows_that_came_back_keep_the_state_of_their_dependencies(run, tmp_path, monkeypatch, capsys):
    run({"one": Step("fine.py a", "core", 0, 9)})
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "results")
    gpu.RESULTS.mkdir()
    measure.write(gpu.RESULTS / "core.json", [{"id": "a", "value": 0}, {"id": "z", "value": 0}])
    gpu.take(tmp_path / "copies")
    rows = json.loads((gpu.RESULTS / "core.json").read_text())
    assert [(row["id"], row["value"]) for row in rows] == [("a", 1), ("z", 0)]
    assert rows[0]["depends"] == {"src": "d"}
    assert "1 rows of c" in capsys.readouterr().out


def test_every_step_is_a_script_whose_results_are_kept():
    for step in STEPS.values():
        assert (BENCHMARKS / "results" / f"{step.file}.json").exists()
        assert step.words.startswith("-m pytest") or (BENCHMARKS / step.words.split()[0]).exists()
        assert 0 < step.least < step.most < 600
    assert Path(gpu.DATA).name == ".gpu-data"


def test_warming_runs_all_steps_and_records_only_the_tests(run, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "LANES", (("a",), ("b",)))
    steps = {name: Step(f"fine.py {name}", name, 0, 30) for name in ("a", "b", "tests")}
    shown, states = run(steps, "30", "--warm", "20")
    assert states == dict.fromkeys(steps, "done")
    calls = {name: (tmp_path / "out" / f"{name}.json.calls").read_text().split() for name in steps}
    assert calls == {name: [name] for name in steps}  # the tests are not run again, the steps not recorded twice
    cold = {path.name for path in (tmp_path / "out" / "warm").glob("*.json.calls")}
    assert cold == {"a.json.calls", "b.json.calls"}
    assert "warm after" in shown
