"""Effect of valid tags on a tagger. `python benchmarks/tagging.py --wnut FOLDER`

Each seed of text/tagging-bilstm is trained on WNUT-17 (train.conll.gz, dev.conll.gz, test.conll.gz of the folder). Its
test part is evaluated twice: with the most probable tag of every word, and with the most probable valid sequence of
tags (objective.constrained). `broken` is the share of sentences with tags that are not valid.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import torch

from measure import RESULTS, record
from pool import seeds_row
from sciformer.evaluation.evaluate import evaluate
from sciformer.metrics.text import marks_entity, split_tag
from sciformer.recipe import Recipe
from sciformer.run import Run, train

COMMAND = "python benchmarks/tagging.py"
SCORES = {"f1": "entity_f1", "precision": "entity_precision", "recall": "entity_recall"}


def scores(run: Run, constrained: bool) -> dict[str, float]:
    """Scores on the test part, and the share of sentences with tags that are not valid."""
    opened = run.data()
    old = opened.objective
    opened.objective = old.model_copy(update={"constrained": constrained})
    opened.objective.state.update(old.state)
    run.step.objective = opened.objective
    found = evaluate(run.step, opened, opened.dataset("test"), device=run.device)
    broken = [breaks_order(tags.tolist()) for tags in found.outputs["tags"]]
    return {name: found.scores[score] for name, score in SCORES.items()} | {"broken": sum(broken) / len(broken)}


def breaks_order(tags: list[str]) -> bool:
    """Whether an `I-` follows `O` or another type."""
    assert all(map(marks_entity, tags))
    pairs = [("O", ""), *map(split_tag, tags)]
    return any(new == "I" and (old == "O" or before != kind) for (old, before), (new, kind) in pairwise(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wnut", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=0, help="another number, to try the script; nothing is recorded")
    parser.add_argument("--out", type=Path, default=Path("runs/tagging"))
    parser.add_argument("--results", type=Path, default=RESULTS / "text-tagging.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = {part: [str(options.wnut / f"{name}.conll.gz")] for part, name in PARTS.items()}
    changes = {f"data.{key}": value for key, value in files.items()} | {"train.device": "cpu"}
    if options.steps:
        changes |= {"train.steps": options.steps, "train.evaluate_every": options.steps}
    found: dict[str, dict[str, list[float]]] = {"words": {}, "valid": {}}
    for seed in options.seeds:
        folder = options.out / str(seed)
        recipe = Recipe.load("text/tagging-bilstm", {**changes, "train.seed": seed})
        run = train(recipe, folder, show=False, report=False)
        for name, constrained in (("words", False), ("valid", True)):
            for score, value in scores(run, constrained).items():
                found[name].setdefault(score, []).append(100 * float(value))
        print(seed, {name: {score: round(one[-1], 2) for score, one in some.items()} for name, some in found.items()})
    rows = [
        seeds_row(f"wnut17_tags.{name}.{score}", values, "%", better(score), COMMAND, "cpu")
        for name, some in found.items()
        for score, values in some.items()
    ]
    if not options.steps:
        record(options.results, rows)
    for row in rows:
        print(f"{row['id']:32} {row['value']:.2f} % ± {row['spread']}", flush=True)


PARTS = {"files": "train", "valid": "dev", "test": "test"}


def better(score: str) -> str:
    """Direction in which a score improves."""
    return "lower" if score == "broken" else "higher"


if __name__ == "__main__":
    main()
