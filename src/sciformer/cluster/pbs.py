"""Job files for PBS (tested only with imitations of the PBS commands)."""

from __future__ import annotations

import shlex
from pathlib import Path

from .job import Prediction, Resources, Training, about, format_time, timer

MAX_JOB_NAME = 15
JOB_FILE = "job.pbs"  # copy of the job file in the folder of logs


def training(work: Training, need: Resources) -> list[str]:
    """Job file of a training.

    PBS sends no signal before the time limit, and users may not put a running job back into the queue. So the script
    measures the time itself, and submits itself again.
    """
    return [
        *_head(work, need),
        *need.begin(),
        f'[ "$0" -ef {work.quoted(JOB_FILE)} ] || cp -- "$0" {work.quoted(JOB_FILE)}  # to submit it again',
        *work.stop_lines("PBS_JOBID"),
        f"cat > {work.quoted('node.sh')} << 'END'",
        *need.begin(),
        "export SCIFORMER_STOP_STATUS=0 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "trap '' USR1  # for torchrun",
        "exec " + work.torchrun(need, '"$1"', '"$2"'),
        "END",
        'endpoint="$(hostname):$((20000 + ${PBS_JOBID%%[!0-9]*} % 20000))"  # this script runs on the first machine',
        f"for ((node = 1; node < {need.nodes}; node++)); do",
        f'    pbsdsh -n "$node" -- bash {work.quoted("node.sh")} "$endpoint" "$PBS_JOBID" &',
        "done",
        f'bash {work.quoted("node.sh")} "$endpoint" "$PBS_JOBID" &',
        "torchrun=$!",
        "",
        *timer(need),
        "if stopped; then",
        '    echo "saved before the time limit: the job is submitted again"',
        f"    cd {shlex.quote(str(Path.cwd()))} && command -v qsub >/dev/null && qsub {work.quoted(JOB_FILE)} && exit",
        '    echo "error: qsub was not found here or refused: submit the same file again" >&2',
        "fi",
        "exit $status",
    ]


def prediction(work: Prediction, need: Resources) -> list[str]:
    """Job file of an array with a job for each shard, or of a job for one shard."""
    array = [f"-J 0-{len(work.shards) - 1}"] if len(work.shards) > 1 else []
    numbers = " ".join(map(str, work.shards))  # the indices of a job array of PBS have no gaps
    shard = work.shard(need, '"${shards[${PBS_ARRAY_INDEX:-0}]}"')
    return [*_head(work, need, array), *need.begin(), f"shards=({numbers})", shard]


def _head(work: Training | Prediction, need: Resources, more: list[str] | None = None) -> list[str]:
    chunk = f"select={need.nodes}:mpiprocs=1"
    chunk += f":ncpus={need.cpus}" if need.cpus else ""
    chunk += f":ngpus={need.gpus}" if need.gpus else ""
    options = [f"-N {work.name[:MAX_JOB_NAME]}", f"-l {chunk}", f"-l walltime={format_time(need.seconds)}"]
    options += ["-l place=scatter"] if need.nodes > 1 else []
    options += [*(more or []), "-r y", "-j oe", "-o /dev/null", *need.options]
    redirect = f'mkdir -p {work.quoted()} && exec >> {work.quoted()}/"pbs-$PBS_JOBID.out" 2>&1'
    return ["#!/bin/bash", about(work), *(f"#PBS {option}" for option in options), "", redirect]
