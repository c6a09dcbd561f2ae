"""Signals to one or several processes, once and twice; loss of a rank."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sciformer
from sciformer.errors import Stopped
from sciformer.training import checkpoint, signals
from tests.faults import fault
from tests.training.tiny import assert_near, assert_same, at_step, fate, go, in_ranks, left, start, start_ranks

WATCHED = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]


def send(number, times=1):
    def act():
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(0.001)

    return act


@fault("SIGINT, SIGTERM or SIGUSR1 once", "the step is finished and saved, `Stopped` names the signal; the same result")
@pytest.mark.parametrize("number", WATCHED)
def test_one_signal(tmp_path, texts, number):
    recipe, reference = texts
    handlers = [signal.getsignal(one) for one in WATCHED]
    with at_step(6, send(number)), pytest.raises(Stopped, match=f"stopped by {number.name} at step 7") as stopped:
        go(recipe, tmp_path)
    assert stopped.value.signal == number
    assert checkpoint.steps(tmp_path / "checkpoints")[-1] == 7
    assert [signal.getsignal(one) for one in WATCHED] == handlers
    assert_same(go(recipe, tmp_path), reference)


@fault("a signal during the last step", "the run ends as without the signal")
def test_signal_at_the_last_step(tmp_path, texts):
    recipe, reference = texts
    with at_step(13, send(signal.SIGTERM)):
        assert_same(go(recipe, tmp_path), reference)


@fault("one signal delivered twice at the same time, as by torchrun", "counted once: the step is finished and saved")
def test_echo(tmp_path, texts):
    recipe, _ = texts
    with at_step(6, send(signal.SIGINT, 3)), pytest.raises(Stopped):
        go(recipe, tmp_path)


@fault("a second signal", "stops immediately; no lock, worker or partial file is left; the same result")
@pytest.mark.parametrize("workers", [0, 2])
def test_two_signals(tmp_path, texts, workers, monkeypatch):
    recipe, reference = texts
    monkeypatch.setattr(signals, "ECHO_SECONDS", -1.0)
    with at_step(6, send(signal.SIGTERM, 2)), pytest.raises(KeyboardInterrupt):
        go(recipe.change({"train.workers": workers}), tmp_path)
    assert multiprocessing.active_children() == []
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"latest", "step-0000004"}
    assert (tmp_path / ".lock").read_bytes() == b""
    assert_same(go(recipe, tmp_path), reference)


@fault("a second signal while the loop waits for a data worker", "stops immediately; no worker is left")
def test_second_signal_while_waiting(tmp_path, texts, monkeypatch):
    from sciformer.data.loader import Fetch

    monkeypatch.setattr(signals, "ECHO_SECONDS", -1.0)
    fetch, parent = Fetch.__getitem__, os.getpid()
    done, ring = os.pipe()

    def slow(self, step):
        if step == 6:
            os.read(done, 1)
            for _ in range(2):
                time.sleep(0.2)  # by now the loop has nothing left to do but wait
                os.kill(parent, signal.SIGTERM)
            time.sleep(1)
        return fetch(self, step)

    monkeypatch.setattr(Fetch, "__getitem__", slow)
    with at_step(6, lambda: os.write(ring, b"!")), pytest.raises(KeyboardInterrupt):
        go(texts[0].change({"train.workers": 1}), tmp_path)
    assert multiprocessing.active_children() == []
    assert (tmp_path / ".lock").read_bytes() == b""
    os.close(done)
    os.close(ring)


@fault("a signal to the process group and its workers (Ctrl-C, `scancel`)", "saved as with one signal; the same result")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_group(tmp_path, texts, number):
    recipe, reference = texts

    def work():
        os.setsid()
        with at_step(6, lambda: os.killpg(0, number)):
            go(recipe.change({"train.workers": 2}), tmp_path / "run")

    assert fate(start(work, tmp_path / "answer")) == 1
    assert f"Stopped: stopped by {number.name} at step " in (tmp_path / "answer").read_text()
    assert_same(go(recipe, tmp_path / "run"), reference)


@fault("a signal to one of two ranks", "both stop at the same step; the same command continues")
def test_signal_to_one_rank(tmp_path, texts):
    recipe = texts[0].change({"model.dropout": 0.0})
    reference = left(go(recipe, tmp_path / "one"))
    with at_step(6, send(signal.SIGUSR1), rank=1):
        answers = in_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path, status=1)
    assert all(said.startswith("Stopped: stopped by SIGUSR1 at step 7;") for said in answers)
    assert_near(go(recipe, tmp_path / "run"), reference, 1e-6)


def lose(tmp_path, recipe, number, patience, rank=1):
    """Message of the other of two ranks, and its delay, after an uncaught signal to one of them."""
    with at_step(6, send(number), rank=rank):
        began = time.monotonic()
        ranks = start_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path, SCIFORMER_PATIENCE=patience)
        assert fate(ranks[1 - rank]) == 1
    seconds = time.monotonic() - began
    os.kill(ranks[rank], signal.SIGKILL)
    assert fate(ranks[rank]) == -signal.SIGKILL
    return (tmp_path / f"rank-{1 - rank}").read_text(), seconds


@fault("one of two ranks killed", "the other names it and ends; the same command continues from the last save")
def test_lost_rank(tmp_path, texts):
    recipe = texts[0].change({"model.dropout": 0.0})
    reference = left(go(recipe, tmp_path / "one"))
    said, seconds = lose(tmp_path, recipe, signal.SIGKILL, "60")
    assert said.startswith("UserError: ")
    assert "rank 1 of the 2 processes" in said
    assert seconds < 30
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [4]
    assert_near(go(recipe, tmp_path / "run"), reference, 1e-6)


@fault("one of two ranks killed, under `torchrun --max_restarts 2`", "both start again from the last save")
def test_restart_by_torchrun(tmp_path, texts):
    recipe = texts[0].change({"model.dropout": 0.0, "train.steps": 60, "train.save_every": 4})
    reference = left(go(recipe, tmp_path / "one"))
    (tmp_path / "small.yaml").write_text(recipe.to_yaml())
    line = "-m torch.distributed.run --standalone --nproc_per_node 2 --max_restarts 2 -m -- sciformer train small.yaml"
    path = os.pathsep.join([str(Path(sciformer.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    where = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *line.split(), "--run", "run", "--quiet"]
    agent = subprocess.Popen(command, cwd=tmp_path, env=where, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 100
        while not checkpoint.steps(tmp_path / "run" / "checkpoints") and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[-1]), signal.SIGKILL)
        _, said = agent.communicate(timeout=100)
    finally:
        agent.kill()
    assert agent.returncode == 0, said[-3000:]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["resumed"] == 1
    assert_near(tmp_path / "run", reference, 1e-6)


@fault(
    "one of two ranks silent (stopped, hanging)", "named and abandoned after SCIFORMER_PATIENCE seconds (default: 1800)"
)
@pytest.mark.parametrize("rank", [0, 1])  # the first one answers for the store too
def test_silent_rank(tmp_path, texts, rank):
    said, seconds = lose(tmp_path, texts[0], signal.SIGSTOP, "2", rank)
    assert said.startswith("UserError: ")
    assert f"rank {rank} of the 2 processes" in said
    assert "0:00:02" in said
    assert seconds < 30


@fault("the first of two ranks refuses to start (a locked folder, another recipe)", "all refuse with the same message")
def test_first_rank_refuses(tmp_path, texts):
    recipe, _ = texts
    go(recipe, tmp_path / "run", stop_after=4)
    first, second = in_ranks(lambda: go(recipe.change({"model.dim": 4}), tmp_path / "run"), tmp_path, status=1)
    assert first == second
    assert "model.dim: 8 -> 4" in first


@fault("a run folder that only one of two machines sees", "all ranks refuse, with the rank and the machine")
def test_folder_that_is_not_shared(tmp_path, texts, monkeypatch):
    monkeypatch.setattr("sciformer.run.SHARED_SECONDS", 0.0)
    answers = in_ranks(lambda: go(texts[0], tmp_path / f"run-{os.environ['RANK']}"), tmp_path, status=1)
    assert all(said.startswith("UserError: ") for said in answers)
    assert all(f"rank 1 on {os.uname().nodename}" in said for said in answers)
    assert not list(tmp_path.glob("run-*"))
