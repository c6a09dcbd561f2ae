"""Simulated scenes: the speed of the simulation, pictures read back, and a sheet of scenes with captions.

    python benchmarks/scenes.py --record
    python benchmarks/scenes.py --read 2000
    python benchmarks/scenes.py --sheet docs/pictures/images-scenes.png

The speed is that of one core, by the CPU time of three fresh processes that make scenes in pieces, as a written file
does. A scene is read if kinds, boxes and caption are those of the simulation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np

from measure import RESULTS, Row, commit, hardware, record, spread, versions
from sciformer.domains.images.scenes.captions import describe
from sciformer.domains.images.scenes.reading import read_things
from sciformer.domains.images.scenes.things import MAX_THINGS, parse_things
from sciformer.domains.images.simulate.scenes import Scenes

TURNS = 5
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SHEET_ROWS = 2


def clock(number: int) -> list[float]:
    """Scenes per CPU second, several times."""
    Scenes().make(1)
    rates = []
    for turn in range(TURNS):
        began = time.process_time()
        for _ in Scenes(seed=100 + turn, number=number).tables(".npz"):
            pass
        rates.append(number / (time.process_time() - began))
    return rates


def measure(number: int, out: Path) -> None:
    """Measure and record the speed."""
    rates: list[float] = []
    for _ in range(3):
        line = [sys.executable, __file__, "--clock", str(number)]
        rates += json.loads(subprocess.run(line, capture_output=True, check=True, env=os.environ | ONE).stdout)
    row: Row = {"id": "simulate_scenes.per_s", "value": round(statistics.median(rates)), "better": "higher"}
    row |= {"bar": 1_000, "unit": "scenes for each second of one core", "spread": [round(x) for x in spread(rates)]}
    row |= {"seeds": 1, "command": "python benchmarks/scenes.py --record", "hardware": hardware("cpu")}
    row |= {"versions": versions() | {"numpy": np.__version__}, "commit": commit(), "processes": 3, "scenes": number}
    record(out, [row])
    print(f"{row['value']:,} scenes/s on one core, 10-90 % {row['spread']}")


def read(number: int) -> None:
    """Count the scenes of each part that are read back."""
    for part in ("train", "test", "unseen"):
        table: dict[str, Any] = dict(Scenes(seed=1).make(number, part=part))
        right, began = 0, time.process_time()
        for picture, caption, text in zip(table["image"], table["caption"], table["things"]):
            found = read_things(picture)
            same = sorted((one.kind, one.box) for one in found) == sorted(parse_things(text))
            told = describe(found, len(picture))
            right += same and told is not None and told.words == caption
        each = 1000 * (time.process_time() - began) / number
        print(f"{part:7} {right:,} of {number:,} scenes are read, {each:.1f} ms each")


def sheet(path: Path) -> None:
    """Draw scenes with their captions."""
    from matplotlib.figure import Figure

    columns = MAX_THINGS  # one for each number of things
    counts = range(1, columns + 1)
    tables: list[dict[str, Any]] = [
        dict(Scenes(seed=count, things=(count, count)).make(SHEET_ROWS)) for count in counts
    ]
    figure = Figure(figsize=(2.1 * columns, 2.8 * SHEET_ROWS), layout="constrained")
    for row, line in enumerate(figure.subplots(SHEET_ROWS, columns)):
        for axes, table in zip(line, tables):
            axes.imshow(table["image"][row], interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            lines = textwrap.wrap(str(table["caption"][row]), 30)
            axes.set_xlabel("\n".join(lines + [""] * (5 - len(lines))), fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--record", action="store_true", help="measure the speed and record it")
    options.add_argument("--number", type=int, default=4096, help="scenes to clock")
    options.add_argument("--read", type=int, help="read this number of scenes of each part back")
    options.add_argument("--sheet", type=Path, help="draw a sheet of scenes")
    options.add_argument("--clock", type=int, help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, default=RESULTS / "captions.json")
    chosen = options.parse_args()
    if chosen.clock:
        print(json.dumps(clock(chosen.clock)))
    if chosen.record:
        measure(chosen.number, chosen.out)
    if chosen.read:
        read(chosen.read)
    if chosen.sheet:
        sheet(chosen.sheet)


if __name__ == "__main__":
    main()
