"""Fuzz the readers and importers: damaged files of every format, with limits of time and memory.

    python benchmarks/fuzz.py                      5 minutes per format: rows fuzz.<format>.cases and .failures
    python benchmarks/fuzz.py --seconds 20 csv     one format, for a moment; nothing is recorded

A case is a failure if it ends in another exception than `UserError`, kills its process, or takes longer than
MAX_SECONDS. The damaged files of failures are kept, with the traceback. The cases are those of `tests/fuzz`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from measure import RESULTS, ROOT, Row, commit, hardware, record, versions

sys.path.insert(0, str(ROOT))

fuzzing: Any = importlib.import_module("tests.fuzz.cases")  # not typed, as all tests
TARGETS: dict[str, Any] = fuzzing.TARGETS

MAX_SECONDS, MAX_BYTES = 20, 4 << 30  # of one case: beyond is a failure
SECONDS = 300  # per format
COMMAND = "make fuzz"


class State(ctypes.Structure):
    """Shared state of a worker: number of the case, and the time at which it began."""

    _fields_ = (("number", ctypes.c_long), ("began", ctypes.c_double))


def work(name: str, folder: Path, seed: int, first: int, until: float, state: Any) -> None:
    """Run cases in a process of its own; failures are written beside the damaged files."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # libraries in C print there
    valid = fuzzing.valid_file(name, folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    number = first
    while time.time() < until:
        state.number, state.began = number, time.time()
        case = fuzzing.run_case(name, folder, valid, seed, number)
        if case.outcome not in ("read", "refused"):
            keep(name, folder, number, case.outcome)
        number += 1
    state.number, state.began = number, 0.0


def keep(name: str, folder: Path, number: int, outcome: str) -> None:
    """Keep the damaged file of a failure, and the outcome."""
    damaged = folder / TARGETS[name].name
    if damaged.exists():
        (folder / f"failure-{number}{damaged.suffix}").write_bytes(damaged.read_bytes())
    (folder / f"failure-{number}.log").write_text(outcome, errors="backslashreplace")


def fuzz(name: str, folder: Path, seed: int, seconds: float) -> int:
    """Fuzz one format; returns the number of cases."""
    folder.mkdir(parents=True, exist_ok=True)
    context, first, until = multiprocessing.get_context("fork"), 0, time.time() + seconds
    while time.time() < until:
        state: Any = context.Value(State, first, math.inf, lock=False)  # the valid file has no limit of time
        worker = context.Process(target=work, args=(name, folder, seed, first, until, state))
        worker.start()
        while worker.is_alive():
            worker.join(0.5)
            if state.began and time.time() - state.began > MAX_SECONDS:
                worker.kill()
                worker.join()
                keep(name, folder, state.number, f"no answer for {MAX_SECONDS} seconds")
        first = state.number
        if not state.began:
            break
        if not (folder / f"failure-{first}.log").exists():
            keep(name, folder, first, f"the process died with exit code {worker.exitcode}")
        first += 1
    return first


def rows(name: str, cases: int, failures: int) -> list[Row]:
    """Rows of the results of a format."""
    about: Row = {"spread": None, "seeds": 1, "command": COMMAND, "hardware": hardware("cpu")}
    about |= {"versions": versions(), "commit": commit(), "settings": f"{SECONDS} s, {MAX_BYTES >> 30} GiB"}
    return [
        {"id": f"fuzz.{name}.cases", "value": cases, "unit": "damaged files", "better": "higher", **about},
        {"id": f"fuzz.{name}.failures", "value": failures, "unit": "damaged files", "better": "lower", **about},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per format (default: 300; others unrecorded)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the failures (default: a temporary one)")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="fuzz-"))
    total = 0
    for name in given.formats or TARGETS:
        cases = fuzz(name, out / name, given.seed, given.seconds)
        failures = Counter(fuzzing.place_of(log.read_text()) for log in (out / name).glob("failure-*.log"))
        print(f"{name:16} {cases:7,} cases {failures.total():5,} failures", flush=True)
        for place, count in failures.most_common(12):
            print(f"    {count:5,} {place}", flush=True)
        if given.seconds == SECONDS:
            record(RESULTS / "fuzz.json", rows(name, cases, failures.total()))
        total += failures.total()
    print(f"failures are in {out}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
