"""Pictures from words: are they right, how are they wrong, and at which cost? By codes and by diffusion.

    COMMIT=1a2b3c4 python benchmarks/pictures_from_words.py all --seconds 540 --copy OUT     one call on a GPU
    python benchmarks/pictures_from_words.py collect OUT                                     rows of OUT
    python benchmarks/pictures_from_words.py captioner OUT --captioner RUN                   agreement with a captioner
    python benchmarks/pictures_from_words.py all --plan cpu --out FOLDER                     smaller tasks on a CPU

Tasks: `ceiling` (the parser on true pictures, and on pictures rebuilt from codes), `scenes` (coloured shapes from
captions), `digits` (scikit-learn's digits from their class), `ising` (spins at a temperature). A task with a way and a
seed is a process. On a GPU all processes run side by side (`call.py`): a short trial measures the seconds of a step,
and the training takes the steps that fit into --train-share of the time. Results come after each part:
OUT/pictures.json, some pictures of each process, and the run of the first seed of codes. With the plan `cpu`, they
run one after the other with all steps. Its tasks are smaller than those of the plan `gpu`, and the ids of their rows
say so. The plan `tiny` tries the script.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from functools import partial, reduce
from multiprocessing import get_context
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from call import Call, Found, Results, pack, train_until, unpack
from measure import RESULTS, Row, record, spread
from pool import origin
from sciformer.data.source import pieces
from sciformer.domains.images import scaling
from sciformer.domains.images.scenes.agreement import ATTRIBUTES, Judgement, centres, confusion, judge, shares_of
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
FOREVER = 1e12  # a time that never comes
TRIAL_STEPS, TRIAL_LINES = 120, 10  # of the training that measures the seconds of a step; steps between its times
SETUP_SECONDS = 45.0  # of the training after the trial: codebook, tokens, compiled code from the cache
PARTS = ("one", "two", "unseen", "three", "four")  # of the judged pictures, the most important first
KEPT_PICTURES = 100  # of each part
KEPT_BYTES = 15 << 20  # of a file of a kept run
JUDGES = 3  # processes that read the pictures of a process
SMALL: dict[str, Any] = {"model.heads": 4, "model.source.depth": 1, "train.evaluate_every": None}
SHORT = {"train.steps": 4, "train.warmup": 1, "train.batch": 8, "model.dim": 16, "model.depth": 1, "model.heads": 2}
# By plan and task: changes of the recipe, for both ways and for one of them; seeds by way; numbers of the evaluation.
PLANS: dict[str, dict[str, Any]] = {
    "gpu": {
        "device": "cuda",
        "together": True,  # all processes at a time
        "prefix": "",
        "seeds": {"codes": (0,), "diffusion": (0,)},
        "tasks": ("ceiling", "scenes", "ising"),
        # 8 pieces, which a dataset keeps in memory; the steps are those that fit, at most 20,000
        "scenes": {
            "both": {"data.number": 65_536, "data.chunk_size": 8192, "data.valid": 512, "data.test": 2048}
            | {"train.steps": 20_000, "train.batch": 128}
        },
        "trial": {"data.number": 2048, "data.chunk_size": 2048, "data.valid": 64, "data.test": 64, "data.cache": ""},
        "digits": {"both": SMALL | {"model.dim": 128, "model.depth": 4, "train.steps": 2000}},
        "ising": {"both": SMALL | {"model.dim": 128, "model.depth": 4, "train.steps": 3000, "data.chains": 100}},
        "size": 16,
        "scenes_seeds": {"codes": (0, 1, 2), "diffusion": (0,)},
        "prompts": 256,  # two blocks of generated pictures
        "same": 128,
        "guidance": (1.0, 2.0),
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
        "same": 100,
        "guidance": (1.0, 2.0),
        "classifier": 0,
        "samples": 200,
    },
    "tiny": {
        "device": "cpu",
        "together": True,
        "prefix": "_tiny",
        "seeds": {"codes": (0,), "diffusion": (0,)},
        "tasks": ("ceiling", "scenes", "digits", "ising"),
        "scenes": {"both": SHORT | {"data.number": 40, "data.valid": 8, "data.test": 40, "data.chunk_size": 20}},
        "digits": {"both": SHORT},
        "ising": {"both": SHORT | {"data.chains": 4, "data.number": 3}},
        "size": 4,
        "prompts": 2,
        "same": 2,
        "guidance": (1.0, 2.0),
        "classifier": 2,
        "samples": 8,
    },
}


# Recipes


def make_recipe(task: str, way: str, seed: int, plan: Found, folder: Path) -> Recipe:
    """Recipe of a task, with the data and the sizes of the plan."""
    changes: Found = {"train.device": plan["device"], "train.seed": seed}
    changes |= plan[task]["both"] | plan[task].get(way, {}) | {"train.keep": 1}
    changes["train.evaluate_every"] = changes["train.save_every"] = None
    if task == "scenes":
        changes["data.cache"] = str(folder / "scenes")
    base: Found = {"base": WAYS[way]}
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


def train_within(recipe: Recipe, folder: Path, until: float, trial: Found) -> tuple[Run, Found]:
    """Train until a time, with the steps that fit in by a short trial, so that the learning rate is low at the end.

    The trial compiles the step, too; the training then finds it in the cache of the compiler. Without a time, or for
    trainings of few steps, there is no trial.
    """
    steps = int(recipe.train.steps or 0)
    if until < FOREVER and steps > 4 * TRIAL_STEPS:
        try:
            seconds = step_seconds(recipe.change(trial), folder / "trial")
            steps = int(min(steps, max(TRIAL_STEPS, (until - time.time() - SETUP_SECONDS) / seconds)))
            print(f"{1000 * seconds:.1f} ms a step in the trial: {steps:,} steps", flush=True)
        except Exception:  # for example of the compiler, without which the training can do
            traceback.print_exc()
    changes: Found = {"train.steps": steps, "train.warmup": min(recipe.train.warmup, max(1, steps // 10))}
    changes |= {"train.evaluate_every": max(1, steps // 8), "train.log_every": max(1, min(50, steps // 2))}
    run, found = train_until(recipe.change(changes), folder / "run", until)
    return run, found | {"parameters": parameters(run.model), "train_minutes": found["train_s"] / 60}


def step_seconds(recipe: Recipe, folder: Path) -> float:
    """Median seconds of a step at the end of a short training."""
    changes = {"train.steps": TRIAL_STEPS, "train.warmup": 1, "train.log_every": TRIAL_LINES}
    run = train(recipe.change(changes | {"train.evaluate_every": TRIAL_STEPS}), folder, report=False, show=False)
    times = np.array([np.datetime64(r["time"][:23]) for r in run.records if "loss" in r and "time" in r])
    return float(np.median(np.diff(times)[-6:]) / np.timedelta64(1, "ms")) / 1000 / TRIAL_LINES


# Tasks


def tables_of(data: Any, part: str) -> list[dict[str, Any]]:
    """Tables of a part of the data."""
    return [dict(table) for table in pieces(data.dataset(part).source)]


def measure_ceiling(plan: Found) -> Found:
    """Share of scenes that the parser reads from true pictures, and from pictures rebuilt from k-means codes."""
    recipe = Recipe.load(WAYS["codes"])
    count = 4000 if plan["prompts"] > 10 else 60
    table: dict[str, Any] = dict(Scenes(number=count).make(count))
    held = max(20, min(1000, count // 4))
    tokens: Any = recipe.tokens["target"].fresh()
    tokens.fit(iter([{"image": table["image"][:-held]}]))
    true, captions = table["image"][-held:], [str(text) for text in table["caption"][-held:]]
    rebuilt = tokens.invert(tokens.tokenize({"image": true}))["image"]
    found: Found = {"pictures": held, "codewords": tokens.size - 1}
    for name, pictures in (("true", true), ("codes", rebuilt)):
        found[name] = shares_of([judge(picture, text) for picture, text in zip(pictures, captions)])["right"]
    return found


def measure_scenes(way: str, seed: int, plan: Found, results: Results, until: float) -> None:
    """Train on scenes; judge generated pictures by the parser, with and without guidance."""
    folder, found = results.file.parent, results.found
    with ProcessPoolExecutor(plan["judges"], get_context("spawn")) if plan.get("judges") else Here() as judges:
        read = partial(judge_all, judges)
        read(np.zeros((JUDGES, 64, 64, 3), np.uint8), ["a red disc"] * JUDGES)  # the processes start
        recipe = make_recipe("scenes", way, seed, plan, folder.parent)
        run, about = train_within(recipe, folder, until, plan.get("trial", {}))
        found |= about
        results.write()
        if way == "codes" and seed == 0:
            pack(run, folder / "codes.tar", KEPT_BYTES)
        data = run.data()
        parts = prompts_of(data, plan["prompts"])
        kept: Found = {}
        judged: dict[str, list[Judgement]] = {}
        for weight in plan["guidance"]:
            key = "guided" if weight != 1 else "plain"
            found[key], asked = {"guidance": weight}, list[str]()
            judged[key] = []
            for name, prompts in parts.items():
                began = time.monotonic()
                pictures = run.generate(prompts, seed=seed, guidance=weight)[:, 0]
                taken = time.monotonic() - began
                some = read(pictures, prompts)
                cost = {"pictures": len(prompts), "pictures_per_s": len(prompts) / taken}
                found[key][name] = shares_of(some) | cost
                kept |= {f"{key}-{name}": pictures[:KEPT_PICTURES], f"{key}-{name}-prompts": prompts[:KEPT_PICTURES]}
                if name != "unseen":
                    judged[key] += some
                    asked += prompts
                found[key]["all"] = shares_of(judged[key]) | {"pictures": len(asked)}
                found[key]["confusion"] = {one: confusion(asked, judged[key], one).tolist() for one in ATTRIBUTES}
                results.write()
            np.savez_compressed(folder / f"pictures-{way}-{seed}.npz", **kept)
            if key == "plain":
                alone = judged[key][: len(parts["one"])]
                results.add("diversity", partial(measure_diversity, run, data, parts["one"], alone, plan, read))
        if way == "codes":
            results.add("ceiling", lambda: rebuilt_share(run, data, read))


class Here(Executor):
    """Calls in this process."""

    def map(self, function: Any, *columns: Any, timeout: Any = None, chunksize: int = 1, buffersize: Any = None) -> Any:
        return map(function, *columns)


Read = Callable[[np.ndarray, Sequence[str]], list[Judgement]]


def judge_all(judges: Executor, pictures: np.ndarray, captions: Sequence[str]) -> list[Judgement]:
    """Judgements of pictures by their captions, side by side."""
    try:
        return list(judges.map(judge, pictures, captions, chunksize=max(1, len(pictures) // (4 * JUDGES))))
    except BrokenExecutor:  # slower, but no reason to lose the pictures
        return list(map(judge, pictures, captions))


def prompts_of(data: Any, most: int) -> dict[str, list[str]]:
    """Captions of test scenes by the number of their things, and of unseen combinations."""
    parts: dict[str, list[str]] = {name: [] for name in PARTS}
    for part in ("test", "unseen"):
        for table in tables_of(data, part):
            for caption, count in zip(table["caption"], table["count"]):
                parts["unseen" if part == "unseen" else COUNTS[int(count) - 1]].append(str(caption))
    return {name: captions[:most] for name, captions in parts.items() if captions}


def rebuilt_share(run: Run, data: Any, read: Read) -> Found:
    """Share of test scenes that the parser reads as written after they are rebuilt from the codes of the run."""
    table = {name: column[:500] for name, column in tables_of(data, "test")[0].items()}
    codes: Any = run.assembly.tokens["target"]
    rebuilt = codes.invert(codes.tokenize({"image": table["image"]}))["image"]
    return {"right": shares_of(read(rebuilt, [str(text) for text in table["caption"]]))["right"]}


def measure_diversity(
    run: Run, data: Any, prompts: list[str], judgements: list[Judgement], plan: Found, read: Read
) -> Found:
    """Places in pictures of the same prompt; two-sample tests of places against the training pictures."""
    table = tables_of(data, "train")[0]
    alone = np.flatnonzero(table["count"] == 1)[:1000]
    true = read(table["image"][alone], [str(text) for text in table["caption"][alone]])
    same = run.generate(prompts[:1], plan["same"], seed=1)[0]
    apart = mean_distance(centres(read(same, prompts[:1] * len(same))))
    places, wanted = centres([one for one in judgements if one.right]), centres(true)
    found = {"same_prompt_distance": apart, "training_distance": mean_distance(wanted[:500])}
    if len(places):
        found |= {f"p_{axis}": kolmogorov_smirnov(places[:, i], wanted[:, i]).p_value for i, axis in enumerate("xy")}
    return found


def captioner_agreement(captioner: Run, pictures: np.ndarray) -> tuple[int, int]:
    """Number of pictures whose caption by the captioner is that of the things that the parser reads; and of pictures.

    Pictures of nothing, or with unclear relations, have no caption and are left out.
    """
    things = [judge(picture, "a red disc").things for picture in pictures]
    read = [describe(some, pictures.shape[1]) if some else None for some in things]
    written = translate(captioner, {"image": pictures})
    same = [caption.words == text for caption, text in zip(read, written) if caption is not None]
    return sum(same), len(same)


def measure_digits(way: str, seed: int, plan: Found, results: Results, until: float) -> None:
    """Accuracy of a classifier of true digits on generated digits, and distances to training digits."""
    from sklearn.svm import SVC

    folder, found = results.file.parent, results.found
    run, about = train_within(make_recipe("digits", way, seed, plan, folder.parent), folder, until, {})
    found |= about
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
    results.write()
    draw_neighbours(made, flat["train"], images["train"].shape[1], folder / "neighbours.png")


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


def measure_ising(way: str, seed: int, plan: Found, results: Results, until: float) -> None:
    """Energy and magnetisation of lattices generated at each temperature, against the simulation."""
    folder, found = results.file.parent, results.found
    run, about = train_within(make_recipe("ising", way, seed, plan, folder.parent), folder, until, {})
    found |= about
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
    results.write()
    if plan["classifier"]:
        changes: Found = {"train.compile": False, "train.device": plan["device"]}
        changes |= {"data.size": plan["size"], "data.chains": 10, "data.cache": ""}
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
        results.write()


TASKS: dict[str, Any] = {"scenes": measure_scenes, "digits": measure_digits, "ising": measure_ising}


def one(task: str, way: str, seed: int, plan: str, out: Path, until: float = FOREVER, judges: int = 0) -> None:
    """Run a task; its results are OUT/NAME/found.json."""
    torch.set_num_threads(1)
    scaling.PIXELS_AT_ONCE = 1 << 14  # fits into the cache of a core that shares its memory with many others
    chosen, folder = PLANS[plan] | {"judges": judges}, out.resolve() / name_of(task, way, seed)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    about: Found = {"task": task, "way": way, "seed": seed, "steps": 0, "asked_steps": 0, "train_s": 0.0}
    results = Results(folder / "found.json", about | {"origin": origin(chosen["device"])})
    if task == "ceiling":
        results.add("ceiling", lambda: measure_ceiling(chosen))
    else:
        TASKS[task](way, seed, chosen, results, until)
    results.found["cpu_s"] = time.process_time() - began
    results.write()
    print(results.file.parent.name, shortly(results.found), flush=True)


def name_of(task: str, way: str, seed: int) -> str:
    """Name of a process."""
    return "ceiling" if task == "ceiling" else f"{task}-{way}-{seed}"


def shortly(one: Found) -> str:
    """Most important figures of a task in a line."""
    words = []
    for key in ("plain", "guided"):
        parts = one.get(key, {})
        words += [f"{key} {name} {parts[name]['right']:.2f}" for name in PARTS if name in parts]
        words += [f"{key} accuracy {parts['accuracy']:.3f}"] if "accuracy" in parts else []
    words += [f"energy error {one['energy_error']:.3f}"] if "energy_error" in one else []
    words += [f"rebuilt {one['ceiling']['right']:.3f}"] if "right" in one.get("ceiling", {}) else []
    return ", ".join([*words, *(["ERRORS " + str(one["errors"])] if "errors" in one else [])])


def jobs(plan: str, tasks: Sequence[str] = ()) -> list[tuple[str, str, int]]:
    """Tasks of a plan (default: all of them), with way and seed."""
    chosen = PLANS[plan]
    found: list[tuple[str, str, int]] = []
    for task in tasks or chosen["tasks"]:
        seeds = {"codes": (0,)} if task == "ceiling" else chosen.get(f"{task}_seeds", chosen["seeds"])
        found += [(task, way, seed) for way, some in seeds.items() for seed in some]
    return found


def simulate(plan: str, out: str, part: str, piece: int) -> int:
    """Simulate a piece of scenes into the cache of all processes; returns its number of scenes."""
    torch.set_num_threads(1)
    source = scenes_of(plan, Path(out)).open().sources[part]
    return len(source.load(piece)["image"])


def scenes_of(plan: str, out: Path) -> Any:
    return make_recipe("scenes", "codes", 0, PLANS[plan], out).data


def run_all(options: argparse.Namespace) -> None:
    """Run all tasks of a plan: side by side on a GPU, else one after the other."""
    plan, out = options.plan, options.out.resolve()
    todo, together = jobs(plan, options.tasks), PLANS[plan].get("together", False)
    call = Call("pictures", out, options.seconds, options.copy, shortly, ["*/pictures-*.npz", "*/codes.tar.*"])
    write_digits(out)
    if any(task == "scenes" for task, *_ in todo):
        sources = scenes_of(plan, out).open().sources
        many = [(plan, str(out), part, piece) for part, one in sources.items() for piece in range(len(one.sizes))]
        call.simulate(simulate, many, options.simulators)
    until = call.began + options.train_share * options.seconds if together else FOREVER
    for task, way, seed in todo:
        words = [sys.executable, __file__, "one", "--plan", plan, "--out", str(out), "--until", str(until)]
        words += ["--task", task, "--way", way, "--seed", str(seed)]
        if together:
            call.start(name_of(task, way, seed), [*words, "--judges", str(JUDGES)])
        else:
            subprocess.run(words, check=False)
    if together:
        call.watch()
    else:
        call.copy()


# Rows


def collect(plan: str, folder: Path, out: Path) -> None:
    """Write the rows of the results in a folder."""
    prefix, groups = PLANS[plan]["prefix"], defaultdict[tuple[str, str], list[Found]](list)
    for one in json.loads((folder / "pictures.json").read_text()):
        groups[one["task"], one["way"]].append(one)
    rows: list[Row] = []

    def add(
        name: str, found: list[Found], path: tuple[str, ...], unit: str, better: str = "higher", **more: Any
    ) -> None:
        if name.endswith(("train_minutes", "pictures_per_s")) and not PLANS[plan].get("timed", True):
            return
        every: list[Any] = [value_at(one, path) for one in found]
        values = [float(value) for value in every if value is not None and not np.isnan(value)]
        if not values:  # for example places in pictures without things, or a process that ended too early
            return
        command = f"python benchmarks/pictures_from_words.py all --plan {plan} --out FOLDER"
        row: Row = {"id": name, "value": round(statistics.mean(values), 4), "unit": unit, "better": better}
        row |= {"spread": [round(value, 4) for value in spread(values)], "seeds": len(values), "command": command}
        rows.append(row | found[0]["origin"] | more)

    for (task, way), found in groups.items():
        first = found[0]
        if task == "ceiling":
            more: Found = {name: value_at(first, ("ceiling", name)) for name in ("pictures", "codewords")}
            scenes = "share of scenes read as written"
            add(f"from_text{prefix}.ceiling", found, ("ceiling", "codes"), scenes, **more)
            add(f"from_text{prefix}.ceiling.true_pictures", found, ("ceiling", "true"), scenes, **more)
            continue
        found = [one for one in found if one["steps"]]
        if not found:
            continue
        first = found[0]
        head = (
            f"{ {'scenes': 'from_text', 'digits': 'generate_digits', 'ising': 'generate_ising'}[task] }{prefix}.{way}"
        )
        cost = {"steps": [one["steps"] for one in found], "parameters": first["parameters"]}
        add(f"{head}.train_minutes", found, ("train_minutes",), "minutes", "lower", **cost)
        if task == "scenes":
            add_scenes(add, head, found)
        if task == "digits":
            more = {"true_digits": first["accuracy_true"]}
            for key in ("plain", "guided"):
                name = head if key == "plain" else f"{head}.guided"
                add(f"{name}.accuracy", found, (key, "accuracy"), "share of digits", **more)
                beside: Found = {"true_digits": first.get("nearest_true")}
                add(f"{name}.nearest", found, (key, "nearest"), "grey levels", **beside)
                beside = {"true_digits": first.get("distance_true")}
                add(f"{name}.distance", found, (key, "distance"), "grey levels", **beside)
            add(f"{head}.pictures_per_s", found, ("plain", "pictures_per_s"), "pictures/s")
        if task == "ising":
            add(f"{head}.energy_error", found, ("energy_error",), "J per spin", "lower")
            add(f"{head}.magnetisation_error", found, ("magnetisation_error",), "per spin", "lower")
            add(f"{head}.pictures_per_s", found, ("pictures_per_s",), "pictures/s")
            add(f"{head}.phase_error", found, ("phase_error",), "probability", "lower")
    rows += aliases(rows, prefix)
    record(out, rows)
    for row in rows:
        print(f"{row['id']:48} {row['value']:<10} {row['spread']}")


def value_at(found: Found, path: tuple[str, ...]) -> Any:
    """Value at a path of keys; None if a key is missing."""
    try:
        return reduce(getitem, path, found)
    except KeyError:
        return None


def add_scenes(add: Any, head: str, found: list[Found]) -> None:
    """Rows of the pictures of scenes."""
    for key in ("plain", "guided"):
        name = head if key == "plain" else f"{head}.guided"
        more: Found = {"guidance": value_at(found[0], (key, "guidance"))}
        for part in PARTS:
            many = more | {"pictures": value_at(found[0], (key, part, "pictures"))}
            add(f"{name}.{part}.right", found, (key, part, "right"), "share of pictures", **many)
        for mistake in MISTAKES:
            add(f"{name}.{mistake}", found, (key, "all", mistake), "share of pictures", "lower", **more)
    add(f"{head}.rebuilt", found, ("ceiling", "right"), "share of scenes read as written")
    add(f"{head}.pictures_per_s", found, ("plain", "one", "pictures_per_s"), "pictures/s")
    beside = {"training": value_at(found[0], ("diversity", "training_distance"))}
    add(f"{head}.diversity", found, ("diversity", "same_prompt_distance"), "pixels", **beside)
    for axis in "xy":
        add(f"{head}.places.p_{axis}", found, ("diversity", f"p_{axis}"), "p-value of a two-sample test")


def measure_captioner(plan: str, folder: Path, captioner: Path, out: Path) -> None:
    """Write rows of the agreement of a captioner with the parser, on the kept pictures of a folder.

    captioner   run folder, or a packed run, such as the transformer.tar of captions.py
    """
    torch.set_num_threads(1)
    prefix, rows = PLANS[plan]["prefix"], list[Row]()
    with TemporaryDirectory() as place:
        run = Run(captioner) if captioner.is_dir() else unpack(captioner, Path(place, "captioner"))
        for way in WAYS:
            for key in ("plain", "guided"):
                pairs = []
                for file in sorted([*folder.glob(f"pictures-{way}-*.npz"), *folder.glob(f"*/pictures-{way}-*.npz")]):
                    with np.load(file) as kept:
                        some = [kept[f"{key}-{part}"] for part in PARTS if f"{key}-{part}" in kept]
                    pairs += [captioner_agreement(run, np.concatenate(some))] if some else []
                if not (pairs := [pair for pair in pairs if pair[1]]):
                    continue
                shares = [same / count for same, count in pairs]
                name = f"from_text{prefix}.{way}{'.guided' if key == 'guided' else ''}.captioner_agreement"
                row: Row = {"id": name, "value": round(statistics.mean(shares), 4), "better": "higher"}
                row |= {"unit": "share of pictures with the same caption", "seeds": len(pairs)}
                row |= {"spread": [round(value, 4) for value in spread(shares)]}
                row |= {"command": "python benchmarks/pictures_from_words.py captioner OUT --captioner RUN"}
                rows.append(row | origin("cpu") | {"pictures": sum(count for _, count in pairs)})
    record(out, rows)
    for row in rows:
        print(f"{row['id']:48} {row['value']:<10} {row['spread']}")


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "pictures-from-words.json")
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("all", help="all tasks of a plan")
    part.add_argument("--tasks", type=lambda text: text.split(","), default=[], help="only these tasks, with commas")
    part.add_argument("--seconds", type=float, default=540, help="of the whole call on a GPU")
    part.add_argument("--train-share", type=float, default=0.74, help="share of the time after which trainings stop")
    part.add_argument("--copy", type=Path, help="folder for copies of results, log, pictures and a run")
    part.add_argument("--simulators", type=int, default=11, help="processes that simulate scenes")
    part.add_argument("--out", type=Path, default=Path("runs/pictures"), help="folder of the runs; it is emptied")
    part = parts.add_parser("one", help="one task (called by all)")
    part.add_argument("--task", choices=("ceiling", *TASKS), default="scenes")
    part.add_argument("--way", choices=WAYS, default="codes")
    part.add_argument("--seed", type=int, default=0)
    part.add_argument("--until", type=float, default=FOREVER, help="time at which the training stops, in s since 1970")
    part.add_argument("--judges", type=int, default=0, help="further processes that read the pictures")
    part.add_argument("--out", type=Path, required=True)
    part = parts.add_parser("collect", help="write rows")
    part.add_argument("out", type=Path, metavar="OUT")
    part = parts.add_parser("captioner", help="write rows of the agreement with a captioner")
    part.add_argument("out", type=Path, metavar="OUT")
    part.add_argument("--captioner", type=Path, required=True, help="run or packed run of images/caption-transformer")
    for part in parts.choices.values():
        part.add_argument("--plan", choices=PLANS, default="gpu")
    chosen = parser.parse_args()
    if chosen.part == "all":
        run_all(chosen)
    elif chosen.part == "one":
        one(chosen.task, chosen.way, chosen.seed, chosen.plan, chosen.out, chosen.until, chosen.judges)
    elif chosen.part == "collect":
        collect(chosen.plan, chosen.out, chosen.results)
    else:
        measure_captioner(chosen.plan, chosen.out, chosen.captioner, chosen.results)


if __name__ == "__main__":
    main()
