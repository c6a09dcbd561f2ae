"""Interface of the parts of `lightcurves.py`, and their common settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from pool import Result, Task
from sciformer.recipe import Recipe
from sciformer.run import Run

Group = tuple[str, str, str]  # size, model, way
Scores = dict[str, tuple[float, str, str]]  # id of a row: value, unit, which way is better
COMMON: dict[str, Any] = {
    "train.optimizer": "adamw",
    "train.betas": [0.9, 0.99],
    "train.weight_decay": 0.01,
    "train.clip_norm": 1.0,
    "train.schedule": "cosine",
    "train.min_lr_ratio": 0.01,
    "train.keep": 1,
    "train.log_every": 50,
}
LONG = 3000  # updates from which an interrupted training is worth going on with
TINY = {
    "train.steps": 4,
    "train.batch": 8,
    "train.warmup": 1,
    "train.evaluate_every": 2,
    "train.save_every": 4,
    "model.dim": 16,
    "model.depth": 1,
    "model.heads": 2,
}


class Part:
    """One part of the benchmark: models, recipes, evaluation."""

    choose: str = "macro_f1"
    """Validation score that chooses the learning rate."""
    higher: bool = True
    judged: bool = True
    """Whether runs are removed after their evaluation; otherwise other parts use them."""
    rates: tuple[float, ...] = ()
    """Learning rates to try (default: --rates)."""
    pairs: bool = True
    """Whether --paired may give every seed its own fold; False if the folds are different tasks."""

    def prepare(self, options: argparse.Namespace) -> None:
        """Make the files that all runs read."""

    def folds(self, group: Group) -> int:
        """Folds of a model."""
        return 1

    def groups(self, options: argparse.Namespace) -> list[Group]:
        """Models of this part."""
        raise NotImplementedError

    def recipe(self, task: Task) -> Recipe:
        """Recipe of a run."""
        raise NotImplementedError

    def test(self, run: Run, task: Task) -> Result:
        """Stored results of a trained model."""
        raise NotImplementedError

    def scores(self, group: Group, found: list[Result]) -> Scores:
        """Scores of one seed, from its folds."""
        raise NotImplementedError

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        """More entries of the rows, from the folds of every seed."""
        return {}

    def words(self, options: argparse.Namespace) -> str:
        """Arguments of the command of its rows, after its name."""
        return ""

    def same(self, group: Group) -> tuple[str, Group] | None:
        """Part and model with identical runs, which are not trained twice."""
        return None

    def known(self, group: Group) -> dict[str, str]:
        """Ids of the rows of another part, by their ids in this part.

        Empty unless all runs of the model are identical.
        """
        return {}


def settings(task: Task, steps: int, batch: int, best: str) -> dict[str, Any]:
    """Keys of the section `train` for a number of updates, with twenty evaluations."""
    steps = task["steps"] or steps
    often = max(1, steps // 20)
    found = COMMON | {"train.steps": steps, "train.batch": batch, "train.warmup": steps // 20, "train.best": best}
    found |= {"train.evaluate_every": often, "train.save_every": steps if steps < LONG else often}
    found |= {"train.learning_rate": task["rate"]}
    found |= {"train.seed": task["seed"], "train.compile": task["compile"], "train.workers": task["workers"]}
    if task["device"]:
        found["train.device"] = task["device"]
    return found | (TINY if task["tiny"] else {})


def files(task: Task, name: str, size: str = "all") -> dict[str, Any]:
    """Data section for the real curves of a fold."""
    folder = Path(task["data"]) / name / str(task["fold"])
    end = "" if size == "all" else f"-{size}"
    parts = {"files": f"train{end}", "valid": f"valid{end}", "test": "test"}
    if task["tiny"]:
        parts |= {"files": "train-20", "valid": "valid-20", "test": "valid-20"}
    return {"data.kind": "series"} | {f"data.{key}": [str(folder / f"{part}.parquet")] for key, part in parts.items()}


def calibrated(found: list[Result]) -> dict[str, float]:
    """Error and coverage of values with standard deviations, over all folds."""
    target, mean, std = (np.concatenate([one[key] for one in found]) for key in ("target", "mean", "std"))
    off = np.abs(mean - target)
    return {
        "rmse": float(np.sqrt((off**2).mean())),
        "median": float(np.median(off)),
        "coverage68": float((off <= std).mean()),
        "coverage95": float((off <= 1.96 * std).mean()),
        "deviation": float(np.sqrt(((target - target.mean()) ** 2).mean())),
    }


def values(run: Run) -> Result:
    """Truth, mean and standard deviation of every test sample."""
    outputs = run.evaluate("test").outputs
    return {key: np.asarray(outputs[key])[:, 0].round(6).tolist() for key in ("target", "mean", "std")}


def classes(run: Run) -> list[str]:
    """Classes of a model."""
    found: Any = run.assembly.objective
    return [str(name) for name in found.classes]
