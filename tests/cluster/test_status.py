"""The state of runs, read from their folders: while they train, and after they ended in any way."""

import json
import os
import signal
import socket
import time
from dataclasses import asdict
from datetime import datetime, timedelta

import pytest

from sciformer.cli.main import main
from sciformer.cluster.status import read_tail, run_state
from sciformer.errors import Stopped, UserError
from tests.training import at_call, in_child
from tests.training.tiny import STEPS, at_step, go, image_recipe, text_recipe


def stop(number):
    return lambda: os.kill(os.getpid(), number)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped, then killed, then finished, and its states in between."""
    folder = tmp_path_factory.mktemp("status")
    recipe, path = image_recipe(folder), folder / "run"
    states = {}

    def look():
        states["training"] = run_state(path)

    with at_step(6, stop(signal.SIGUSR1)), at_step(5, look), pytest.raises(Stopped):
        go(recipe, path)
    states["stopped"] = run_state(path)

    def work():
        with at_step(10, stop(signal.SIGKILL)):
            go(recipe, path)

    assert in_child(work) == -signal.SIGKILL
    states["interrupted"] = run_state(path)
    go(recipe, path)
    states["complete"] = run_state(path)
    return path, states


def test_a_run_that_trains(run):
    found = run[1]["training"]
    assert (found.state, found.step, found.steps, found.checkpoint) == ("training", 4, STEPS, 4)
    assert found.owner == {"pid": os.getpid(), "host": socket.gethostname()}
    assert found.loss > 0
    assert found.tokens_per_s > 0
    assert found.seconds_left == pytest.approx((STEPS - 4) / found.steps_per_s)


@pytest.mark.parametrize(
    ("state", "step", "checkpoint", "resumed", "reason"),
    [
        ("stopped", 7, 7, 0, "SIGUSR1 at step 7"),
        ("interrupted", 8, 8, 1, None),
        ("complete", STEPS, STEPS, 2, None),
    ],
)
def test_a_run_that_does_not_train(run, state, step, checkpoint, resumed, reason):
    found = run[1][state]
    assert (found.state, found.step, found.checkpoint) == (state, step, checkpoint)
    assert (found.resumed, found.reason, found.owner, found.seconds_left) == (resumed, reason, None, None)
    assert datetime.fromisoformat(found.saved) > datetime.now().astimezone() - timedelta(minutes=5)


def test_a_run_that_failed_says_why(tmp_path):
    recipe = image_recipe(tmp_path, train__max_skipped=2)
    with at_step(6, lambda: 1 / 0), pytest.raises(ZeroDivisionError):
        go(recipe, tmp_path / "run")
    found = run_state(tmp_path / "run")
    assert (found.state, found.step, found.reason) == ("failed", 5, "division by zero")
    with pytest.raises(UserError) as error:
        go(recipe.change({"model.dim": 16}), tmp_path / "run")
    assert run_state(tmp_path / "run").reason == str(error.value)
    go(recipe, tmp_path / "run")
    assert run_state(tmp_path / "run").state == "complete"
    assert not (tmp_path / "run/stopped.json").exists()


def test_a_training_that_is_stopped_early_by_itself_is_complete(tmp_path):
    go(image_recipe(tmp_path, train__patience=1, train__evaluate_every=1, train__learning_rate=10.0), tmp_path / "run")
    found = run_state(tmp_path / "run")
    assert found.state == "complete"
    assert found.step < STEPS


def test_the_status_of_a_stop_is_that_of_the_job_file(tmp_path, here, monkeypatch):
    (tmp_path / "small.yaml").write_text(text_recipe(tmp_path).to_yaml())
    line = ["train", "small.yaml", "--run", "run", "--quiet"]
    with at_step(3, stop(signal.SIGUSR1)):
        assert main(line) == 128 + signal.SIGUSR1
    monkeypatch.setenv("SCIFORMER_STOP_STATUS", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with at_step(6, stop(signal.SIGUSR1)):
        assert main(line) == 0
    note = json.loads((tmp_path / "run/stopped.json").read_text())
    assert (note["signal"], note["step"], note["scheduler"], note["job"]) == ("SIGUSR1", 7, "slurm", "17")


def test_from_the_command_line(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run[0].parent)
    (tmp_path / "runs").mkdir()
    assert main(["status", "run", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found == asdict(run_state(run[0])) | {"folder": "run"}
    assert main(["status", "run", "run"]) == 0
    assert capsys.readouterr().out.count("complete") == 2
    assert main(["status", "rum"]) == 2
    assert "rum" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 2
    (tmp_path / "runs/one").symlink_to(run[0])
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("runs/one  complete  step 14 of 14")


def test_a_run_that_waits_in_the_queue(tmp_path, capsys):
    (tmp_path / "run/logs").mkdir(parents=True)
    assert main(["status", str(tmp_path / "run")]) == 0
    assert "not started" in capsys.readouterr().out


def test_a_held_folder_names_its_job(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    recipe = image_recipe(tmp_path)
    began, ring = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(30)
        with at_step(6, lambda: (os.write(ring, b"!"), time.sleep(30))):
            go(recipe, tmp_path / "run")
    os.read(began, 1)
    assert main(["status", str(tmp_path / "run")]) == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = " ".join(capsys.readouterr().out.split())
    assert f"held by Slurm job 17 (process {child} on {socket.gethostname()})" in said
    assert " left" in said


def test_damaged_files_are_no_obstacle(tmp_path, monkeypatch):
    for name in ("run.json", "stopped.json", "metrics.jsonl", ".lock"):
        (tmp_path / name).write_text('{"step": [1}\n{"loss": 1}\n[]\n{"step": 3, "loss": 0.5, "time": "?"}\n{"ste')
    (tmp_path / "checkpoints").write_text("")
    found = run_state(tmp_path)
    assert (found.loss, found.steps, found.checkpoint) == (0.5, None, None)
    with at_call(1, lambda: (_ for _ in ()).throw(OSError)):
        assert read_tail(tmp_path / "nowhere") == []


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(100_000)))
    found = read_tail(path)
    assert found[-1] == {"step": 99_999}
    assert 1000 < len(found) < 10_000
