"""Tables of jet taggers. `python benchmarks/jets.py PART ... --pythia toyjets_pythia8.npz`

    pythia     seven models on Pythia jets of ten classes, a fixed split
    builtin    the same on a million built-in jets (--number)
    pretrain   the Particle Transformer (with labels, and by masked particles) and ParticleNet on built-in jets
    transfer   fine-tuning of these with 100, 1,000 and all Pythia jets, against random weights
    asis       the same models on Pythia jets without further training
    tops       Tbqq against QCD: rejection at 30 %, from random weights and pretrained

All models use the same jets, batches and optimizer. Each takes the learning rate of a common grid (--rates) with the
best validation score of the first seed, after all updates or a share of them (--tune; not with few jets or tops). A
model pretrained on the same classes is tried at a tenth of these rates. If the best rate is at an end of the grid, the
grid is extended (--widen). All seeds are then evaluated on the test part. Runs are trained side by side (--jobs).
Complete runs are kept in --out, and the same command resumes from there. Built-in jets are made once and kept there
too: 3 GB for a million. With all Pythia jets, random weights are the runs of the table `pythia`, and its rows are
reused.

The constants of the built-in jets were fitted to Pythia jets of the training part alone, without the test jets of
`tops` (jets_fit.py): no fitted constant depends on a jet of a test part.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from jets_data import prepare, simulate
from jets_tasks import LONG, MODELS, ON_JETCLASS, STEPS, as_it_is, built_in, official, starts, work
from measure import KEPT, RESULTS, Row, record, renamed
from pool import Result, Task, beyond, origins, seeds_row, side_by_side
from sciformer.recipe import Recipe
from sciformer.run import Run


class Tuning:
    """Schedule: every rate with the first seed, then all seeds at the best validation rate."""

    def __init__(self, options: argparse.Namespace, part: str) -> None:
        self.options, self.part, self.results = options, part, dict[str, Result]()
        self.groups: dict[tuple[str, str, str], str] = {}
        self.known: list[Row] = []
        for size in options.sizes if part == "transfer" else ("all",):
            for model, way, start in starts(options, part):
                if part == "transfer" and (size, way) == ("all", "scratch") and not options.tiny:
                    ids = {f"transfer.all.{model}.scratch.accuracy": f"pythia10.{model}.accuracy"}
                    if there := renamed(RESULTS / "jets.json", ids):
                        self.known += there
                        continue
                self.groups[size, model, way] = start
        self.rates = options.rates[:1] if options.tiny else options.rates
        self.first = options.seeds[0]

    def tune(self, size: str) -> float:
        """Share of the updates used to choose the rate."""
        return float(self.options.tune) if size == "all" and self.part in ("pythia", "builtin", "transfer") else 1.0

    def task(self, group: tuple[str, str, str], rate: float, seed: int, share: float = 1.0) -> tuple[str, Task]:
        """Name and settings of a run, with a share of the updates."""
        size, model, way = group
        name = f"{self.part}-{size}-{model}-{way}-{rate:g}-{seed}" + (f"-{share:g}" if share < 1 else "")
        part = self.part
        if part == "pretrain":
            name = f"pretrained-{model}"
        elif part == "transfer" and (size, way) == ("all", "scratch"):  # the very runs of the table of models
            part, name = "pythia", name.replace("transfer", "pythia", 1)
        options = self.options
        made = {"name": name, "part": part, "size": size, "model": model, "way": way, "rate": rate, "seed": seed}
        made |= {key: getattr(options, key) for key in ("number", "epochs", "tiny", "compile", "device", "workers")}
        return name, made | {"start": self.groups[group], "out": str(options.out.resolve()), "share": share}

    def rates_of(self, group: tuple[str, str, str]) -> list[float]:
        """First rates to try; a tenth of them for a model pretrained on the same classes."""
        answers = self.part == "transfer" and group[2] in ("supervised", "official")
        return [rate / 10 for rate in self.rates] if answers else list(self.rates)

    def tasks(self) -> dict[str, Task]:
        """First runs of the schedule."""
        if self.part == "pretrain":  # at the rates that were best on the same data, or as given
            return dict(self.task(group, self.options.pretrain_rate, self.first) for group in self.groups)
        every = [(group, rate) for group in self.groups for rate in self.rates_of(group)]
        return dict(self.task(group, rate, self.first, self.tune(group[0])) for group, rate in every)

    def then(self, name: str, result: Result) -> Mapping[str, Task]:
        """Runs that follow from a result: the other seeds, when all rates are tried."""
        self.results[name] = result
        tune = self.tune(result["size"])
        if self.part == "pretrain" or result["seed"] != self.first or result.get("share", 1) != tune:
            return {}
        group = (result["size"], result["model"], result["way"])
        mine = self.grid(group)
        if len(mine) < len(self.rates):
            return {}
        if more := self.wider(group, mine):
            return dict([self.task(group, more, self.first, tune)])
        seeds = self.options.seeds if tune < 1 else self.options.seeds[1:]
        return dict(self.task(group, self.best(mine), seed) for seed in seeds)

    def of(self, group: tuple[str, str, str], share: float = 1.0) -> list[Result]:
        """Results of a model after a share of the updates."""
        keys = ("size", "model", "way")
        mine = [one for one in self.results.values() if tuple(one[key] for key in keys) == group]
        return [one for one in mine if one.get("share", 1) == share]

    def grid(self, group: tuple[str, str, str]) -> list[Result]:
        """Results that choose the rate."""
        return [one for one in self.of(group, self.tune(group[0])) if one["seed"] == self.first]

    def wider(self, group: tuple[str, str, str], found: list[Result]) -> float | None:
        """Next rate beyond the grid, if the best is at its end."""
        tried = {one["rate"]: one["valid"]["accuracy"] for one in found}
        return beyond(tried, self.rates_of(group), self.options.widen)

    @staticmethod
    def best(found: list[Result]) -> float:
        """Rate with the highest validation accuracy."""
        return float(max(found, key=lambda one: one["valid"]["accuracy"])["rate"])

    def rows(self) -> list[Row]:
        """Rows of all complete models."""
        made = list(self.known)
        for group in self.groups:
            grid = self.grid(group)
            if len(grid) < len(self.rates) or self.part == "pretrain" or self.wider(group, grid):
                continue
            rate = self.best(grid)
            mine = sorted((one for one in self.of(group) if one["rate"] == rate), key=lambda one: one["seed"])
            if len(mine) == len(self.options.seeds):
                made += self.rows_of(group, mine, grid)
        return made

    def rows_of(self, group: tuple[str, str, str], mine: list[Result], grid: list[Result]) -> list[Row]:
        """Rows of one model."""
        size, model, way = group
        about: dict[str, Any] = {key: mine[0][key] for key in ("rate", "parameters", "steps", "flops")}
        about |= {"training_s": [one["training_s"] for one in mine]}
        about |= {"grid": {f"{one['rate']:g}": round(one["valid"]["accuracy"], 5) for one in grid}}
        about |= {"tuned_on": self.tune(size), "rejections": self.rejections(mine)}
        if self.part in ("pythia", "builtin"):
            about |= {"published": ON_JETCLASS.get(model)}
            heads = {f"{self.part}10.{model}.{metric}": metric for metric in ("accuracy", "auc")}
        elif self.part == "transfer":
            heads = {f"transfer.{size}.{model}.{way}.accuracy": "accuracy"}
        else:
            heads = {f"toptag.{'pretrained' if way == 'supervised' else way}.rejection30": "rejection_30"}
            about |= {name: [round(one["test"][name], 5) for one in mine] for name in ("accuracy", "auc")}
        command = f"python benchmarks/jets.py {self.part}"
        if self.part == "builtin":
            command += f" --number {self.options.number} --epochs {self.options.epochs}"
        if self.tune(size) < 1:
            command += f" --tune {self.tune(size):g}"
        about |= origins(mine)
        device = "" if "hardware" in about else "cuda" if torch.cuda.is_available() else "cpu"
        rows = []
        for name, metric in heads.items():
            values = [one["test"][metric] for one in mine]
            unit = "1/eB" if metric.startswith("rejection") else "share"
            row = seeds_row(name, values, unit, "higher", command, device, **about)
            if unit == "1/eB":
                middle, bound = median(mine, metric)
                row |= {"value": middle, "bound": bound}
            rows.append(row)
        return rows

    @staticmethod
    def rejections(mine: list[Result]) -> dict[str, Any]:
        """Median rejections over seeds; lower bounds are marked."""
        names = [name for name in mine[0]["test"] if name.startswith("rejection")]
        return {name: dict(zip(("median", "bound"), median(mine, name))) for name in names}


def median(mine: list[Result], name: str) -> tuple[float, bool]:
    """Median over seeds (the lower one of an even number), and whether it is a lower bound.

    Among equal values, a bound counts as the larger.
    """
    found = sorted((one["test"][name], name in one["bounds"]) for one in mine)
    value, bound = found[(len(found) - 1) // 2]
    return round(value, 2), bound


def asis(options: argparse.Namespace) -> list[Row]:
    """Rows of pretrained models without further training."""
    found = []
    for model, way, start in starts(options, "transfer"):
        if way not in ("supervised", "official"):
            continue
        run = Run(start)
        value = as_it_is(run, options.out / "pythia" / ("train-100.parquet" if options.tiny else "test.parquet"))
        command = f"python benchmarks/jets.py pretrain asis --epochs {options.epochs}"
        name = f"transfer.0.{model}.{way}.accuracy"
        found.append(seeds_row(name, [value], "share", "higher", command, run.device.type))
        print(f"{name} {value:.4f}", flush=True)
    return found


def main() -> None:
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["pythia", "builtin", "pretrain", "transfer", "asis", "tops"])
    parser.add_argument("--pythia", type=Path, help="the Pythia jets")
    parser.add_argument("--weights", type=Path, help="published weights of ParticleNet, as initial weights")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument(
        "--sizes", type=lambda text: text.split(","), default=list(STEPS), help="labelled jets of transfer"
    )
    parser.add_argument("--number", type=int, default=1_000_000, help="built-in jets to train on")
    parser.add_argument("--epochs", type=int, default=2, help="epochs over the training samples")
    parser.add_argument("--rates", type=numbers(float), default=[5e-4, 1.5e-3, 5e-3, 1.5e-2])
    parser.add_argument("--widen", type=int, default=2, help="learning rates to try beyond each end of the grid")
    parser.add_argument("--tune", type=float, default=1.0, help="share of the updates used to choose the learning rate")
    parser.add_argument("--pretrain-rate", type=float, default=1.5e-3)
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time; 0: in this process")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare the batches of a run")
    parser.add_argument("--compile", action="store_true", help=f"compile trainings on {LONG:,} jets and more")
    parser.add_argument("--device", default="")
    parser.add_argument("--tiny", action="store_true", help="small test of the script, in seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/jets"))
    parser.add_argument("--results", type=Path, default=RESULTS / "jets.json")
    options = parser.parse_args()
    if options.pythia is not None:
        prepare(options.pythia, options.out / "pythia")
    official(options)  # now, for others may want it at the same time
    for part in options.parts:
        if part == "asis":
            record(options.results, asis(options))
            continue
        if part in ("builtin", "pretrain"):
            made = built_in(400 if options.tiny else options.number, str(options.out.resolve()))
            simulate(Recipe.load("jets/part", made).data, 2 * options.jobs)
        tuning = Tuning(options, part)
        alike = (lambda task: f"{task['model']}-{task['size']}-{task['share']}") if options.compile else None
        known = None if options.tiny else KEPT / "jets.json"
        results = side_by_side(work, tuning.tasks(), options.jobs, options.out / "results", tuning.then, alike, known)
        for name, result in results:
            scores = result["test"] if "test" in result else result["valid"]
            print(name, {key: round(value, 4) for key, value in scores.items()}, flush=True)
            record(options.results, tuning.rows())


if __name__ == "__main__":
    main()
