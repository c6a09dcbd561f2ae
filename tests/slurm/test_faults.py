"""Faults of a cluster, on a real Slurm of two nodes: the training ends like an undisturbed one."""

import json
import os
import signal
import subprocess
import sys

from sciformer.cluster.status import run_state
from tests.faults import fault
from tests.slurm.cluster import kill, wait_until
from tests.training.tiny import assert_near, assert_same


@fault("a machine of the job lost, as without power", "Slurm starts the job again when it notices; the same result")
def test_node_killed(site, slurm, reference):
    job = site.submit()
    site.wait_for_step(10)
    frozen = slurm.freeze_node("n2")
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", 120)
    slurm.bury_node("n2", frozen)
    slurm.start_node("n2")
    assert slurm.end_of(job) == "COMPLETED"
    assert_same(site.run, reference[0.2])


@fault(
    "the time limit of a job",
    "Slurm warns before it; the training saves and stops, and the job goes back into the queue; the same result",
)
def test_time_limit(site, slurm, reference, monkeypatch):
    monkeypatch.setenv("SECONDS_PER_STEP", "4")  # longer than the job
    job = site.submit("--lead", "5", "--setup", "((SLURM_RESTART_COUNT)) && SECONDS_PER_STEP=0", time="0:01")
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", 120)
    assert run_state(site.run).state == "stopped"
    assert slurm.end_of(job) == "COMPLETED"
    assert "TIME LIMIT" not in site.log()
    assert_same(site.run, reference[0.2])


@fault("a job put back into the queue twice", "the training goes on each time; the same result")
def test_requeued_twice(site, slurm, reference):
    job = site.submit()
    for restarts, step in ((1, 10), (2, 20)):
        site.wait_for_step(step)
        slurm.run("scancel", "--signal=USR1", job)
        wait_until(lambda restarts=restarts: slurm.job(job)["Restarts"] == str(restarts), 60)
        assert json.loads((site.run / "stopped.json").read_text())["job"] == str(job)
        slurm.hurry(job)
    assert slurm.end_of(job) == "COMPLETED"
    assert run_state(site.run).resumed == 2
    assert_same(site.run, reference[0.2])


@fault(
    "the first rank killed while it writes a checkpoint",
    "the job fails and is not put back into the queue; the same file submitted again continues; the same result",
)
def test_killed_in_a_save(site, slurm, reference, monkeypatch):
    monkeypatch.setenv("DIE_IN_A_SAVE", str(site.folder / "died"))
    job = site.submit()
    assert slurm.end_of(job) == "FAILED"
    assert slurm.job(job)["Restarts"] == "0"
    assert (site.folder / "died").exists()
    assert run_state(site.run).checkpoint == 10
    assert slurm.end_of(site.again()) == "COMPLETED"
    assert_same(site.run, reference[0.2])


@fault("a job with another number of machines", "continues; without dropout, the same log within 1e-6")
def test_other_number_of_nodes(site, slurm, reference):
    job = site.submit("--model.dropout", "0.0")
    site.wait_for_step(10)
    slurm.run("scancel", job)
    assert slurm.end_of(job) == "CANCELLED"
    assert run_state(site.run).reason.startswith("SIGTERM at step 1")
    job = site.submit("--model.dropout", "0.0", nodes=1)
    assert slurm.end_of(job) == "COMPLETED"
    assert_near(site.run, reference[0.0], 1e-6)


@fault(
    "one rank stopped, so that it is silent but there",
    "after SCIFORMER_PATIENCE seconds the others name it, and the job fails; submitted again, the same result",
)
def test_silent_rank(site, slurm, reference):
    job = site.submit("--setup", "export SCIFORMER_PATIENCE=8")
    site.wait_for_step(10)
    os.kill(slurm.rank("n2"), signal.SIGSTOP)
    assert slurm.end_of(job) == "FAILED"
    found = run_state(site.run)
    assert (found.state, found.checkpoint) == ("failed", 10)
    assert "of the 2 processes" in found.reason
    assert slurm.end_of(site.again()) == "COMPLETED"
    assert_same(site.run, reference[0.2])


@fault("the shared folder lost for some time", "the job fails; submitted again, the same result")
def test_shared_folder_lost(site, slurm, reference):
    job = site.submit()
    site.wait_for_step(10)
    (site.folder / "runs").rename(site.folder / "away")
    assert slurm.end_of(job) == "FAILED"
    assert not (site.folder / "runs").exists()  # nothing was written to the wrong place
    (site.folder / "away").rename(site.folder / "runs")
    assert slurm.end_of(site.again()) == "COMPLETED"
    assert_same(site.run, reference[0.2])


@fault("an old torchrun that still waits for the machines of the job", "not met by the job; the same result")
def test_stale_rendezvous(site, slurm, reference):
    job = site.submit()
    site.wait_for_step(10)
    slurm.run("scancel", "--signal=USR1", job)
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", 60)
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint=localhost:{20000 + job % 20000}", f"--rdzv-id={job}.0", "--no-python", "false"]
    old = subprocess.Popen(words)
    try:
        assert slurm.end_of(job) == "COMPLETED"
        assert old.poll() is None
    finally:
        kill(old.pid, signal.SIGKILL)
        old.wait()
    assert_same(site.run, reference[0.2])
