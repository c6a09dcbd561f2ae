"""Ragged batches against padded batches: `python benchmarks/lightcurves_speed.py PART ... --ztf ztf_bts_snia.parquet`

    train-cpu   step on 64 curves in float32
    infer-cpu   their embedding vectors, as in `sciformer embed`
    train       step on 512 curves in bfloat16, compiled, with CUDA graphs     (CUDA)
    infer       their embedding vectors                                        (CUDA)

One model (--recipe) with the same weights on both sides: curves packed end to end, as with `train.packed`; and curves
padded to 200 observations with a mask, as in ASTROMER. Lengths are those of the ZTF supernovae (--ztf), and log-normal
with median 120; longer curves are cut at 200. Both sides begin with the same ragged arrays on the host, lay them out
within the measured time, must agree, and take turns call by call. They run in three fresh processes (--processes), each
with all parts; rows are written after each process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightcurves_data import Array
from measure import RESULTS, Row, commit, hardware, interleave, record, spread, versions
from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, ModelInputs
from sciformer.data.columns import Lists, Table
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import make_optimizer
from sciformer.training.step import OptimizerStep
from sides import profile

Times = dict[str, list[float]]
WIDTH = 200
MEDIAN, SIGMA = 120, 0.6
BATCHES = 8
BAR = 1.5


def lengths(kind: str, count: int, ztf: Path | None) -> Array:
    """Observations of each curve, at most 200."""
    rng = np.random.default_rng(1)
    if kind == "lognormal":
        drawn = np.exp(np.log(MEDIAN) + SIGMA * rng.standard_normal(count)).round().astype(np.int64)
    else:
        assert ztf is not None
        drawn = rng.choice(np.load(ztf) if ztf.suffix == ".npy" else observed(ztf), count)
    return np.asarray(np.clip(drawn, 2, WIDTH))


def observed(ztf: Path) -> Array:
    """Observations of each of the ZTF supernovae."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    return np.array([len(one) for one in pq.read_table(ztf, columns=["time"])["time"].to_pylist()])


def table(count: Array) -> Table:
    """Curves of given lengths: a sine with noise."""
    rng, total = np.random.default_rng(2), int(count.sum())
    time = np.sort(rng.uniform(0, 300, total) + 1000 * np.repeat(np.arange(len(count)), count)) % 1000 + 58000.0
    error = rng.uniform(0.02, 0.1, total).astype(np.float32)
    value = (18 + np.sin(time) + error * rng.standard_normal(total)).astype(np.float32)
    names = np.array([f"curve {number}" for number in range(len(count))])
    made = {name: Lists(column, count) for name, column in (("time", time), ("value", value), ("error", error))}
    return {**made, "id": names, "label": np.where(np.arange(len(count)) % 2, "RRAB", "RRC")}


class Side:
    """The engine's update and the vectors of a model, with curves in one layout."""

    def __init__(self, recipe: Recipe, state: dict[str, Any], weights: dict[str, Any], batches: list[Batch]) -> None:
        ranks = Ranks(torch.device(recipe.train.device))
        assembly = Assembly.from_state(recipe, state)
        model = assembly.network()
        model.load_state_dict(weights)
        self.step = Step(model.to(ranks.device), assembly.objective)
        optimizer = make_optimizer(self.step, recipe.train, ranks.device)
        self.updater = OptimizerStep(
            self.step, self.step, optimizer, recipe.train, ranks, 1 << 40, len(batches[0]), print
        )
        self.packed, self.device, self.batches, self.number = recipe.train.packed, ranks.device, batches, 0
        if not self.packed:
            self.updater.inputs = lambda piece, room=None: self.laid(piece)  # type: ignore[method-assign]
        self.vector: Any = self._vector
        if self.device.type == "cuda":
            self.vector = torch.compile(self._vector, dynamic=False, mode="reduce-overhead")

    def laid(self, batch: Batch) -> ModelInputs:
        """Batch in the layout of this side, on the host."""
        return self.updater.inputs(batch) if self.packed else batch.inputs("cpu", width=WIDTH)

    def next(self) -> Batch:
        """Next batch in turn."""
        self.number += 1
        return self.batches[self.number % len(self.batches)]

    def train(self, steps: int) -> None:
        """Train for a number of steps."""
        self.step.train()
        for _ in range(steps):
            batch = self.next()
            self.updater(batch, self.number, batch.count)

    def _vector(self, inputs: ModelInputs) -> Any:
        model: Any = self.step.model
        return model.pool(model.encode(inputs.stream))

    @torch.no_grad()
    def infer(self, steps: int, vector: Any = None) -> Any:
        """Embedding vectors of a number of batches, on the host."""
        self.step.eval()
        found = None
        for _ in range(steps):
            inputs = self.laid(self.next()).to(self.device)
            if self.device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                found = (vector or self.vector)(inputs)
            found = found.float().cpu()
        return found


