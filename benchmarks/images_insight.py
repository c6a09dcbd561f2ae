"""Attention of trained vision transformers. `python benchmarks/images_insight.py PART ...`

    looks   a ViT on simulated galaxies, on MNIST (--on mnist --data FOLDER) or on the digits of scikit-learn with one
            token per pixel (--on digits). Are position codes similar nearby? Does attention distance grow with depth?
            Does removing the attended patches change the prediction more than removing random patches?
    cues    ViT and CNN trained on images whose shape and texture agree, tested on images where they disagree

Three seeds each, trained side by side (--jobs) at one learning rate. Figures of the first seed go to --pictures.
Complete runs are kept in --out, and the same command resumes from there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import images_data
from images_tasks import CHOSEN, JUDGED, ROUND, Digits, Galaxies, Mnist, files, settings
from lightcurves_tasks import classes
from measure import RESULTS, ROOT, Row, record
from pool import Result, Task, seeds_row, side_by_side
from sciformer.domains.images.cues import cue_bias, draw_bias
from sciformer.inspection.attention import attention_maps, even_steps
from sciformer.inspection.distance import attention_distances, depth, draw_reach
from sciformer.inspection.faithfulness import draw_faithfulness, draw_reasons, faithfulness, score_tokens
from sciformer.inspection.positions import draw_positions, position_similarity
from sciformer.recipe import Recipe
from sciformer.run import Run, train

CUES = {"vit": "images/cues-vit", "cnn": "images/cues-cnn"}
SAMPLES = 256  # inspected images
DOTS = 110
RATE = 5e-4


def work(task: Task) -> Result:
    """Train one model and inspect it."""
    torch.set_num_threads(1)
    run = train(recipe(task), Path(task["out"]) / "runs" / task["name"], report=False, show=False)
    found: Result = {key: task[key] for key in ("part", "model", "seed", "places")}
    found |= {"parameters": run.about["parameters"], "training_s": round(run.about["seconds"], 1)}
    found |= {"device": run.device.type, "steps": run.recipe.train.total(1), "on": task["on"]}
    return found | (looks(run, task) if task["part"] == "looks" else cues(run, task))


def recipe(task: Task) -> Recipe:
    """Recipe of a task."""
    data = Path(task["data"]) / ("galaxies" if task["part"] == "looks" else "cues")
    changes = files(data, f"train-{task['number']}", "valid", "test")
    if task["part"] == "looks" and task["on"] == "digits":
        whole = Digits().recipe(task | {"fold": task["seed"]})
        changes = {"tokens.patch": 1} | settings(task, 4000, 64, best="loss") | places(task)
        return whole.change(changes | ({"model.depth": 2} if task["tiny"] else {}))
    if task["part"] == "looks" and task["on"] == "mnist":
        kept = Path(task["data"]) / "mnist"
        parts = ("train-10-0",) * 3 if task["tiny"] else ("train", "valid", "test")
        changes = files(kept, *parts) | settings(task, 1500, 64, best="accuracy")
        return Recipe.load("images/mnist-vit", changes | places(task) | ({"model.depth": 2} if task["tiny"] else {}))
    if task["part"] == "looks":
        changes |= places(task)
        changes |= ROUND | settings(task, 4000, 256, best="accuracy") | ({"model.depth": 2} if task["tiny"] else {})
        return Recipe.load("images/galaxies", changes)
    return Recipe.load(CUES[task["model"]], changes | settings(task, 2000, 128, best="accuracy"))


def places(task: Task) -> dict[str, Any]:
    """Changes of the recipe for the initial standard deviation of positions."""
    return {"model.position": "learned", "model.position_scale": task["places"]} if task["places"] else {}


def looks(run: Run, task: Task) -> Result:
    """Three scores of a ViT, and for the first seed their figures."""
    data = run.data()
    dataset = data.dataset("test")
    batch = dataset.batch(even_steps(len(dataset), 8 if task["tiny"] else SAMPLES))
    codes = position_similarity(run.step, data, batch)
    assert codes is not None
    distances = attention_distances(attention_maps(run.step, data, batch), data)
    deeper = depth(distances)
    faith = faithfulness(run.step, data, batch)
    if task["pictures"]:
        save(draw_positions(codes), task, "positions")
        save(draw_reach(distances), task, "reach")
        save(draw_faithfulness(faith), task, "faithfulness")
        few = dataset.batch(even_steps(len(dataset), 4))
        save(draw_reasons(data, few, score_tokens(run.step, data, few), 1), task, "reasons")
    blind = [float(one.uniform.mean()) for one in distances.values()]
    return {
        "valid": run.scores,
        "accuracy": float(run.evaluate("test").scores["accuracy"]),
        "positions": codes.correlation,
        "neighbours": list(codes.neighbours),
        "depth": deeper.correlation,
        "reach": deeper.heads.round(2).tolist(),
        "uniform_reach": round(float(np.mean(blind)), 2),
        "faithfulness": {way: list(ratio) for way, ratio in faith.ratio.items()},
        "removed": faith.removed,
        "samples": len(batch),
    }


def cues(run: Run, task: Task) -> Result:
    """Share of predictions by shape and by texture, where the two disagree."""
    found = run.evaluate("test")
    answer = np.asarray(classes(run))[found.outputs["probabilities"].argmax(1)]
    bias = cue_bias(answer, found.samples["label"], found.samples["texture"])
    counts = {"first": bias.first, "second": bias.second, "neither": bias.neither, "classes": bias.classes}
    return {"valid": run.scores, "bias": bias.value, "counts": counts}


def save(figure: Figure, task: Task, name: str) -> None:
    """Write a figure for the guide."""
    folder = Path(task["pictures"])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"images-{name}.png", dpi=DOTS, facecolor="white")


def tasks(options: argparse.Namespace, part: str) -> dict[str, Task]:
    """Runs of a part, by name."""
    made = {}
    for model in ("vit",) if part == "looks" else CUES:
        quiet = f"-{options.places:g}" if options.places else ""
        for seed in options.seeds:
            name = f"{part}-{model}-{seed}" if part == "cues" else f"{part}-{options.on}{quiet}-{seed}"
            task = {"name": name, "part": part, "model": model, "seed": seed, "of": ("all", model, "scratch")}
            task |= {
                key: getattr(options, key)
                for key in ("tiny", "compile", "device", "steps", "workers", "rate", "on", "places")
            }
            number = 64 if options.tiny else options.galaxies if part == "looks" else options.cues
            pictures = str(options.pictures.resolve()) if seed == options.seeds[0] else ""
            out = options.out.resolve()
            made[name] = task | {"number": number, "pictures": pictures, "out": str(out), "data": str(out / "data")}
    return made


def prepare(options: argparse.Namespace, part: str) -> None:
    """Simulate the images."""
    if part == "looks":
        {"mnist": Mnist, "digits": Digits, "galaxies": Galaxies}[options.on]().prepare(options)
        return
    number = 64 if options.tiny else options.cues
    few = {"data.valid": 16, "data.test": 16} if options.tiny else {"data.valid": CHOSEN, "data.test": JUDGED}
    section = Recipe.load(CUES["vit"], {"data.number": number, **few}).data
    images_data.simulated(section, options.out / "data" / "cues", [number], options.jobs, ("label", "texture"))


def rows(part: str, found: list[Result], rate: float) -> list[Row]:
    """Rows of a part, for models with all seeds done."""
    one = found[0]
    about: dict[str, Any] = {key: one[key] for key in ("parameters", "steps")}
    about |= {"rate": rate, "training_s": [each["training_s"] for each in found]}
    command = f"python benchmarks/images_insight.py {part}" + (
        f" --on {one['on']}" if part == "looks" and one["on"] != "galaxies" else ""
    )
    command += f" --places {one['places']:g}" if part == "looks" and one["places"] else ""
    command += f" --rate {rate:g}" if rate != RATE else ""
    common = (command, one["device"])
    if part == "cues":
        sums = {key: sum(each["counts"][key] for each in found) for key in ("first", "second", "neither")}
        about |= {"answers": dict(zip(("shape", "texture", "neither"), sums.values()))}
        about |= {"valid_accuracy": [round(each["valid"]["accuracy"], 5) for each in found]}
        values = [each["bias"] for each in found]
        return [seeds_row(f"insight.shape_bias.{one['model']}", values, "share", "higher", *common, **about)]
    about |= {key: one[key] for key in ("on", "samples", "removed", "reach", "uniform_reach")}
    about |= {"accuracy": [round(each["accuracy"], 5) for each in found]}
    if "neighbours" in one:  # how alike codes of neighbours are, and of others
        about["neighbours"] = np.mean([each["neighbours"] for each in found], 0).round(4).tolist()
    name_of = "insight" if one["on"] == "digits" else f"insight_{one['on']}"
    ways = {
        way: [round(float(np.mean([each["faithfulness"][way][i] for each in found])), 4) for i in (0, 1)]
        for way in one["faithfulness"]
    }
    made = {
        "position_similarity_correlation": ([each["positions"] for each in found], "lower"),
        "attention_distance_depth_correlation": ([each["depth"] for each in found], "higher"),
        "faithfulness_ratio": ([each["faithfulness"]["attention"][0] for each in found], "higher"),
    }
    return [
        seeds_row(f"{name_of}.{name}", values, "x" if "ratio" in name else "", better, *common, **about, ways=ways)
        for name, (values, better) in made.items()
    ]


def measure(options: argparse.Namespace, part: str) -> None:
    """Train all runs of a part; rows are written when models are done."""
    prepare(options, part)
    done: dict[str, list[Result]] = {}
    for name, result in side_by_side(work, tasks(options, part), options.jobs, options.out / "results"):
        print(f"{name}: in validation {result['valid']}", flush=True)
        mine = done.setdefault(result["model"], [])
        mine.append(result)
        if len(mine) == len(options.seeds):
            made = rows(part, sorted(mine, key=lambda one: one["seed"]), options.rate)
            record(options.results, made)
            for row in made:
                print(f"{row['id']:48} {row['value']:.4f} ± {row['spread']}", flush=True)
    if part == "cues" and len(done) == len(CUES):
        from sciformer.domains.images.cues import CueBias

        first = {model: min(mine, key=lambda one: one["seed"])["counts"] for model, mine in done.items()}
        shown = {
            name: CueBias(
                **{**first[model], "classes": {key: tuple(two) for key, two in first[model]["classes"].items()}}
            )
            for model, name in (("vit", "ViT"), ("cnn", "CNN"))
        }
        save(draw_bias(shown, "shape", "texture"), {"pictures": str(options.pictures)}, "cues")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["looks", "cues"])
    parser.add_argument(
        "--galaxies", type=int, default=100_000, choices=[1000, 10_000, 100_000], help="training images"
    )
    parser.add_argument(
        "--on", default="galaxies", choices=["galaxies", "mnist", "digits"], help="data of the ViT of looks"
    )
    parser.add_argument("--places", type=float, default=0, help="initial standard deviation of position codes")
    parser.add_argument("--data", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument("--cues", type=int, default=20_000, help="images of shapes to train on")
    parser.add_argument("--steps", type=int, default=0, help="number of updates (default: that of the part)")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=6, help="runs at a time; 0: in this process")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare the batches of a run")
    parser.add_argument("--compile", action="store_true", help="compile the model, for long trainings")
    parser.add_argument("--device", default="")
    parser.add_argument("--tiny", action="store_true", help="small test of the script, in seconds")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--out", type=Path, default=Path("runs/images"))
    parser.add_argument("--results", type=Path, default=RESULTS / "images-insight.json")
    options = parser.parse_args(arguments)
    if options.tiny:
        options.out /= "tiny"
        options.out.mkdir(parents=True, exist_ok=True)
        options.results, options.pictures = options.out / "rows.json", options.out / "pictures"
    began = time.monotonic()
    for part in options.parts:
        measure(options, part)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
