"""Image loading: from files in folders, or arrays in one file, to batches.

    python benchmarks/images_loading.py                    images/s of today, three fresh processes
    python benchmarks/images_loading.py --before FOLDER    in turns with the package of another checkout (its src)

A batch is ready for a model: decoded, cut into patches, scaled. One process reads, as on a laptop.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from measure import RESULTS, ROOT, Row, commit, hardware, record, spread, versions

SIZE, BATCH = 64, 128
WAYS = ("pictures", "arrays")
Times = dict[str, list[float]]


def write(folder: Path, number: int) -> None:
    """Write smooth images of two classes, as PNG files in folders and as one NPZ file."""
    from PIL import Image

    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (number, 8, 8, 3), np.uint8)
    images = np.stack([np.asarray(Image.fromarray(one).resize((SIZE, SIZE))) for one in coarse])
    for name in "ab":
        (folder / "pictures" / name).mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / "pictures" / "ab"[i % 2] / f"{i}.png")
    np.savez(folder / "arrays.npz", image=images, label=np.array(["a", "b"])[np.arange(number) % 2])


def once(folder: Path, repeats: int) -> Times:
    """Seconds per image, for each source."""
    from sciformer.assembly import Assembly
    from sciformer.data.loader import Fetch, load
    from sciformer.data.sampler import BatchSampler
    from sciformer.recipe import Recipe

    times: Times = {}
    for way, name in zip(WAYS, ("pictures", "arrays.npz")):
        recipe = Recipe.load(
            "images/vit-tiny",
            {
                "data.files": [str(folder / name)],
                "data.size": SIZE,
                "data.split": {"valid": 0, "test": 0},
                "tokens.augment": [],
                "train.device": "cpu",
            },
        )
        assembly = Assembly.open(recipe)
        dataset = assembly.dataset("train")
        order = BatchSampler(len(dataset), BATCH, 0, lengths=dataset.lengths, chunks=dataset.sizes)
        fetch = Fetch(dataset, order, assembly.tokens, assembly.objective)
        times[way] = []
        for _ in range(repeats + 1):
            dataset.kept.clear()
            begun, count = time.perf_counter(), 0
            for batch in load(fetch, 0, order.batches, workers=0):
                batch.inputs("cpu")
                count += len(batch)
            times[way].append((time.perf_counter() - begun) / count)
        times[way] = times[way][1:]  # the first pass warms the disk
    return times


def process(folder: Path, source: Path, repeats: int) -> Times:
    """Measure once in a process of its own, with the package in `source`."""
    words = [sys.executable, __file__, "--once", str(folder), "--repeats", str(repeats)]
    paths = os.pathsep.join([str(source), str(ROOT / "benchmarks")])
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    times: Times = json.loads(done.stdout.splitlines()[-1])
    print(source, {way: f"{1 / statistics.median(taken):,.0f} images/s" for way, taken in times.items()}, flush=True)
    return times


def main() -> None:
    """Measure, and record the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="src of another checkout, measured in turns with this one")
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "images-speed.json")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once, options.repeats)))
        return
    sides = {"ours": ROOT / "src", **({"before": options.before.resolve()} if options.before else {})}
    found: dict[str, list[Times]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.number)
        for turn in range(options.processes):
            for side in list(sides)[:: -1 if turn % 2 else 1]:
                found[side].append(process(Path(folder), sides[side], options.repeats))
    rows: list[Row] = []
    for way in WAYS:
        taken = {side: [1 / one for times in some for one in times[way]] for side, some in found.items()}
        row: Row = {
            "id": f"image_loading.{way}_per_s",
            "value": round(statistics.median(taken["ours"])),
            "unit": "images/s",
        }
        row |= {"better": "higher", "spread": [round(one) for one in spread(taken["ours"])], "seeds": 1}
        row |= {"command": "python benchmarks/images_loading.py", "hardware": hardware("cpu"), "versions": versions()}
        row |= {
            "commit": commit(),
            "processes": options.processes,
            "settings": f"{options.number} of {SIZE} x {SIZE} x 3",
        }
        if "before" in taken:
            row["ratio_before"] = round(row["value"] / statistics.median(taken["before"]), 3)
        rows.append(row)
        print(row["id"], row["value"], row["unit"], row.get("ratio_before", ""))
    record(options.results, rows)


if __name__ == "__main__":
    main()
