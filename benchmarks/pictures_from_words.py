"""Pictures from words: are they right, how are they wrong, and at which cost? By codes and by diffusion.

    python benchmarks/pictures_from_words.py all --plan gpu --seconds 540 --out FOLDER     every task, side by side
    python benchmarks/pictures_from_words.py one --plan cpu --task digits --way codes --seed 0 --out FOLDER
    python benchmarks/pictures_from_words.py collect --plan gpu --out FOLDER               write the rows

Tasks: `ceiling` (the parser on true pictures, and on pictures rebuilt from codes), `scenes` (coloured shapes from
captions), `digits` (scikit-learn's digits from their class), `ising` (spins at a temperature). A task with a way and a
seed is a process that writes one JSON file; its training is limited to its share of the seconds. Rows of the plan `cpu`
are of smaller tasks than those of the plan `gpu`, and their ids say so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, spread, versions
from sciformer.data.source import pieces
from sciformer.domains.images.scenes.agreement import ATTRIBUTES, centres, confusion, judge, shares_of
from sciformer.domains.images.scenes.captions import describe
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.domains.spins.agreement import compare_lattices, energy_error, magnetisation_error
from sciformer.generation.translate import translate
from sciformer.metrics.samples import kolmogorov_smirnov, mean_distance, nearest_samples
from sciformer.models.base import parameters
from sciformer.recipe import Recipe
from sciformer.run import Run, train

WAYS = {"codes": "images/from-text", "diffusion": "images/from-text-diffusion"}
COUNTS = ("one", "two", "three", "four")
MISTAKES = ("wrong_binding", "wrong_count", "wrong_relation", "missing", "wrong_attribute")
DIGIT_CODES = 64  # codewords for the patches of 1,437 digits; 512 are learned by heart
TRIAL_STEPS = 40  # of the training that measures the seconds of a step
SMALL: dict[str, Any] = {"model.heads": 4, "model.source.depth": 1, "train.evaluate_every": None}
SHORT = {"train.steps": 4, "train.warmup": 1, "train.batch": 8, "model.dim": 16, "model.depth": 1, "model.heads": 2}
# By plan and task: changes of the recipe, for both ways and for one of them; seeds by way; numbers of the evaluation.
PLANS: dict[str, dict[str, Any]] = {
    "gpu": {
        "device": "cuda",
        "prefix": "",
        "seeds": {"codes": (0, 1, 2), "diffusion": (0, 1, 2)},
        "tasks": ("ceiling", "scenes", "digits", "ising"),
        "scenes": {"both": {"data.number": 30_000, "data.test": 2000, "train.steps": 20_000, "train.batch": 128}},
        "digits": {"both": SMALL | {"model.dim": 128, "model.depth": 4, "train.steps": 2000}},
        "ising": {"both": SMALL | {"model.dim": 128, "model.depth": 4, "train.steps": 3000, "data.chains": 100}},
        "size": 16,
        "prompts": 200,
        "guidance": (1.0, 2.0),
        "captioner": {"data.number": 30_000, "train.steps": 3000},
        "classifier": 400,
        "samples": 1000,
    },
    "cpu": {
        "device": "cpu",
        "prefix": "_cpu",
        "seeds": {"codes": (0, 1, 2), "diffusion": (0, 1, 2)},
        "tasks": ("ceiling", "digits", "ising", "scenes"),
        "scenes": {
            "both": SMALL
            | {"data.things": [1, 1], "data.number": 6000, "data.test": 200, "data.valid": 200, "data.chunk_size": 1000}
            | {"model.dim": 96, "model.depth": 3, "tokens.target.patch": 8, "train.steps": 1500, "train.batch": 32},
            "codes": {"tokens.target.codes": 2048},
        },
        "digits": {"both": SMALL | {"model.dim": 64, "model.depth": 3, "train.steps": 1500}},
        "ising": {"both": SMALL | {"model.dim": 48, "model.depth": 3, "train.steps": 1500, "data.chains": 40}},
        "size": 8,
        "timed": False,  # other programs ran on the machine
        "scenes_seeds": {"codes": (0,)},  # patches of 8 x 8 x 3 values are too large for a diffusion of this width
        "prompts": 100,
        "guidance": (1.0, 2.0),
        "captioner": None,
        "classifier": 0,
        "samples": 200,
    },
    "tiny": {
        "device": "cpu",
        "prefix": "_tiny",
        "seeds": {"codes": (0,), "diffusion": (0,)},
        "tasks": ("ceiling", "scenes", "digits", "ising"),
        "scenes": {"both": SHORT | {"data.number": 40, "data.valid": 8, "data.test": 40, "data.chunk_size": 20}},
        "digits": {"both": SHORT},
        "ising": {"both": SHORT | {"data.chains": 4, "data.number": 3}},
        "size": 4,
        "prompts": 2,
        "guidance": (1.0, 2.0),
        "captioner": SHORT | {"data.number": 40, "data.valid": 8, "data.test": 8, "model.dim": 16},
        "classifier": 2,
        "samples": 8,
    },
}
Found = dict[str, Any]


# Recipes


def make_recipe(task: str, way: str, seed: int, plan: dict[str, Any], folder: Path) -> Recipe:
    """Recipe of a task, with the data and the sizes of the plan."""
    changes: dict[str, Any] = {"train.device": plan["device"], "train.seed": seed, "train.evaluate_every": 10**9}
    changes |= plan[task]["both"] | plan[task].get(way, {})
    changes["train.evaluate_every"] = changes["train.save_every"] = None
    base: dict[str, Any] = {"base": WAYS[way]}
    if task == "digits":
        base["data"] = {"kind": "images", "files": [str(write_digits(folder))], "split": {"valid": 0.1, "test": 0.2}}
        codes = {"codes": DIGIT_CODES} if way == "codes" else {}
        base["tokens"] = {"source": {"column": "label"}, "target": {"patch": 2} | codes}
    if task == "ising":
        lattices = {"size": plan["size"], "lowest": 1.5, "highest": 3.5, "number": 9, "chains": 40, "samples": 8}
        base["data"] = {"kind": "lattices", **lattices, "gap": [9.0, 10.0], "cache": ""}
        base["tokens"] = {"source": {"kind": "scalars", "columns": ["temperature"]}, "target": {"patch": 2}}
        base["model"] = {"source": {"position": "none"}}
        changes["objective.condition_dropout"] = 0.0
    return Recipe.from_dict(base).change(changes)


def write_digits(folder: Path) -> Path:
    """The 1,797 digits of scikit-learn, as a file of arrays."""
    from sklearn.datasets import load_digits

    path = folder / "digits.npz"
    if not path.exists():
        found = load_digits()
        partial = folder / f"digits-{time.time_ns()}.npz"
        np.savez(partial, image=found.images.astype(np.float32), label=found.target)
        partial.replace(path)
    return path


def train_within(recipe: Recipe, folder: Path, seconds: float) -> tuple[Run, Found]:
    """Train with at most so many steps as fit into the seconds, measured in a short trial.

    The trial compiles the step, too; the training then finds it in the cache of the compiler.
    """
    steps = int(recipe.train.steps or 0)
    if seconds and steps > 2 * TRIAL_STEPS:
        trial = {"train.steps": TRIAL_STEPS, "train.warmup": 1, "train.log_every": TRIAL_STEPS // 2}
        measured = train(recipe.change(trial), folder / "trial", report=False, show=False)
        times = [np.datetime64(r["time"][:23]) for r in measured.records if "loss" in r][-2:]
        step = float((times[1] - times[0]) / np.timedelta64(1, "ms")) / 1000 / (TRIAL_STEPS // 2)
        steps = int(min(steps, max(TRIAL_STEPS, seconds / step)))
    changes = {"train.steps": steps, "train.warmup": min(recipe.train.warmup, max(1, steps // 10))}
    began = time.monotonic()
    run = train(recipe.change(changes), folder / "run", report=False, show=False)
    minutes = (time.monotonic() - began) / 60
    return run, {
        "steps": steps,
        "train_minutes": minutes,
        "parameters": parameters(run.model),
        "loss": run.scores["loss"],
    }


# Tasks


def tables_of(data: Any, part: str) -> list[dict[str, Any]]:
    """Tables of a part of the data."""
    return [dict(table) for table in pieces(data.dataset(part).source)]


def measure_ceiling(plan: dict[str, Any]) -> Found:
    """Share of scenes that the parser reads from true pictures, and from pictures rebuilt from k-means codes."""
    recipe = Recipe.load(WAYS["codes"])
    count = 4000 if plan["prompts"] > 10 else 60
    table: dict[str, Any] = dict(Scenes(number=count).make(count))
    held = max(20, min(1000, count // 4))
    tokens: Any = recipe.tokens["target"].fresh()
    tokens.fit(iter([{"image": table["image"][:-held]}]))
    true, captions = table["image"][-held:], [str(text) for text in table["caption"][-held:]]
    rebuilt = tokens.invert(tokens.tokenize({"image": true}))["image"]
    found: Found = {"pictures": held, "codes": tokens.size - 1}
    for name, pictures in (("true", true), ("codes", rebuilt)):
        found[name] = shares_of([judge(picture, text) for picture, text in zip(pictures, captions)])["right"]
    return found


def measure_scenes(way: str, seed: int, plan: dict[str, Any], folder: Path, seconds: float) -> Found:
    """Train on scenes; judge generated pictures by the parser, with and without guidance."""
    run, found = train_within(make_recipe("scenes", way, seed, plan, folder.parent), folder, seconds)
    data = run.data()
    parts: dict[str, list[str]] = {}
    for part in ("test", "unseen"):
        tables = tables_of(data, part)
        captions = [str(text) for table in tables for text in table["caption"]]
        count = np.concatenate([table["count"] for table in tables])
        if part == "unseen":
            parts["unseen"] = captions[: plan["prompts"]]
            continue
        for number, name in enumerate(COUNTS, 1):
            if some := [text for text, n in zip(captions, count) if n == number][: plan["prompts"]]:
                parts[name] = some
    captioner = make_captioner(plan, folder)
    judged: dict[str, Any] = {}
    for weight in plan["guidance"]:
        key = "guided" if weight != 1 else "plain"
        found[key] = {"guidance": weight}
        everything: list[Any] = []
        asked: list[str] = []
        for name, prompts in parts.items():
            began = time.monotonic()
            pictures = run.generate(prompts, seed=seed, guidance=weight)[:, 0]
            taken = time.monotonic() - began
            judgements = [judge(picture, text) for picture, text in zip(pictures, prompts)]
            found[key][name] = shares_of(judgements) | {
                "pictures": len(prompts),
                "pictures_per_s": len(prompts) / taken,
            }
            if captioner is not None:
                found[key][name]["captioner"] = captioner_agreement(captioner, pictures, judgements)
            if name != "unseen":
                everything += judgements
                asked += prompts
            if name == "one":
                judged[key] = judgements
        found[key]["all"] = shares_of(everything) | {"pictures": len(everything)}
        found[key]["confusion"] = {name: confusion(asked, everything, name).tolist() for name in ATTRIBUTES}
    if way == "codes":
        found["ceiling"] = rebuilt_share(run, data)
    found["diversity"] = measure_diversity(run, data, parts["one"], judged["plain"], plan)
    return found


def rebuilt_share(run: Run, data: Any) -> float:
    """Share of test scenes that the parser reads as written after they are rebuilt from the codes of the run."""
    table = tables_of(data, "test")[0]
    codes: Any = run.assembly.tokens["target"]
    rebuilt = codes.invert(codes.tokenize({"image": table["image"]}))["image"]
    return shares_of([judge(picture, str(text)) for picture, text in zip(rebuilt, table["caption"])])["right"]


def measure_diversity(run: Run, data: Any, prompts: list[str], judgements: list[Any], plan: dict[str, Any]) -> Found:
    """Places in pictures of the same prompt; two-sample tests of places and sizes against the training pictures."""
    table = tables_of(data, "train")[0]
    alone = np.flatnonzero(table["count"] == 1)[:1000]
    true = [judge(table["image"][row], str(table["caption"][row])) for row in alone]
    same = run.generate(prompts[:1], plan["prompts"], seed=1)[0]
    apart = mean_distance(centres([judge(picture, prompts[0]) for picture in same if len(picture)]))
    places, wanted = centres([one for one in judgements if one.right]), centres(true)
    found = {"same_prompt_distance": apart, "training_distance": mean_distance(wanted[:500])}
    if len(places):
        found |= {f"p_{axis}": kolmogorov_smirnov(places[:, i], wanted[:, i]).p_value for i, axis in enumerate("xy")}
    return found


def make_captioner(plan: dict[str, Any], folder: Path) -> Run | None:
    """Captioner of scenes, trained on true pictures."""
    if plan["captioner"] is None:
        return None
    changes = {"train.device": plan["device"]} | plan["captioner"]
    return train(Recipe.load("images/caption-transformer", changes), folder / "captioner", report=False, show=False)


def captioner_agreement(captioner: Run, pictures: np.ndarray, judgements: list[Any]) -> float:
    """Share of pictures whose caption by the captioner is the caption of the things that the parser reads."""
    read = [describe(one.things, pictures.shape[1]) for one in judgements]
    written = translate(captioner, {"image": pictures})
    return float(np.mean([caption is not None and caption.words == text for caption, text in zip(read, written)]))


def measure_digits(way: str, seed: int, plan: dict[str, Any], folder: Path, seconds: float) -> Found:
    """Accuracy of a classifier of true digits on generated digits, and distances to training digits."""
    from sklearn.svm import SVC

    run, found = train_within(make_recipe("digits", way, seed, plan, folder.parent), folder, seconds)
    data = run.data()
    images, labels = {}, {}
    for part in ("train", "test"):
        tables = tables_of(data, part)
        images[part] = np.concatenate([table["image"] for table in tables])
        labels[part] = np.concatenate([np.asarray(table["label"]).astype(str) for table in tables])
    flat = {part: values.reshape(len(values), -1) for part, values in images.items()}
    judge_of_digits = SVC(gamma=0.001).fit(flat["train"], labels["train"])
    found["accuracy_true"] = float(judge_of_digits.score(flat["test"], labels["test"]))
    each = max(1, plan["samples"] // 10)
    wanted = np.repeat(np.array(list("0123456789")), each)
    for weight in plan["guidance"]:
        began = time.monotonic()
        made = run.generate(list("0123456789"), each, seed=seed, guidance=weight).reshape(10 * each, -1)
        key = "guided" if weight != 1 else "plain"
        found[key] = {"guidance": weight, "accuracy": float(judge_of_digits.score(made, wanted))}
        found[key]["pictures_per_s"] = len(made) / (time.monotonic() - began)
        found[key]["nearest"] = float(np.median(nearest_samples(made, flat["train"])[1]))
        found[key]["copies"] = float((nearest_samples(made, flat["train"])[1] < 1e-6).mean())
        found[key]["distance"] = float(np.mean([mean_distance(made[wanted == digit]) for digit in "0123456789"]))
    found["nearest_true"] = float(np.median(nearest_samples(flat["test"], flat["train"])[1]))
    found["distance_true"] = float(np.mean([mean_distance(flat["test"][labels["test"] == d]) for d in "0123456789"]))
    draw_neighbours(made, flat["train"], images["train"].shape[1], folder / "neighbours.png")
    return found


def draw_neighbours(made: np.ndarray, known: np.ndarray, side: int, path: Path) -> None:
    """Picture of some generated digits above their nearest training digits."""
    from matplotlib.figure import Figure

    some = np.linspace(0, len(made) - 1, 10).astype(int)
    rows = np.stack([made[some], known[nearest_samples(made[some], known)[0]]]).reshape(2, 10, side, side)
    figure = Figure(figsize=(6, 1.5), layout="constrained")
    for axes, picture in zip(figure.subplots(2, 10).ravel(), rows.reshape(20, side, side)):
        axes.imshow(picture, cmap="gray_r")
        axes.set_axis_off()
    figure.savefig(path)


def measure_ising(way: str, seed: int, plan: dict[str, Any], folder: Path, seconds: float) -> Found:
    """Energy and magnetisation of lattices generated at each temperature, against the simulation."""
    run, found = train_within(make_recipe("ising", way, seed, plan, folder.parent), folder, seconds)
    tables = [table for part in ("train", "test") for table in tables_of(run.data(), part)]
    spins = np.concatenate([table["image"] for table in tables]).reshape(-1, *np.shape(tables[0]["image"])[1:3])
    heat = np.concatenate([table["temperature"] for table in tables])
    wanted = np.unique(heat)
    each = max(1, plan["samples"] // len(wanted))
    began = time.monotonic()
    made = run.generate({"temperature": wanted}, each, seed=seed).reshape(-1, *spins.shape[1:])
    found["pictures_per_s"] = len(made) / (time.monotonic() - began)
    asked = np.repeat(wanted, each)
    rows = compare_lattices(made.astype(np.int8), asked, spins.astype(np.int8), heat)
    found |= {"energy_error": energy_error(rows), "magnetisation_error": magnetisation_error(rows)}
    found["table"] = [row._asdict() for row in rows]
    if plan["classifier"]:
        changes = {"data.size": plan["size"], "data.chains": 10, "data.cache": "", "train.device": plan["device"]}
        changes |= {"train.steps": plan["classifier"], "train.warmup": min(40, plan["classifier"] // 2)}
        changes |= {"tokens.patch": min(4, plan["size"] // 2)}
        phases = train(Recipe.load("spins/ising-vit", changes), folder / "phases", report=False, show=False)
        ordered = phases.classes.index("ordered")
        shares = {}
        for name, lattices, at in (("generated", made, asked), ("simulated", spins, heat)):
            likely = phases.predict({"image": lattices.astype(np.int8)})["probabilities"][:, ordered]
            shares[name] = [float(likely[np.isclose(at, t)].mean()) for t in wanted]
        found["ordered"] = shares
        apart = np.subtract(shares["generated"], shares["simulated"])
        found["phase_error"] = float(np.abs(apart).mean())
    return found


TASKS: dict[str, Any] = {"scenes": measure_scenes, "digits": measure_digits, "ising": measure_ising}


def one(task: str, way: str, seed: int, plan: str, out: Path, seconds: float) -> None:
    """Run a task and write its JSON file."""
    torch.set_num_threads(1)
    chosen = PLANS[plan]
    out.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    if task == "ceiling":
        name, found = "ceiling", measure_ceiling(chosen)
    else:
        name = f"{task}-{way}-{seed}"
        found = TASKS[task](way, seed, chosen, out / name, seconds)
    found |= {"cpu_s": time.process_time() - began, "task": task, "way": way, "seed": seed}
    found["hardware"] = hardware("cuda" if chosen["device"] == "cuda" else "cpu")
    (out / f"{name}.json").write_text(json.dumps(found))
    print(
        name,
        json.dumps({key: value for key, value in found.items() if not isinstance(value, (dict, list))}),
        flush=True,
    )


def jobs(plan: str) -> list[tuple[str, str, int]]:
    """All tasks of a plan, with way and seed."""
    chosen = PLANS[plan]
    found = [("ceiling", "codes", 0)]
    for task in chosen["tasks"][1:]:
        seeds = chosen.get(f"{task}_seeds", chosen["seeds"])
        found += [(task, way, seed) for way, some in seeds.items() for seed in some]
    return found


def run_all(plan: str, out: Path, seconds: float) -> None:
    """Run all tasks of a plan: side by side on a GPU, else one after the other."""
    out.mkdir(parents=True, exist_ok=True)
    write_digits(out)
    # For the training on a GPU; the rest is for data, compilation, generation and judging. A CPU takes all steps.
    share = 0.45 * seconds if PLANS[plan]["device"] == "cuda" else 0
    lines = [
        [*(sys.executable, __file__, "one", "--plan", plan, "--out", str(out), "--seconds", str(share))]
        + ["--task", task, "--way", way, "--seed", str(seed)]
        for task, way, seed in jobs(plan)
    ]
    if PLANS[plan]["device"] == "cuda":
        for process in [subprocess.Popen(line) for line in lines]:
            process.wait()
    else:
        for line in lines:
            subprocess.run(line, check=False)


# Rows


def collect(plan: str, folder: Path, out: Path) -> None:
    """Write the rows of all JSON files of a folder."""
    prefix, groups = PLANS[plan]["prefix"], defaultdict[tuple[str, str], list[Found]](list)
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        groups[found["task"], found["way"]].append(found)
    rows: list[Row] = []

    def add(
        name: str, found: list[Found], path: tuple[str, ...], unit: str, better: str = "higher", **more: Any
    ) -> None:
        if name.endswith(("train_minutes", "pictures_per_s")) and not PLANS[plan].get("timed", True):
            return
        every: list[Any] = [reduce(getitem, path, one) for one in found]
        values = [float(value) for value in every if not np.isnan(value)]
        if not values:  # for example places in pictures without things
            return
        command = f"python benchmarks/pictures_from_words.py all --plan {plan} --out FOLDER"
        row: Row = {"id": name, "value": round(statistics.mean(values), 4), "unit": unit, "better": better}
        row |= {"spread": [round(value, 4) for value in spread(values)], "seeds": len(values), "command": command}
        row |= {"hardware": found[0]["hardware"], "versions": versions(), "commit": commit()}
        rows.append(row | more)

    for (task, way), found in groups.items():
        first = found[0]
        if task == "ceiling":
            scenes, more = "share of scenes read as written", {"pictures": first["pictures"], "codes": first["codes"]}
            add(f"from_text{prefix}.ceiling", found, ("codes",), scenes, **more)
            add(f"from_text{prefix}.ceiling.true_pictures", found, ("true",), scenes, **more)
            continue
        head = (
            f"{ {'scenes': 'from_text', 'digits': 'generate_digits', 'ising': 'generate_ising'}[task] }{prefix}.{way}"
        )
        cost = {"steps": first["steps"], "parameters": first["parameters"]}
        add(f"{head}.train_minutes", found, ("train_minutes",), "minutes", "lower", **cost)
        if task == "scenes":
            add_scenes(add, head, found)
        if task == "digits":
            more = {"true_digits": first["accuracy_true"]}
            for key in ("plain", "guided"):
                name = head if key == "plain" else f"{head}.guided"
                add(f"{name}.accuracy", found, (key, "accuracy"), "share of digits", **more)
                beside = {"true_digits": first["nearest_true"]}
                add(f"{name}.nearest", found, (key, "nearest"), "grey levels", **beside)
                beside = {"true_digits": first["distance_true"]}
                add(f"{name}.distance", found, (key, "distance"), "grey levels", **beside)
            add(f"{head}.pictures_per_s", found, ("plain", "pictures_per_s"), "pictures/s")
        if task == "ising":
            add(f"{head}.energy_error", found, ("energy_error",), "J per spin", "lower")
            add(f"{head}.magnetisation_error", found, ("magnetisation_error",), "per spin", "lower")
            add(f"{head}.pictures_per_s", found, ("pictures_per_s",), "pictures/s")
            if "phase_error" in first:
                add(f"{head}.phase_error", found, ("phase_error",), "probability", "lower")
    rows += aliases(rows, prefix)
    record(out, rows)
    for row in rows:
        print(f"{row['id']:48} {row['value']:<10} {row['spread']}")


def add_scenes(add: Any, head: str, found: list[Found]) -> None:
    """Rows of the pictures of scenes."""
    for key in ("plain", "guided"):
        if key not in found[0]:
            continue
        name = head if key == "plain" else f"{head}.guided"
        more = {"guidance": found[0][key]["guidance"]}
        for part in (*COUNTS, "unseen"):
            if part in found[0][key]:
                many = more | {"pictures": found[0][key][part]["pictures"]}
                add(f"{name}.{part}.right", found, (key, part, "right"), "share of pictures", **many)
        for mistake in MISTAKES:
            add(f"{name}.{mistake}", found, (key, "all", mistake), "share of pictures", "lower", **more)
        if "captioner" in found[0][key]["one"]:
            add(f"{name}.captioner_agreement", found, (key, "one", "captioner"), "share of pictures", **more)
    if "ceiling" in found[0]:
        add(f"{head}.rebuilt", found, ("ceiling",), "share of scenes read as written")
    add(f"{head}.pictures_per_s", found, ("plain", "one", "pictures_per_s"), "pictures/s")
    beside = {"training": found[0]["diversity"]["training_distance"]}
    add(f"{head}.diversity", found, ("diversity", "same_prompt_distance"), "pixels", **beside)
    for axis in "xy":
        if all(f"p_{axis}" in one["diversity"] for one in found):
            add(f"{head}.places.p_{axis}", found, ("diversity", f"p_{axis}"), "p-value of a two-sample test")


def aliases(rows: list[Row], prefix: str) -> list[Row]:
    """Rows of the better way under the ids without a way."""
    wanted = {"generate_ising": ("energy_error", min), "generate_digits": ("accuracy", max)}
    found = []
    for head, (name, best) in wanted.items():
        some = {row["id"]: row for row in rows if row["id"] in {f"{head}{prefix}.{way}.{name}" for way in WAYS}}
        if some:
            row = best(some.values(), key=lambda one: one["value"])
            found.append(row | {"id": f"{head}{prefix}.{name}", "way": row["id"].split(".")[1]})
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("verb", choices=("all", "one", "collect"))
    options.add_argument("--plan", choices=PLANS, default="gpu")
    options.add_argument("--out", type=Path, required=True, help="folder of runs and JSON files")
    options.add_argument("--seconds", type=float, default=540, help="all: of all tasks; one: of the training")
    options.add_argument("--task", choices=("ceiling", *TASKS), default="scenes")
    options.add_argument("--way", choices=WAYS, default="codes")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--results", type=Path, default=RESULTS / "pictures-from-words.json")
    chosen = options.parse_args()
    if chosen.verb == "all":
        run_all(chosen.plan, chosen.out, chosen.seconds)
    elif chosen.verb == "one":
        one(chosen.task, chosen.way, chosen.seed, chosen.plan, chosen.out, chosen.seconds)
    if chosen.verb != "one":
        collect(chosen.plan, chosen.out, chosen.results)


if __name__ == "__main__":
    main()
