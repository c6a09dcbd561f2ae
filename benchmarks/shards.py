"""Kills that predictions in shards survive.

    python benchmarks/shards.py               50 kills: row cluster.predict_kills
    python benchmarks/shards.py --kills 10

One process after the other predicts the shards of a folder that are missing, and gets SIGKILL at a random instant of
the time that an undisturbed process needs, until a process is done. Its kills are survived if the merged table is
byte for byte that of one process that was not killed and did not use shards. Then the next folder begins.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, versions

SHARDS, SAMPLES = 12, 40_000


def prepare(folder: Path) -> None:
    """Write a run and a file of samples."""
    from sciformer.recipe import Recipe
    from sciformer.run import train

    rng = np.random.default_rng(0)
    for name, count in (("train", 200), ("new", SAMPLES)):
        label = np.arange(count) % 2
        images = (rng.normal(size=(count, 8, 8)) + label[:, None, None]).astype(np.float32)
        np.savez(folder / f"{name}.npz", image=images, label=label, row=np.arange(count))
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "train.npz")]},
            "tokens": {"kind": "patches", "patch": 2},
            "model": {"kind": "encoder", "dim": 32, "depth": 2, "heads": 4},
            "objective": {"kind": "classify"},
            "train": {"steps": 20, "batch": 16, "device": "cpu"},
        }
    )
    train(recipe, folder / "run", show=False, report=False)


def predict(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a process of `sciformer predict`."""
    line = [sys.executable, "-m", "sciformer", "predict", *words, "--quiet"]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes]) -> None:
    if status := process.wait():
        raise RuntimeError(f"status {status} of {process.args!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(0)
    kills = survived = folders = unfinished = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        finish(predict(folder, "run", "new.npz", "--out", "whole.parquet"))
        began = time.monotonic()
        shards = ["run", "new.npz", "--shards", str(SHARDS), "--out"]
        finish(predict(folder, *shards, "timed"))
        seconds = time.monotonic() - began
        print(f"an undisturbed process needs {seconds:.1f} s for {SHARDS} shards of {SAMPLES:,} samples")
        while kills < given.kills or unfinished:
            out = f"shards-{folders}"
            process = predict(folder, *shards, out)
            if kills < given.kills:
                try:
                    process.wait(rng.uniform(0, seconds))
                except subprocess.TimeoutExpired:
                    process.kill()
                    kills, unfinished = kills + 1, unfinished + 1
                    process.wait()
                    continue
            finish(process)
            finish(predict(folder, "--merge", out, "--out", f"{out}.parquet"))
            if (folder / f"{out}.parquet").read_bytes() == (folder / "whole.parquet").read_bytes():
                survived += unfinished
            print(f"{out}: {unfinished} kills; {survived} of {kills} survived so far")
            folders, unfinished = folders + 1, 0
    row: Row = {"id": "cluster.predict_kills", "value": survived, "unit": f"of {kills}", "better": "higher"}
    row |= {"spread": None, "seeds": 1, "command": "python benchmarks/shards.py", "hardware": hardware("cpu")}
    row |= {"versions": versions(), "commit": commit()}
    row["settings"] = f"{SHARDS} shards of {SAMPLES:,} samples; {folders} folders; {seconds:.1f} s without a kill"
    if kills == 50:
        record(given.out, [row])
    print(json.dumps(row["value"]), row["unit"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
