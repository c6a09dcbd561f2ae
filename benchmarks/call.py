"""Trainings side by side on one GPU, each in a process, until the time of a call is over.

    call = Call("captions", out, seconds=520, copy=folder, shortly=line_of_a_result)
    call.simulate(simulate_piece, [(part, piece), ...], processes=11)
    call.start("coca-0", [sys.executable, "captions.py", "work", ...])
    call.watch()

A process works in OUT/NAME and writes its results to `found.json` there, again after each part. The call joins them in
OUT/CALL.json every few seconds, so that a call which is killed has the results so far. `train_until` ends a training at
a time and keeps the best weights.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sciformer.errors import Stopped
from sciformer.recipe import Recipe
from sciformer.run import Run, train

Found = dict[str, Any]
SHOWN_SECONDS = 40.0  # between two tables of progress
RESERVE_SECONDS = 6.0  # at the end of a call, to copy the results


class Call:
    """Processes side by side, until the time is over.

    name     of the file of all results
    out      folder of all processes; it is emptied
    seconds  after which all processes are ended
    copy     folder for copies of the results, the logs and the kept files (default: none)
    shortly  result of a process in a line, for the table of progress
    keep     patterns of the kept files of a process, relative to `out`
    """

    def __init__(
        self,
        name: str,
        out: Path,
        seconds: float,
        copy: Path | None,
        shortly: Callable[[Found], str],
        keep: Sequence[str] = (),
    ) -> None:
        self.name, self.out, self.copy_to, self.shortly, self.keep = name, out.resolve(), copy, shortly, keep
        self.began = time.time()
        self.end = self.began + seconds - RESERVE_SECONDS
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)

    def simulate(self, work: Callable[..., int], pieces: Iterable[tuple[Any, ...]], processes: int) -> None:
        """Simulate pieces of data into a cache, side by side; `work(*piece)` returns the number of samples."""
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            total = sum(one.result() for one in [pool.submit(work, *piece) for piece in pieces])
        print(f"{self.clock()} {total:,} samples simulated", flush=True)

    def start(self, name: str, words: Sequence[str]) -> None:
        """Start a process; its log is OUT/NAME/log.txt."""
        folder = self.out / name
        folder.mkdir()
        threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "2", "PYTHONUNBUFFERED": "1"}
        with (folder / "log.txt").open("wb") as log:
            self.running[name] = subprocess.Popen(
                words, stdout=log, stderr=log, env=os.environ | threads, start_new_session=True
            )

    def watch(self) -> None:
        """Wait for all processes, or for the end of the time; copy the results on the way."""
        shown = time.time()
        try:
            while time.time() < self.end and any(process.poll() is None for process in self.running.values()):
                time.sleep(0.5)
                if time.time() - shown > SHOWN_SECONDS:
                    shown = time.time()
                    self.copy()
                    self.show()
        finally:
            for process in self.running.values():
                if process.poll() is None:  # else its number may be that of another process by now
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.copy()
        self.show()
        self.complain()

    def clock(self) -> str:
        return f"[{time.time() - self.began:4.0f} s]"

    def copy(self) -> None:
        """Write the results so far, and copy them."""
        partial = self.out / f"{self.name}.partial"
        partial.write_text(json.dumps(results_in(self.out), indent=1))
        partial.replace(self.out / f"{self.name}.json")
        if self.copy_to is None:
            return
        self.copy_to.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.out / f"{self.name}.json", self.copy_to)
        for file in [file for pattern in self.keep for file in self.out.glob(pattern)]:
            shutil.copy(file, self.copy_to)
        with (self.copy_to / f"{self.name}-log.txt").open("w") as whole:
            for folder in sorted(path.parent for path in self.out.glob("*/log.txt")):
                print(f"== {folder.name}\n{(folder / 'log.txt').read_text(errors='replace')[-60_000:]}", file=whole)

    def show(self) -> None:
        """Print a line for each process."""
        print(self.clock(), flush=True)
        for name, process in self.running.items():
            folder, state = self.out / name, {None: "runs", 0: "done"}.get(process.poll(), "FAILED")
            line = ""
            if (folder / "found.json").exists():
                one = json.loads((folder / "found.json").read_text())
                line = f"{one['steps']}/{one['asked_steps']} steps in {one['train_s']:.0f} s; {self.shortly(one)}"
            elif (folder / "log.txt").exists():
                line = " ".join((folder / "log.txt").read_text(errors="replace").splitlines()[-1:])[:110]
            print(f"  {name:20} {state:6} {line}", flush=True)

    def complain(self) -> None:
        """Print the end of the log of each process that failed."""
        for name, process in self.running.items():
            if process.poll() not in (0, -signal.SIGKILL):
                print(f"== {name}\n{(self.out / name / 'log.txt').read_text(errors='replace')[-1500:]}", flush=True)


def results_in(folder: Path) -> list[Found]:
    """Results of all processes in a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/found.json"))]


