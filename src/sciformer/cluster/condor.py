"""Submit files and job scripts for HTCondor (never tried on HTCondor itself)."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from .job import Prediction, Resources, Training, about, timer

SCRIPT = "job.sh"  # in the folder of logs
REQUEUE_STATUS = 85  # exit status of a script that HTCondor shall start again


def training(work: Training, need: Resources) -> list[str]:
    """HTCondor submit file for a training."""
    if need.nodes > 1:
        message = f"HTCondor starts a job on one machine, so --nodes cannot be {need.nodes}"
        raise UserError(message, hint="Use --nodes 1 with several --gpus, or another scheduler.", key="--nodes")
    stop = [
        "kill_sig = SIGUSR1",
        f"job_max_vacate_time = {need.lead}",
        f"on_exit_remove = ExitBySignal || ExitCode != {REQUEUE_STATUS}",
    ]
    return _submit_file(work, need, stop, "queue")


def prediction(work: Prediction, need: Resources) -> list[str]:
    """HTCondor submit file with a job for each shard."""
    numbers = ", ".join(map(str, work.shards))
    return _submit_file(work, need, ["arguments = $(shard)"], f"queue shard in ({numbers})")


def training_script(work: Training, need: Resources) -> list[str]:
    """Shell script of a training.

    If the training was stopped by the time limit, the script ends with `REQUEUE_STATUS`, and HTCondor starts the job
    again.
    """
    return [
        *_begin(work, need),
        *work.stop_lines("SCIFORMER_CONDOR_JOB"),
        "(",
        "    trap '' USR1  # for torchrun",
        "    exec " + work.torchrun(need, "localhost:0", '"$SCIFORMER_CONDOR_JOB"'),
        ") &",
        "torchrun=$!",
        "",
        *timer(need),
        f"stopped && exit {REQUEUE_STATUS}  # HTCondor starts the job again",
        "exit $status",
    ]


def prediction_script(work: Prediction, need: Resources) -> list[str]:
    """Shell script of a prediction; its argument is the number of the shard."""
    return [*_begin(work, need), work.shard(need, '"$1"')]


def _begin(work: Training | Prediction, need: Resources) -> list[str]:
    return ["#!/bin/bash", about(work), *need.begin()]


def _submit_file(work: Training | Prediction, need: Resources, more: list[str], queue: str) -> list[str]:
    for text in (str(work.logs), str(Path.cwd())):
        if "$(" in text or '"' in text:
            message = f"the path {text!r} has a quote or $(, which have a special meaning in HTCondor"
            raise UserError(message, hint="Choose a path without quotes and $(.", file=work.folder)
    return [
        about(work),
        f"executable = {work.logs / SCRIPT}",
        'environment = "SCIFORMER_CONDOR_JOB=$(ClusterId).$(ProcId)"',
        "should_transfer_files = NO",
        f"initialdir = {Path.cwd()}",
        f"output = {work.logs}/condor-$(ClusterId).$(ProcId).out",
        f"error = {work.logs}/condor-$(ClusterId).$(ProcId).out",
        f"log = {work.logs}/condor.log",
        *([f"request_gpus = {need.gpus}"] if need.gpus else []),
        *([f"request_cpus = {need.cpus}"] if need.cpus else []),
        f"allowed_execute_duration = {need.seconds}",
        *more,
        *need.options,
        queue,
    ]