def sides(options: argparse.Namespace, kind: str, device: str) -> tuple[dict[str, Side], float]:
    """Both sides with equal weights, and the relative difference of their vectors.

    The difference is the largest of all entries, divided by the largest entry.
    """
    size = 8 if options.tiny else options.batch or (512 if device == "cuda" else 64)
    small = {"data.kind": "lightcurves", "data.what": "stars", "data.number": 64, "data.valid": 16, "data.test": 0}
    changes: dict[str, Any] = small | {"train.device": device, "train.batch": size, "train.warmup": 0}
    changes |= {"train.schedule": "constant", "train.learning_rate": 1e-4, "tokens.window": WIDTH}
    if options.tiny:
        changes |= {"model.dim": 16, "model.depth": 1, "model.heads": 2}
    changes |= {"train.cuda_graphs": "whole"} if options.whole else {}
    changes["objective.kind"] = "classify" if options.classify else "masked"
    ragged = Recipe.load(options.recipe, changes | {"train.packed": True})
    opened = Assembly.open(ragged)
    dataset = opened.samples(table(lengths(kind, BATCHES * size, options.ztf)))
    batches = []
    for number in range(BATCHES):
        ids = np.arange(number * size, (number + 1) * size)
        raw = dataset.batch(ids)
        batches.append(prepare(raw, opened.tokens, opened.objective, SampleRandom(0, 0, ids), training=True))
    torch.manual_seed(0)
    weights, state = opened.network().state_dict(), opened.state()
    both = {"ragged": ragged, "padded": ragged.change({"train.packed": False})}
    made = {name: Side(recipe, state, weights, batches) for name, recipe in both.items()}
    found = [side.infer(1, side._vector) for side in made.values()]
    return made, float((found[0][:size] - found[1][:size]).abs().max() / found[0].abs().max())


def once(options: argparse.Namespace, part: str, kind: str) -> Times:
    """Measure one part in this process."""
    device = "cpu" if part.endswith("cpu") or options.tiny else "cuda"
    torch.set_float32_matmul_precision("high")
    made, difference = sides(options, kind, device)
    assert difference < (1e-3 if device == "cpu" else 0.1), f"the two sides differ by {difference}"
    name = part.removesuffix("-cpu")
    for side in made.values():
        getattr(side, name)(BATCHES)  # every shape is compiled
        if options.profile:
            profile(lambda side=side: getattr(side, name)(2))  # type: ignore[misc]
    count = steps(options, part)
    calls = {key: (lambda side=side: getattr(side, name)(count)) for key, side in made.items()}
    times = interleave(calls, options.repeats, device)
    batches = made["ragged"].batches
    times |= {"curves": [float(len(batches[0]) * count)], "difference": [difference]}
    return times | {"tokens": [float(np.mean([batch.tokens / len(batch) for batch in batches]))]}


def steps(options: argparse.Namespace, part: str) -> int:
    """Steps in a call."""
    return int(options.steps) or (1 if part.endswith("cpu") or options.tiny else BATCHES)


