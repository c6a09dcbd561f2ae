"""Write and submit job files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError, one_of
from ..files.atomic import make_folder, write_text
from . import condor, pbs, slurm
from .job import Prediction, Resources, Training
from .scheduler import SCHEDULERS

MODULES = {"slurm": slurm, "pbs": pbs, "condor": condor}


def find_scheduler(kind: str | None = None) -> str:
    """Name of the first installed scheduler; "" without a scheduler.

    A scheduler is installed if its submit command is found.

    kind   look for this scheduler only (default: all)
    """
    return next((one for one in SCHEDULERS if kind in (None, one) and shutil.which(SCHEDULERS[one].submit)), "")


def job_file(kind: str, work: Training | Prediction, need: Resources) -> str:
    """Text of a job file for a scheduler.

    The folder of logs is created, because schedulers do not create it. For HTCondor, the script of the job is
    also written.
    """
    one_of("--kind", kind, SCHEDULERS, key="--kind")
    module = MODULES[kind]
    if isinstance(work, Training):
        if need.seconds <= need.lead:
            message = f"the time limit of {need.seconds} s is not longer than --lead, {need.lead} s"
            raise UserError(message, hint="Give more --time, or a shorter --lead.", key="--time")
        lines, script = module.training(work, need), condor.training_script(work, need)
    else:
        if need.nodes > 1:
            raise UserError("a shard is predicted on one machine, so --nodes must be 1", key="--nodes")
        lines, script = module.prediction(work, need), condor.prediction_script(work, need)
    make_folder(work.logs, "Choose another folder.")
    if kind == "condor":
        write_text(work.logs / condor.SCRIPT, _text(script))
        (work.logs / condor.SCRIPT).chmod(0o755)
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def send(kind: str, work: Training | Prediction, text: str) -> tuple[Path, str]:
    """Submit a job file; return its path and the scheduler's answer."""
    command = SCHEDULERS[kind].submit
    path = work.logs / f"job.{kind}"
    write_text(path, text)
    try:
        done = subprocess.run([command, str(path)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"{command} cannot be started: {error.strerror}", key="--send") from error
    if done.returncode:
        why = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
        raise UserError(
            f"{command} refused {path}: {why}", hint="Correct the options, or edit and submit the file.", file=path
        )
    return path, done.stdout.strip()


def check_found(kind: str | None) -> str:
    """Name of the installed scheduler; a missing scheduler is an error."""
    if kind is not None:
        one_of("--kind", kind, SCHEDULERS, key="--kind")
    if found := find_scheduler(kind):
        return found
    wanted = [one for key, one in SCHEDULERS.items() if kind in (None, key)]
    names = ", ".join(f"{one.submit} ({one.title})" for one in wanted)
    hint = "Submit from a login node of the cluster, or leave out --send to print the job file."
    raise UserError(f"no scheduler was found: {names} is not on PATH", hint=hint, key="--send")
