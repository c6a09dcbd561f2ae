"""Commands `submit` and `status`: cluster jobs, and the states of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import UserError
from .app import AcceptDrift, MapColumns, Plugins, RunFolder, app, load_plugins, load_recipe, run_path
from .terminal import RECIPE_CHANGES, check_run, console, find_runs, log, no_changes

SUBMIT_HELP = """\
Changes of the recipe are passed on: `--model.depth 8`. The job runs in the present folder. Its output is in
`RUN/logs`."""
Line = Parameter(allow_leading_hyphen=True)


@app.command(sort_key=4.5, help_epilogue=SUBMIT_HELP)
def submit(
    recipe: Annotated[str, Parameter(help="Recipe to train; with --predict the folder of a run.")],
    files: Annotated[tuple[Path, ...], Parameter(help="Files to predict, with --predict.")] = (),
    /,
    *,
    time: str,
    run: Annotated[Path | None, Parameter(converter=run_path)] = None,
    nodes: int = 1,
    gpus: int = 1,
    cpus: int | None = None,
    kind: str | None = None,
    send: bool = False,
    lead: int = 120,
    restarts: int = 0,
    option: Annotated[tuple[str, ...], Line] = (),
    setup: Annotated[tuple[str, ...], Line] = (),
    prefix: Annotated[str, Line] = "",
    python: str = "",
    predict: bool = False,
    shards: int = 64,
    out: RunFolder = Path("predictions"),
    format: str = "parquet",
    accept_changes: bool = False,
    accept_drift: AcceptDrift = False,
    map: MapColumns = (),
    plugin: Plugins = (),
) -> None:
    """Write the job file of a training or of predictions; --send submits it.

    The training saves and stops before the time limit, and the job goes back into the queue. The next job resumes the
    training, until it is complete. With `--predict` the job is an array with a task for each missing shard.

    Parameters
    ----------
    time
        Time limit of a job, HOURS:MINUTES: 24:00 is a day. A training may need many jobs.
    run
        Run folder, on a file system that all machines share (default: runs/NAME).
    nodes
        Number of machines (default: 1).
    gpus
        GPUs on each machine, with one process for each GPU (default: 1; 0: one process on the CPU).
    cpus
        CPU cores on each machine (default: chosen by the scheduler).
    kind
        Scheduler: slurm, pbs or condor (default: the scheduler found on this machine, else slurm).
    send
        Submit the job instead of printing the file.
    lead
        Seconds before the time limit at which the training saves and stops (default: 120). A step, an evaluation and a
        save together must take less time.
    restarts
        Maximum number of restarts in a job: torchrun restarts all processes after a process has died (default: 0).
    option
        Further option of the scheduler: `--option "--partition=gpu"`; repeat --option for several options.
    setup
        Shell command that activates the environment: `--setup "module load cuda"`; repeat --setup for several commands.
    prefix
        Command in front of Python on every machine, such as a container: `--prefix "apptainer exec --nv image.sif"`.
    python
        Python interpreter (default: the current interpreter; `python` if --setup or --prefix is given).
    predict
        Predict FILES in shards with a trained run, instead of training a recipe.
    shards
        Number of shards, with --predict (default: 64).
    out
        Folder of the shards, with --predict (default: predictions).
    format
        Format of the shards, with --predict: csv, h5, npz, parquet or root (default: parquet).
    accept_changes
        Resume even if the recipe, the data or a plugin changed since the run was started.
    """
    from ..cluster.job import Resources, parse_time
    from ..cluster.submit import check_found, find_scheduler, job_file
    from ..cluster.submit import send as send_job

    need = Resources(nodes, gpus, cpus, parse_time(time), lead, option, setup, prefix, python)
    load_plugins(plugin)
    common = [word for path in plugin for word in ("--plugin", str(path))]
    if predict:
        common += ["--accept-drift"] if accept_drift else []
        common += [word for pair in map for word in ("--map", pair)]
        work: Any = _plan_prediction(Path(recipe), files, shards, out, format, common)
    else:
        if files:
            hint = "Files can be named only with --predict; a training takes its files from the recipe."
            raise UserError(f"unexpected argument {str(files[0])!r}", hint=hint, key="--predict")
        work = _plan_training(recipe, run, restarts, [*common, *(["--accept-changes"] if accept_changes else [])])
    chosen = check_found(kind) if send else kind or find_scheduler() or "slurm"
    text = job_file(chosen, work, need)
    if not send:
        print(text, end="")
        return
    path, answer = send_job(chosen, work, text)
    print(f"{answer}\nsubmitted {path}; its output will be in {work.logs}")


def _plan_training(recipe: str, run: Path | None, restarts: int, options: Sequence[str]) -> Any:
    """Plan the training of a recipe; check the recipe now, before the job starts."""
    from ..cluster.job import Training

    made = load_recipe(recipe)
    folder = run or (Path(recipe) if Path(recipe).is_dir() else Path("runs") / (Path(made.name).stem or "run"))
    words = ["train", recipe, "--run", str(folder), *options]
    for key, value in RECIPE_CHANGES.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{key}"] if value is True else [f"--{key}={value}"] if len(values) == 1 else [f"--{key}", *values]
    return Training(words, Path(os.path.abspath(folder)), restarts)


def _plan_prediction(
    run: Path, files: Sequence[Path], shards: int, out: Path, form: str, options: Sequence[str]
) -> Any:
    from ..cluster.job import Prediction
    from ..cluster.shards import PLAN, ShardFolder, Sharding

    no_changes("A run keeps the recipe it was trained with.")
    check_run(run)
    if not files:
        raise UserError("--predict needs files to predict", hint="Name them after the run.", key="--predict")
    sharding = Sharding(shards, f".{form.removeprefix('.')}")
    missing = list(range(sharding.count))
    if (out / PLAN).exists():
        made = ShardFolder(out)
        if made.sharding != sharding:
            found = f"{made.sharding.count} shards of the format {made.sharding.suffix}"
            message = f"{out} has {found}, not {sharding.count} shards of the format {sharding.suffix}"
            raise UserError(message, hint="Use the same --shards and --format, or another --out.", key="--shards")
        missing = made.missing()
        log(f"{len(missing)} of {sharding.count} shards are missing")
        if not missing:
            hint = f"Merge them: sciformer predict --merge {out} --out predictions{sharding.suffix}"
            raise UserError(f"all shards of {out} are done", hint=hint, file=out)
    words = ["predict", str(run), *map(str, files), "--shards", str(shards), "--out", str(out), "--format", form]
    return Prediction([*words, "--quiet", *options], Path(os.path.abspath(out)), missing)


@app.command(sort_key=4.6, help_epilogue="")
def status(
    runs: Annotated[
        tuple[Path, ...], Parameter(help="Run folders, or folders of shards (default: all in runs/).")
    ] = (),
    /,
    *,
    json_: Annotated[bool, Parameter(name="--json", help="Print a JSON list.")] = False,
) -> None:
    """Show the state of runs: step, loss, speed, time left, checkpoint and process.

    Running trainings, also on other machines, are not disturbed. For a folder of shards, the missing shards are listed.
    """
    from ..cluster.shards import PLAN, shards_state
    from ..cluster.status import run_state

    no_changes("Name only runs.")
    paths = list(runs) or [Path(name) for name in find_runs()]
    if not paths:
        raise UserError("there are no runs in runs/", hint="Name a run folder: sciformer status RUN", key="RUN")
    states: list[Any] = []
    for path in paths:
        if (path / PLAN).exists():
            states.append(shards_state(path))
            continue
        if not (path / "logs").is_dir():
            check_run(path)
        states.append(run_state(path))
    if json_:
        print(json.dumps([asdict(state) for state in states], indent=1))
        return
    for state in states:
        first, *others = state.describe()
        console().print(f"{state.folder}  {first}", markup=False, soft_wrap=True)
        for line in others:
            console().print(f"    {line}", markup=False, soft_wrap=True)
