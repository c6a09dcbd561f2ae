"""Captions of simulated scenes with one thing: the share of exact captions, on one CPU core.

    python benchmarks/captions.py --seed 0 --out /tmp/captions
    python benchmarks/captions.py --collect /tmp/captions

Each seed is a training of `images/caption-transformer` with a narrower model on pictures of one thing, and a JSON file
in the folder. `--collect` writes the rows. Chance is the share of the most frequent caption of the training part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, spread, versions
from sciformer.data.source import pieces
from sciformer.recipe import Recipe
from sciformer.run import train

NAME = "images/caption-transformer"
CHANGES: dict[str, Any] = {"data.things": [1, 1], "data.number": 20_000, "data.valid": 200, "data.test": 500}
CHANGES |= {"model.dim": 64, "model.depth": 2, "train.steps": 1200, "train.batch": 64, "train.learning_rate": 2e-3}
CHANGES |= {"train.warmup": 20, "train.evaluate_every": 600, "train.device": "cpu"}


def one(seed: int, out: Path) -> None:
    """Train and evaluate one seed; write its scores."""
    torch.set_num_threads(1)
    began = time.process_time()
    run = train(Recipe.load(NAME, CHANGES | {"train.seed": seed}), out / str(seed), report=False)
    seconds = time.process_time() - began
    captions = Counter(
        str(caption) for table in pieces(run.data().dataset("train").source) for caption in np.asarray(table["caption"])
    )
    found: dict[str, Any] = {part: run.evaluate(part).scores["exact_match"] for part in ("test", "unseen")}
    found |= {"cpu_s": seconds, "chance": captions.most_common(1)[0][1] / captions.total(), "captions": len(captions)}
    (out / f"{seed}.json").write_text(json.dumps(found))
    print(json.dumps(found))


def collect(folder: Path, out: Path) -> None:
    """Write the rows of all seeds in a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows: list[Row] = []
    for part, name in (("test", "exact"), ("unseen", "exact_unseen")):
        values = [seed[part] for seed in found]
        row: Row = {"id": f"captions.transformer.one.{name}", "value": round(statistics.mean(values), 4)}
        row |= {"better": "higher", "unit": "share of captions", "spread": [round(x, 4) for x in spread(values)]}
        row |= {"seeds": len(found), "command": "python benchmarks/captions.py --seed SEED --out FOLDER"}
        row |= {"hardware": hardware("cpu"), "versions": versions(), "commit": commit()}
        row |= {"cpu_s": round(statistics.mean(seed["cpu_s"] for seed in found)), "scenes": 500}
        rows.append(row | {"chance": round(found[0]["chance"], 4), "captions": found[0]["captions"]})
        print(row["id"], row["value"], row["spread"])
    record(out, rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, help="train and evaluate this seed")
    options.add_argument("--out", type=Path, help="folder of the runs")
    options.add_argument("--collect", type=Path, help="write the rows of the seeds in this folder")
    options.add_argument("--results", type=Path, default=RESULTS / "captions.json")
    chosen = options.parse_args()
    if chosen.seed is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        one(chosen.seed, chosen.out)
    if chosen.collect:
        collect(chosen.collect, chosen.results)


if __name__ == "__main__":
    main()