# Inside a process


class Results:
    """Results of a process, written to `file` after each part.

    A part that fails leaves its error under `errors`, and the other parts are still computed.
    """

    def __init__(self, file: Path, found: Found) -> None:
        self.file, self.found = file, found

    def add(self, name: str, make: Callable[[], Found]) -> None:
        """Compute a part and write all results so far."""
        began = time.time()
        try:
            self.found[name] = make() | {"seconds": round(time.time() - began, 1)}
        except Exception as error:  # the other parts are worth having
            self.found.setdefault("errors", {})[name] = repr(error)
            traceback.print_exc()
            print(f"{name} failed: {error!r}", flush=True)
        self.write()

    def write(self) -> None:
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(self.found))
        partial.replace(self.file)


def train_until(recipe: Recipe, folder: Path, until: float, **tables: Any) -> tuple[Run, Found]:
    """Train until the end, or until a time (in seconds since 1970); returns the run with the best weights so far.

    If the compiler fails, the training begins again without it.
    """
    wait = min(max(1.0, until - time.time()), threading.TIMEOUT_MAX)
    alarm = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGTERM))
    alarm.daemon = True
    alarm.start()
    began, complete, compiled = time.time(), True, True
    try:
        try:
            run = train(recipe, folder, report=False, **tables)
        except Stopped:
            raise
        except Exception:
            if recipe.train.compile is False or recipe.train.device == "cpu":
                raise
            traceback.print_exc()
            print("again, without the compiler", flush=True)
            compiled, recipe = False, recipe.change({"train.compile": False})
            run = train(recipe, folder, fresh=True, report=False, **tables)
    except Stopped as stopped:
        print(f"stopped: {stopped}", flush=True)
        run, complete = Run(folder), False
    finally:
        alarm.cancel()
    steps = max((record["step"] for record in run.records if "step" in record), default=0)
    found: Found = {"complete": complete, "compiled": compiled and recipe.train.compile is not False, "steps": steps}
    found |= {"asked_steps": recipe.train.steps, "parameters": run.about["parameters"], "batch": recipe.train.batch}
    found |= {"train_s": round(time.time() - began, 1), "device": str(run.device)}
    found["valid"] = {key: value for key, value in run.scores.items() if isinstance(value, (int, float))}
    return run, found | {"learning_rate": recipe.train.learning_rate}


def pack(run: Run, file: Path, most: int | None = None) -> None:
    """Pack recipe, log and weights of a run into a tar file, or into FILE.0, FILE.1, ... of `most` bytes each."""
    partial = file.with_suffix(".partial")
    with tarfile.open(partial, "w") as packed:
        for path in sorted(run.path.rglob("*")):
            inside = path.relative_to(run.path)
            if path.is_file() and "checkpoints" not in inside.parts and "tensorboard" not in inside.parts:
                packed.add(path, str(inside))
    if most is None:
        partial.replace(file)
        return
    whole = partial.read_bytes()
    for number, start in enumerate(range(0, len(whole), most)):
        Path(f"{file}.{number}").write_bytes(whole[start : start + most])
    partial.unlink()


def unpack(file: Path, folder: Path) -> Run:
    """Open a packed run."""
    parts = (
        [file] if file.exists() else sorted(file.parent.glob(f"{file.name}.*"), key=lambda part: int(part.suffix[1:]))
    )
    with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts))) as packed:
        packed.extractall(folder, filter="data")
    return Run(folder)
