"""Results of translation. `python benchmarks/translation.py PART --data multi30k`

    multi30k   en-de: BLEU of text/transformer-multi30k on Test2016 and Test2017, three seeds, on tokenised lower-case
               text (as published) and on raw text (cased, sacreBLEU)
    ladder     de-en: LSTM, GRU, the six alignment scores, a prompted decoder and the Transformer, with the same budget;
               the table is that of `sciformer compare` over the same runs
    try        one configuration with `--set key=value ...`, evaluated on the validation part, which decides settings

Runs are trained side by side (`--jobs`), because small models do not fill a GPU. `--data` is the folder with
`train.en.gz`, `tok/train.lc.norm.tok.en.gz` and so on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import RESULTS, Row, commit, flops, hardware, record, versions

RUNGS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("text/seq2seq-lstm", {"model.score": "none"}),
    "gru": ("text/seq2seq-gru", {"model.score": "none"}),
    **{
        score: ("text/seq2seq-gru", {"model.score": score})
        for score in ("content", "additive", "location", "general", "dot", "scaled_dot")
    },
    # source and target stand in one row there: twice the tokens are as many pairs
    "gpt_prompt": ("text/gpt-translate", {"tokens.column": ["de", "en"], "train.tokens": 8192}),
    "transformer": ("text/transformer-tiny", {"train.learning_rate": 2e-3, "train.warmup": 600}),
}
BUDGET = {"train.tokens": 4096, "train.pad_to_multiple": 16, "train.warmup": 300, "train.schedule": "cosine"}
BUDGET |= {"train.min_lr_ratio": 0.02, "train.evaluate_every": 500, "train.save_every": 500, "train.average_last": 0}
THREE = ("lstm", "additive", "transformer")  # rungs with three seeds
ANCHORS = {"lstm": 13.8, "gru": 20.6, "additive": 28.3, "transformer": 36.5}
LENGTHS = ((1, 8), (9, 11), (12, 14), (15, 99))  # words of the source


def files(data: Path, form: str) -> dict[str, Any]:
    """Data section for the tokenised (`tok`) or the raw text."""
    name = (lambda part: f"tok/{part}.lc.norm.tok.{{}}.gz") if form == "tok" else (lambda part: f"{part}.{{}}.gz")
    found = {"files": "train", "valid": "val", "test": "test_2016_flickr"}
    changes: dict[str, Any] = {f"data.{key}": [str(data / name(part))] for key, part in found.items()}
    changes["data.extra_parts"] = {"test2017": [str(data / name("test_2017_flickr"))]}
    return changes | {"objective.bleu": "none" if form == "tok" else "13a"}


def turned(changes: dict[str, Any]) -> dict[str, Any]:
    """Changes of the recipe for German to English."""
    return changes | {"tokens.source.column": "de", "tokens.target.column": "en"}


def settings(options: argparse.Namespace, job: str) -> tuple[str, dict[str, Any]]:
    """Recipe and changes of a job: `en-de tok 0` or `ladder additive 1`."""
    kind, what, seed = job.split()
    if kind == "ladder":
        recipe, changes = RUNGS[what]
        changes = files(options.data, "tok") | BUDGET | changes | {"objective.beam": 5}
        if recipe != "text/gpt-translate":
            changes = turned(changes)
        changes["train.steps"] = options.steps or 3000
    else:
        recipe, changes = "text/transformer-multi30k", files(options.data, what)
        if options.steps:
            changes["train.steps"] = options.steps
    changes |= {"train.seed": int(seed)}
    for pair in options.set:
        key, _, value = pair.partition("=")
        changes[key] = json.loads(value) if value[:1] in "[{0123456789-tfn" else value
    return recipe, changes


def one(options: argparse.Namespace) -> None:
    """Train and evaluate one job; its scores are one JSON file."""
    import torch

    from sciformer.recipe import Recipe
    from sciformer.run import train

    torch.set_num_threads(2)
    name, changes = settings(options, options.job)
    run = train(Recipe.load(name, changes), options.out / slug(options.job), report=False, show=options.show)
    found = judged(run, ["valid"] if options.part == "try" else ["valid", "test", "test2017"])
    found |= {"job": options.job, "seconds": run.about["seconds"], "parameters": run.about["parameters"]}
    found |= {"flops": flops(run), "history": [r for r in run.records if "valid_loss" in r]}
    (options.out / f"{slug(options.job)}.json").write_text(json.dumps(found))


def judged(run: Any, parts: list[str]) -> dict[str, Any]:
    from sciformer.generation.translate import score_translations
    from sciformer.metrics.text import bleu, signature

    found: dict[str, Any] = {"signature": signature(run.recipe.objective.bleu)}
    data = run.data()
    for part in parts:
        done = score_translations(run.model, data, data.dataset(part), run.device)
        words = [len(text.split()) for text in done.source]
        by_length = {}
        for low, high in LENGTHS:
            rows = [i for i, count in enumerate(words) if low <= count <= high]
            few = [[texts[i] for i in rows] for texts in (done.translation, done.reference)]
            by_length[f"{low}-{high}"] = round(bleu(few[0], few[1], run.recipe.objective.bleu), 2) if rows else None
        found[part] = done.scores | {"by_length": by_length, "samples": list(zip(*done[:3]))[:5]}
    return found


def slug(job: str) -> str:
    return job.replace(" ", "-")


def side_by_side(options: argparse.Namespace, jobs: list[str]) -> dict[str, Any]:
    """Train all jobs, several at a time; complete jobs are skipped."""
    options.out.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if not (options.out / f"{slug(job)}.json").exists() and not options.collect]
    began = time.monotonic()
    running: dict[str, subprocess.Popen[bytes]] = {}
    while waiting or running:
        # What the first one compiles, the others find in the cache.
        while waiting and len(running) < options.jobs and (not running or time.monotonic() - began > options.stagger):
            job = waiting.pop(0)
            words = [sys.executable, __file__, options.part, "--data", str(options.data), "--out", str(options.out)]
            words += ["--job", job, *(["--steps", str(options.steps)] if options.steps else [])]
            words += [word for pair in options.set for word in ("--set", pair)]
            log = (options.out / f"{slug(job)}.log").open("wb")
            running[job] = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "2"})
        time.sleep(0.5)
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                print(f"{job}: exit {process.returncode}", flush=True)
    found = {}
    for job in jobs:
        path = options.out / f"{slug(job)}.json"
        if path.exists():
            found[job] = json.loads(path.read_text())
        else:
            print(f"{job} failed:\n{(options.out / f'{slug(job)}.log').read_text()[-2000:]}")
    return found


def row(name: str, values: list[float], options: argparse.Namespace, **more: Any) -> Row:
    import torch

    spread = statistics.stdev(values) if len(values) > 1 else None
    return {
        "id": name,
        "value": round(statistics.mean(values), 2),
        "unit": "BLEU",
        "better": "higher",
        "spread": None if spread is None else round(spread, 2),
        "seeds": len(values),
        "values": [round(value, 2) for value in values],
        "command": f"python benchmarks/translation.py {options.part} --data multi30k",
        "hardware": hardware("cuda" if torch.cuda.is_available() else "cpu"),
        "versions": versions(),
        "commit": commit(),
        **more,
    }


def multi30k(options: argparse.Namespace) -> list[Row]:
    forms = {"tok": "bleu_tok", "raw": "sacrebleu"}
    found = side_by_side(options, [f"en-de {form} {seed}" for form in forms for seed in options.seeds])
    rows = []
    for form, tag in forms.items():
        runs = [found[job] for job in found if job.split()[1] == form]
        for part, name in (("test", "test2016"), ("test2017", "test2017"), ("valid", "valid")):
            if not runs:
                continue
            about = {key: runs[0][key] for key in ("parameters", "signature")}
            about |= {"flops": [run["flops"] for run in runs], "training_s": [round(run["seconds"]) for run in runs]}
            bar = {"test2016": 41.02, "test2017": 33.36}.get(name) if form == "tok" else None
            values = [run[part]["bleu"] for run in runs]
            rows.append(row(f"multi30k_en_de.{name}.{tag}", values, options, **about, **({"bar": bar} if bar else {})))
    return rows


def ladder(options: argparse.Namespace) -> list[Row]:
    jobs = [f"ladder {rung} {seed}" for rung in RUNGS for seed in (options.seeds if rung in THREE else [0])]
    found = side_by_side(options, jobs)
    rows = []
    for rung in RUNGS:
        runs = [found[job] for job in found if job.split()[1] == rung]
        if not runs:
            continue
        by_length = {
            key: round(statistics.mean([run["test"]["by_length"][key] or 0.0 for run in runs]), 2)
            for key in runs[0]["test"]["by_length"]
        }
        more = {"parameters": runs[0]["parameters"], "flops": runs[0]["flops"], "by_length": by_length}
        more |= {"training_s": [round(run["seconds"]) for run in runs], "valid": [run["valid"]["bleu"] for run in runs]}
        if rung in ANCHORS:
            more["anchor"] = ANCHORS[rung]
        rows.append(row(f"ladder.{rung}.bleu", [run["test"]["bleu"] for run in runs], options, **more))
    return rows


def trial(options: argparse.Namespace) -> list[Row]:
    for job, found in side_by_side(options, [f"en-de tok {seed}" for seed in options.seeds]).items():
        print(job, " ".join(options.set), "valid", found["valid"]["bleu"], f"{found['seconds']:.0f} s", flush=True)
    return []


PARTS = {"multi30k": multi30k, "ladder": ladder, "try": trial}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/translation"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS / "text.json")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--stagger", type=float, default=0.0, help="delay in seconds after the first training starts")
    parser.add_argument("--collect", action="store_true", help="train nothing; write the rows of complete runs")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--set", action="append", default=[], help="key=value of the recipe")
    parser.add_argument("--job", default="", help="run one training; the script calls itself with this")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if options.job:
        one(options)
        return
    rows = PARTS[options.part](options)
    if rows:
        record(options.results, rows)


if __name__ == "__main__":
    main()
