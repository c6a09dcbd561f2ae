"""The Ising table: temperature intervals of lattices, four boundaries x three models x two ways, and the ceiling.

    python benchmarks/spins_table.py ceiling --cache runs/cache              one CPU core, about 2 minutes a boundary
    python benchmarks/spins_table.py table --cache runs/cache --jobs 8       one GPU and 16 cores, below 9 minutes

P(s | T) depends on a lattice s through its energy alone, so no classifier beats the best classifier of the energy: that
is the ceiling. It is a decision tree of 8 leaves, fitted to one half of the lattices and tested on the other half, both
ways. The models see 700 lattices for training and are tested on 1,960 of other Markov chains. `pretrained` starts from
a masked training on 2,660 other lattices without labels, of the same boundary. The learning rate of each model and way
is chosen on the validation part of the periodic setting, from the same grid for all; then three seeds are trained with
it on every setting. Results of single runs are stored in --out, so an interrupted table is resumed.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, versions
from pool import Result, Task, seeds_row, side_by_side
from sciformer.domains.spins.simulation import IsingLattices
from sciformer.recipe import Recipe
from sciformer.run import train

SETTINGS = {
    "periodic": {"boundary": "periodic", "coupling": 1.0},
    "antiferro": {"boundary": "periodic", "coupling": -1.0},
    "skewed": {"boundary": "skewed", "coupling": 1.0},
    "antiperiodic": {"boundary": "antiperiodic", "coupling": 1.0},
}
MODELS = {"vit": "", "resnet18": "-resnet18", "resnet50": "-resnet50"}
RATES = (2e-4, 5e-4, 1e-3)
SEEDS = (0, 1, 2)
LEAVES = 8
TINY: dict[str, Any] = {
    "data.size": 32,
    "data.number": 60,
    "train.steps": 4,
    "train.evaluate_every": 2,
    "train.warmup": 1,
}
TINY |= {"train.batch": 8, "train.device": "cpu"}


def changes_of(task: Task, boundary: str) -> dict[str, Any]:
    """Changes of a recipe for a task on a boundary."""
    data = {f"data.{key}": value for key, value in SETTINGS[boundary].items()}
    tiny = TINY if task["tiny"] else {}
    return {**data, "data.cache": task["cache"], "train.compile": False, **tiny}


def work(task: Task) -> Result:
    """Pretrain or train a model, and return its accuracies."""
    suffix, folder = MODELS[task["model"]], Path(task["folder"])
    own = {**changes_of(task, task["boundary"]), "train.seed": task["seed"]}
    if task["way"] == "masked":
        recipe = Recipe.load(f"spins/ising-masked{suffix}", own)
        run = train(recipe, folder / task["name"], show=False, report=False)
        return {"loss": run.scores["loss"], "seconds": run.about["seconds"]}
    own["train.learning_rate"] = task["rate"]
    if task["way"] == "pretrained":
        own["train.init_from"] = str(folder / f"masked-{task['boundary']}-{task['model']}")
    recipe = Recipe.load(f"spins/ising-temperature{suffix}", own)
    run = train(recipe, folder / task["name"], show=False, report=False)
    found = {part: run.evaluate(part).scores["accuracy"] for part in ("valid", "test")}
    return {**found, "rate": task["rate"], "seconds": run.about["seconds"]}


def simulate(task: Task) -> Result:
    """Simulate the lattices of a boundary into the cache."""
    data = Recipe.load(task["recipe"], changes_of(task, task["boundary"])).data
    return {"lattices": sum(sum(source.sizes) for source in data.open().sources.values())}


def ceiling(cache: str, number: int | None, size: int | None, names: list[str], out: Path) -> None:
    """Measure and record the accuracy of the best classifier of the energy."""
    from sklearn.tree import DecisionTreeClassifier

    asked = f" --number {number}" if number else ""
    for name in names:
        more: dict[str, Any] = {"data.number": number} if number else {}
        more |= {"data.size": size} if size else {}
        task: Task = {"tiny": False, "cache": cache}
        recipe = Recipe.load("spins/ising-temperature", changes_of(task, name) | more)
        data: IsingLattices = recipe.data
        sources = data.open().sources
        energies, labels = [], []
        for source in sources.values():
            table = source.load(0)
            energies.append(np.asarray(table["energy"]))
            labels.append(np.asarray(table["interval"]))
        energy, label = np.concatenate(energies)[:, None], np.concatenate(labels)
        half = np.random.default_rng(0).permutation(len(label)) % 2 == 0
        right = np.zeros(len(label), bool)
        for fitted, tested in ((half, ~half), (~half, half)):
            tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, random_state=0).fit(energy[fitted], label[fitted])
            right[tested] = tree.predict(energy[tested]) == label[tested]
        value = float(right.mean())
        error = float(np.sqrt(value * (1 - value) / len(right)))
        row: Row = {"id": f"ising_bc.{name}.ceiling.accuracy", "value": round(value, 4), "unit": "share of lattices"}
        row |= {"better": "higher", "spread": round(error, 4), "seeds": 1}
        row |= {"command": f"python benchmarks/spins_table.py ceiling{asked}", "hardware": hardware("cpu")}
        row |= {"versions": versions(), "commit": commit(), "lattices": len(right), "size": data.size}
        record(out, [row])
        print(f"{row['id']}: {value:.4f} +- {error:.4f}", flush=True)


def table(options: argparse.Namespace) -> None:
    """Train all runs of the table and record their rows."""
    seeds, out = SEEDS[: options.seeds], options.out
    shared = {"cache": options.cache, "tiny": options.tiny, "folder": str(out / "runs")}

    def all_of(tasks: dict[str, Task], call: Any = work) -> dict[str, Result]:
        named = {name: {**shared, **task, "name": name} for name, task in tasks.items()}
        done = {}
        for name, found in side_by_side(call, named, options.jobs, out / "results"):
            done[name] = found
            print(name, {key: value for key, value in found.items() if isinstance(value, float)}, flush=True)
        return done

    recipes = {"labelled": "spins/ising-temperature", "unlabelled": "spins/ising-masked"}
    all_of(
        {f"data-{kind}-{b}": {"recipe": recipe, "boundary": b} for kind, recipe in recipes.items() for b in SETTINGS},
        simulate,
    )
    tuned: dict[str, Task] = {
        f"tune-scratch-{model}-{rate:g}": {"model": model, "way": "scratch", "boundary": "periodic", "rate": rate}
        for model in MODELS
        for rate in RATES
    }
    before: dict[str, Task] = {
        f"masked-{boundary}-{model}": {"model": model, "way": "masked", "boundary": boundary}
        for boundary in SETTINGS
        for model in MODELS
    }
    found = all_of({name: {**task, "seed": 0} for name, task in {**tuned, **before}.items()})
    again = {name.replace("scratch", "pretrained"): {**task, "way": "pretrained"} for name, task in tuned.items()}
    found |= all_of({name: {**task, "seed": 0} for name, task in again.items()})
    best = {
        (model, way): max(RATES, key=lambda rate: found[f"tune-{way}-{model}-{rate:g}"]["valid"])
        for model in MODELS
        for way in ("scratch", "pretrained")
    }
    final = {
        f"{boundary}-{model}-{way}-{seed}": {
            "boundary": boundary,
            "model": model,
            "way": way,
            "rate": rate,
            "seed": seed,
        }
        for boundary in SETTINGS
        for (model, way), rate in best.items()
        for seed in seeds
    }
    found |= all_of(final)
    device = "cpu" if options.tiny or not torch.cuda.is_available() else "cuda"
    rows = []
    for boundary in SETTINGS:
        for (model, way), rate in best.items():
            values = [found[f"{boundary}-{model}-{way}-{seed}"]["test"] for seed in seeds]
            name = f"ising_bc.{boundary}.{model}.{way}.accuracy"
            command = "python benchmarks/spins_table.py table"
            rows.append(seeds_row(name, values, "share of lattices", "higher", command, device, learning_rate=rate))
            print(f"{name}: {statistics.mean(values):.4f}")
    record(options.rows, rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("ceiling", help="best classifier of the energy")
    first.add_argument("--number", type=int, help="number of lattices (default: that of the recipe)")
    first.add_argument("--size", type=int, help="side of the lattices (default: that of the recipe)")
    first.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    second = verbs.add_parser("table", help="all trainings of the table")
    second.add_argument("--jobs", type=int, default=8, help="processes side by side; 0: this one")
    second.add_argument("--seeds", type=int, default=len(SEEDS), help="number of seeds")
    second.add_argument("--tiny", action="store_true", help="a few steps of small lattices on the CPU, for a test")
    second.add_argument("--out", type=Path, default=Path("runs/spins-table"), help="folder of single runs")
    for one in (first, second):
        one.add_argument("--cache", default="runs/cache", help="folder of simulated lattices")
        one.add_argument("--rows", type=Path, default=RESULTS / "spins.json")
    options = parser.parse_args(arguments)
    if options.verb == "ceiling":
        ceiling(options.cache, options.number, options.size, options.settings, options.rows)
    else:
        table(options)


if __name__ == "__main__":
    main()
