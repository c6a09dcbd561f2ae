"""One cluster for all tests, and the undisturbed run that they must equal.

`pytest tests/slurm --record FILE` writes how many of the faults in `test_faults.py` were survived, if all of them ran.
"""

import re
import shutil
import sys
from getpass import getuser
from pathlib import Path

import pytest

import sciformer
from sciformer.cli.main import main
from tests.paths import BENCHMARKS
from tests.slurm.cluster import Slurm, wait_until
from tests.training.tiny import go, in_ranks, left, text_recipe

sys.path.insert(0, str(BENCHMARKS))
STEPS = 30
FAULTS = 8  # tests in `test_faults.py`
FATES = {}  # whether each of them passed


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, help="write a row of results: how many faults were survived")


def pytest_runtest_logreport(report):
    if "slurm/test_faults.py" in report.nodeid and not report.skipped:
        FATES[report.nodeid] = FATES.get(report.nodeid, True) and report.passed


def pytest_sessionfinish(session):
    path = session.config.getoption("--record")
    if path is None or len(FATES) < FAULTS:
        return
    from measure import commit, hardware, record, versions

    row = {"id": "cluster.faults", "value": sum(FATES.values()), "unit": f"of {len(FATES)}", "better": "higher"}
    row |= {"spread": None, "seeds": 1, "command": "make test-cluster", "hardware": hardware("cpu")}
    row |= {"versions": versions() | {"slurm": "22.05.8"}, "commit": commit()}
    row["settings"] = "Slurm with two nodes on one host; gloo"
    record(path, [row])


# Makes trainings of the jobs interruptible: a step takes some time, and a process can be told to die in a save.
HOOKS = """
import os, signal, sys, time
from pathlib import Path

def slow_down():
    from sciformer.training import checkpoint
    from sciformer.training.engine import Engine
    update_average, commit = Engine._update_average, checkpoint._commit

    def slow(engine, updated, batch):
        update_average(engine, updated, batch)
        time.sleep(float(os.environ.get("SECONDS_PER_STEP", "0.2")))

    def deadly(final, manifest):
        once = Path(os.environ.get("DIE_IN_A_SAVE", "."))
        if once.name and manifest["step"] == 15 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        commit(final, manifest)

    Engine._update_average, checkpoint._commit = slow, deadly

if sys.orig_argv[1:5] == ["-u", "-m", "sciformer", "train"]:  # a rank, as torchrun starts it
    slow_down()
"""

# sbatch passes on its own libraries, and the jobs need the module above.
SETUP = ["--setup", "unset LD_LIBRARY_PATH", "--setup", 'export PYTHONPATH="$PWD/hooks:$PYTHONPATH"']
SETUP += ["--python", sys.executable]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("Slurm comes from Debian's packages")
    with Slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def recipe_of(folder, **changes):
    return text_recipe(folder, train__steps=STEPS, train__save_every=5, train__evaluate_every=10, **changes)


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """What two undisturbed processes leave, with and without dropout."""
    folder = tmp_path_factory.mktemp("reference")
    found = {}
    for dropout in (0.2, 0.0):
        run = folder / f"{dropout}"
        recipe = recipe_of(folder, model__dropout=dropout)
        in_ranks(lambda recipe=recipe, run=run: go(recipe, run), folder)
        found[dropout] = left(run)
    return found


class Site:
    """A user's folder on the cluster."""

    def __init__(self, slurm, folder, capsys):
        self.slurm, self.folder, self.capsys, self.run = slurm, folder, capsys, folder / "runs/my run"

    def submit(self, *words, nodes=2, time="0:10"):
        """Number of a new job of the training."""
        line = ["submit", "small.yaml", "--run", "runs/my run", "--time", time, "--gpus", "0", *SETUP]
        line += ["--nodes", str(nodes), "--send", *words]
        return self.send(*line)

    def send(self, *line):
        assert main(list(line)) == 0
        said = self.capsys.readouterr().out
        return int(re.search(r"Submitted batch job (\d+)", said)[1])

    def again(self):
        """Number of a job from the same file as before."""
        said = self.slurm.run("sbatch", self.run / "logs/job.slurm")
        return int(said.split()[-1])

    def wait_for_step(self, step, seconds=60):
        """Wait for the checkpoint of a step."""
        wait_until(lambda: (self.run / f"checkpoints/step-{step:07d}").exists(), seconds)

    def log(self):
        """Output of all jobs of the training."""
        return "".join(path.read_text() for path in sorted(self.run.glob("logs/*.out")))


@pytest.fixture
def site(slurm, tmp_path, monkeypatch, capsys):
    (tmp_path / "small.yaml").write_text(recipe_of(tmp_path).to_yaml())
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/sitecustomize.py").write_text(HOOKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    monkeypatch.setenv("PYTHONPATH", str(Path(sciformer.__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Site(slurm, tmp_path, capsys)
    yield made
    assert "sitecustomize" not in made.log()  # the module above was imported without an error
    slurm.run("scancel", "--quiet", "--user", getuser())
    wait_until(lambda: not slurm.run("squeue", "--noheader"), 30)
