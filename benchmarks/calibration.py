"""Benchmark of `sciformer calibrate`. `python benchmarks/calibration.py --pythia F --ztf F`

    jets       a particle flow network on 23,786 Pythia jets of ten classes (--pythia toyjets_pythia8.npz)
    redshift   a small transformer on 2,289 supernovae in two bands (--ztf ztf_bts_snia.parquet), a Gaussian each

Each seed is calibrated on its validation part and evaluated on its test part before and after.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch

from jets_data import prepare
from jets_tasks import events
from measure import RESULTS, record
from pool import seeds_row
from sciformer.evaluation.calibrate import calibrate
from sciformer.recipe import Recipe
from sciformer.run import train

SCORES = {  # name in the results: score, unit, better
    "error": ("calibration_error", "share", "lower"),
    "coverage68": ("coverage_68", "share", "higher"),
    "coverage95": ("coverage_95", "share", "higher"),
    "loss": ("loss", "nats", "lower"),
}


def jets(options: argparse.Namespace) -> Recipe:
    """Recipe of the jets table, with its budget on these jets."""
    prepare(options.pythia, options.out / "pythia")
    steps = {"train.steps": options.steps or 2000, "train.batch": 256, "train.evaluate_every": 200}
    steps |= {"train.learning_rate": 5e-3}
    return Recipe.load("jets/pfn", events(options.out / "pythia", "train") | steps)


def redshift(options: argparse.Namespace) -> Recipe:
    """Recipe of the guide to light curves."""
    changes: dict[str, Any] = {"data.kind": "series", "data.files": [str(options.ztf)], "tokens.centre": "learned"}
    changes |= {"data.bands": ["g", "R"]}  # a single point is in another
    changes |= {"data.split": {"valid": 0.2, "test": 0.2}, "model.dim": 64, "model.depth": 3, "model.heads": 4}
    changes |= {"objective": {"kind": "regress", "targets": ["redshift"]}, "train.best": "loss", "train.batch": 64}
    changes |= {"train.steps": options.steps or 1500, "train.warmup": 100, "train.evaluate_every": 100}
    return Recipe.load("lightcurves/transformer", changes)


PARTS = {"jets": jets, "redshift": redshift}


def measure(name: str, options: argparse.Namespace) -> None:
    """Train with every seed, calibrate, and record the scores before and after."""
    recipe, factors = PARTS[name](options), []
    found: dict[str, dict[str, list[float]]] = {"before": {}, "after": {}}
    for seed in options.seeds:
        folder = options.out / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        run = train(recipe.change({"train.seed": seed, "train.device": "cpu"}), folder, show=False, report=False)
        made = calibrate(run)
        factors.append(made.state.get("temperature") or made.state["spread"][0])
        for when, judged in (("before", made.before), ("after", made.after)):
            for score, value in judged["test"].scores.items():
                found[when].setdefault(score, []).append(float(value))
        print(name, seed, made.words, flush=True)
    more = {"factors": [round(factor, 4) for factor in factors], "fitted_to": made.before["valid"].size}
    rows = [
        seeds_row(f"calibration.{name}.{short}.{when}", found[when][score], unit, better, COMMAND, "cpu", **more)
        for short, (score, unit, better) in SCORES.items()
        for when in found
        if score in found[when]
    ]
    if not options.steps:
        record(options.results, rows)
    for row in rows:
        print(f"{row['id']:44} {row['value']:.4f} ± {row['spread']}", flush=True)


COMMAND = "python benchmarks/calibration.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythia", type=Path)
    parser.add_argument("--ztf", type=Path)
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=0, help="another number, to try the script; nothing is recorded")
    parser.add_argument("--out", type=Path, default=Path("runs/calibration"))
    parser.add_argument("--results", type=Path, default=RESULTS / "calibration.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, given in (("redshift", options.ztf), ("jets", options.pythia)):
        if given:
            measure(name, options)


if __name__ == "__main__":
    main()
