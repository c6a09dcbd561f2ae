"""What else job files promise, on a real Slurm: restarts by torchrun, a run folder in use, arrays of predictions."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from sciformer.cli.main import main
from sciformer.cluster.status import run_state
from tests.docs.commands import DOCS
from tests.faults import fault
from tests.slurm.cluster import free_ports, wait_until
from tests.slurm.conftest import SETUP
from tests.training.tiny import assert_same, go, image_recipe


@fault(
    "a rank killed, in a job with `--restarts`",
    "torchrun starts all ranks again within the job; the same result",
)
def test_restart_by_torchrun(site, slurm, reference):
    job = site.submit("--restarts", "2")
    site.wait_for_step(10)
    os.kill(slurm.rank("n2"), signal.SIGKILL)
    assert slurm.end_of(job) == "COMPLETED"
    assert slurm.job(job)["Restarts"] == "0"
    assert run_state(site.run).resumed == 1
    assert_same(site.run, reference[0.2])


@fault("a second job in the same run folder", "refused, with the number of the first job; the first is not disturbed")
def test_two_jobs(site, slurm, monkeypatch):
    monkeypatch.setenv("SECONDS_PER_STEP", "3")
    first = site.submit()
    site.wait_for_step(5)
    owner = run_state(site.run).owner
    assert (owner["scheduler"], owner["job"]) == ("slurm", str(first))
    second = site.submit(nodes=1)
    assert slurm.end_of(second) == "FAILED"
    assert f"scancel {first}" in (site.run / f"logs/slurm-{second}.out").read_text()
    before = run_state(site.run)
    assert (before.state, before.owner) == ("training", owner)
    wait_until(lambda: run_state(site.run).step > before.step, 30)


@fault("tasks of an array of predictions killed", "`submit` names and submits those that are missing; the same table")
def test_array_of_predictions(site, slurm):
    go(image_recipe(site.folder), "run")
    rng = np.random.default_rng(0)
    np.savez("new.npz", image=rng.normal(size=(200, 4, 4)).astype(np.float32), row=np.arange(200))
    line = ["submit", "run", "new.npz", "--predict", "--shards", "3", "--out", "my scores", "--time", "0:10"]
    line += ["--gpus", "0", *SETUP, "--send"]
    site.send(*line)

    def second():
        tasks = [task for some in slurm.commands("-m", "sciformer").values() for task in some]
        return [pid for pid, words in tasks if words[words.index("--shard") + 1] == "1"]

    os.kill(wait_until(second, 60)[0], signal.SIGKILL)
    wait_until(lambda: not slurm.run("squeue", "--noheader"), 120)
    assert main(["predict", "--merge", "my scores", "--out", "merged.parquet"]) == 2
    site.send(*line)
    assert "--array=1\n" in (site.folder / "my scores/logs/job.slurm").read_text()
    wait_until(lambda: not slurm.run("squeue", "--noheader"), 120)
    assert main(["predict", "--merge", "my scores", "--out", "merged.parquet"]) == 0
    assert main(["predict", "run", "new.npz", "--out", "whole.parquet"]) == 0
    assert (site.folder / "merged.parquet").read_bytes() == (site.folder / "whole.parquet").read_bytes()


# torchrun by hand


def torchrun(site, *words):
    """A torchrun of the user, without Slurm."""
    hooks = os.pathsep.join([str(site.folder / "hooks"), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": hooks})


def children(pid):
    above = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    return [one for one, text in above.items() if int(text.rpartition(")")[2].split()[1]) == pid]


@fault("one of two processes killed, under `torchrun --max_restarts 2`", "both start again; the same result")
def test_restart_on_one_machine(site, reference):
    line = ["--nproc_per_node", "2", "--max_restarts", "2", "--rdzv_endpoint", "localhost:0", "--rdzv_backend", "c10d"]
    agent = torchrun(site, *line, "-m", "--", "sciformer", "train", "small.yaml", "--run", "runs/my run")
    site.wait_for_step(10)
    os.kill(max(children(agent.pid)), signal.SIGKILL)
    assert agent.wait(120) == 0
    assert run_state(site.run).resumed == 1
    assert_same(site.run, reference[0.2])


@fault("two machines started by hand, with the line of the guide", "the same result as two processes on one")
def test_two_machines_by_hand(site, reference):
    (line,) = re.findall(
        r"^torchrun (--nnodes 2 .*) -m sciformer train ", (DOCS / "cluster.md").read_text(), re.MULTILINE
    )
    (port,) = free_ports(1)
    small = line.replace("node1:29400", f"localhost:{port}").replace("--nproc_per_node 8", "--nproc_per_node 1").split()
    assert len(small) == 10
    words = [*small, "-m", "--", "sciformer", "train", "small.yaml", "--run", "runs/my run"]
    machines = [torchrun(site, *words) for _ in range(2)]
    assert [machine.wait(120) for machine in machines] == [0, 0]
    assert_same(site.run, reference[0.2])
