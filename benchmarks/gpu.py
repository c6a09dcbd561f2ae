"""Headline speeds and the tests on one GPU, in calls of a few minutes.

    python benchmarks/gpu.py collect --data ../shared/data    text and lengths of light curves into .gpu-data
    COMMIT=1a2b3c4 python benchmarks/gpu.py run --seconds 580 --copy OUT
    COMMIT=1a2b3c4 python benchmarks/gpu.py run --seconds 580 --copy OUT --only jets,ragged,tests
    python benchmarks/gpu.py take OUT                         rows of OUT into benchmarks/results

Steps run one after the other, each alone on the GPU. A step starts if its shortest useful time is left, and is ended at
its limit or at the end of the call. Rows are written after each process of a step, so a step that is ended keeps the
rows of its processes. The next call on the same machine runs the steps that never started, then those that were ended;
--only chooses steps on a machine that knows nothing of earlier calls. `--warm 250` first runs all timed steps side by
side for at most 250 s, so that the compiler's cache is full, and the tests beside them; only the tests are recorded.
After each step, all rows and the log are copied to --copy. `--dry-run` prints the plan. Without git, the commit of the
rows is the environment variable COMMIT.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from measure import RESULTS, ROOT, Row, commit, write

DATA = ROOT / ".gpu-data"


class Step(NamedTuple):
    """One command, with the seconds that it may take."""

    words: str
    """Script in benchmarks and its options, or a module of Python (-m)."""
    file: str
    """Name of its results file."""
    least: int
    """Seconds for its first process: with less time left, the step does not start."""
    most: int
    environment: dict[str, str] = {}  # noqa: RUF012


STEPS = {
    "speed": Step("speed.py train --processes 1", "text-speed", 60, 330),
    "decode": Step("speed.py decode --processes 1", "text-speed", 60, 200),
    "engine": Step("run.py engine --steps 300 --repeats 5 --processes 1 --text {data}/input.txt", "run", 40, 200),
    "tests": Step("-m pytest tests/gpu -n 8 -p no:benchmark", "core", 240, 560, {"TORCHINDUCTOR_COMPILE_THREADS": "2"}),
    "ragged": Step("lightcurves_speed.py train --processes 1 --ztf {data}/ztf.npy", "lightcurves-speed", 50, 240),
    "jets": Step("jets_speed.py train infer --processes 1", "jets-speed", 60, 300),
    "images": Step("images_speed.py train --processes 1", "images-speed", 50, 200),
    "ragged-infer": Step("lightcurves_speed.py infer --processes 1 --ztf {data}/ztf.npy", "lightcurves-speed", 80, 240),
}

# Steps of `--warm`, one after the other in a lane, lanes side by side. The first lane needs much of the memory.
LANES = (("speed", "images"), ("jets",), ("decode",), ("engine",), ("ragged",))


def command(step: Step, out: Path) -> list[str]:
    """Command of a step, with the file of its results."""
    words = step.words.format(data=DATA).split()
    if words[0] == "-m":
        return [sys.executable, *words, "--record", str(out / f"{step.file}.json")]
    return [
        sys.executable,
        str(ROOT / "benchmarks" / words[0]),
        *words[1:],
        "--results",
        str(out / f"{step.file}.json"),
    ]


class Call:
    """Steps that run one after the other until the time is over."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.began, self.out = options, time.monotonic(), options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.states: dict[str, str] = {}
        if (self.out / "steps.json").exists():
            self.states = json.loads((self.out / "steps.json").read_text())

    def left(self) -> float:
        return float(self.options.seconds - (time.monotonic() - self.began))

    def plan(self) -> list[str]:
        """Names of the steps in order: steps that never started, then steps that were ended or failed."""
        names = [name for name in self.options.only if self.states.get(name) != "done"]
        return sorted(names, key=lambda name: name in self.states)

    def __call__(self) -> None:
        print(f"commit {commit()}, {self.options.seconds} s: {', '.join(self.plan())}", flush=True)
        if self.options.warm:
            self.warm()
        for name in self.plan():
            if self.left() < STEPS[name].least:
                print(f"{name}: not started, {self.left():.0f} s are left of {STEPS[name].least}", flush=True)
                continue
            began = time.monotonic()
            self.states[name] = self.run(name)
            (self.out / "steps.json").write_text(json.dumps(self.states))
            print(f"{name}: {self.states[name]} after {time.monotonic() - began:.0f} s", flush=True)
            self.copy()
        self.show()

    def warm(self) -> None:
        """Fill the compiler's cache by all timed steps side by side, beside the tests; only the tests are recorded."""
        end, threads = time.monotonic() + self.options.warm, []
        cold = Call(argparse.Namespace(**vars(self.options) | {"out": self.out / "warm", "copy": None}))

        def lane(call: Call, names: tuple[str, ...]) -> None:
            for name in names:
                if name in self.plan() and (left := end - time.monotonic()) > 0:
                    call.states[name] = call.run(name, left)

        for names in LANES:
            threads.append(threading.Thread(target=lane, args=(cold, names)))
        threads.append(threading.Thread(target=lane, args=(self, ("tests",))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"warm after {time.monotonic() - self.began:.0f} s: {cold.states | self.states}", flush=True)
        self.copy()

    def run(self, name: str, left: float = math.inf) -> str:
        """Run a step: done, failed, or ended at its limit."""
        limit = min(STEPS[name].most, self.left(), left)
        around = os.environ | {"PYTHONUNBUFFERED": "1"} | STEPS[name].environment
        with (self.out / "log.txt").open("a") as log:
            print(f"== {name}", file=log, flush=True)
            process = subprocess.Popen(
                command(STEPS[name], self.out), cwd=ROOT, stdout=log, stderr=log, env=around, start_new_session=True
            )
            try:
                return "failed" if process.wait(limit) else "done"
            except subprocess.TimeoutExpired:
                return "ended"
            finally:
                with contextlib.suppress(ProcessLookupError):  # a step that ends early leaves processes of its own
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def copy(self) -> None:
        if self.options.copy:
            for path in (*self.out.glob("*.json"), self.out / "log.txt"):
                shutil.copy(path, self.options.copy)

    def show(self) -> None:
        """Print the end of the log of steps that failed, all rows with a bar, and the steps that are left."""
        if "failed" in self.states.values():
            print((self.out / "log.txt").read_text()[-4000:])
        for row in rows_in(self.out):
            if "bar" in row or "failed" in row:
                more = {name: row[name] for name in ("bar", "failed", "spread", "processes") if name in row}
                print(f"{row['id']:40} {row['value']} {row['unit']}  {more}")
        print("left:", *self.plan() or ["nothing"], flush=True)


def rows_in(folder: Path) -> list[Row]:
    """Rows of all steps in a folder."""
    paths = [folder / f"{name}.json" for name in sorted({step.file for step in STEPS.values()})]
    return [row for path in paths if path.exists() for row in json.loads(path.read_text())]


def take(folder: Path) -> None:
    """Write the rows of a folder into the results, with the state of their dependencies as measured."""
    for name in sorted({step.file for step in STEPS.values()}):
        if (path := folder / f"{name}.json").exists():
            rows = json.loads(path.read_text())
            write(RESULTS / path.name, rows)
            print(f"{name}: {len(rows)} rows of {', '.join(sorted({row['commit'] for row in rows}))}")


def collect(data: Path) -> None:
    """Write the files that the steps read: tiny Shakespeare, and the lengths of the ZTF supernovae."""
    import numpy as np

    from lightcurves_speed import observed

    DATA.mkdir(exist_ok=True)
    with gzip.open(data / "text" / "tinyshakespeare" / "input.txt.gz") as text:
        (DATA / "input.txt").write_bytes(text.read())
    np.save(DATA / "ztf.npy", observed(data / "lightcurves" / "ztf_bts_snia.parquet"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("collect", help="collect the files that the steps read")
    part.add_argument("--data", type=Path, required=True, help="folder of text/tinyshakespeare and lightcurves")
    part = parts.add_parser("run", help="run steps until the time is over")
    part.add_argument("--seconds", type=float, default=580)
    part.add_argument(
        "--warm", type=float, default=0, help="seconds for filling the compiler's cache, beside the tests"
    )
    part.add_argument("--only", type=lambda text: text.split(","), default=list(STEPS), help=f"of {', '.join(STEPS)}")
    part.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu", help="folder of rows, log and finished steps")
    part.add_argument("--copy", type=Path, help="folder for copies of the rows and the log")
    part.add_argument("--dry-run", action="store_true", help="print the commands and their seconds")
    part = parts.add_parser("take", help="write rows into benchmarks/results")
    part.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.part == "collect":
        collect(options.data)
        return
    if options.part == "take":
        take(options.folder)
        return
    if unknown := sorted(set(options.only) - set(STEPS)):
        parser.error(f"steps are {', '.join(STEPS)}; found {', '.join(unknown)}")
    call = Call(options)
    if not options.dry_run:
        call()
        return
    for name in call.plan():
        step = STEPS[name]
        print(f"{name:12} {step.least:3} to {step.most:3} s  {' '.join(command(step, options.out)[1:])}")


if __name__ == "__main__":
    main()
