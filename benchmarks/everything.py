"""All tables of jets, light curves and images, measured side by side on one GPU.

    python benchmarks/everything.py --data FOLDER --seconds 3600

FOLDER holds `jets` (toyjets_pythia8.npz, ParticleNet_full.pt), `lightcurves` (see lightcurves.py) and `mnist` (see
docs/images.md). A stage is one of the other benchmarks. It starts when the stages it needs are done and enough of the
--slots processes are free, in the order of the list; heavy and light stages do not run together. Results go to
benchmarks/results, and single runs to benchmarks/kept, as they are completed. The same command resumes from there, and
from the checkpoints in --out. Timed benchmarks (jets_speed.py, lightcurves_speed.py, images_speed.py) need a GPU of
their own and are not included.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from measure import KEPT, ROOT
from pool import keep


class Stage(NamedTuple):
    """One call of a benchmark."""

    slots: int
    words: str
    needs: tuple[str, ...] = ()
    heavy: bool = False
    """Whether one training keeps a GPU busy: small ones beside it would wait for it at every one of their kernels."""


JETS = "--pythia {data}/jets/toyjets_pythia8.npz --weights {data}/jets/ParticleNet_full.pt --epochs 1 --tune 0.25"
JETS += " --compile --out {out}/jets"
CURVES = "--data {data}/lightcurves --out {out}/lightcurves --paired --epochs 5"
IMAGES = "--data {data}/mnist --out {out}/images"
SERIES = f"{CURVES} --steps 5000 --workers 1 --compile"
HEADS = "pretrained_head,pretrained_probe,supervised_head,supervised_probe"
STAGES = {
    "jets-pretrain": Stage(3, f"jets.py pretrain {JETS}"),
    "jets-transfer": Stage(4, f"jets.py transfer {JETS}", ("jets-pretrain",)),
    "denoise": Stage(3, f"lightcurves.py denoise {SERIES}"),
    "signal": Stage(3, f"lightcurves.py signal {SERIES}"),
    "logg": Stage(3, f"lightcurves.py logg {SERIES}"),
    "curves": Stage(3, f"lightcurves.py pretrain fewshot {CURVES} --ways {HEADS} --widen 1"),
    "mnist-mae": Stage(2, f"images.py pretrain {IMAGES} --workers 2 --compile"),
    "mnist-few": Stage(3, f"images.py fewshot {IMAGES} --widen 1", ("mnist-mae",)),
    "jets-lorentznet": Stage(3, f"jets.py pythia builtin --models lorentznet {JETS}", ("jets-pretrain",), heavy=True),
    "galaxies": Stage(6, f"images.py galaxies {IMAGES} --widen 1 --workers 1 --compile", heavy=True),
    "galaxies-fine": Stage(3, f"images.py galaxies {IMAGES} --models vit4 --workers 1 --compile", heavy=True),
    "looks": Stage(3, "images_insight.py looks --places 0.02 --out {out}/images --compile", ("galaxies",), heavy=True),
    "folded": Stage(4, f"lightcurves.py pretrain fewshot {CURVES} --ways folded_supervised --widen 1"),
    "s82": Stage(2, f"lightcurves.py s82 {CURVES}"),
    "lenses": Stage(2, f"images.py lenses --steps 2500 {IMAGES} --compile", heavy=True),
    "cues": Stage(2, "images_insight.py cues --out {out}/cues", heavy=True),
    "jets-builtin": Stage(4, f"jets.py builtin {JETS}", ("jets-pretrain",), heavy=True),
    "jets-tops": Stage(2, f"jets.py tops {JETS}", ("jets-pretrain",), heavy=True),
    "mnist": Stage(3, f"images.py mnist {IMAGES} --compile", ("mnist-mae",), heavy=True),
}
SOON = 60  # seconds that the slots of a stage are kept free while one that it needs is under way: it may be done before


class Sitting:
    """Scheduler of stages until the time is over."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.began = options, time.monotonic()
        self.running: dict[str, tuple[subprocess.Popen[str], float]] = {}
        self.failed: set[str] = set()
        self.marks: Path = options.out / "done"
        for folder in (self.marks, options.out / "logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def log(self, *words: object) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s]", *words, flush=True)

    def done(self, name: str) -> bool:
        return (self.marks / name).exists()

    def start(self) -> None:
        """Start all stages that can start, in order; no stage overtakes one that waits for slots."""
        free = self.options.slots - sum(STAGES[name].slots for name in self.running)
        for name, stage in STAGES.items():
            if name not in self.options.only or name in self.running or name in self.failed or self.done(name):
                continue
            if not all(self.done(other) for other in stage.needs):
                now = time.monotonic()
                soon = any(now - self.running[other][1] < SOON for other in stage.needs if other in self.running)
                free -= stage.slots if soon else 0
                continue
            free -= stage.slots
            if free < 0 or any(STAGES[other].heavy != stage.heavy for other in self.running):
                break
            self.begin(name, stage)

    def begin(self, name: str, stage: Stage) -> None:
        words = stage.words.format(data=self.options.data, out=self.options.out).split()
        command = [sys.executable, str(ROOT / "benchmarks" / words[0]), *words[1:], "--jobs", str(stage.slots)]
        with (self.options.out / "logs" / f"{name}.log").open("a") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.running[name] = process, time.monotonic()
        self.log("start", name)

    def reap(self) -> None:
        """Collect the processes that have ended."""
        for name, (process, since) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            end = (self.options.out / "logs" / f"{name}.log").read_text()[-2000:]
            if process.returncode or "failed twice" in end:
                self.failed.add(name)
                self.log("FAILED", name, end[-500:])
            else:
                (self.marks / name).touch()
                self.log("done", name, f"{time.monotonic() - since:.0f} s")

    def keep(self) -> None:
        """Copy the results of single runs to the project."""
        for name in ("jets", "lightcurves", "images"):
            if (folder := self.options.out / name / "results").exists():
                keep(folder, KEPT / f"{name}.json")

    def __call__(self) -> None:
        try:
            self.run()
        finally:  # also after Ctrl-C: stages are not of this process's group
            for process, _ in self.running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.keep()
            self.log("not done:", *(name for name in self.options.only if not self.done(name)))

    def run(self) -> None:
        """Run until all stages are done, none can start, or the time is over."""
        last = 0.0
        while time.monotonic() - self.began < self.options.seconds:
            self.reap()
            self.start()
            if not self.running:
                break
            if time.monotonic() - last > 30:
                last = time.monotonic()
                self.keep()
                self.log("load", round(os.getloadavg()[0], 1), *self.running)
            time.sleep(1)


def main() -> None:
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--slots", type=int, default=9, help="trainings at a time")
    parser.add_argument("--only", type=words, default=list(STAGES), help=f"of {', '.join(STAGES)}")
    parser.add_argument("--out", type=Path, default=Path("runs/everything"))
    options = parser.parse_args()
    if unknown := sorted(set(options.only) - set(STAGES)):
        parser.error(f"stages are {', '.join(STAGES)}; found {', '.join(unknown)}")
    Sitting(options)()


if __name__ == "__main__":
    main()
