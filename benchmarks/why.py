"""Benefit of attention on two tasks that need memory. `python benchmarks/why.py [recall] [pronouns] [draw]`

    recall     recall of a symbol after 2 to 512 symbols of noise: accuracy, and gradient at the symbol, of an RNN, a
               GRU, an LSTM, an RNN with attention and a Transformer
    pronouns   translation of «it» to er, sie or es by a noun 0 to 39 words away: accuracy by distance of an LSTM
               encoder-decoder, the same with attention, and a Transformer; after the right German words, and in the
               model's own translation
    draw       the figures alone, from the results

All models use the same data, steps and batches. Each takes the learning rate of a common grid (--rates) with the best
validation loss of the first seed. Runs are trained side by side (--jobs). Complete runs are kept in --out, and the same
command resumes from there.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from measure import RESULTS, ROOT, Row, record
from memory import by_distance, look_at_pronoun, pronoun_answers, reach, written_pronouns
from pictures import STYLE, draw_attention, draw_memory, draw_pronouns
from pool import Result, Task, best_rate, seeds_row, side_by_side
from sciformer.assembly import Assembly
from sciformer.errors import UserError
from sciformer.recipe import Recipe
from sciformer.run import train

MODELS = {
    "recall": ("rnn", "gru", "lstm", "attention", "transformer"),
    "pronouns": ("lstm", "attention", "transformer"),
}
LAGS = (2, 8, 32, 128, 512)
RATES = {"recall": [1e-3, 3e-3, 1e-2], "pronouns": [1e-3, 3e-3, 1e-2]}
# Many small steps one after the other are no faster on a GPU than on a core, of which there are many: (model, lag)
# of recall that stay on the CPU.
ON_CPU = {(model, lag) for model in ("rnn", "attention", "lstm") for lag in LAGS} - {("lstm", 512)}
TINY = {
    "recall": {"data.number": 400, "model.dim": 16, "train.steps": 20, "train.warmup": 2, "train.evaluate_every": 10},
    "pronouns": {"data.number": 300, "data.farthest": 6, "model.dim": 16, "train.steps": 6, "train.warmup": 2},
}


def changes_of(task: Task) -> dict[str, Any]:
    """Changes of the recipe for a run."""
    changes = {"train.learning_rate": task["rate"], "train.seed": task["seed"], "train.device": task["device"]}
    changes |= {"train.compile": False, "train.log_every": 100}  # compiling takes longer than these runs
    changes |= {"train.precision": "float32"}
    if task["part"] == "recall":
        changes["data.lag"] = task["lag"]
    if task["steps"]:
        changes |= {"train.steps": task["steps"], "train.evaluate_every": max(1, task["steps"] // 4)}
    return changes | (TINY[task["part"]] if task["tiny"] else {})


def work(task: Task) -> Result:
    """Train, evaluate and inspect one model."""
    torch.set_num_threads(1)
    recipe = Recipe.load(f"text/{task['part']}-{task['model']}", changes_of(task))
    found: Result = {key: task[key] for key in ("part", "model", "lag", "rate", "seed")}
    try:
        run = train(recipe, task["folder"], fresh=True, show=False, report=False)
    except UserError as error:  # a rate at which it diverges is not the best one
        return found | {"error": str(error), "valid": {"loss": math.inf}}
    found |= {"valid": run.scores, "parameters": run.about["parameters"], "seconds": round(run.about["seconds"], 1)}
    found |= {"steps": recipe.train.total(1), "batch": recipe.train.batch, "device": task["device"]}
    data = run.data()
    if task["part"] == "recall":
        found |= {"symbols": recipe.data.symbols, "test": run.evaluate("test").scores["accuracy"]}
        found |= {"before": reach(Assembly.open(recipe).network(), data), "after": reach(run.model, data)}
    else:
        right, distance = pronoun_answers(run, data)
        found |= {"test": float(right.mean()), "by_distance": by_distance(distance, right)}
        found["valid"]["pronoun"] = float(pronoun_answers(run, data, "valid")[0].mean())
        found |= written_pronouns(run, data, 28 if task["tiny"] else 700)
        if task["model"] != "lstm":
            found |= {"attention": look_at_pronoun(run)}
    shutil.rmtree(run.path)
    return found


class Tuning:
    """Schedule of the runs.

    First every model at every learning rate with the first seed, then the other seeds at the best validation rate.
    """

    def __init__(self, options: argparse.Namespace, parts: list[str]) -> None:
        self.options, self.found = options, defaultdict[tuple[Any, ...], list[Result]](list)
        self.seeds = {"recall": options.seeds[: options.recall_seeds], "pronouns": options.seeds}
        self.rates = {part: options.rates or RATES[part] for part in RATES}
        groups = [(part, model, lag) for part in parts for lag in self.lags(part) for model in MODELS[part]]
        groups.sort(key=lambda group: -group[2] if group[0] == "recall" else -100)  # the longest first
        runs = [(group, rate) for group in groups for rate in self.rates[group[0]]]
        self.tasks = dict(self.task(*group, rate, self.seeds[group[0]][0]) for group, rate in runs)

    def lags(self, part: str) -> list[int]:
        return list(self.options.lags) if part == "recall" else [0]

    def task(self, part: str, model: str, lag: int, rate: float, seed: int) -> tuple[str, Task]:
        """Name and settings of a run."""
        name = f"{part}-{model}-{lag}-{rate:g}-{seed}"
        device = self.options.device
        if device == "auto":
            small = part == "recall" and (model, lag) in ON_CPU
            device = "cuda" if torch.cuda.is_available() and not small else "cpu"
        task = {"part": part, "model": model, "lag": lag, "rate": rate, "seed": seed, "device": device}
        task |= {"steps": self.options.steps, "tiny": self.options.tiny}
        return name, task | {"folder": str(self.options.out / "runs" / name)}

    def then(self, name: str, result: Result) -> dict[str, Task]:
        """Other seeds at the best learning rate, when all rates are tried."""
        group, part = (result["part"], result["model"], result["lag"]), result["part"]
        self.found[group].append(result)
        first, *others = self.seeds[part]
        if result["seed"] == first and len(self.found[group]) == len(self.rates[part]):
            return dict(self.task(*group, best_rate(self.found[group]), seed) for seed in others)
        return {}

    def whole(self, result: Result) -> list[Result]:
        """All runs of a result's model on its task; empty until all are complete."""
        part = result["part"]
        mine = self.found[part, result["model"], result["lag"]]
        return mine if len(mine) == len(self.rates[part]) + len(self.seeds[part]) - 1 else []


