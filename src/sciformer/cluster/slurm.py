"""Job files for Slurm."""

from __future__ import annotations

from ..errors import UserError
from .job import Prediction, Resources, Training, about, format_time
from .shards import describe_numbers


def training(work: Training, need: Resources) -> list[str]:
    """Job file of a training.

    Slurm sends USR1 to all processes of the job step, thus to every rank on every machine; torchrun ignores the signal.
    With `--signal=B:`, only this script would receive the signal, and it could not send it to other machines.
    """
    return [
        *_head(work, need, [f"--signal=USR1@{need.lead}"], "slurm-%j.out"),
        *need.begin(),
        *work.stop_lines("SLURM_JOB_ID"),
        "# After a requeue the machines meet under another id and port, so that no earlier torchrun is met.",
        'attempt="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"',
        'endpoint="$(hostname):$((20000 + (SLURM_JOB_ID + 7919 * ${SLURM_RESTART_COUNT:-0}) % 20000))"',
        "",
        f"# {need.lead} s before the limit, Slurm sends USR1 to all processes of srun: the training saves and stops.",
        f'srun{_cores(need)} --kill-on-bad-exit=1 bash -c \'trap "" USR1; exec "$@"\' bash \\',
        "    " + work.torchrun(need, '"$endpoint"', '"$attempt"'),
        "status=$?",
        "",
        "if stopped; then",
        '    echo "saved before the time limit: job $SLURM_JOB_ID goes back into the queue"',
        '    command -v scontrol >/dev/null && scontrol requeue "$SLURM_JOB_ID" && exit 0',
        '    echo "error: scontrol was not found here (as in a container) or refused: submit the same file again" >&2',
        "fi",
        "exit $status",
    ]


def prediction(work: Prediction, need: Resources) -> list[str]:
    """Job file of an array with a job for each shard."""
    array = [f"--array={describe_numbers(work.shards)}"]
    shard = work.shard(need, '"$SLURM_ARRAY_TASK_ID"')
    return [*_head(work, need, array, "slurm-%A_%a.out"), *need.begin(), f"srun{_cores(need)} {shard}"]


def _cores(need: Resources) -> str:
    """Option of srun for the CPU cores, which srun does not inherit from the job."""
    return f" --cpus-per-task={need.cpus}" if need.cpus else ""


def _head(work: Training | Prediction, need: Resources, more: list[str], log: str) -> list[str]:
    options = [f"--job-name={work.name}", f"--nodes={need.nodes}", "--ntasks-per-node=1"]
    options += [f"--gpus-per-node={need.gpus}"] if need.gpus else []
    options += [f"--cpus-per-task={need.cpus}"] if need.cpus else []
    if "\\" in str(work.logs):
        message = f"Slurm cannot write into a folder with a backslash in its name: {work.folder}"
        raise UserError(message, hint="Choose another folder.", file=work.folder)
    path = str(work.logs).replace("%", "%%").replace('"', r"\"")
    options += [f"--time={format_time(need.seconds)}", *more, "--requeue", "--open-mode=append"]
    options += [f'--output="{path}/{log}"', *need.options]
    return ["#!/bin/bash", about(work), *(f"#SBATCH {option}" for option in options), ""]
