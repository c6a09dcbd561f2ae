"""Training of the models of a part: choice of the learning rate, then all seeds and folds."""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lightcurves_tasks import Group, Part
from measure import KEPT, RESULTS, Row, record, renamed
from pool import Result, Task, beyond, origins, seeds_row, side_by_side
from sciformer.errors import UserError
from sciformer.run import train

CARRIED = ("number", "epochs", "tiny", "compile", "device", "steps", "workers")  # options that a task carries


def trained(part: Part, task: Task) -> Result:
    """Train and evaluate one model."""
    torch.set_num_threads(1)
    began = time.monotonic()
    folder = Path(task["out"]) / "runs" / task["name"]
    found: Result = {key: task[key] for key in ("part", "group", "fold", "rate", "seed")}
    try:
        run = train(part.recipe(task), folder, report=False, show=False)
    except UserError as error:
        if error.key != "train.learning_rate":  # a rate at which it diverges is not the best one
            raise
        return found | {"error": str(error), "valid": {part.choose: -math.inf if part.higher else math.inf}}
    found |= {"valid": run.scores, "parameters": run.about["parameters"], "steps": run.recipe.train.total(1)}
    found |= {"training_s": round(run.about["seconds"], 1), "device": run.device.type}
    if part.judged:
        found |= {"test": part.test(run, task)}
        shutil.rmtree(folder)
    return found | {"seconds": round(time.monotonic() - began, 1)}