def chosen(found: list[Result]) -> list[Result]:
    """Runs at the learning rate with the best validation loss of the first seed."""
    first = min(one["seed"] for one in found)
    rate = best_rate([one for one in found if one["seed"] == first])
    return sorted((one for one in found if one["rate"] == rate), key=lambda one: one["seed"])


def rows_of(found: list[Result]) -> list[Row]:
    """Rows of one model on one task."""
    best = [one for one in chosen(found) if "error" not in one]
    if not best:
        return []
    part, model, more = best[0]["part"], best[0]["model"], _about(best)
    values = [one["test"] for one in best]
    more["grid"] = {f"{one['rate']:g}": one["valid"]["loss"] for one in found if one["seed"] == best[0]["seed"]}
    if part == "recall":
        more |= {"lag": best[0]["lag"], "chance": round(1 / best[0]["symbols"], 4)}
        for when in ("before", "after"):
            more[f"gradient_{when}"] = float(np.exp(np.mean([np.log(max(one[when], 1e-300)) for one in best])))
        return [_row(f"memory.{model}.{best[0]['lag']}.accuracy", values, part, best, **more)]
    more |= {"chance": round(1 / 3, 4), **{key: [one[key] for one in best] for key in ("written", "whole")}}
    if "attention" in best[0]:
        more["attention"] = best[0]["attention"]
    rows = [_row(f"pronoun.{model}.accuracy", values, part, best, **more)]
    for distance in sorted(best[0]["by_distance"], key=int):
        values = [one["by_distance"][distance] for one in best]
        written = [one["written_by_distance"].get(distance) for one in best]
        more = {"distance": int(distance), "written": written}
        rows.append(_row(f"pronoun.{model}.{distance}.accuracy", values, part, best, **more))
    return rows


def _about(best: list[Result]) -> dict[str, Any]:
    about = {key: best[0][key] for key in ("rate", "parameters", "steps", "batch")}
    return about | {"training_s": [one["seconds"] for one in best]}


def _row(name: str, values: list[float], part: str, best: list[Result], **more: Any) -> Row:
    command = f"python benchmarks/why.py {part}"
    return seeds_row(name, values, "share", "higher", command, best[0]["device"], **more)


def draw(results: Path, pictures: Path) -> list[Path]:
    """Draw the figures of all results."""
    rows = {row["id"]: row for row in json.loads(results.read_text())}
    pictures.mkdir(parents=True, exist_ok=True)
    made = []
    for name, drawn in (("memory", draw_memory), ("pronouns", draw_pronouns), ("pronoun-attention", draw_attention)):
        with matplotlib.rc_context(STYLE):
            figure = drawn(rows)
            if figure is not None:
                made.append(pictures / f"{name}.png")
                figure.savefig(made[-1], metadata={"Software": None})
    return made


def main(arguments: list[str] | None = None) -> None:
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", choices=["recall", "pronouns", "draw", []], help="parts to run (default: both)"
    )
    parser.add_argument("--jobs", type=int, default=12, help="runs at a time; 0: in this process")
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--recall-seeds", type=int, default=1, help="number of seeds for recall")
    parser.add_argument("--rates", type=numbers(float), default=[], help="learning rates to tune over")
    parser.add_argument("--lags", type=numbers(int), default=list(LAGS))
    parser.add_argument("--steps", type=int, default=0, help="number of updates (default: that of the recipe)")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--tiny", action="store_true", help="small test of the script, in seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/why"))
    parser.add_argument("--results", type=Path, default=RESULTS / "text-why.json")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args(arguments)
    began = time.time()
    tuning = Tuning(options, [part for part in options.parts or MODELS if part != "draw"])
    for _, result in side_by_side(work, tuning.tasks, options.jobs, options.out, tuning.then):
        rows = rows_of(tuning.whole(result)) if tuning.whole(result) else []
        record(options.results, rows)
        for row in rows:
            print(f"{row['id']:36} {row['value']:.4f} ± {row['spread']}  rate {row.get('rate', '')}", flush=True)
    for path in draw(options.results, options.pictures):
        print(f"wrote {path}")
    count = sum(len(runs) for runs in tuning.found.values())
    print(f"{time.time() - began:.0f} s; {count} runs; wrote {options.results}")


if __name__ == "__main__":
    main()
