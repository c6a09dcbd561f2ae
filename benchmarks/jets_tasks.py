"""Runs of `jets.py`: data, budget, initial weights and evaluation."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jets_data import CLASSES, columns_of
from measure import flops
from pool import Result, Task
from sciformer.recipe import Recipe
from sciformer.run import Run, train

MODELS = {
    "pfn": "jets/pfn",
    "pcnn": "jets/pcnn",
    "particlenet": "jets/particlenet",
    "pct": "jets/pct",
    "lorentznet": "jets/lorentznet",
    "part_plain": "jets/part-plain",
    "part": "jets/part",
}
ON_JETCLASS = {"pfn": 0.772, "pcnn": 0.809, "particlenet": 0.844, "part_plain": 0.849, "part": 0.861}
COMMON: dict[str, Any] = {
    "train.optimizer": "adamw",
    "train.betas": [0.9, 0.99],
    "train.weight_decay": 0.01,
    "train.clip_norm": 1.0,
    "train.schedule": "flat",
    "train.flat": 0.5,
    "train.min_lr_ratio": 0.01,
    "train.best": "accuracy",
    "train.keep": 1,
}
REJECT = {"objective.background": "QCD", "objective.efficiencies": {"Hqql": 0.99, "Tbl": 0.995}}
STEPS = {"100": (300, 64), "1000": (800, 128), "all": (2000, 256)}  # updates and jets in each, by labelled jets
CHOSEN, JUDGED = 20_000, 50_000  # built-in jets for validation and test
LONG = 200_000  # training jets above which compilation and checkpoints pay
EAGER = (
    "lorentznet",
)  # most of its time is in few large operations on pairs; eight compiled steps took eight minutes (CPU)
TINY = {"train.steps": 6, "train.batch": 16, "train.warmup": 1, "train.evaluate_every": 3, "train.save_every": 6}


def events(folder: Path, train_file: str, kind: str = "") -> dict[str, Any]:
    """Data section for Pythia jets."""
    parts = {"files": train_file, "valid": f"{kind}valid", "test": f"{kind}test"}
    named: dict[str, Any] = {f"data.{key}": [str(folder / f"{name}.parquet")] for key, name in parts.items()}
    classes = ("Tbqq", "QCD") if kind else CLASSES
    return named | {"data.kind": "events", "data.classes": {name: f"label_{name}" for name in classes}}


def built_in(number: int, out: str) -> dict[str, Any]:
    """Data section for simulated jets, which are made once for all runs."""
    found = {"data.kind": "jets", "data.number": number, "data.cache": str(Path(out) / "built-in")}
    return found | {"data.valid": min(CHOSEN, number // 10), "data.test": min(JUDGED, number // 10)}


def budget(steps: int, batch: int, looks: int = 20) -> dict[str, Any]:
    """Keys of the section `train` for a number of updates.

    looks   number of evaluations during the training
    """
    often = max(1, steps // looks)
    return {
        "train.steps": steps,
        "train.batch": batch,
        "train.warmup": steps // 20,
        "train.evaluate_every": often,
        "train.save_every": often if steps * batch >= LONG else steps,
    }


def changes_of(task: Task) -> dict[str, Any]:
    """Changes of the recipe for a run."""
    part, size = task["part"], task["size"]
    folder = Path(task["out"]) / "pythia"
    changes: dict[str, Any] = dict(COMMON)
    if part in ("builtin", "pretrain"):
        number, batch = task["number"], 512
        updates = round(number * task["epochs"] // batch * task["share"])
        changes |= built_in(number, task["out"]) | budget(updates, batch, looks=10 if task["share"] == 1 else 4)
    elif part == "tops":
        changes |= events(folder, "tops-train", "tops-") | budget(600, 128)
    else:
        steps, batch = STEPS[size]
        changes |= events(folder, "train" if size == "all" else f"train-{size}")
        changes |= budget(round(steps * task["share"]), batch)
    if part == "tops":
        changes |= {"objective.background": "QCD", "objective.efficiencies": {}}  # of two classes: 0.3 and 0.5
    elif task["model"] != "part_masked":
        changes |= REJECT
    if task["model"] == "part_masked":
        changes.pop("train.best")
    if task["start"]:
        changes |= {"train.init_from": task["start"]}
    compiled = task["compile"] and changes["train.steps"] * changes["train.batch"] >= LONG
    compiled = compiled and task["model"] not in EAGER
    changes |= {"train.learning_rate": task["rate"], "train.seed": task["seed"], "train.compile": compiled}
    changes["train.workers"] = task["workers"]
    if task["device"]:
        changes["train.device"] = task["device"]
    if task["tiny"]:
        changes |= TINY
        if part not in ("builtin", "pretrain"):
            few = "tops-valid" if part == "tops" else "train-100"
            changes |= {f"data.{key}": [str(folder / f"{few}.parquet")] for key in ("files", "valid", "test")}
        if part in ("builtin", "pretrain"):
            changes |= built_in(400, task["out"])
    return changes


def work(task: Task) -> Result:
    """Train and evaluate one model."""
    torch.set_num_threads(1)
    began = time.monotonic()
    name = "jets/part-masked" if task["model"] == "part_masked" else MODELS[task["model"]]
    folder = Path(task["out"]) / "runs" / task["name"]
    run = train(Recipe.load(name, changes_of(task)), folder, report=False, show=False)
    found: Result = {key: task[key] for key in ("part", "model", "size", "rate", "seed", "way", "share")}
    found |= {"valid": run.scores, "parameters": run.about["parameters"], "device": run.device.type}
    found |= {"training_s": round(run.about["seconds"], 1), "steps": run.recipe.train.steps, "flops": flops(run)}
    if task["part"] != "pretrain" and task["share"] == 1:
        scores = run.evaluate("test").scores
        found |= {"test": {key: float(value) for key, value in scores.items()}}
        found |= {"bounds": [key for key, value in scores.items() if str(value).startswith("≥")]}
    if task["part"] != "pretrain":
        shutil.rmtree(folder)
    return found | {"seconds": round(time.monotonic() - began, 1)}


def official(options: argparse.Namespace) -> str:
    """Path of a run with the published weights of ParticleNet; empty without weights."""
    if options.weights is None:
        return ""
    folder: Path = options.out / "official"
    if not folder.exists():
        from sciformer.interop import import_model

        import_model(options.weights, folder)
    return str(folder)


def starts(options: argparse.Namespace, part: str) -> list[tuple[str, str, str]]:
    """Models of a part: (model, way, run with the initial weights)."""
    if part in ("pythia", "builtin"):
        return [(model, "scratch", "") for model in options.models]
    if part == "pretrain":
        return [(model, "scratch", "") for model in ("part", "particlenet", "part_masked")]
    runs = options.out / "runs"
    found = [("part", "scratch", ""), ("part", "supervised", str(runs / "pretrained-part"))]
    found += [("part", "masked", str(runs / "pretrained-part_masked"))]
    if part == "tops":
        return found[:2]
    found += [("particlenet", "scratch", ""), ("particlenet", "supervised", str(runs / "pretrained-particlenet"))]
    if there := official(options):
        found.append(("particlenet", "official", there))
    return found


def as_it_is(run: Run, file: Path) -> float:
    """Accuracy of a model on jets of another source, without further training."""
    table = columns_of(file)
    objective: Any = run.assembly.objective
    truth = np.stack([table[f"label_{name}"] for name in objective.classes], 1).argmax(1)
    return float((run.predict(table)["probabilities"].argmax(1) == truth).mean())