def options_of(
    parser: argparse.ArgumentParser, arguments: list[str] | None, name: str, folds: str, jobs: int
) -> argparse.Namespace:
    """Common arguments of all tables of tuned models.

    name   name of the results file
    """
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--steps", type=int, default=0, help="number of updates (default: that of the part)")
    parser.add_argument("--rates", type=numbers(float), default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--widen", type=int, default=0, help="learning rates to try beyond each end of the grid")
    parser.add_argument("--pretrain-rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--folds", type=int, default=5, help=folds)
    parser.add_argument(
        "--paired", action="store_true", help="use a different fold for each seed, instead of all folds"
    )
    parser.add_argument("--jobs", type=int, default=jobs, help="runs at a time; 0: in this process")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare the batches of a run")
    parser.add_argument("--compile", action="store_true", help="compile the model, for long trainings")
    parser.add_argument("--device", default="")
    parser.add_argument("--tiny", action="store_true", help="small test of the script, in seconds")
    parser.add_argument("--out", type=Path, default=Path("runs") / name)
    parser.add_argument("--results", type=Path, default=RESULTS / f"{name}.json")
    options = parser.parse_args(arguments)
    if options.tiny:
        options.out /= "tiny"
        options.out.mkdir(parents=True, exist_ok=True)
        options.results = options.out / "rows.json"
    return options


class Tuning:
    """Schedule of the runs of a part.

    First every model at every learning rate with the first seed and fold. Then all other seeds and folds at the rate
    with the best validation score.
    """

    def __init__(self, options: argparse.Namespace, name: str, part: Part, script: str) -> None:
        self.options, self.name, self.part, self.script = options, name, part, script
        self.groups = {"-".join(group): group for group in self.part.groups(options)}
        self.known = self.measured(RESULTS / f"{Path(script).stem}.json")
        rates: list[float] = list(self.part.rates) or options.rates
        self.rates = rates[:1] if options.tiny or not self.part.judged else rates
        self.seeds = options.seeds if self.part.judged else options.seeds[:1]
        self.paired = options.paired and part.pairs
        self.found = defaultdict[str, list[Result]](list)
        self.keys = dict[str, str]()  # of the runs, the models that they belong to

    def measured(self, path: Path) -> list[Row]:
        """Rows of models that another part has measured already.

        These models are not trained again.
        """
        found: list[Row] = []
        for key, group in list(self.groups.items()):
            if there := [] if self.options.tiny else renamed(path, self.part.known(group)):
                found += there
                del self.groups[key]
        return found

    def folds(self, group: Group) -> list[int]:
        """Test folds of a model."""
        most = len(self.options.seeds) if self.paired else self.options.folds
        return list(range(min(self.part.folds(group), self.options.folds, most)))

    def runs(self, group: Group) -> list[tuple[int, int]]:
        """(fold, seed) of all runs of a model; the first is used for the grid."""
        folds = self.folds(group)
        if self.paired:
            return [(folds[i % len(folds)], seed) for i, seed in enumerate(self.seeds)]
        return [(fold, seed) for fold in folds for seed in self.seeds]

    def task(self, key: str, fold: int, rate: float, seed: int) -> tuple[str, Task]:
        """Name and settings of a run."""
        part, group = self.part.same(self.groups[key]) or (self.name, self.groups[key])
        model = "-".join(group)
        name = f"{part}-{model}-{fold}-{rate:g}-{seed}" if self.part.judged else f"{part}-{model}-{fold}"
        self.keys[name] = key
        made: Task = {"name": name, "part": part, "group": model, "of": group}
        made |= {"fold": fold, "rate": rate, "seed": seed, "data": str(self.options.out.resolve() / "data")}
        made |= {option: getattr(self.options, option) for option in CARRIED}
        return name, made | {"out": str(self.options.out.resolve())}

    def tasks(self) -> dict[str, Task]:
        """First runs of the schedule."""
        if not self.part.judged:
            rate = self.options.pretrain_rate
            every = [(key, fold) for key, group in self.groups.items() for fold in self.folds(group)]
            return dict(self.task(key, fold, rate, self.seeds[0]) for key, fold in every)
        return dict(self.task(key, 0, rate, self.seeds[0]) for key in self.groups for rate in self.rates)

    def grid(self, key: str) -> list[Result]:
        """Runs that choose the learning rate; empty until all are complete."""
        return [] if self.next(key) else self.tried(key)

    def tried(self, key: str) -> list[Result]:
        """Results of the learning rates of a model so far."""
        return [one for one in self.found[key] if one["seed"] == self.seeds[0] and one["fold"] == 0]

    def next(self, key: str) -> list[float]:
        """Learning rates still to try.

        First those of the grid; then the next beyond its end, if the best is there.
        """
        sign = 1 if self.part.higher else -1
        tried = {one["rate"]: sign * one["valid"][self.part.choose] for one in self.tried(key)}
        if left := [rate for rate in self.rates if rate not in tried]:
            return left
        more = beyond(tried, self.rates, self.options.widen)
        return [] if more is None else [more]

    def best(self, key: str) -> float:
        """Learning rate with the best validation score."""
        sign = 1 if self.part.higher else -1
        return float(max(self.grid(key), key=lambda one: sign * one["valid"][self.part.choose])["rate"])

    def then(self, name: str, result: Result) -> Mapping[str, Task]:
        """Other folds and seeds, when all rates of a model are tried."""
        key = self.keys[name]
        before = set(self.next(key))
        self.found[key].append(result)
        left = self.next(key)
        if not before or not self.part.judged:
            return {}
        if left:  # the earlier ones are running
            return dict(self.task(key, 0, rate, self.seeds[0]) for rate in left if rate not in before)
        rate = self.best(key)
        return dict(self.task(key, fold, rate, seed) for fold, seed in self.runs(self.groups[key])[1:])

    def rows(self, key: str) -> list[Row]:
        """Rows of one model, when all its runs are complete."""
        group = self.groups[key]
        if not self.part.judged or not self.grid(key):
            return []
        rate = self.best(key)
        mine = [one for one in self.found[key] if one["rate"] == rate and "error" not in one]
        there = {(one["fold"], one["seed"]): one for one in mine}
        if any(run not in there for run in self.runs(group)):
            return []
        by_seed = [[there[run] for run in self.runs(group) if run[1] == seed] for seed in self.seeds]
        scores = [self.part.scores(group, [one["test"] for one in some]) for some in by_seed]
        one = mine[0]
        about: dict[str, Any] = {"folds": len(self.folds(group)), "rate": rate, "parameters": one["parameters"]}
        about |= origins([there[run] for run in self.runs(group)])
        about |= {"paired": True} if self.paired else {}
        about |= {"steps": one["steps"], "training_s": sorted(run["training_s"] for run in mine)[len(mine) // 2]}
        about |= {"grid": {f"{run['rate']:g}": round(run["valid"][self.part.choose], 5) for run in self.grid(key)}}
        about |= self.part.about(group, [[run["test"] for run in some] for some in by_seed])
        made = []
        for name, (_, unit, better) in scores[0].items():
            values = [score[name][0] for score in scores]
            command = f"python benchmarks/{self.script} {self.name}{self.part.words(self.options)}"
            command += (" --paired" if self.paired else "") + (
                f" --steps {self.options.steps}" if self.options.steps else ""
            )
            where = "" if "hardware" in about else one["device"]
            made.append(seeds_row(name, values, unit, better, command, where, **about))
        return made


def measure(tuning: Tuning, work: Callable[[Task], Result]) -> None:
    """Train all runs of a part side by side; rows are written as they are complete."""
    options = tuning.options
    if tuning.known:
        record(options.results, tuning.known)
    alike = (lambda task: str(task["group"])) if options.compile else None
    known = None if options.tiny else KEPT / f"{Path(tuning.script).stem}.json"
    results = side_by_side(work, tuning.tasks(), options.jobs, options.out / "results", tuning.then, alike, known)
    for run, result in results:
        shown = {key: round(value, 4) for key, value in result["valid"].items()}
        print(f"{run}: in validation {shown}", flush=True)
        rows = tuning.rows(tuning.keys[run])
        record(options.results, rows)
        for row in rows:
            print(f"{row['id']:44} {row['value']:.4f} ± {row['spread']}  rate {row['rate']:g}", flush=True)