def rows(samples: dict[str, list[Times]], part: str, options: argparse.Namespace, processes: int) -> list[Row]:
    """Rows: ratios and curves/s for each kind of lengths, and the smaller ratio."""
    prefix = f"ragged_{part.removesuffix('-cpu')}_{'cpu' if part.endswith('cpu') else 'gpu'}"
    device = "cpu" if part.endswith("cpu") or options.tiny else "cuda"
    said = {"recipe": options.recipe, "objective": "classify" if options.classify else "masked", "padded_to": WIDTH}
    said |= {"graphs": "whole"} if options.whole else {}
    said |= {"processes": processes, "repeats": options.repeats, "steps": steps(options, part)}
    made: list[Row] = []
    ratios: dict[str, list[float]] = {}
    for kind, some in samples.items():
        ratios[kind] = [b / a for one in some for a, b in zip(one["ragged"], one["padded"], strict=True)]
        more = said | {
            "batch": round(some[0]["curves"][0] / steps(options, part)),
            "difference": some[0]["difference"][0],
        }
        more |= {"mean_length": round(some[0]["tokens"][0], 1), "bar": BAR}
        made.append(row(f"{prefix}.{kind}.ratio_padded", ratios[kind], "x", part, device, **more))
        for side in ("ragged", "padded"):
            speeds = [one["curves"][0] / seconds for one in some for seconds in one[side]]
            made.append(row(f"{prefix}.{kind}.{side}_per_s", speeds, "curves/s", part, device))
    worst = min(ratios, key=lambda kind: statistics.median(ratios[kind]))
    made.append(row(f"{prefix}.ratio_padded", ratios[worst], "x", part, device, lengths=worst, bar=BAR, **said))
    return made


def row(name: str, values: list[float], unit: str, part: str, device: str, **more: Any) -> Row:
    digits = 4 if unit == "x" else 1
    found: Row = {"id": name, "value": round(statistics.median(values), digits), "unit": unit, "better": "higher"}
    found |= {"spread": [round(value, digits) for value in spread(values)], "seeds": 1}
    found |= {"command": f"python benchmarks/lightcurves_speed.py {part}", "hardware": hardware(device)}
    return found | {"versions": versions(), "commit": commit()} | more


def process(options: argparse.Namespace) -> dict[str, dict[str, Times]]:
    """Measure all parts and lengths in a process of its own."""
    words = [sys.executable, __file__, *options.parts, "--once", "--repeats", str(options.repeats)]
    words += ["--steps", str(options.steps), "--batch", str(options.batch), "--recipe", options.recipe]
    words += ["--threads", str(options.threads)] + (["--ztf", str(options.ztf)] if options.ztf else [])
    words += [f"--{name}" for name in ("tiny", "classify", "profile", "whole") if getattr(options, name)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    found: dict[str, dict[str, Times]] = json.loads(done.stdout.splitlines()[-1])
    return found


def here(options: argparse.Namespace) -> dict[str, dict[str, Times]]:
    """Measure all parts and lengths in this process."""
    found: dict[str, dict[str, Times]] = {}
    for part in options.parts:
        for kind in ("ztf", "lognormal") if options.ztf else ("lognormal",):
            torch.compiler.reset()
            times = once(options, part, kind)
            said = {name: round(statistics.median(taken), 6) for name, taken in times.items()}
            print(part, kind, said, file=sys.stderr, flush=True)
            found.setdefault(part, {})[kind] = times
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["train-cpu", "infer-cpu", "train", "infer"])
    parser.add_argument(
        "--ztf",
        type=Path,
        help="the ZTF supernovae, or their lengths in a file .npy (default: log-normal lengths alone)",
    )
    parser.add_argument("--recipe", default="lightcurves/astromer")
    parser.add_argument("--classify", action="store_true", help="train classes instead of hidden observations")
    parser.add_argument("--whole", action="store_true", help="both sides with train.cuda_graphs: whole")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=0, help="in a call; 8 on CUDA and 1 on the CPU unless given")
    parser.add_argument("--batch", type=int, default=0, help="curves; 512 on CUDA and 64 on the CPU unless given")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; as PyTorch has it unless given")
    parser.add_argument("--profile", action="store_true", help="tell the kernels of both sides")
    parser.add_argument("--tiny", action="store_true", help="on the CPU and much smaller, to try the script")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS / "lightcurves-speed.json")
    options = parser.parse_args(arguments)
    if options.once:
        if options.threads:
            torch.set_num_threads(options.threads)
        print(json.dumps(here(options)))
        return
    samples: dict[str, dict[str, list[Times]]] = {}
    for done in range(1, options.processes + 1):
        for part, by_kind in process(options).items():
            for kind, times in by_kind.items():
                samples.setdefault(part, {}).setdefault(kind, []).append(times)
            found = rows(samples[part], part, options, done)
            if not options.tiny:
                record(options.results, found)
            for one in found:
                print(f"{one['id']:40} {one['value']} {one['unit']}  spread {one['spread']}", flush=True)


if __name__ == "__main__":
    main()
