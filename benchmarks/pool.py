"""Trainings side by side: small models leave a machine waiting, so that several processes work at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from measure import Row, commit, hardware, versions

Task = dict[str, Any]
Result = dict[str, Any]


def side_by_side(
    work: Callable[[Task], Result], tasks: Mapping[str, Task], jobs: int, out: Path
) -> Iterator[tuple[str, Result]]:
    """(name, work(task)) of all tasks as they come, so many at a time; with 0 jobs one after the other, here.

    Results are kept in `out`/NAME.json and taken from there the next time, so that what was interrupted goes on. What
    fails is told, and the others go on.
    """
    out.mkdir(parents=True, exist_ok=True)
    todo = {}
    for name, task in tasks.items():
        kept = out / f"{name}.json"
        if kept.exists():
            yield name, json.loads(kept.read_text())
        else:
            todo[name] = task
    for name, found, seconds in _worked(work, todo, jobs):
        if isinstance(found, str):
            print(f"{name} failed after {seconds:.0f} s:\n{found}", file=sys.stderr, flush=True)
            continue
        (out / f"{name}.json").write_text(json.dumps(found))
        print(f"{name}: {seconds:.0f} s", flush=True)
        yield name, found


def _worked(
    work: Callable[[Task], Result], tasks: Mapping[str, Task], jobs: int
) -> Iterator[tuple[str, Result | str, float]]:
    if not jobs:
        for name, task in tasks.items():
            yield name, *_try(work, task)
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(min(jobs, max(1, len(tasks))), spawn) as pool:
        running = {pool.submit(_try, work, task): name for name, task in tasks.items()}
        for done in as_completed(running):
            yield running[done], *done.result()


def _try(work: Callable[[Task], Result], task: Task) -> tuple[Result | str, float]:
    began = time.monotonic()
    try:
        return work(task), time.monotonic() - began
    except Exception:
        return traceback.format_exc()[-3000:], time.monotonic() - began


def seeds_row(name: str, values: list[float], unit: str, better: str, command: str, device: str, **more: Any) -> Row:
    """A row of results: the mean over seeds and their sample standard deviation."""
    wide = round(statistics.stdev(values), 5) if len(values) > 1 else None
    found: Row = {"id": name, "value": round(statistics.mean(values), 5), "unit": unit, "better": better}
    found |= {"spread": wide, "seeds": len(values), "values": [round(value, 5) for value in values]}
    return found | {"command": command, "hardware": hardware(device), "versions": versions(), "commit": commit()} | more


def best_rate(found: list[Result], key: str, lower: bool) -> float:
    """The learning rate with the best mean of a validation score over seeds."""
    rates = sorted({result["rate"] for result in found})
    means = [statistics.mean(result[key] for result in found if result["rate"] == rate) for rate in rates]
    return float(rates[means.index(min(means) if lower else max(means))])
