"""Results and engine overhead of complete runs. `python benchmarks/run.py PART [--text FILE]`

    gpt-char-cpu   validation loss of text/gpt-char on tiny Shakespeare, three seeds           (needs --text)
    gpt-char-gpu   the same with text/gpt-char-large on CUDA                                   (needs --text)
    train-cpu      training of text/gpt-char against a plain PyTorch loop, interleaved         (needs --text)
    engine         overhead of the engine over a bare loop of the same step, 10 M parameters   (needs --text)
    merge          join results of seeds that were trained side by side (--seeds 0 --results a.json, ...)
    ising          accuracy and critical temperature of spins/ising-{vit,cnn,lstm}, three seeds

Times come from three fresh processes (--processes), each interleaving its calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from measure import RESULTS, Row, commit, hardware, interleave, record, spread, versions
from plain import PlainGPT, plain_loop
from sciformer.assembly import Assembly
from sciformer.evaluation.evaluate import autocast
from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.training.distributed import Ranks, find_device
from sciformer.training.engine import Engine
from sciformer.training.folder import Folder
from sciformer.training.optimizers import learning_rate
from sciformer.training.progress import ProgressReporter

REFERENCE = 2.269185


def row(name: str, value: float, unit: str, better: str, device: str, part: str, **more: Any) -> Row:
    found = {"id": name, "value": round(value, 5), "unit": unit, "better": better, "spread": None, "seeds": 1}
    words = sys.argv[1:]
    for option in ("--results", "--out", "--text"):  # where files lie is not part of what was measured
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    text = " --text input.txt" if part != "ising" else ""
    found |= {
        "command": f"python benchmarks/run.py {' '.join(words)}{text}",
        "hardware": hardware(device),
        "versions": versions(),
    }
    return found | {"commit": commit()} | more


def seeds_row(name: str, values: list[float], *arguments: Any, **more: Any) -> Row:
    wide = statistics.stdev(values) if len(values) > 1 else 0.0
    more |= {"spread": round(wide, 5), "seeds": len(values), "values": [round(value, 5) for value in values]}
    return row(name, statistics.mean(values), *arguments, **more)


# What is learned


def gpt_char(options: argparse.Namespace, device: str) -> list[Row]:
    name, tag = ("text/gpt-char", "cpu") if device == "cpu" else ("text/gpt-char-large", "gpu")
    losses, seconds, records = [], [], []
    for seed in options.seeds:
        changes = {"data.files": [options.text], "train.seed": seed, "train.device": device}
        run = train(Recipe.load(name, changes), options.out / f"gpt-{tag}-{seed}", fresh=True, report=False)
        losses.append(run.scores["loss"])
        seconds.append(run.about["seconds"])
        records.append([(line["step"], line["valid_loss"]) for line in run.records if "valid_loss" in line])
    bar = {"bar": 1.88 if device == "cpu" else 1.47, "training_s": [round(s, 1) for s in seconds], "history": records}
    return [seeds_row(f"gpt_char_{tag}.val_loss", losses, "nats", "lower", device, f"gpt-char-{tag}", **bar)]


def ising(options: argparse.Namespace, device: str) -> list[Row]:
    from sciformer.metrics.crossing import crossing

    rows = []
    for kind in ("vit", "cnn", "lstm"):
        shares, errors, found, seconds = [], [], [], []
        for seed in options.seeds:
            changes = {"train.seed": seed, "data.cache": str(options.out / "cache"), "train.device": device}
            run = train(
                Recipe.load(f"spins/ising-{kind}", changes),
                options.out / f"ising-{kind}-{seed}",
                fresh=True,
                report=False,
            )
            shares.append(run.evaluate("test").scores["accuracy"])
            scan = run.evaluate("scan")
            objective: Any = run.assembly.objective
            ordered = scan.outputs["probabilities"][:, objective.classes.index("ordered")]
            place = crossing(scan.samples["temperature"], ordered, group=scan.samples["chain"])
            found.append(round(place.value, 5))
            errors.append(abs(place.value - REFERENCE))
            seconds.append(round(run.about["seconds"], 1))
        more = {"parameters": run.about["parameters"], "training_s": seconds}
        rows += [
            seeds_row(f"ising.{kind}.accuracy", shares, "share", "higher", device, "ising", bar=0.99, **more),
            seeds_row(f"ising.{kind}.tc_error", errors, "J", "lower", device, "ising", bar=0.08, tc=found, **more),
        ]
    return rows


# What it costs


class Unsaved(Engine):
    """Engine without checkpoints, to measure the loop alone."""

    def _save(self) -> None:
        pass


def engine_of(recipe: Recipe, device: str) -> Unsaved:
    folder = Folder(tempfile.mkdtemp())
    folder.create()
    return Unsaved(Assembly.open(recipe), folder, Ranks(find_device(device)), ProgressReporter(False))


def blocks(engine: Engine, steps: int) -> Callable[[], None]:
    """Function that trains a number of further steps in the engine's loop."""

    def call() -> None:
        engine.run(stop_after=engine.number + steps)

    return call


LONG = {"train.steps": 10_000_000, "train.evaluate_every": 10_000_000, "train.save_every": 10_000_000}


def train_cpu_once(options: argparse.Namespace, device: str) -> dict[str, list[float]]:
    recipe = Recipe.load("text/gpt-char", {"data.files": [options.text], "train.device": "cpu", **LONG})
    engine = engine_of(recipe, "cpu")
    tokens = engine.assembly.tokens["tokens"]
    ids = torch.as_tensor(_ids(engine.assembly))
    torch.manual_seed(0)
    plain = PlainGPT(tokens.size, 64, 128, 4, 4)  # type: ignore[attr-defined]
    loop = plain_loop(plain, ids, 64, 12, lambda step: learning_rate(step, 10_000_000, recipe.train))
    calls = {"plain": lambda: loop(options.steps), "sciformer": blocks(engine, options.steps)}
    return interleave(calls, options.repeats, "cpu")


