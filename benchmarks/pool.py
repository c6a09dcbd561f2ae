"""Trainings side by side: small models leave a machine waiting, so that several processes work at once.

`python benchmarks/pool.py OUT/results benchmarks/kept/NAME.json` keeps the results of single runs with the project: the
benchmark that made them takes them from there, and trains only what is missing.
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
    """(name, work(task)) of all tasks as they come, so many at a time; with 0 jobs one after the other, here.

    then     more tasks that follow from a result
    alike    a word for tasks that compile the same: all wait for the first of them, which leaves it in the cache; not
             where one is done already in `out`, and for COMPILING seconds at most, for that is over before the training
    before   a file with results that are taken as they are, if as much was asked of them

    Results are kept in `out`/NAME.json and taken from there the next time, so that what was interrupted goes on. What
    fails is told, tried once more when all others are done (memory may be free then), and named at the end.
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
        waiting: dict[str, dict[str, Task]] = {}  # by their word, those that wait for the first
        warm: set[str] = set()

        first: dict[str, float] = {}  # when the first of a word began

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
            """Those of these words wait no longer."""
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
    """End this process when its parent is killed, which cannot tell it: else it would go on, and slow down others."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it was gone before
            os._exit(1)


class _Here(Executor):
    """No other process: a task is done when it is handed in."""

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
    """Where and with what a run was made."""
    return {"hardware": hardware(device), "versions": versions(), "commit": commit()}


def origins(runs: list[Result]) -> dict[str, Any]:
    """Where and with what several runs were made; several machines or commits are all named."""
    if not all("hardware" in run for run in runs):
        return {}
    names = {key: ", ".join(dict.fromkeys(str(run[key]) for run in runs)) for key in ("hardware", "commit")}
    return names | {"versions": runs[-1]["versions"]}


def keep(folder: Path, file: Path) -> int:
    """Add the results of a folder to a file of results; how many that holds. Those of pretraining are of no use without
    their weights, and stay out."""
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
    """A row of results: the mean over seeds and their sample standard deviation.

    device   of this machine, or empty where `more` says where the runs were made
    """
    wide = round(statistics.stdev(values), 5) if len(values) > 1 else None
    found: Row = {"id": name, "value": round(statistics.mean(values), 5), "unit": unit, "better": better}
    found |= {"spread": wide, "seeds": len(values), "values": [round(value, 5) for value in values]}
    return found | {"command": command} | (origin(device) if device else {}) | more


def beyond(tried: Mapping[float, float], first: list[float], widen: int) -> float | None:
    """The next rate to try where the best of those tried (rate: score, higher is better) is the least or the greatest.

    At most `widen` rates lie beyond each end of the `first` ones; None where no other is to be tried.
    """
    rates = sorted(tried)
    best = max(rates, key=lambda rate: tried[rate])
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return None
    end, inner = (rates[0], rates[1]) if best == rates[0] else (rates[-1], rates[-2])
    outside = [rate for rate in rates if (rate < min(first) if best == rates[0] else rate > max(first))]
    return float(f"{end * end / inner:.1e}") if len(outside) < widen else None


def best_rate(found: list[Result], key: str = "loss") -> float:
    """The learning rate with the lowest validation loss, of runs with the same seed."""
    return float(min(found, key=lambda result: result["valid"][key])["rate"])


if __name__ == "__main__":
    print(f"{keep(Path(sys.argv[1]), Path(sys.argv[2]))} results in {sys.argv[2]}")
