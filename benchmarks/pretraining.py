"""Benefit of pretraining. `python benchmarks/pretraining.py --wikitext FOLDER --polarity FOLDER --wnut FOLDER`

BERT-small (text/bert) is pretrained on WikiText-2 and the text of the training part of sentence polarity, without its
labels. It is then fine-tuned on 100, 1,000 and all labels, against the same model from random weights (with the same
vocabulary), a bag of words, a bidirectional LSTM and a CNN; and on WNUT-17 tags. Each model at each size takes the
learning rate of its grid with the best accuracy (or F1 of entities) on the validation part with seed 0. Three seeds are
then evaluated on the test part. The pretraining itself has one seed.

    --part pretrain   the pretraining alone, into --out; the other parts read it from there
    --part polarity   sentence polarity
    --part wnut       tags
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from measure import RESULTS, Row, record
from pool import Result, Task, seeds_row, side_by_side
from sciformer.data.source import pieces
from sciformer.recipe import Recipe
from sciformer.run import Run, train

RATES = {
    "pretrained": [2e-5, 5e-5, 1e-4, 2e-4],
    "scratch": [2e-5, 5e-5, 1e-4, 2e-4],
    "bow": [1e-3, 2e-3, 4e-3],
    "bilstm": [5e-4, 1e-3, 2e-3],
    "cnn": [5e-4, 1e-3, 2e-3],
}
TAGGING = {"bilstm": [1e-3, 2e-3, 5e-3, 1e-2]}  # other rates for tags
LABELS: dict[str, int | None] = {"100": 50, "1000": 500, "all": None}  # of each class
TINY = {"model.dim": 32, "model.heads": 2, "model.depth": 1, "train.steps": 4, "train.warmup": 1}
TINY |= {"train.evaluate_every": 2, "train.batch": 4}
QUICK = {"train.compile": False}  # a compilation takes longer than these trainings
ANCHORS = {"cnn": 76.1}  # CNN-rand on ten folds (arXiv 1408.5882)


def found(folder: Path, pattern: str) -> str:
    """The only file of a folder that matches a pattern."""
    (only,) = folder.glob(pattern)
    return str(only)


def polarity(folder: Path) -> dict[str, Any]:
    """Data section: 80 / 10 / 10, split with the reader's default seed."""
    classes = {name: [found(folder, f"*{name}*")] for name in ("neg", "pos")}
    return {"data.classes": classes, "data.split": {"valid": 0.1, "test": 0.1}}


def conll(folder: Path) -> dict[str, Any]:
    keys = {"data.files": "train", "data.valid": "dev", "data.test": "test"}
    return {key: [found(folder, f"{part}.conll*")] for key, part in keys.items()}


