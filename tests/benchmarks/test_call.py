"""Calls of many trainings: results as they come, the end of the time, failures, and trainings that end at a time."""

import json
import sys
import time

import pytest

from call import Call, Results, pack, results_in, train_until, unpack
from sciformer.recipe import Recipe
from tests.errors import refuses

SCRIPT = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
print("last line", flush=True)
if sys.argv[2] == "fails":
    raise SystemExit("no memory")
(folder / "found.json").write_text(json.dumps({"steps": 7, "asked_steps": 9, "train_s": 1.0, "score": 0.5}))
(folder / "kept.bin").write_text("weights")
time.sleep(60 if sys.argv[2] == "hangs" else 0)
"""


def two(number):
    return 2 * number


def test_processes_end_with_the_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("call.RESERVE_SECONDS", 0.0)
    monkeypatch.setattr("call.SHOWN_SECONDS", 0.2)
    call = Call("things", tmp_path / "out", 4.0, tmp_path / "copy", lambda one: f"score {one['score']}", ["*/kept.bin"])
    for name in ("works", "hangs", "fails"):
        call.start(name, [sys.executable, "-c", SCRIPT, str(call.out / name), name])
    began = time.time()
    call.watch()
    assert time.time() - began < 30
    assert {name: process.poll() for name, process in call.running.items()} == {"works": 0, "hangs": -9, "fails": 1}
    shown = capsys.readouterr().out
    assert "7/9 steps in 1 s; score 0.5" in shown
    assert "no memory" in shown  # the end of the log of a process that failed
    copied = json.loads((tmp_path / "copy" / "things.json").read_text())
    assert copied == results_in(call.out)
    assert len(copied) == 2
    assert (tmp_path / "copy" / "kept.bin").read_text() == "weights"
    assert "== hangs\nlast line" in (tmp_path / "copy" / "things-log.txt").read_text()


def test_pieces_are_simulated_side_by_side(tmp_path, capsys):
    Call("things", tmp_path / "out", 60, None, str).simulate(two, [(1,), (5,)], processes=1)
    assert "12 samples" in capsys.readouterr().out


def test_a_part_that_fails_leaves_the_others(tmp_path):
    results = Results(tmp_path / "found.json", {"seed": 3})
    results.add("good", lambda: {"value": 1})
    results.add("bad", lambda: {"value": 1 / 0})
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["seed"] == 3
    assert found["good"]["value"] == 1
    assert "division" in found["errors"]["bad"]


@pytest.fixture
def recipe():
    changes = {"data.number": 64, "data.valid": 8, "data.test": 8, "data.chunk_size": 64, "train.batch": 4}
    changes |= {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.device": "cpu", "train.evaluate_every": 2}
    return Recipe.load("images/from-text", changes | {"tokens.target.patch": 16, "train.warmup": 1})


def test_a_training_ends_at_a_time_with_its_best_weights(recipe, tmp_path):
    run, found = train_until(recipe.change({"train.steps": 10**6}), tmp_path / "run", time.time() + 4)
    assert not found["complete"]
    assert 0 < found["steps"] < found["asked_steps"] == 10**6
    pack(run, tmp_path / "run.tar")
    again = unpack(tmp_path / "run.tar", tmp_path / "again")
    assert again.about["parameters"] == found["parameters"]
    pack(run, tmp_path / "parts.tar", most=100_000)
    assert len(list(tmp_path.glob("parts.tar.*"))) > 1
    assert unpack(tmp_path / "parts.tar", tmp_path / "joined").scores == again.scores


def test_a_training_with_enough_time_is_complete(recipe, tmp_path):
    _, found = train_until(recipe.change({"train.steps": 3}), tmp_path / "run", time.time() + 300)
    assert found["complete"]
    assert found["steps"] == 3


def test_errors_on_the_cpu_are_not_tried_again(recipe, tmp_path):
    with refuses("cannot be divided", key="tokens.patch"):
        train_until(recipe.change({"tokens.target.patch": 7}), tmp_path / "run", time.time() + 300)