def _ids(assembly: Assembly) -> Any:
    (tokens,) = assembly.tokens.values()
    return tokens.tokenize(assembly.dataset("train").source.load(0)).columns["ids"].astype("int64")


def engine_once(options: argparse.Namespace, device: str) -> dict[str, list[float]]:
    batch = 64 if device == "cuda" else 2
    changes = {"data.files": [options.text], "train.device": device, "train.batch": batch, **LONG}
    engine = engine_of(Recipe.load("text/gpt-char-large", changes), device)
    inputs = [engine.fetch[i].inputs(engine.ranks.device, engine.updater.pad_to_multiple) for i in range(8)]
    counts = [engine.fetch[i].count for i in range(8)]
    weights = [weight for weight in engine.step.parameters() if weight.requires_grad]
    optimizer, call = engine.optimizer, engine.updater.whole_call

    def bare() -> None:
        for i in range(options.steps):
            torch.compiler.cudagraph_mark_step_begin()
            with autocast(engine.ranks.device, engine.updater.precision):
                loss, _ = call(inputs[i % 8])
                (loss / counts[i % 8]).backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return interleave({"bare": bare, "engine": blocks(engine, options.steps)}, options.repeats, device)


def merge(paths: list[Path]) -> list[Row]:
    """Merge the rows of seeds from several files into one row for each id."""
    found: dict[str, list[Row]] = {}
    for path in paths:
        for one in json.loads(path.read_text()):
            found.setdefault(one["id"], []).append(one)
    rows = []
    for parts in found.values():
        whole = dict(parts[0])
        if len(parts) > 1:
            if any("values" not in part for part in parts):
                raise SystemExit(f"{whole['id']} is in several files, but a timing is not a mean over seeds: give one")
            values = [value for part in parts for value in part["values"]]
            if len(set(values)) < len(values):
                print(f"{whole['id']}: equal values {values}; was a seed given twice?", file=sys.stderr)
            whole |= {"value": round(statistics.mean(values), 5), "spread": round(statistics.stdev(values), 5)}
            whole |= {"seeds": len(values), "values": values}
            for key in ("training_s", "history", "tc"):
                if key in whole:
                    whole[key] = [entry for part in parts for entry in part[key]]
        rows.append(whole)
    return rows


ONCE = {"train-cpu": train_cpu_once, "engine": engine_once}


def timed(options: argparse.Namespace, device: str) -> list[Row]:
    """Rows of a timed part, from several fresh processes; recorded after each of them."""
    samples: list[dict[str, list[float]]] = []
    found: list[Row] = []
    for _ in range(options.processes):
        words = [sys.executable, __file__, options.part, "--once", "--device", device]
        words += ["--repeats", str(options.repeats), "--steps", str(options.steps), "--text", options.text]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        samples.append(json.loads(done.stdout.splitlines()[-1]))
        print({name: statistics.median(taken) for name, taken in samples[-1].items()}, flush=True)
        record(options.results, found := timed_rows(samples, options, device))
    return found


def timed_rows(samples: list[dict[str, list[float]]], options: argparse.Namespace, device: str) -> list[Row]:
    tag = "gpu" if device == "cuda" else "cpu"
    first, second = ("plain", "sciformer") if options.part == "train-cpu" else ("bare", "engine")
    ratios = [b / a for sample in samples for a, b in zip(sample[first], sample[second])]
    seconds = {name: statistics.median(t / options.steps for s in samples for t in s[name]) for name in (first, second)}
    more = {"processes": len(samples), "steps": options.steps, "seconds_a_step": seconds}
    if options.part == "train-cpu":
        inverse = [1 / ratio for ratio in ratios]
        more |= {"spread": [round(value, 4) for value in spread(inverse)], "bar": 0.97}
        return [row("train_cpu.ratio_plain", statistics.median(inverse), "x", "higher", device, "train-cpu", **more)]
    percent = [100 * (ratio - 1) for ratio in ratios]
    more |= {"spread": [round(value, 3) for value in spread(percent)], "bar": 3}
    return [row(f"engine_{tag}.overhead", statistics.median(percent), "%", "lower", device, "engine", **more)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["gpt-char-cpu", "gpt-char-gpu", "ising", "merge", *ONCE])
    parser.add_argument("files", type=Path, nargs="*", help="results to merge")
    parser.add_argument("--text", default="", help="tiny Shakespeare, one file")
    parser.add_argument("--device", default="", choices=["", "cpu", "cuda"])
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--results", type=Path, default=RESULTS / "run.json")
    options = parser.parse_args()
    if options.part == "merge":
        record(options.results, merge(options.files))
        return
    if options.part != "ising" and not Path(options.text).is_file():
        parser.error("--text must name the file of tiny Shakespeare")
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if options.part.startswith("gpt-char"):
        device = "cpu" if options.part.endswith("cpu") else "cuda"
    if options.once:
        print(json.dumps(ONCE[options.part](options, device)))
        return
    began = time.time()
    if options.part in ONCE:
        rows = timed(options, device)
    else:
        rows = ising(options, device) if options.part == "ising" else gpt_char(options, device)
    for found in rows:
        print(f"{found['id']:32} {found['value']} {found['unit']}  spread {found['spread']}")
    record(options.results, rows)
    print(f"{time.time() - began:.0f} s; wrote {options.results}")


if __name__ == "__main__":
    main()
