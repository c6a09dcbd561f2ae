"""Job files of every scheduler: their scripts run, with stand-ins for its commands and for torchrun."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sciformer.cli.main import main
from sciformer.cluster import condor
from sciformer.cluster.job import Prediction, Resources, Training, format_time, parse_time
from sciformer.cluster.scheduler import SCHEDULERS
from sciformer.cluster.submit import check_found, job_file
from tests.errors import refuses
from tests.training.tiny import text_recipe

# A rank below a torchrun. It notes its words, and ends as FATE says: with this status, or saved after a signal. A
# rank that waits must be told to stop, as by a scheduler.
TORCHRUN = f"""#!{sys.executable}
import json, os, signal, subprocess, sys, time

def stop(number, frame):
    note = {{"step": 7, "signal": signal.Signals(number).name, "scheduler": "x", "job": os.environ["JOB"]}}
    open(os.path.join(os.environ["RUN"], "stopped.json"), "w").write(json.dumps(note))
    sys.exit(int(os.environ["SCIFORMER_STOP_STATUS"]))

if "rank" not in sys.argv:
    open(os.environ["WORDS"], "w").write(json.dumps(sys.argv[1:]))
    sys.exit(subprocess.run([sys.executable, __file__, "rank"]).returncode)
fate = os.environ["FATE"]
if fate in ("SIGUSR1", "SIGTERM"):
    stop(signal.Signals[fate], None)
if fate != "waits":
    sys.exit(int(fate))
