"""Training of several small models side by side, in processes.

`python benchmarks/pool.py OUT/results benchmarks/kept/NAME.json` stores the results of single runs with the project.
The benchmark that made them reads them from there, and trains only missing runs.
"""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from measure import Row, commit, hardware, versions

Task = dict[str, Any]
Result = dict[str, Any]
COMPILING = 60.0  # seconds
ASKED = ("number", "epochs", "steps")  # what else tells one run from another of the same name


def side_by_side(
    work: Callable[[Task], Result],
    tasks: Mapping[str, Task],
    jobs: int,
    out: Path,
    then: Callable[[str, Result], Mapping[str, Task]] = lambda name, result: {},
    alike: Callable[[Task], str] | None = None,
    before: Path | None = None,
) -> Iterator[tuple[str, Result]]:
    """Yield (name, work(task)) of all tasks as they are done.

    jobs     processes at a time; 0 runs all tasks one after the other in this process
    then     more tasks that follow from a result
    alike    key of tasks with the same compiled code: they wait for the first of them, which fills the cache of the
             compiler; they do not wait if one is done already in `out`, nor longer than COMPILING seconds
    before   file with earlier results; a result is used if its settings are the same

    Results are stored in `out`/NAME.json and read from there the next time, so an interrupted benchmark resumes. A
    failed task is reported, tried once more after all others (memory may be free then), and listed at the end.
    """
    out.mkdir(parents=True, exist_ok=True)
    earlier: dict[str, Result] = json.loads(before.read_text()) if before is not None and before.exists() else {}
    if jobs:
        os.environ |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(jobs, spawn, _end_with, (os.getpid(),)) if jobs else _Here() as pool:
        running: dict[Future[tuple[Result | str, float]], str] = {}
        ready: dict[str, Result] = {}
        known: dict[str, Task] = {}
        again: list[str] = []
        lost: set[str] = set()
        waiting: dict[str, dict[str, Task]] = {}  # by key, tasks that wait for the first of their key
        warm: set[str] = set()

        first: dict[str, float] = {}  # by key, start of the first task

        def submit(more: Mapping[str, Task]) -> None:
            known.update(more)
            if alike:
                warm.update(alike(task) for name, task in more.items() if (out / f"{name}.json").exists())
            for name, task in more.items():
                kept, word = out / f"{name}.json", alike(task) if alike else ""
                if kept.exists():
                    ready[name] = json.loads(kept.read_text())
                elif earlier.get(name, {}).get("asked") == _asked(task):
                    ready[name] = earlier[name]
                elif alike and word not in warm and word in waiting:
                    waiting[word][name] = task
                else:
                    waiting.setdefault(word, {})
                    first.setdefault(word, time.monotonic())
                    running[pool.submit(_try, work, task)] = name

        def go_on(words: list[str]) -> None:
            """Start the waiting tasks of these keys."""
            warm.update(words)
            for word in words:
                submit(waiting.pop(word, {}))

        submit(tasks)
        while running or ready or again:
            if not running and not ready:
                name = again.pop(0)
                lost.add(name)
                submit({name: known[name]})
            while ready:
                name = next(iter(ready))
                result = ready.pop(name)
                submit(then(name, result))
                yield name, result
            for done in wait(running, 1.0, return_when=FIRST_COMPLETED)[0] if running else ():
                name, (found, seconds) = running.pop(done), done.result()
                if alike:
                    go_on([alike(known[name])])
                if isinstance(found, str):
                    print(f"{name} failed after {seconds:.0f} s: see above", file=sys.stderr, flush=True)
                    if name not in lost:
                        again.append(name)
                    continue
                lost.discard(name)
                (out / f"{name}.json").write_text(json.dumps(found))
                print(f"{name}: {seconds:.0f} s", flush=True)
                ready[name] = found
            go_on([word for word in waiting if time.monotonic() - first[word] > COMPILING and word not in warm])
    if lost:
        print(f"{len(lost)} failed twice: {', '.join(sorted(lost))}", file=sys.stderr, flush=True)


def _end_with(parent: int) -> None:
    """End this process when its parent is killed.

    A killed parent cannot stop its children; they would go on and slow down other work.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent had already ended
            os._exit(1)


class _Here(Executor):
    """Executor without other processes: a task runs when it is submitted."""

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **options))
        return done


def _try(work: Callable[[Task], Result], task: Task) -> tuple[Result | str, float]:
    began = time.monotonic()
    try:
        found = work(task)
        return found | {"asked": _asked(task)} | origin(found.get("device", "cpu")), time.monotonic() - began
    except Exception:
        said = traceback.format_exc()[-3000:]
        print(said, file=sys.stderr, flush=True)  # at once: what the exception holds may end the process when it goes
        return said, time.monotonic() - began
    finally:
        gc.collect()
        if torch.cuda.is_initialized():  # a GPU is shared with other processes
            torch.cuda.empty_cache()


def _asked(task: Task) -> dict[str, Any]:
    return {key: task[key] for key in ASKED if key in task}


def origin(device: str) -> dict[str, Any]:
    """Hardware, versions and commit of a run."""
    return {"hardware": hardware(device), "versions": versions(), "commit": commit()}


def origins(runs: list[Result]) -> dict[str, Any]:
    """Hardware, versions and commits of several runs, without repetition."""
    if not all("hardware" in run for run in runs):
        return {}
    names = {key: ", ".join(dict.fromkeys(str(run[key]) for run in runs)) for key in ("hardware", "commit")}
    return names | {"versions": runs[-1]["versions"]}


def keep(folder: Path, file: Path) -> int:
    """Add the results of a folder to a file; returns the number of results in it.

    Results of pretraining are left out: they are useless without their weights.
    """
    found: dict[str, Result] = json.loads(file.read_text()) if file.exists() else {}
    found |= {
        one.stem: json.loads(one.read_text()) for one in folder.glob("*.json") if not one.name.startswith("pretrain")
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    partial.replace(file)
    return len(found)


def seeds_row(name: str, values: list[float], unit: str, better: str, command: str, device: str, **more: Any) -> Row:
    """Row of results: mean over seeds and sample standard deviation.

    device   device of this machine; empty if `more` names the hardware of the runs
    """
    wide = round(statistics.stdev(values), 5) if len(values) > 1 else None
    found: Row = {"id": name, "value": round(statistics.mean(values), 5), "unit": unit, "better": better}
    found |= {"spread": wide, "seeds": len(values), "values": [round(value, 5) for value in values]}
    return found | {"command": command} | (origin(device) if device else {}) | more


def beyond(tried: Mapping[float, float], first: list[float], widen: int) -> float | None:
    """Next learning rate to try, if the best is at an end of the tried range.

    tried    {rate: score}, higher is better
    widen    largest number of rates beyond each end of the `first` rates

    None if the best rate is inside the range, or the range is wide enough.
    """
    rates = sorted(tried)
    best = max(rates, key=lambda rate: tried[rate])
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return None
    end, inner = (rates[0], rates[1]) if best == rates[0] else (rates[-1], rates[-2])
    outside = [rate for rate in rates if (rate < min(first) if best == rates[0] else rate > max(first))]
    return float(f"{end * end / inner:.1e}") if len(outside) < widen else None


def best_rate(found: list[Result], key: str = "loss") -> float:
    """Learning rate with the lowest validation loss, of runs with the same seed."""
    return float(min(found, key=lambda result: result["valid"][key])["rate"])


if __name__ == "__main__":
    print(f"{keep(Path(sys.argv[1]), Path(sys.argv[2]))} results in {sys.argv[2]}")
