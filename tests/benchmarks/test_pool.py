"""Trainings side by side: each once, kept, tried again; those that compile the same wait for the first of them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pool
from pool import beyond, keep, side_by_side
from tests.data.test_loader import alive


def named(*names):
    return {name: {"name": name} for name in names}


def test_tasks_that_compile_the_same_wait_for_the_first(tmp_path):
    began = []

    def work(task):
        began.append(task["name"])
        return {"of": task["name"]}

    def then(name, result):
        return named("a9") if name == "a0" else {}

    tasks = named("a0", "a1", "a2", "b0", "b1")
    found = dict(side_by_side(work, tasks, 0, tmp_path, then, lambda task: task["name"][0]))
    assert began[:2] == ["a0", "b0"]
    assert sorted(began) == sorted(found) == ["a0", "a1", "a2", "a9", "b0", "b1"]
    began.clear()
    assert dict(side_by_side(work, tasks, 0, tmp_path, then, lambda task: task["name"][0])) == found
    assert not began  # all were kept


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_runs_end_with_the_benchmark_that_began_them(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pool import side_by_side\n"
        "def work(task):\n"
        "    Path(task['pid']).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    here = Path(sys.argv[1])\n"
        "    list(side_by_side(work, {'a': {'pid': str(here / 'pid')}}, 1, here))\n"
    )
    folders = os.pathsep.join([str(Path(pool.__file__).parent), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    main = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=os.environ | {"PYTHONPATH": folders})
    began = time.monotonic()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    main.kill()
    main.wait()
    while time.monotonic() - began < 90 and alive(child):
        time.sleep(0.05)
    assert not alive(child)


def test_what_fails_is_tried_again_and_holds_nobody_up(tmp_path, capsys):
    tries = []

    def work(task):
        tries.append(task["name"])
        if task["name"] == "a0":
            raise ValueError("no memory")
        return {}

    found = dict(side_by_side(work, named("a0", "a1"), 0, tmp_path, alike=lambda task: "a"))
    assert list(found) == ["a1"]
    assert tries == ["a0", "a1", "a0"]
    assert "1 failed twice: a0" in capsys.readouterr().err


def test_runs_kept_with_the_project_are_not_trained_again(tmp_path):
    began = []

    def work(task):
        began.append(task["name"])
        return {"score": task["steps"]}

    tasks = {name: {"name": name, "steps": 10} for name in ("one", "two", "pretrained-body")}
    first = dict(side_by_side(work, tasks, 0, tmp_path / "results"))
    assert first["one"]["asked"] == {"steps": 10}
    assert first["one"]["hardware"]
    assert first["one"]["commit"]
    assert keep(tmp_path / "results", tmp_path / "kept.json") == 2  # the body is of no use without its weights
    began.clear()
    again = dict(side_by_side(work, tasks, 0, tmp_path / "other", before=tmp_path / "kept.json"))
    assert began == ["pretrained-body"]
    assert again["one"] == first["one"]
    began.clear()
    more = {"one": {"name": "one", "steps": 20}}
    assert dict(side_by_side(work, more, 0, tmp_path / "third", before=tmp_path / "kept.json"))["one"]["score"] == 20
    assert began == ["one"]  # more was asked of it than of the one that is kept


def test_a_grid_is_widened_where_its_end_is_best():
    first = [5e-4, 1.5e-3, 5e-3]
    low = {5e-4: 0.7, 1.5e-3: 0.6, 5e-3: 0.5}
    assert beyond(low, first, 2) == 1.7e-4
    assert beyond(low, first, 0) is None
    assert beyond(low | {1.7e-4: 0.6}, first, 2) is None  # now inside
    assert beyond(low | {1.7e-4: 0.8}, first, 2) == 5.8e-5
    assert beyond(low | {1.7e-4: 0.8, 5.8e-5: 0.9}, first, 2) is None  # far enough
    assert beyond({5e-4: 0.1, 1.5e-3: 0.6, 5e-3: 0.9}, first, 1) == 1.7e-2
    assert beyond({5e-4: 0.1, 1.5e-3: 0.9, 5e-3: 0.3}, first, 1) is None
    assert beyond({1e-3: 1.0}, [1e-3], 3) is None
