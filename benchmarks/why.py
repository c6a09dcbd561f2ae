"""Why attention? Figures on two tasks that ask for memory. `python benchmarks/why.py [recall] [pronouns] [draw]`

    recall     a symbol is asked for after 2 to 512 symbols of noise: accuracy, and the gradient that reaches it, of
               an RNN, a GRU, an LSTM, an RNN with attention and a Transformer
    pronouns   «it» becomes er, sie or es by a noun 0 to 39 words away: accuracy by distance of an LSTM encoder-decoder,
               the same with attention, and a Transformer
    draw       the pictures alone, from the results

Every model has the same data, steps and batches, and is tuned over the same learning rates (--rates) on the validation
part. Runs are trained side by side (--jobs); what is done is kept in --out, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, ROOT, Row, record
from memory import look_at_pronoun, pronoun_answers, reach, written_pronouns
from pictures import draw_attention, draw_memory, draw_pronouns
from pool import Result, Task, best_rate, seeds_row, side_by_side
from sciformer.assembly import Assembly
from sciformer.recipe import Recipe
from sciformer.run import train

MODELS = {
    "recall": ("rnn", "gru", "lstm", "attention", "transformer"),
    "pronouns": ("lstm", "attention", "transformer"),
}
LAGS = (2, 8, 32, 128, 512)
RATES = {"recall": (1e-3, 3e-3, 1e-2), "pronouns": (1e-3, 3e-3)}
# What is many small steps one after the other is no faster on a GPU than on a core, of which there are many.
ON_CPU = {"recall": ("rnn", "lstm", "attention"), "pronouns": ("lstm",)}
TINY = {
    "recall": {"data.number": 400, "model.dim": 16, "train.steps": 20, "train.warmup": 2, "train.evaluate_every": 10},
    "pronouns": {"data.number": 300, "data.farthest": 6, "model.dim": 16, "train.steps": 6, "train.warmup": 2},
}


def changes_of(task: Task) -> dict[str, Any]:
    """What differs from the recipe."""
    changes = {"train.rate": task["rate"], "train.seed": task["seed"], "train.device": task["device"]}
    changes |= {"train.compile": False, "train.log_every": 100}  # compiling takes longer than these runs
    if task["part"] == "recall":
        changes["data.lag"] = task["lag"]
    if task["steps"]:
        changes |= {"train.steps": task["steps"], "train.evaluate_every": max(1, task["steps"] // 4)}
    return changes | (TINY[task["part"]] if task["tiny"] else {})


def work(task: Task) -> Result:
    """Train one model, judge it, and look into it."""
    torch.set_num_threads(1)
    recipe = Recipe.load(f"text/{task['part']}-{task['model']}", changes_of(task))
    run = train(recipe, task["folder"], fresh=True, show=False, report=False)
    found: Result = {key: task[key] for key in ("part", "model", "lag", "rate", "seed")}
    found |= {"valid": run.scores, "parameters": run.about["parameters"], "seconds": round(run.about["seconds"], 1)}
    found |= {"steps": recipe.train.total(1), "batch": recipe.train.batch, "device": task["device"]}
    data = run.data()
    if task["part"] == "recall":
        found |= {"symbols": recipe.data.symbols, "test": run.evaluate("test").scores["accuracy"]}
        found |= {"before": reach(Assembly.open(recipe).network(), data), "after": reach(run.model, data)}
    else:
        right, distance = pronoun_answers(run, data)
        found |= {"test": float(right.mean()), "by_distance": _by(distance, right)}
        found["valid"]["pronoun"] = float(pronoun_answers(run, data, "valid")[0].mean())
        found |= written_pronouns(run, data, 28 if task["tiny"] else 700)
        if task["model"] != "lstm":
            found |= {"attention": look_at_pronoun(run)}
    shutil.rmtree(run.path)
    return found


def _by(distance: Any, right: Any) -> dict[str, float]:
    return {str(d): round(float(right[distance == d].mean()), 5) for d in np.unique(distance)}


def tasks_of(part: str, options: argparse.Namespace) -> dict[str, Task]:
    """All runs of a part by name, the longest first."""
    lags = (options.lags if part == "recall" else [0])[::-1]
    rates = options.rates or RATES[part]
    steps = options.steps
    tasks = {}
    for lag in lags:
        for model in MODELS[part]:
            for rate in rates:
                for seed in options.seeds if part == "pronouns" else options.seeds[: options.recall_seeds]:
                    name = f"{part}-{model}-{f'{lag}-' if part == 'recall' else ''}{rate:g}-{seed}"
                    device = options.device
                    if device == "auto":
                        device = "cuda" if torch.cuda.is_available() and model not in ON_CPU[part] else "cpu"
                    tasks[name] = {"part": part, "model": model, "lag": lag, "rate": rate, "seed": seed}
                    tasks[name] |= {"device": device, "steps": steps, "tiny": options.tiny}
                    tasks[name] |= {"folder": str(options.out / "runs" / name)}
    return tasks


def _group(task: Task) -> tuple[Any, ...]:
    """What makes one row: the same model on the same task."""
    return task["part"], task["model"], task["lag"]


def recall_rows(found: list[Result]) -> list[Row]:
    """A row for each model and lag, at the learning rate that was best in validation."""
    rows = []
    for model in MODELS["recall"]:
        for lag in sorted({one["lag"] for one in found}):
            mine = [
                one | {"score": one["valid"]["loss"]} for one in found if (one["model"], one["lag"]) == (model, lag)
            ]
            if not mine:
                continue
            rate = best_rate(mine, "score", lower=True)
            best = sorted((one for one in mine if one["rate"] == rate), key=lambda one: one["seed"])
            gradient = {
                f"gradient_{when}": float(np.exp(np.mean([np.log(max(one[when], 1e-300)) for one in best])))
                for when in ("before", "after")
            }
            more = {"lag": lag, "chance": round(1 / best[0]["symbols"], 4), "rate": rate, **gradient, **_about(best)}
            more["grid"] = {f"{one['rate']:g}/{one['seed']}": round(one["test"], 4) for one in mine}
            rows.append(_row(f"memory.{model}.{lag}.accuracy", [one["test"] for one in best], "recall", best, **more))
    return rows


def pronoun_rows(found: list[Result]) -> list[Row]:
    """A row for each model, and one for each model and distance."""
    rows = []
    for model in MODELS["pronouns"]:
        mine = [one | {"score": one["valid"]["loss"]} for one in found if one["model"] == model]
        if not mine:
            continue
        rate = best_rate(mine, "score", lower=True)
        best = sorted((one for one in mine if one["rate"] == rate), key=lambda one: one["seed"])
        more: dict[str, Any] = {"chance": round(1 / 3, 4), "rate": rate, **_about(best)}
        more |= {key: [one[key] for one in best] for key in ("written", "whole")}
        if "attention" in best[0]:
            more["attention"] = best[0]["attention"]
        rows.append(_row(f"pronoun.{model}.accuracy", [one["test"] for one in best], "pronouns", best, **more))
        for distance in sorted(best[0]["by_distance"], key=int):
            values = [one["by_distance"][distance] for one in best]
            rows.append(_row(f"pronoun.{model}.{distance}.accuracy", values, "pronouns", best, distance=int(distance)))
    return rows


def _about(best: list[Result]) -> dict[str, Any]:
    about = {key: best[0][key] for key in ("parameters", "steps", "batch")}
    return about | {"training_s": [one["seconds"] for one in best]}


def _row(name: str, values: list[float], part: str, best: list[Result], **more: Any) -> Row:
    command = f"python benchmarks/why.py {part}"
    return seeds_row(name, values, "share", "higher", command, best[0]["device"], **more)


def draw(results: Path, pictures: Path) -> list[Path]:
    """The pictures of what the results hold."""
    rows = {row["id"]: row for row in json.loads(results.read_text())}
    pictures.mkdir(parents=True, exist_ok=True)
    made = []
    for name, drawn in (("memory", draw_memory), ("pronouns", draw_pronouns), ("pronoun-attention", draw_attention)):
        figure = drawn(rows)
        if figure is not None:
            made.append(pictures / f"{name}.png")
            figure.savefig(made[-1], metadata={"Software": None})
    return made


def main(arguments: list[str] | None = None) -> None:
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["recall", "pronouns", "draw", []], help="both unless given")
    parser.add_argument("--jobs", type=int, default=12, help="runs at a time; 0: in this process")
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--recall-seeds", type=int, default=1, help="how many of the seeds for recall")
    parser.add_argument("--rates", type=numbers(float), default=[], help="learning rates to tune over")
    parser.add_argument("--lags", type=numbers(int), default=list(LAGS))
    parser.add_argument("--steps", type=int, default=0, help="instead of those of the recipes")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--tiny", action="store_true", help="a version of seconds, to try the script")
    parser.add_argument("--out", type=Path, default=Path("runs/why"))
    parser.add_argument("--results", type=Path, default=RESULTS / "text-why.json")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args(arguments)
    began, rows_of = time.time(), {"recall": recall_rows, "pronouns": pronoun_rows}
    parts = [part for part in options.parts or rows_of if part != "draw"]
    # Both parts share the processes: what is left of one fills the gaps of the other.
    tasks = {name: task for part in parts[::-1] for name, task in tasks_of(part, options).items()}
    found: dict[str, list[Result]] = {part: [] for part in parts}
    left = Counter(_group(task) for task in tasks.values())
    for name, result in side_by_side(work, tasks, options.jobs, options.out):
        part, group = result["part"], _group(tasks[name])
        found[part].append(result)
        left[group] -= 1
        if not left[group]:  # a row is written when all runs that it may be chosen from are there
            record(options.results, rows_of[part]([one for one in found[part] if _group(one) == group]))
    for part in parts:
        record(options.results, rows_of[part](found[part]))
    for row in [row for part in parts for row in rows_of[part](found[part])]:
        print(f"{row['id']:36} {row['value']:.4f} ± {row['spread']}  rate {row.get('rate', '')}")
    for path in draw(options.results, options.pictures):
        print(f"wrote {path}")
    print(f"{time.time() - began:.0f} s; {len(tasks)} runs; wrote {options.results}")


if __name__ == "__main__":
    main()
