"""Schedulers of clusters: their commands, and the job of this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scheduler:
    """Name, commands and environment variable of a scheduler.

    title      name of the scheduler in messages
    variable   environment variable with the number of the job
    submit     command that submits a job file
    cancel     command that cancels a job
    """

    title: str
    variable: str
    submit: str
    cancel: str


SCHEDULERS = {
    "slurm": Scheduler("Slurm", "SLURM_JOB_ID", "sbatch", "scancel"),
    "pbs": Scheduler("PBS", "PBS_JOBID", "qsub", "qdel"),
    "condor": Scheduler("HTCondor", "SCIFORMER_CONDOR_JOB", "condor_submit", "condor_rm"),
}


def describe_process(owner: dict[str, Any]) -> str:
    """Description of the process and the job that have locked a run folder."""
    who = f"process {owner['pid']} on {owner['host']}"
    return f"{SCHEDULERS[owner['scheduler']].title} job {owner['job']} ({who})" if "job" in owner else who


def present_job() -> dict[str, str]:
    """Scheduler and job number of this process; empty outside a job."""
    for kind, scheduler in SCHEDULERS.items():
        if number := os.environ.get(scheduler.variable):
            return {"scheduler": kind, "job": number}
    return {}
