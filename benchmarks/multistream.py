"""Models of several streams in one trunk, beside models of each stream: supernovae, and questions about pictures.

    python benchmarks/multistream.py --jobs 2 --complete --record

The streams of the supernovae are the image of the host galaxy, the light curve and the magnitude of the host. Every row
has the same small transformer, steps and samples. The learning rate is tuned for each row over the same grid, on the
validation part of the first seed. Class and redshift are two trainings.

    image, curve, scalars               a model of one stream
    all, no_image, no_curve ...         the model of all streams, tested with all streams or without one
    only_image, only_curve ...          the same model, tested with one stream
    complete.all, complete.no_image ... the same without `objective.drop_stream`: no stream is missing in training
    question.picture, .words, .both     the hidden colour of a caption (`images/scenes-question`), with `--pair` alone
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, record
from pool import Result, Task, origins, seeds_row, side_by_side
from sciformer.data.columns import Lists, Samples, Table
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.domains.lightcurves.simulate.transients import Transients
from sciformer.recipe import Recipe
from sciformer.run import Run, train

STREAMS = {"image": ["image"], "curve": ["curve"], "scalars": ["host"], "all": ["image", "curve", "host"]}
STREAMS["complete"] = STREAMS["all"]  # trained without missing streams
PAIR = {"picture": ["picture"], "words": ["words"], "both": ["picture", "words"]}
QUESTION_STEPS, QUESTIONS = 500, 6000  # steps and training samples of the questions
CURVE = ("time", "value", "error", "band", "limit")
RATES = (1e-3, 3e-3)
DROPPED = 0.2  # share of each stream that is missing in the training with all streams
STEPS = 300
TRAIN, VALID, TEST = 2000, 500, 1000
TASKS = {  # score of the test part, score of the validation part, whether higher is better, unit
    "class": ("accuracy", "accuracy", True, "accuracy"),
    "redshift": ("redshift_error", "mae", False, "redshift"),
    "question": ("accuracy", "accuracy", True, "accuracy"),
}


def recipe(task: Task) -> Recipe:
    """Recipe of a training."""
    if task["task"] == "question":
        return question_recipe(task)
    base = Recipe.load("lightcurves/transient-multistream").to_dict()
    kept = {stream: base["tokens"][stream] for stream in STREAMS[task["name"]]}
    model: dict[str, Any] = {"dim": 48, "depth": 2, "heads": 4, "mlp_ratio": 2, "pool": "class_token", "dropout": 0.1}
    objective: dict[str, Any] = {"kind": "classify"}
    if task["task"] == "redshift":
        objective = {"kind": "regress", "targets": ["redshift"], "metrics": ["mae", "rmse"]}
    if len(kept) > 1:
        model |= {"kind": "multistream", "host": {"position": "none"}}
        objective |= {"drop_stream": 0.0 if task["name"] == "complete" else DROPPED}
    else:
        model |= {"kind": "encoder"}
    data = {"kind": "transients", "number": task["number"], "valid": VALID, "test": 0, "seed": task["seed"]}
    steps = task["steps"]
    loop: dict[str, Any] = {"steps": steps, "batch": 32, "warmup": 50, "learning_rate": task["rate"]}
    loop |= {"min_lr_ratio": 0.01, "seed": task["seed"], "device": "cpu", "evaluate_every": steps, "save_every": steps}
    tokens: Any = kept if len(kept) > 1 else next(iter(kept.values()))
    return Recipe.from_dict({"data": data, "tokens": tokens, "model": model, "objective": objective, "train": loop})


def question_recipe(task: Task) -> Recipe:
    """Recipe for the hidden colour of a caption, from the picture, the words or both."""
    base = Recipe.load("images/scenes-question").to_dict()
    kept = {stream: base["tokens"][stream] for stream in PAIR[task["name"]]}
    kept |= {"picture": kept["picture"] | {"patch": 16}} if "picture" in kept else {}
    model: dict[str, Any] = {"kind": "multistream" if len(kept) > 1 else "encoder", "dim": 48, "depth": 2, "heads": 4}
    model |= {"mlp_ratio": 2, "pool": "class_token", "position": "learned", "dropout": 0.0}
    data = base["data"] | {"number": task["number"], "valid": VALID, "test": 0, "seed": task["seed"]}
    steps = task["steps"]
    loop: dict[str, Any] = {"steps": steps, "batch": 32, "warmup": 50, "learning_rate": task["rate"]}
    loop |= {"min_lr_ratio": 0.01, "seed": task["seed"], "device": "cpu", "evaluate_every": steps, "save_every": steps}
    tokens: Any = kept if len(kept) > 1 else next(iter(kept.values()))
    objective = {"kind": "classify", "label": "answer"}
    return Recipe.from_dict({"data": data, "tokens": tokens, "model": model, "objective": objective, "train": loop})


def without(table: Table, streams: set[str]) -> Table:
    """Transients that lack some streams."""
    found, rows = dict(table), len(np.asarray(table["image"]))
    if "image" in streams:
        found |= ImageFiles(kind="images").with_gaps({"image": table["image"]}, np.full(rows, -1))
    if "curve" in streams:
        for name in CURVE:
            column = table[name]
            assert isinstance(column, Lists)
            found[name] = Lists(column.values[:0], np.zeros(rows, np.int64))
    if "host" in streams:
        found["host_magnitude"] = np.full(rows, np.nan, np.float32)
    return found


def cases(name: str) -> dict[str, set[str]]:
    """Tests of a model: row -> missing streams."""
    if name in PAIR:
        return {f"question.{name}": set()}
    if len(STREAMS[name]) == 1:
        return {name: set()}
    names = {"image": "image", "curve": "curve", "host": "scalars"}
    found = {"all": set[str]()} | {f"no_{names[stream]}": {stream} for stream in names}
    found |= {f"only_{names[stream]}": set(names) - {stream} for stream in names}
    return found if name == "all" else {f"{name}.{case}": missing for case, missing in found.items()}


def score(run: Run, table: Table, task: str) -> float:
    """Share of correct classes, or mean absolute error of the redshift."""
    said = run.predict(Samples(dict(table)), accept_drift=True)
    if task == "redshift":
        return float(np.abs(np.asarray(said["mean"])[:, 0] - np.asarray(table["redshift"])).mean())
    objective: Any = run.assembly.objective
    best = np.array(objective.classes)[np.asarray(said["probabilities"]).argmax(1)]
    return float((best == table["answer" if task == "question" else "label"]).mean())


def chance(table: Table, task: str) -> float:
    """Score of the same answer to all samples: the most frequent class, or the median redshift."""
    if task == "redshift":
        redshift = np.asarray(table["redshift"])
        return float(np.abs(redshift - np.median(redshift)).mean())
    counts = np.unique(np.asarray(table["answer" if task == "question" else "label"]), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def trained(task: Task) -> Result:
    """Train and test one model."""
    torch.set_num_threads(1)
    began, folder = time.process_time(), Path(task["out"]) / "runs" / task["key"]
    run = train(recipe(task), folder, show=False, report=False)
    seed = 1000 + task["seed"]
    asked = task["task"] == "question"
    table = Scenes(seed=seed, things=(2, 2), hide="colour").make(TEST) if asked else Transients(seed=seed).make(TEST)
    test = {case: score(run, without(table, missing), task["task"]) for case, missing in cases(task["name"]).items()}
    valid = run.scores[TASKS[task["task"]][1]]
    shutil.rmtree(folder)
    nothing = chance(table, task["task"])
    found = {key: task[key] for key in ("name", "task", "seed", "rate")} | {"test": test, "nothing": nothing}
    return found | {"valid": valid, "cpu_s": time.process_time() - began}


class Plan:
    """Schedule: every model at every learning rate with the first seed, then the other seeds at the best rate."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.found: dict[tuple[str, str], list[Result]] = {}

    def task(self, name: str, task: str, rate: float, seed: int) -> dict[str, Task]:
        key = f"{name}-{task}-{rate:g}-{seed}"
        made: Task = {"key": key, "name": name, "task": task, "rate": rate, "seed": seed}
        return {key: made | {"number": self.number, "steps": self.steps, "out": str(self.options.out)}}

    @property
    def number(self) -> int:
        return int(self.options.number or (QUESTIONS if self.options.pair else TRAIN))

    @property
    def steps(self) -> int:
        return int(self.options.steps or (QUESTION_STEPS if self.options.pair else STEPS))

    def first(self) -> dict[str, Task]:
        """Tasks of the grid."""
        made: dict[str, Task] = {}
        for task in ["question"] if self.options.pair else ["class", "redshift"]:
            for name in PAIR if self.options.pair else STREAMS:
                for rate in RATES if name != "complete" else ():
                    made |= self.task(name, task, rate, 0)
        return made

    def then(self, key: str, result: Result) -> dict[str, Task]:
        """Tasks of the other seeds, when the grid of a model is complete."""
        name, task = result["name"], result["task"]
        runs = self.found.setdefault((name, task), [])
        runs.append(result)
        if name == "complete" or len(runs) != len(RATES):
            return {}
        made: dict[str, Task] = {}
        for seed in range(self.options.seeds):
            made |= self.task(name, task, self.best(name, task), seed) if seed else {}
            made |= (
                self.task("complete", task, self.best(name, task), seed)
                if name == "all" and self.options.complete
                else {}
            )
        return made

    def best(self, name: str, task: str) -> float:
        """Best learning rate of a model, by the validation part of the first seed."""
        higher = TASKS[task][2]
        grid = [run for run in self.found[name, task] if run["seed"] == 0]
        return float(max(grid, key=lambda run: run["valid"] if higher else -run["valid"])["rate"])

    def rows(self) -> list[Row]:
        """Rows of the results."""
        made: list[Row] = []
        for (name, task), runs in self.found.items():
            figure, _, higher, unit = TASKS[task]
            best = self.best("all" if name == "complete" else name, task)
            runs = sorted((run for run in runs if run["rate"] == best), key=lambda run: int(run["seed"]))
            for case in runs[0]["test"]:
                more = {"learning_rate": best, "samples": self.number, "steps": self.steps}
                more |= {"test": TEST, "nothing": round(float(np.mean([run["nothing"] for run in runs])), 4)}
                values, command = (
                    [run["test"][case] for run in runs],
                    "python benchmarks/multistream.py --complete --record",
                )
                better = "higher" if higher else "lower"
                made.append(
                    seeds_row(
                        f"multistream.{case}.{figure}", values, unit, better, command, "", **origins(runs), **more
                    )
                )
        return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--number", type=int, default=0, help=f"default: {TRAIN}, with --pair {QUESTIONS}")
    parser.add_argument("--steps", type=int, default=0, help=f"default: {STEPS}, with --pair {QUESTION_STEPS}")
    parser.add_argument("--pair", action="store_true", help="questions about pictures instead of supernovae")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, each on one core")
    parser.add_argument("--out", type=Path, default=Path("runs/multistream"), help="folder of single runs")
    parser.add_argument("--complete", action="store_true", help="train without missing streams too")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS / "multistream.json")
    plan = Plan(parser.parse_args())
    runs = [
        result
        for _, result in side_by_side(trained, plan.first(), plan.options.jobs, plan.options.out / "results", plan.then)
    ]
    rows = plan.rows()
    for row in rows:
        print(f"{row['id']} {row['value']} ± {row['spread']} at {row['learning_rate']:g} ({row['nothing']} by chance)")
    print(f"{sum(run['cpu_s'] for run in runs):.0f} s of CPU")
    if plan.options.record:
        record(plan.options.results, rows)


if __name__ == "__main__":
    main()
