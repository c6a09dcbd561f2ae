"""Types of supernovae from the image of the host, the light curve, the host magnitude, and all of them.

    python benchmarks/multistream.py --record

The same small transformer, the same steps and the same transients for each; in the training of `all`, the image and the
magnitude are missing at random. `no_image` is the model `all`, tested without any image. One core, a few minutes for
each of the seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, spread, versions
from sciformer.data.columns import Samples
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.lightcurves.simulate.transients import Transients
from sciformer.recipe import Recipe
from sciformer.run import train

STREAMS = {"image": ["image"], "curve": ["curve"], "scalars": ["host"], "all": ["image", "curve", "host"]}
MISSING = 0.2  # in the training with all streams
TEST = 1000


def recipe(name: str, seed: int, number: int, steps: int) -> Recipe:
    """Recipe with the streams of a row."""
    base = Recipe.load("lightcurves/transient-multistream").to_dict()
    kept = {stream: base["tokens"][stream] for stream in STREAMS[name]}
    model: dict[str, Any] = {"dim": 48, "depth": 2, "heads": 4, "mlp_ratio": 2, "pool": "class_token", "dropout": 0.1}
    if len(kept) > 1:
        model |= {"kind": "multistream", "host": {"position": "none"}}
    else:
        model |= {"kind": "encoder"}
    missing = MISSING if len(kept) > 1 else 0.0
    data = {"kind": "transients", "number": number, "valid": 200, "test": 0, "seed": seed, "missing": missing}
    loop: dict[str, Any] = {
        "steps": steps,
        "batch": 32,
        "warmup": 50,
        "learning_rate": 2e-3,
        "min_lr_ratio": 0.01,
        "seed": seed,
    }
    loop |= {"device": "cpu", "evaluate_every": steps, "save_every": steps}
    tokens: Any = kept if len(kept) > 1 else next(iter(kept.values()))
    return Recipe.from_dict(
        {"data": data, "tokens": tokens, "model": model, "objective": {"kind": "classify"}, "train": loop}
    )


def accuracy(run: Any, table: dict[str, Any]) -> float:
    """Share of correct classes."""
    said = run.predict(Samples(table), accept_drift=True)
    best = np.array(run.assembly.objective.classes)[np.asarray(said["probabilities"]).argmax(1)]
    return float((best == table["label"]).mean())


def measure(seed: int, number: int, steps: int) -> dict[str, float]:
    """Accuracy of each row, for one seed."""
    table: dict[str, Any] = dict(Transients(seed=1000 + seed).make(TEST))
    found = {}
    for name in STREAMS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            run = train(recipe(name, seed, number, steps), Path(folder) / "run", show=False, report=False)
            found[name] = accuracy(run, table)
            if name == "all":
                blind = ImageFiles(kind="images").with_gaps({"image": table["image"]}, np.full(TEST, -1))
                found["no_image"] = accuracy(run, {**table, **blind})
        print(f"seed {seed}: {name} {found[name]:.3f} ({time.perf_counter() - began:.0f} s)", flush=True)
    print(f"seed {seed}: no_image {found['no_image']:.3f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "multistream.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(seed, given.number, given.steps) for seed in range(given.seeds)]
    rows: list[Row] = []
    for name in found[0]:
        values = [one[name] for one in found]
        row: Row = {"id": f"multistream.{name}.accuracy", "value": round(statistics.mean(values), 4)}
        row |= {"better": "higher", "unit": "accuracy", "spread": [round(x, 4) for x in spread(values)]}
        row |= {"seeds": given.seeds, "command": "python benchmarks/multistream.py --record"}
        row |= {"hardware": hardware("cpu"), "versions": versions(), "commit": commit()}
        rows.append(row | {"transients": given.number, "steps": given.steps, "test": TEST})
        print(f"{row['id']} {row['value']} {row['spread']}")
    if given.record:
        record(given.out, rows)


if __name__ == "__main__":
    main()