signal.signal(signal.SIGUSR1, stop)
time.sleep(20)
"""
# Commands of schedulers, which note that they were called.
COMMANDS = {
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    "pbsdsh": "exit 0",
    "hostname": "echo node7",
    **dict.fromkeys(("scontrol", "qsub"), 'echo "${0##*/} $*" >> "$CALLS"; exit ${REFUSED:-0}'),
}
JOBS = {"slurm": "17", "pbs": "17.server", "condor": "17.0"}


class Cluster:
    """A folder with the commands of all schedulers."""

    def __init__(self, folder):
        self.folder, self.run, self.bin = folder, folder / "runs/a 'run' of $5", folder / "bin"
        self.run.mkdir(parents=True)
        self.bin.mkdir()
        for name, text in COMMANDS.items():
            (self.bin / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.bin / name).chmod(0o755)
        (folder / "torchrun").write_text(TORCHRUN)
        (folder / "torchrun").chmod(0o755)

    def training(self, kind, fate, words=(), **need):
        """Status, output and calls of the scheduler of a job."""
        work = Training(["train", "my recipe.yaml", "--run", str(self.run), *words], self.run)
        need = Resources(**{"gpus": 2, "python": str(self.folder / "torchrun"), "seconds": 600, **need})
        text = job_file(kind, work, need)
        file = self.folder / "job"
        text = text if kind != "condor" else (work.logs / condor.SCRIPT).read_text()
        file.write_text(text.replace("    sleep 1\n", "    sleep 0.1\n"))
        settings = {"FATE": fate, "RUN": self.run, "WORDS": self.folder / "words", "CALLS": self.folder / "calls"}
        settings |= {"JOB": JOBS[kind], SCHEDULERS[kind].variable: JOBS[kind]}
        environment = {**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", **{k: str(v) for k, v in settings.items()}}
        done = subprocess.run(["bash", file], env=environment, capture_output=True, text=True, timeout=30, check=False)
        calls = self.folder / "calls"
        said = done.stdout + done.stderr + "".join(path.read_text() for path in work.logs.glob("pbs-*.out"))
        return done.returncode, said, calls.read_text().splitlines() if calls.exists() else []

    def note(self, job, signal="SIGUSR1"):
        (self.run / "stopped.json").write_text(json.dumps({"step": 3, "signal": signal, "scheduler": "x", "job": job}))


@pytest.fixture
def cluster(tmp_path, here):
    return Cluster(tmp_path)


REQUEUE = {"slurm": "scontrol requeue 17", "pbs": "qsub {}/logs/job.pbs", "condor": None}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_training_that_saved_goes_back_into_the_queue_once(cluster, kind):
    status, said, calls = cluster.training(kind, "SIGUSR1")
    expected = REQUEUE[kind]
    assert calls == ([expected.format(cluster.run)] if expected else [])
    assert status == (condor.REQUEUE_STATUS if kind == "condor" else 0)
    assert "error" not in said
    words = json.loads((cluster.folder / "words").read_text())
    place = words.index("--")
    assert words[place - 1 :] == ["-m", "--", "sciformer", "train", "my recipe.yaml", "--run", str(cluster.run)]
    assert words[:2] == ["-m", "torch.distributed.run"]
    assert {"--nnodes=1", "--nproc-per-node=2", "--max-restarts=0", "--rdzv-backend=c10d"} <= {*words}


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("fate", ["0", "2", "SIGTERM"])
def test_no_other_end_puts_a_job_back(cluster, kind, fate):
    cluster.note(JOBS[kind])  # from before the last requeue
    status, _, calls = cluster.training(kind, fate)
    assert calls == []
    assert status == (2 if fate == "2" else 0)
    assert (cluster.run / "stopped.json").exists() is (fate == "SIGTERM")


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_the_note_of_another_job_is_left_alone(cluster, kind):
    cluster.note("1" + JOBS[kind])
    assert cluster.training(kind, "0")[::2] == (0, [])
    assert (cluster.run / "stopped.json").exists()


@pytest.mark.parametrize("kind", ["pbs", "condor"])
def test_schedulers_without_a_warning_have_a_timer(cluster, kind):
    status, _, calls = cluster.training(kind, "waits", seconds=64, lead=60)  # a rank of a busy machine starts late
    assert status == (condor.REQUEUE_STATUS if kind == "condor" else 0)
    assert len(calls) == (kind == "pbs")


@pytest.mark.parametrize(("kind", "command"), [("slurm", "scontrol"), ("pbs", "qsub")])
@pytest.mark.parametrize("there", [True, False])
def test_a_command_that_is_missing_or_refuses_is_reported(cluster, kind, command, there, monkeypatch):
    if there:
        monkeypatch.setenv("REFUSED", "1")
    else:
        (cluster.bin / command).unlink()
    _, said, _ = cluster.training(kind, "SIGUSR1")
    assert re.search(f"^error: {command} was not found .*submit the same file again", said, re.MULTILINE)


def options(text, mark):
    return [line.removeprefix(mark).strip() for line in text.splitlines() if line.startswith(mark)]


def test_options_of_slurm(tmp_path, here):
    run = tmp_path / 'a "b" 5%'
    need = Resources(4, 8, 96, parse_time("1-12:30"), 300, ["--partition=gpu", "--account=x"], ["module load cuda"])
    text = job_file("slurm", Training(["train", "r"], run), need)
    found = options(text, "#SBATCH ")
    assert found[-2:] == ["--partition=gpu", "--account=x"]
    assert {"--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=96"} <= {*found}
    assert {"--time=36:30:00", "--signal=USR1@300", "--requeue", "--open-mode=append", "--job-name=a_b_5"} <= {*found}
    assert f'--output="{tmp_path}/a \\"b\\" 5%%/logs/slurm-%j.out"' in found
    assert text.index("\nmodule load cuda\n") < text.index("\nsrun --cpus-per-task=96 ")
    assert "export OMP_NUM_THREADS=12\n" in text
    assert (run / "logs").is_dir()


def test_options_of_pbs(tmp_path, here):
    found = options(job_file("pbs", Training(["train", "r"], tmp_path / "run"), Resources(2, 4, 8)), "#PBS ")
    assert {"-N run", "-l select=2:mpiprocs=1:ncpus=8:ngpus=4", "-l walltime=01:00:00", "-r y", "-j oe"} <= {*found}


def test_submit_file_of_condor(tmp_path, here):
    text = job_file("condor", Training(["train", "r"], tmp_path / "my run"), Resources(1, 4, 8))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[-1] == "queue"
    found = dict(line.split(" = ", 1) for line in lines[:-1])
    assert found["executable"] == f"{tmp_path}/my run/logs/job.sh"
    assert os.access(found["executable"], os.X_OK)
    assert (found["request_gpus"], found["request_cpus"], found["kill_sig"]) == ("4", "8", "SIGUSR1")
    assert found["on_exit_remove"] == "ExitBySignal || ExitCode != 85"
    assert found["environment"] == '"SCIFORMER_CONDOR_JOB=$(ClusterId).$(ProcId)"'


ARRAYS = {
    "slurm": ("--array=0-2,5", lambda text: options(text, "#SBATCH "), {"SLURM_ARRAY_TASK_ID": "5"}),
    "pbs": ("-J 0-3", lambda text: options(text, "#PBS "), {"PBS_ARRAY_INDEX": "3", "PBS_JOBID": "1[3]"}),
    "condor": ("queue shard in (0, 1, 2, 5)", str.splitlines, {}),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_arrays_of_shards(cluster, kind):
    work = Prediction(["predict", "my run", "--shards", "8"], cluster.folder / "out", [0, 1, 2, 5])
    text = job_file(kind, work, Resources(python=str(cluster.folder / "torchrun")))
    array, lines, environment = ARRAYS[kind]
    assert array in lines(text)
    script = cluster.folder / "script"
    script.write_text((work.logs / condor.SCRIPT).read_text() if kind == "condor" else text)
    settings = {"PATH": f"{cluster.bin}:/usr/bin:/bin", "WORDS": "words", "FATE": "0", **environment}
    subprocess.run(["bash", script, "5"], env={**os.environ, **settings}, check=True)
    words = json.loads((cluster.folder / "words").read_text())
    assert words == ["-m", "sciformer", "predict", "my run", "--shards", "8", "--shard", "5"]


def test_a_single_shard_is_no_array_of_pbs(tmp_path, here):
    text = job_file("pbs", Prediction(["predict"], tmp_path / "out", [5]), Resources())
    assert not any(option.startswith("-J") for option in options(text, "#PBS "))
    assert "shards=(5)\n" in text


@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("24:00", 86400, "24:00:00"),
        ("0:01", 60, "00:01:00"),
        ("1:02:03", 3723, "01:03:00"),
        ("2-00:30", 174600, "48:30:00"),
    ],
)
def test_times_are_hours_and_minutes(text, seconds, written):
    assert parse_time(text) == seconds
    assert format_time(seconds) == written


@pytest.mark.parametrize("text", ["", "24", "0:00", "1:60", "a", "-1:00", "1:00:00:00"])
def test_other_times_are_refused(text):
    with refuses(repr(text), key="--time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"nodes": 0}, "--nodes"),
        ({"gpus": -1}, "--gpus"),
        ({"cpus": 0}, "--cpus"),
        ({"lead": 0}, "--lead"),
        ({"lead": 100_000}, "--lead"),
        ({"options": ["--partition=a\n#SBATCH --x"]}, "--option"),
        ({"setup": ["a\nb"]}, "--setup"),
        ({"prefix": "a\x1b"}, "--prefix"),
    ],
)
def test_impossible_resources_are_refused(given, key):
    with refuses(key=key):
        Resources(**given)


def test_impossible_jobs_are_refused(tmp_path, here):
    training, prediction = Training(["train"], tmp_path / "run"), Prediction(["predict"], tmp_path / "out", [0])
    with refuses("slrm", "slurm", key="--kind", hint="'slurm'"):
        job_file("slrm", training, Resources())
    with refuses("slrm", key="--kind"):
        check_found("slrm")
    with refuses("60", "120", key="--time", hint="--lead"):
        job_file("slurm", training, Resources(seconds=60))
    job_file("slurm", prediction, Resources(seconds=60))
    with refuses(2, key="--nodes"):
        job_file("condor", training, Resources(nodes=2))
    with refuses(key="--nodes"):
        job_file("slurm", prediction, Resources(nodes=2))
    with refuses(key="--restarts"):
        Training(["train"], tmp_path, -1)
    for name in ("a\nb", "a\x00b"):
        with refuses(repr(name)):
            Training(["train", name], tmp_path)
    for kind, name in (("condor", "a$(b)"), ("condor", 'a"b'), ("slurm", "a\\b")):
        with refuses(file=tmp_path / name):
            job_file(kind, Training(["train"], tmp_path / name), Resources())


# From the command line


@pytest.fixture
def recipe(tmp_path, here, monkeypatch):
    (tmp_path / "my recipe.yaml").write_text(text_recipe(tmp_path).to_yaml())
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return "my recipe.yaml"


def command_in(text):
    """Words of the command in a job file."""
    (line,) = re.findall(r"sciformer (?:train|predict) .*", text)
    return shlex.split(line)


def test_changes_of_the_recipe_are_passed_on(recipe, capsys):
    line = ["submit", recipe, "--run", "runs/my run", "--time", "24:00", "--model.depth", "2", "--data.split.valid=0.2"]
    assert main([*line, "--accept-changes", "--option", "--partition=gpu", "--option=--qos=x"]) == 0
    text = capsys.readouterr().out
    words = command_in(text)
    assert words[:5] == ["sciformer", "train", recipe, "--run", "runs/my run"]
    assert words[5:] == ["--accept-changes", "--model.depth=2", "--data.split.valid=0.2"]
    assert options(text, "#SBATCH ")[-2:] == ["--partition=gpu", "--qos=x"]
    assert not Path("runs/my run/recipe.yaml").exists()


def test_a_wrong_recipe_is_refused_before_it_is_in_the_queue(recipe, capsys):
    assert main(["submit", recipe, "--time", "24:00", "--model.dept", "2"]) == 2
    assert main(["submit", recipe, "file.txt", "--time", "24:00"]) == 2
    assert main(["submit", recipe]) == 2
    assert capsys.readouterr().out == ""


def test_a_job_is_sent(recipe, tmp_path, capsys):
    sbatch = tmp_path / "bin/sbatch"
    sbatch.write_text('#!/bin/bash\necho "Submitted batch job 17"; cp "$1" sent\n')
    sbatch.chmod(0o755)
    assert main(["submit", recipe, "--run", "runs/r", "--time", "24:00", "--send"]) == 0
    assert capsys.readouterr().out.startswith("Submitted batch job 17\n")
    assert Path("sent").read_text() == Path("runs/r/logs/job.slurm").read_text()
    sbatch.write_text('#!/bin/bash\necho "sbatch: error: invalid partition" >&2; exit 1\n')
    assert main(["submit", recipe, "--run", "runs/r", "--time", "24:00", "--send"]) == 2
    assert "invalid partition" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "looked"),
    [((), "sbatch (Slurm), qsub (PBS), condor_submit (HTCondor)"), (("--kind", "pbs"), "qsub (PBS)")],
)
def test_no_scheduler_is_found(recipe, capsys, kind, looked):
    assert main(["submit", recipe, "--time", "24:00", "--send", *kind]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert looked in said
    assert not Path("runs").exists()


def test_the_scheduler_of_this_machine_is_chosen(recipe, tmp_path, capsys):
    (tmp_path / "bin/qsub").write_text("")
    (tmp_path / "bin/qsub").chmod(0o755)
    assert main(["submit", recipe, "--time", "24:00"]) == 0
    assert "#PBS -N my_recipe\n" in capsys.readouterr().out
