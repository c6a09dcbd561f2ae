"""Common functions of the benchmarks: interleaved timing, and rows of results with their conditions."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from stale import with_state

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
KEPT = ROOT / "benchmarks" / "kept"  # the single runs behind some of them
Row = dict[str, Any]


def interleave(
    calls: Mapping[str, Callable[[], Any]], repeats: int, device: str, stream: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each call, measured in turns, so that slow moments affect all calls.

    stream   seconds of calls to queue on a GPU for each measurement, as a model queues its layers (default: one call on
             an idle GPU, with the time of the host)
    """
    for call in calls.values():
        for _ in range(3 if device == "cuda" else 1):
            call()
    names = list(calls)
    inner = 1
    if stream:
        longest = max(_clock(calls[name], device, 3) for name in names)
        inner = max(1, round(stream / longest))
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody always goes first
            times[name].append(_clock(calls[name], device, inner))
    return times


def _clock(call: Callable[[], Any], device: str, inner: int) -> float:
    """Mean seconds of `inner` calls in a row."""
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(inner):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000 / inner
    start = time.perf_counter()
    for _ in range(inner):
        call()
    return (time.perf_counter() - start) / inner


def spread(values: list[float]) -> list[float]:
    """Quantiles at 10 % and 90 %."""
    if len(values) < 2:
        return [values[0], values[0]]
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return [cuts[0], cuts[-1]]


def compared(
    name: str,
    values: list[float],
    unit: str,
    device: str,
    command: str,
    package: str,
    /,
    better: str = "higher",
    digits: int = 4,
    **more: Any,
) -> Row:
    """Row of a figure measured several times, beside another `package`."""
    found = {"id": name, "value": round(statistics.median(values), digits), "unit": unit, "better": better}
    found |= {"spread": [round(value, digits) for value in spread(values)], "seeds": 1}
    used = versions() | {package: importlib.metadata.version(package)}
    return found | {"command": command, "hardware": hardware(device), "versions": used, "commit": commit()} | more


def hardware(device: str) -> str:
    """Name of the machine: processor or GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = f"{names[0]}, {len(names)} cores" if names else model
    return f"{model}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    """Versions of the packages that affect the speed."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if importlib.util.find_spec("triton"):
        found["triton"] = importlib.metadata.version("triton")
    return found


def commit() -> str:
    """Measured commit, with a plus if the tree has changes.

    Without git, the environment variable COMMIT.
    """
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def record(path: Path, rows: list[Row]) -> None:
    """Write measured rows into a results file, each with the state of its dependencies (`stale.py`)."""
    write(path, [with_state(row) for row in rows])


def write(path: Path, rows: list[Row]) -> None:
    """Write rows into a results file; rows with the same id are replaced.

    Processes take turns by a lock.
    """
    turn = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        kept = {row["id"]: row for row in json.loads(path.read_text())} if path.exists() else {}
        kept |= {row["id"]: row for row in rows}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(sorted(kept.values(), key=lambda row: str(row["id"])), indent=1) + "\n")
        partial.replace(path)
    finally:
        os.close(turn)


def renamed(path: Path, ids: Mapping[str, str]) -> list[Row]:
    """Rows of a results file under other ids (new: old); none if one is missing."""
    there = {row["id"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    return [there[old] | {"id": new} for new, old in ids.items()] if all(old in there for old in ids.values()) else []


def flops(run: Any) -> float:
    """FLOPs of a whole training, counted on some samples."""
    import numpy as np

    from sciformer.data.prepare import prepare
    from sciformer.data.random import SampleRandom
    from sciformer.inspection.cost import cost

    data = run.data()
    train = data.dataset("train")
    few = train.batch(np.linspace(0, len(train) - 1, 16).astype(np.int64))
    counted = cost(
        data, run.step, prepare(few, data.tokens, data.objective, SampleRandom(0, 0, few.ids), training=True)
    )
    epochs = max(r["step"] for r in run.records) / run.about["batches"]
    return float(counted.flops_per_sample * epochs * len(train))
