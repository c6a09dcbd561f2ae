"""Cluster jobs: a training under torchrun, or shards of predictions.

The modules `slurm`, `pbs` and `condor` write the job files. A training saves a checkpoint and stops some time before
the time limit of its job. The job then goes back into the queue, and the same command resumes the training.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._version import __version__
from ..errors import UNPRINTABLE, UserError

TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>[0-5]?\d)(?::(?P<seconds>[0-5]?\d))?")
LOGS = "logs"  # folder for the output of jobs, inside the run folder
MAX_NAME_LENGTH = 60
MAX_NUMBER = 65_535  # also the longest warning of Slurm, in seconds


def parse_time(text: str) -> int:
    """Convert a time limit to seconds.

    text   HOURS:MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES
    """
    match = TIME.fullmatch(text.strip())
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((24 * days + hours) * 60 + minutes) * 60 + seconds
    if not total:
        hint = "Write HOURS:MINUTES, such as 24:00 for a day, or DAYS-HOURS:MINUTES."
        raise UserError(f"the time limit {text!r} is not a valid time, or is 0", hint=hint, key="--time")
    return total


def format_time(seconds: int) -> str:
    """Time limit in the format of schedulers (24:00:00), rounded up to minutes."""
    minutes = -(-seconds // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def check_line(text: str, key: str) -> None:
    """Refuse a line break or control character in text for a job file."""
    if "\n" in text or UNPRINTABLE.search(text):
        raise UserError(f"{key} cannot have a line break or a control character: {text!r}", key=key)


@dataclass(frozen=True)
class Resources:
    """Machines, time limit and shell environment of a job.

    nodes      number of machines
    gpus       GPUs on each machine, with one process for each GPU; 0: one process on the CPU
    cpus       CPU cores on each machine (default: chosen by the scheduler)
    seconds    time limit in seconds
    lead       seconds before the time limit at which a training saves and stops
    options    further options of the scheduler, such as `--partition=gpu`
    setup      shell commands that activate the environment
    prefix     command in front of Python on every machine, such as `apptainer exec --nv image.sif`
    python     Python interpreter (default: the current interpreter; `python` if `setup` or `prefix` is given)
    """

    nodes: int = 1
    gpus: int = 1
    cpus: int | None = None
    seconds: int = 3600
    lead: int = 120
    options: Sequence[str] = ()
    setup: Sequence[str] = ()
    prefix: str = ""
    python: str = ""

    def __post_init__(self) -> None:
        for key, least in {"nodes": 1, "gpus": 0, "cpus": 1, "lead": 1}.items():
            value = getattr(self, key)
            if value is not None and not least <= value <= MAX_NUMBER:
                raise UserError(f"--{key} must be from {least} to {MAX_NUMBER:,}, not {value:,}", key=f"--{key}")
        lines = {"--option": self.options, "--setup": self.setup, "--prefix": [self.prefix], "--python": [self.python]}
        for key, given in lines.items():
            for line in given:
                check_line(line, key)

    @property
    def processes(self) -> int:
        """Number of processes on each machine."""
        return max(1, self.gpus)

    @property
    def interpreter(self) -> str:
        """Shell command of the Python interpreter."""
        python = self.python or ("python" if self.setup or self.prefix else sys.executable)
        return f"{self.prefix} {shlex.quote(python)}".strip()

    def begin(self) -> list[str]:
        """First shell commands of a script: change the folder, set up the environment."""
        cores = [] if self.cpus is None else [f"export OMP_NUM_THREADS={max(1, self.cpus // self.processes)}"]
        return [f"cd {shlex.quote(str(Path.cwd()))} || exit 1", *self.setup, *cores]


@dataclass(frozen=True)
class Work:
    """Command and output folder of a job.

    words     arguments of `sciformer`, such as `train`, `RECIPE`
    folder    absolute path of the run folder, or of the folder of shards
    """

    words: Sequence[str]
    folder: Path

    def __post_init__(self) -> None:
        for word in [*self.words, str(self.folder), str(Path.cwd())]:
            check_line(word, "a name or path in a job file")

    @property
    def logs(self) -> Path:
        """Folder for the output of the jobs."""
        return self.folder / LOGS

    @property
    def name(self) -> str:
        """Name of the job: name of the folder, in characters accepted by schedulers."""
        name = re.sub(r"[^\w.-]+", "_", self.folder.name, flags=re.ASCII).strip("._-")[:MAX_NAME_LENGTH]
        return name if name[:1].isalpha() else f"sciformer_{name}".rstrip("_")

    @property
    def command(self) -> str:
        """Command line `sciformer ...`, quoted for the shell."""
        return shlex.join(["sciformer", *self.words])

    def quoted(self, name: str = "") -> str:
        """Path of the folder of logs, or of a file in this folder, quoted for the shell."""
        return shlex.quote(str(self.logs / name))


@dataclass(frozen=True)
class Training(Work):
    """Training under torchrun.

    restarts   maximum number of restarts by torchrun after a process has died
    """

    restarts: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts < 0:
            raise UserError(f"--restarts must be at least 0, not {self.restarts}", key="--restarts")

    def torchrun(self, need: Resources, endpoint: str, number: str) -> str:
        """Shell command of torchrun on a machine.

        endpoint   host and port of the rendezvous of all machines
        number     id of the rendezvous
        """
        options = f"--nnodes={need.nodes} --nproc-per-node={need.processes} --max-restarts={self.restarts}"
        options += f" --rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-id={number}"
        return f"{need.interpreter} -m torch.distributed.run {options} \\\n    -m -- {self.command}"

    def stop_lines(self, variable: str) -> list[str]:
        """Shell lines of the function `stopped`.

        The function tests whether the training of this job has saved a checkpoint and stopped before the time limit.

        variable   environment variable with the number of the job
        """
        note = shlex.quote(str(self.folder / "stopped.json"))
        return [
            f"note={note}  # of a training that was stopped",
            f'stopped() {{ grep -qs "\\"signal\\": \\"SIGUSR1\\".*\\"job\\": \\"${variable}\\"" "$note"; }}',
            'stopped && rm -f "$note"  # from before this job was in the queue again',
            "",
            "# torchrun must not take a stop for a failure, nor connect restarted processes at their old addresses.",
            "export SCIFORMER_STOP_STATUS=0 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
            "",
        ]


@dataclass(frozen=True)
class Prediction(Work):
    """Prediction of shards, with a job for each shard.

    shards   numbers of the shards
    """

    shards: Sequence[int] = ()

    def shard(self, need: Resources, number: str) -> str:
        """Shell command for the prediction of a shard.

        number   number of the shard, or a shell variable with this number
        """
        return f"{need.interpreter} -m {self.command} --shard {number}"


def about(work: Work) -> str:
    """Comment line at the top of a job file: its purpose and the version."""
    what = "A training" if isinstance(work, Training) else "Predictions in shards"
    return f"# {what}, written by sciformer {__version__}. The same file can be submitted again."


def timer(need: Resources) -> list[str]:
    """Shell lines to wait until torchrun ends.

    `need.lead` seconds before the time limit, the lines send USR1 to the processes of torchrun. The training then
    saves a checkpoint and stops.
    """
    return [
        f"# {need.lead} s before the limit the training saves and stops. One process is enough: it tells all others.",
        'warn() { warned=1; pkill -USR1 -P "$torchrun"; }',
        "trap warn USR1 TERM",
        'while kill -0 "$torchrun" 2>/dev/null; do',
        f'    [ -z "$warned" ] && [ "$SECONDS" -ge {need.seconds - need.lead} ] && warn',
        "    sleep 1",
        "done",
        'wait "$torchrun"',
        "status=$?",
        "",
    ]
