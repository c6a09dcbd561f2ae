"""Peak memory of a save with FSDP2: the first rank against the others.

    python benchmarks/save_memory.py               two processes on the CPU: rows cluster.save_memory_*
    python benchmarks/save_memory.py --ranks 4 --dim 256

Each rank trains two steps of a decoder, and writes a checkpoint and the best model after each.

ratio   highest resident memory during a save, of the first rank over the largest of the other ranks
share   highest resident memory of the first rank during a save, minus that before it, over the size of a checkpoint

Linux only: VmHWM and VmRSS in /proc/self/status.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, versions


def kilobytes(name: str) -> int:
    """A figure of this process in /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def work(folder: Path, dim: int, depth: int) -> None:
    """Train two steps as one rank; write the memory of the second save to a file."""
    from sciformer.recipe import Recipe
    from sciformer.run import train
    from sciformer.training.engine import Engine

    torch.set_num_threads(1)
    engine: Any = Engine
    peaks, added = [0], [0]

    def measured(name: str) -> None:
        before = getattr(engine, name)

        def call(self: Any, *arguments: Any) -> Any:
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
            start = kilobytes("VmRSS")
            result = before(self, *arguments)
            peaks.append(kilobytes("VmHWM"))
            added.append(peaks[-1] - start)
            return result

        setattr(engine, name, call)

    measured("_save")
    measured("kept_weights")
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "text", "files": [str(folder / "lines.txt")], "documents": "line"},
            "tokens": {"kind": "text", "context": 16},
            "model": {"kind": "decoder", "dim": dim, "depth": depth, "heads": 4},
            "objective": {"kind": "next_token"},
            "train": {"steps": 2, "batch": 4, "save_every": 1, "evaluate_every": 1, "device": "cpu", "shard": "full"},
        }
    )
    run = train(recipe, folder / "run", show=False, report=False)
    weights = sum(weight.nbytes for weight in torch.nn.ParameterList(run.model.parameters()))
    rank = os.environ["RANK"]
    found = {"peak": max(peaks), "added": max(added), "model_kilobytes": weights // 1024}
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster.json")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work, given.dim, given.depth)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        (folder / "lines.txt").write_text("\n".join("".join(rng.choice(list("abcde "), 12)) for _ in range(80)))
        own = [__file__, "--work", str(folder), "--dim", str(given.dim), "--depth", str(given.depth)]
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(given.ranks)]
        subprocess.run([*launch, *own], check=True)
        ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(given.ranks)]
    size = 3 * ranks[0]["model_kilobytes"]  # weights and two moments of AdamW
    for rank, one in enumerate(ranks):
        print(f"rank {rank}: highest memory {one['peak']:,} kB, {one['added']:,} kB above that before a save")
    print(f"a checkpoint has {size:,} kB")
    peaks = [one["peak"] for one in ranks]
    found = {"ratio": (peaks[0] / max(peaks[1:]), "x"), "share": (ranks[0]["added"] / size, "of a checkpoint")}
    about: Row = {
        "spread": None,
        "seeds": 1,
        "command": "python benchmarks/save_memory.py",
        "hardware": hardware("cpu"),
    }
    about |= {"versions": versions(), "commit": commit(), "better": "lower"}
    about["settings"] = f"FSDP2 on {given.ranks} ranks; a checkpoint of {size / 1e6:.1f} GB; gloo"
    rows: list[Row] = [
        {"id": f"cluster.save_memory_{name}", "value": round(value, 4), "unit": unit, **about}
        for name, (value, unit) in found.items()
    ]
    record(given.out, rows)
    print(f"highest memory, first rank over the others: {found['ratio'][0]:.3f}")
    print(f"memory that a save adds on the first rank: {found['share'][0]:.4f} of a checkpoint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
