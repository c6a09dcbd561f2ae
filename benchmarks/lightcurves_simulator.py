"""Simulated light curves beside those of ASAS, and the speed of the simulation.

    python benchmarks/lightcurves_simulator.py --asas asas_variables.parquet
    python benchmarks/lightcurves_simulator.py --record

The table has two rows for each class: percentiles 5, 50 and 95 of the amplitude (from 5 to 95 % of the magnitudes), of
the skewness of the magnitudes and of the errors. It is a rough check: some ranges of the simulation were adjusted by
hand to these ASAS curves, which are also those of the benchmark. The speed is that of one core, by the CPU time of
three fresh processes that make curves in pieces, as the reader does; it is for stars in the cadence of a survey.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure import RESULTS, Row, commit, hardware, record, spread, versions
from sciformer.domains.lightcurves.simulate.lightcurves import CLASSES, CURVE_KINDS, LightCurves

Array = NDArray[Any]
TURNS = 5
SHARE = {"stars": 8, "supernovae": 4, "oscillators": 1, "transits": 2, "signals": 1}  # of the curves that are clocked
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def numbers(value: Array, error: Array) -> tuple[float, float, float]:
    """Amplitude, skewness and error of a curve."""
    low, high = np.percentile(value, (5, 95))
    away = value - value.mean()
    return float(high - low), float((away**3).mean() / away.std() ** 3), float(np.median(error))


def simulated(number: int) -> Iterator[tuple[str, Array, Array]]:
    """Label, values and errors of simulated curves in the cadence of ASAS."""
    table = LightCurves(what="stars", seed=3, cadence="asas").make(number)
    stops: Array = np.cumsum(table["value"].lengths)[:-1]  # type: ignore[union-attr]
    columns = [np.split(table[name].values.astype(float), stops) for name in ("value", "error")]  # type: ignore[union-attr]
    yield from zip(table["label"].tolist(), *columns)  # type: ignore[union-attr]


def real(path: Path) -> Iterator[tuple[str, Array, Array]]:
    """Label, values and errors of the ASAS curves."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    for row in pq.read_table(path, columns=["label", "mag", "magerr"]).to_pylist():
        yield row["label"], np.array(row["mag"], float), np.array(row["magerr"], float)


def compare(path: Path, number: int) -> None:
    """Print the table of both."""
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {"ASAS": {}, "simulated": {}}
    for who, curves in (("ASAS", real(path)), ("simulated", simulated(number))):
        for label, value, error in curves:
            found[who].setdefault(label, []).append(numbers(value, error))
    print(f"{'':16}{'amplitude':>24}{'skewness':>24}{'error':>24}")
    for label in CLASSES["stars"]:
        for who, classes in found.items():
            if label in found["ASAS"]:
                cells = np.percentile(classes[label], (5, 50, 95), axis=0).T
                print(f"{label:6}{who:10}" + "".join(f"{'/'.join(f'{x:.3g}' for x in cell):>24}" for cell in cells))


def clock(number: int) -> dict[str, list[float]]:
    """Curves of each kind per CPU second, several times."""
    rates: dict[str, list[float]] = {}
    for what in CURVE_KINDS:
        LightCurves(what=what).make(1)
        count = max(256, number * SHARE[what] // SHARE["stars"])
        for turn in range(TURNS):
            began = time.process_time()
            for _ in LightCurves(what=what, seed=100 + turn, number=count).tables(".parquet"):
                pass
            rates.setdefault(what, []).append(count / (time.process_time() - began))
    return rates


def measure(number: int, out: Path) -> None:
    """Measure and record the speed."""
    rates: dict[str, list[float]] = {}
    for _ in range(3):
        line = [sys.executable, __file__, "--clock", str(number)]
        done = subprocess.run(line, capture_output=True, check=True, env=os.environ | ONE)
        for what, some in json.loads(done.stdout).items():
            rates.setdefault(what, []).extend(some)
    middle = {what: round(statistics.median(some)) for what, some in rates.items()}
    row: Row = {"id": "simulate_lightcurves.per_s", "value": middle["stars"], "better": "higher", "bar": 2_000}
    row |= {"unit": "curves for each second of one core", "spread": [round(x) for x in spread(rates["stars"])]}
    row |= {"seeds": 1, "command": "python benchmarks/lightcurves_simulator.py --record", "hardware": hardware("cpu")}
    row |= {"versions": versions() | {"numpy": np.__version__}, "commit": commit(), "processes": 3, "curves": number}
    record(out, [row | {"each": middle}])
    print(", ".join(f"{n:,} {what}/s" for what, n in middle.items()), f"on one core; 10-90 % of stars {row['spread']}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--asas", type=Path, help="the curves of ASAS, asas_variables.parquet")
    options.add_argument("--number", type=int, default=8192, help="simulated curves to compare, or to clock")
    options.add_argument("--record", action="store_true", help="measure the speed and record it")
    options.add_argument("--clock", type=int, help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, default=RESULTS / "lightcurves-simulator.json")
    chosen = options.parse_args()
    if chosen.clock:
        print(json.dumps(clock(chosen.clock)))
        return
    if chosen.asas:
        compare(chosen.asas, chosen.number)
    if chosen.record:
        measure(chosen.number, chosen.out)


if __name__ == "__main__":
    main()
