"""Word-level perplexity on WikiText-2. `python benchmarks/language.py PART ... --data wikitext2`

    gpt      text/wikitext-gpt, three seeds
    lstm     text/wikitext-lstm, three seeds
    ngram    five-grams with interpolated, modified Kneser-Ney smoothing
    tune     the configurations TRIED, or one with `--set key=value ...`, evaluated on the validation part alone

`--data` is the folder with train.txt, valid.txt and test.txt (or .gz). Every token of the test text except the first is
predicted once, ends of lines included. A Transformer reads windows that move by a share of their length (--stride), so
each token has at least the rest of a window as context. An LSTM carries its state through the whole text. An n-gram has
four words of context. The perplexity over windows without overlap, as in `sciformer evaluate`, is recorded too.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, record
from ngram import evaluate, texts_of
from pool import Result, Task, seeds_row, side_by_side
from sciformer.data.batch import StreamView
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from sciformer.tokens.protocols import Textual

TRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-384": ("gpt", {}),
    "gpt-384-half": ("gpt", {"model.dropout": 0.5, "model.attention_dropout": 0.1}),
    "gpt-512": ("gpt", {"model.dim": 512, "model.heads": 8, "model.dropout": 0.5}),
    "gpt-256-deep": ("gpt", {"model.dim": 256, "model.heads": 4, "model.depth": 10, "model.dropout": 0.3}),
    "gpt-384-path": ("gpt", {"model.drop_path": 0.2, "train.weight_decay": 0.5}),
    "lstm-640": ("lstm", {}),
    "lstm-896": ("lstm", {"model.dim": 896, "model.dropout": 0.6}),
    "lstm-640-slow": ("lstm", {"train.learning_rate": 1e-3, "model.dropout": 0.6}),
}
TINY = {"model.dim": 36, "model.depth": 1, "tokens.context": 16, "train.batch": 4, "train.steps": 4}
TINY |= {"train.warmup": 1, "train.evaluate_every": 2}
ANCHOR = 65.8  # AWD-LSTM (arXiv 1708.02182)
ORDER = 5


def files(data: Path) -> dict[str, Any]:
    """Data section for the texts."""
    keys = {"data.files": "train", "data.valid": "valid", "data.test": "test"}
    return {key: [str(next(data.glob(f"{part}.txt*")))] for key, part in keys.items()}


def work(task: Task) -> Result:
    """Train and evaluate one model, or count n-grams."""
    torch.set_num_threads(1)
    changes = files(Path(task["data"])) | (TINY if task["tiny"] else {}) | task["changes"]
    began = time.monotonic()
    if task["model"] == "ngram":
        recipe = Recipe.load("text/wikitext-gpt", changes)
        found = {part: evaluate(recipe, part, ORDER)["perplexity"] for part in ("valid", "test")}
        return found | {"seconds": round(time.monotonic() - began, 1), "parameters": 0}
    changes |= {"train.seed": task["seed"], "train.device": task["device"]}
    run = train(
        Recipe.load(f"text/wikitext-{task['model']}", changes), task["folder"], fresh=True, show=False, report=False
    )
    result: Result = {part: perplexity(run, part, task["stride"]) for part in task["parts"]}
    result |= {f"{part}_windows": run.evaluate(part).scores["perplexity"] for part in task["parts"]}
    result |= {"seconds": round(run.about["seconds"], 1), "parameters": run.about["parameters"]}
    result["history"] = [(line["step"], round(line["valid_loss"], 4)) for line in run.records if "valid_loss" in line]
    shutil.rmtree(run.path)
    return result


def perplexity(run: Run, part: str, stride: float = 0.25, batch: int = 32) -> float:
    """Perplexity of a part: exp of the mean -ln p over all tokens except the first.

    Each token has the longest context that the model accepts.
    """
    losses = [
        carried(run, ids) if run.recipe.model.trunk != "transformer" else slid(run, ids, stride, batch)
        for ids in texts_of(run.data(), part)
    ]
    return math.exp(float(np.mean(np.concatenate(losses))))


@torch.inference_mode()
def slid(run: Run, ids: Any, stride: float, batch: int) -> Any:
    """-ln p (n - 1,) from overlapping windows of the context length.

    Each window counts only the tokens that the window before it did not predict.
    """
    model: Any = run.model
    (tokens,) = run.assembly.tokens.values()
    long = min(Textual.require(tokens, "a perplexity").window, len(ids) - 1)
    step = max(1, round(stride * long))
    starts = np.unique(np.minimum(np.arange(0, len(ids) - 1, step), len(ids) - 1 - long))
    losses, done = np.full(len(ids) - 1, np.nan), 0
    for first in range(0, len(starts), batch):
        some = starts[first : first + batch]
        places = some[:, None] + np.arange(long)
        hidden = model.decode(StreamView({"ids": _tensor(ids[places], run)}, None))
        asked = np.zeros(places.shape, bool)
        for row, start in enumerate(some):  # windows may end at the same token
            asked[row] = places[row] >= done
            done = max(done, start + long)
        target = {"ids": _tensor(ids[places[asked] + 1], run)}
        losses[places[asked]] = model.readout.loss(hidden[torch.as_tensor(asked)], target).float().cpu().numpy()
    assert not np.isnan(losses).any()
    return losses


@torch.inference_mode()
def carried(run: Run, ids: Any, chunk: int = 2048) -> Any:
    """-ln p (n - 1,) of a recurrent model that reads from the first token to the last."""
    model: Any = run.model
    cache, losses = model.trunk.cache(), []
    for start in range(0, len(ids) - 1, chunk):
        known = ids[start : min(start + chunk, len(ids) - 1)]
        hidden = model.decode(StreamView({"ids": _tensor(known[None], run)}, None), cache=cache)[0]
        target = {"ids": _tensor(ids[start + 1 : start + 1 + len(known)], run)}
        losses.append(model.readout.loss(hidden, target).float().cpu().numpy())
    return np.concatenate(losses)


def _tensor(ids: Any, run: Run) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(ids), device=run.device)


def rows_of(found: dict[str, list[Result]], device: str) -> list[Row]:
    """One row for each model."""
    rows = []
    for model, results in found.items():
        more: dict[str, Any] = {"anchor": ANCHOR, "valid": [round(one["valid"], 3) for one in results]}
        more |= {"parameters": results[0]["parameters"], "training_s": [one["seconds"] for one in results]}
        if "test_windows" in results[0]:
            more |= {"windows": [round(one["test_windows"], 3) for one in results]}
            more |= {"history": [one["history"] for one in results]}
        else:
            more |= {"order": ORDER}
        values = [one["test"] for one in results]
        command = f"python benchmarks/language.py {model} --data wikitext2"
        where = "cpu" if model == "ngram" else device
        rows.append(seeds_row(f"wikitext2.{model}.perplexity", values, "per word", "lower", command, where, **more))
    return rows


def tune(options: argparse.Namespace, base: Task) -> None:
    """Print the validation perplexity of some configurations, best first."""
    given = dict(_pair(pair) for pair in options.set)
    chosen = {name: TRIED[name] for name in options.configurations or TRIED}
    tasks = {
        f"tune-{name}-{options.tag}": base
        | {"model": model, "seed": 0, "changes": changes | given, "parts": ["valid"]}
        | {"folder": str(options.out / "runs" / f"tune-{name}-{options.tag}")}
        for name, (model, changes) in chosen.items()
    }
    found = dict(side_by_side(work, tasks, options.jobs, options.out))
    for name, one in sorted(found.items(), key=lambda item: item[1]["valid"]):
        about = f"windows {one['valid_windows']:7.2f}, {one['parameters'] / 1e6:5.1f} M, {one['seconds']:5.0f} s"
        print(f"{name:32} {one['valid']:8.2f}   {about}   {one['history'][-4:]}")


def _pair(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["gpt", "lstm", "ngram", "tune"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--configurations", nargs="*", choices=list(TRIED), help="configurations of tune (default: all)"
    )
    parser.add_argument("--set", action="append", default=[], help="key=value, a change of the recipe")
    parser.add_argument("--tag", default="0", help="name of the settings of tune")
    parser.add_argument("--jobs", type=int, default=7, help="runs at a time; 0: in this process")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--stride", type=float, default=0.25, help="share of the context that windows move by")
    parser.add_argument("--device", default="", choices=["", "cpu", "cuda"])
    parser.add_argument("--tiny", action="store_true", help="small test of the script, in seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/language"))
    parser.add_argument("--results", type=Path, default=RESULTS / "text-language.json")
    options = parser.parse_args(arguments)
    began = time.time()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    base: Task = {"data": str(options.data), "device": device, "stride": options.stride, "tiny": options.tiny}
    if "tune" in options.parts:
        tune(options, base)
        return
    changes = dict(_pair(pair) for pair in options.set)
    tasks = {}
    for model in options.parts:
        for seed in options.seeds if model != "ngram" else [0]:
            name = f"{model}-{seed}"
            tasks[name] = base | {"model": model, "seed": seed, "changes": changes, "parts": ["valid", "test"]}
            tasks[name] |= {"folder": str(options.out / "runs" / name)}
    found: dict[str, dict[str, Result]] = {}
    for name, result in side_by_side(work, tasks, options.jobs, options.out):
        model = tasks[name]["model"]
        found.setdefault(model, {})[name] = result
        if len(found[model]) == sum(task["model"] == model for task in tasks.values()):
            record(options.results, rows_of({model: [found[model][key] for key in sorted(found[model])]}, device))
            print(
                f"wikitext2.{model}.perplexity: {[round(one['test'], 2) for one in found[model].values()]}", flush=True
            )
    print(f"{time.time() - began:.0f} s; wrote {options.results}")


if __name__ == "__main__":
    main()