def pretrain(options: argparse.Namespace) -> Run:
    """Pretrain BERT on plain text, unless the run is complete."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    plain = out / "polarity-train.txt"
    sources = Recipe.load("text/sentiment-bow", polarity(options.polarity)).data.open().sources
    texts = [str(text) for table in pieces(sources["train"]) for text in table["text"]]  # type: ignore[union-attr]
    plain.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    changes: dict[str, Any] = {"data.files": [found(options.wikitext, "train.txt*"), str(plain)]}
    if options.steps:
        changes["train.steps"] = options.steps
    if options.tiny:
        changes |= TINY | {"train.tokens": 256, "tokens.vocabulary": 1000}
    run = train(Recipe.load("text/bert", changes), out / "bert", report=False)
    run.assembly.tokens["tokens"].save(out / "tokenizer.json")  # type: ignore[attr-defined]
    return run


def work(task: Task) -> Result:
    """Train and evaluate one model."""
    torch.set_num_threads(1)
    began = time.monotonic()
    tiny = {k: v for k, v in TINY.items() if task["recipe"] not in STARTED or not k.startswith("model")}
    changes = QUICK | task["changes"] | (tiny if task["tiny"] else {})
    path = Path(task["out"]) / "runs" / task["name"]
    run = train(Recipe.load(task["recipe"], changes), path, report=False, show=False)
    scores = run.evaluate("test").scores
    return {
        "rate": run.recipe.train.learning_rate,
        "valid": run.scores,
        "test": scores,
        "parameters": run.about["parameters"],
        "seconds": time.monotonic() - began,
    }


STARTED = ("text/sentiment", "text/tagging")


def task(options: argparse.Namespace, family: str, rival: str, size: str, rate: float, seed: int) -> dict[str, Task]:
    """Name and settings of a training."""
    out = options.out.resolve()
    if family == "polarity":
        recipe = "text/sentiment" + ("" if rival == "pretrained" else f"-{rival}")
        changes = polarity(options.polarity) | {"data.labels_per_class": LABELS[size]}
        if rival == "scratch":
            changes |= {
                "tokens.tokenizer": str(out / "tokenizer.json"),
                "tokens.lower": False,
                "tokens.unicode_form": "none",
            }
    else:
        recipe = "text/tagging" if rival == "pretrained" else "text/tagging-bilstm"
        changes = conll(options.wnut)
    if rival == "pretrained":
        changes["train.init_from"] = str(out / "bert")
    changes |= {"train.learning_rate": rate, "train.seed": seed}
    name = f"{family}-{size}-{rival}-{rate:g}-{seed}"
    made = {"recipe": recipe, "changes": changes, "tiny": options.tiny, "out": str(out), "name": name}
    return {name: made | {"family": family, "rival": rival, "size": size, "rate": rate, "seed": seed}}


def measure(options: argparse.Namespace, family: str, rivals: list[str], sizes: list[str], metric: str) -> list[Row]:
    """Measure every model at every size: the grid with seed 0, then the other seeds."""
    grids = RATES | (TAGGING if family == "wnut" else {})
    rates = {rival: grids[rival][: 1 if options.tiny else None] for rival in rivals}
    first: dict[str, Task] = {}
    for size in sizes:
        for rival in rivals:
            for rate in rates[rival]:
                first |= task(options, family, rival, size, rate, 0)
    tasks = dict(first)
    grid: dict[tuple[str, str], list[Result]] = {}
    chosen: dict[tuple[str, str], float] = {}
    results: dict[str, Result] = {}

    def then(name: str, result: Result) -> Mapping[str, Task]:
        """Other seeds of a model, when its grid is complete."""
        about = tasks[name]
        key = (about["size"], about["rival"])
        if about["seed"]:
            return {}
        grid.setdefault(key, []).append(result)
        if len(grid[key]) < len(rates[about["rival"]]):
            return {}
        chosen[key] = float(max(grid[key], key=lambda one: one["valid"][metric])["rate"])
        more: dict[str, Task] = {}
        for seed in options.seeds[1:]:
            more |= task(options, family, about["rival"], about["size"], chosen[key], seed)
        tasks.update(more)
        return more

    for name, result in side_by_side(work, first, options.jobs, options.out / "results", then):
        results[name] = result
    rows = []
    for (size, rival), rate in chosen.items():
        mine = [results[name] for name, about in tasks.items() if name in results and _same(about, size, rival, rate)]
        middle = f"polarity.{size}.{rival}.accuracy" if family == "polarity" else f"wnut17.{rival}.f1"
        name = "wnut17.f1" if middle == "wnut17.pretrained.f1" else middle
        percent = [100 * one["test"][metric] for one in mine]
        about = {"rate": rate, "parameters": mine[0]["parameters"], "training_s": [round(o["seconds"]) for o in mine]}
        command = "python benchmarks/pretraining.py --wikitext wikitext2 --polarity polarity --wnut wnut17"
        device = "cuda" if torch.cuda.is_available() else "cpu"
        rows.append(seeds_row(name, percent, "%", "higher", command, device, **about))
    return rows


def _same(about: Task, size: str, rival: str, rate: float) -> bool:
    return (about["size"], about["rival"]) == (size, rival) and about["rate"] == rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["pretrain", "polarity", "wnut", "all"], default="all")
    for name in ("wikitext", "polarity", "wnut"):
        parser.add_argument(f"--{name}", type=Path, required=True, help="folder of the data")
    parser.add_argument("--out", type=Path, default=Path("runs/pretraining"))
    parser.add_argument("--results", type=Path, default=RESULTS / "text-pretraining.json")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--rivals", type=lambda text: text.split(","), default=list(RATES))
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--steps", type=int, help="updates of the pretraining")
    parser.add_argument("--tiny", action="store_true", help="small test of the script")
    options = parser.parse_args()
    if options.part in ("pretrain", "all"):
        pretrain(options)
    if options.part in ("polarity", "all"):
        sizes = list(LABELS) if not options.tiny else ["100"]
        record(options.results, measure(options, "polarity", options.rivals, sizes, "accuracy"))
    if options.part in ("wnut", "all"):
        rivals = [rival for rival in ("pretrained", "bilstm") if rival in options.rivals]
        record(options.results, measure(options, "wnut", rivals, ["all"], "entity_f1"))


if __name__ == "__main__":
    main()
