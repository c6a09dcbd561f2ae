"""The parts of `images.py`: digits, MNIST, few labels, galaxies, lenses."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import images_data
from lightcurves_data import confusion, judged
from lightcurves_tasks import Group, Part, Scores, classes
from pool import Result, Task
from sciformer.recipe import Recipe
from sciformer.run import Run

COMMON: dict[str, Any] = {
    "train.optimizer": "adamw",
    "train.betas": [0.9, 0.99],
    "train.weight_decay": 0.05,
    "train.clip_norm": 1.0,
    "train.schedule": "cosine",
    "train.min_lr_ratio": 0.01,
    "train.average_last": 0,
    "train.keep": 1,
    "train.log_every": 50,
    "train.patience": 0,
}
TINY: dict[str, Any] = {"train.steps": 3, "train.batch": 8, "train.warmup": 1, "train.evaluate_every": 3}
TINY |= {"train.save_every": 3}
SMALL = {"model.dim": 16, "model.depth": 1, "model.heads": 2}  # of a transformer
VARIED = {"tokens.augment": ["shift", "rotate"], "tokens.shift": 2, "tokens.rotate": 15}  # of digits
ROUND = {"tokens.augment": ["flip", "turn"]}  # of the sky
MODELS = {
    "vit": "images/galaxies",
    "linformer": "images/galaxies-linformer",
    "resnet18": "images/galaxies-resnet",
    "vit4": "images/galaxies",
}
LENSES = {"vit": "images/lenses", "resnet18": "images/lenses-resnet"}
STEPS = {"1000": (1500, 64), "10000": (3000, 128), "100000": (3000, 256)}  # updates and galaxies in each
SEEN: dict[str, dict[str, Any]] = {
    "vit": {"tokens.patch": 8},
    "linformer": {"tokens.patch": 8, "model.compress": 16},
    "resnet18": {},
    "vit4": {"tokens.patch": 4},
}
CHOSEN = 4000  # galaxies to choose by, at most as many as there are to train on
JUDGED = 10_000  # test images of galaxies or lenses


def settings(task: Task, steps: int, batch: int, best: str) -> dict[str, Any]:
    """Keys of the section `train` for a number of updates, with twenty evaluations."""
    steps = task["steps"] or steps
    often = max(1, steps // 20)
    found = COMMON | {"train.epochs": None, "train.steps": steps, "train.batch": batch, "train.warmup": steps // 20}
    found |= {"train.evaluate_every": often, "train.save_every": steps, "train.best": best}
    found |= {"train.learning_rate": task["rate"]}
    found |= {"train.seed": task["seed"], "train.compile": task["compile"], "train.workers": task["workers"]}
    if task["device"]:
        found["train.device"] = task["device"]
    if not task["tiny"]:
        return found
    return found | TINY | ({} if task["of"][1] in ("cnn", "resnet18") else SMALL)


def files(folder: Path, train: str, valid: str, test: str) -> dict[str, Any]:
    """Data section for files of images."""
    parts = {"files": train, "valid": valid, "test": test}
    return {"data.kind": "images", "data.chunk_size": 1 << 22} | {
        f"data.{key}": [str(folder / f"{name}.npz")] for key, name in parts.items()
    }


class Classes(Part):
    """Classification, with a confusion matrix over all folds."""

    choose = "accuracy"

    def prefix(self, group: Group) -> str:
        """Prefix of the row ids."""
        raise NotImplementedError

    def test(self, run: Run, task: Task) -> Result:
        outputs, names = run.evaluate("test").outputs, classes(run)
        answer = outputs["probabilities"].argmax(1)
        return {"classes": names, "confusion": confusion(outputs["label"], answer, len(names)).tolist()}

    def scores(self, group: Group, found: list[Result]) -> Scores:
        score = judged(np.sum([one["confusion"] for one in found], 0))
        return {f"{self.prefix(group)}.accuracy": (score["accuracy"], "share", "higher")}

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        sums = [np.sum([one["confusion"] for one in some], 0) for some in found]
        return {"classes": found[0][0]["classes"], "confusion": np.mean(sums, 0).round(1).tolist()}


class Digits(Classes):
    """1,797 digits of 8 x 8 pixels, five folds.

    The validation loss chooses: the accuracy of 180 images is too coarse.
    """

    choose, higher = "loss", False

    def prepare(self, options: argparse.Namespace) -> None:
        images_data.digits(options.data, options.out / "data" / "digits.npz")

    def folds(self, group: Group) -> int:
        return images_data.FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", model, "scratch") for model in ("vit", "cnn")]

    def prefix(self, group: Group) -> str:
        return f"digits.{group[1]}"

    def recipe(self, task: Task) -> Recipe:
        split = {"folds": images_data.FOLDS, "fold": task["fold"], "valid": 0.1, "stratify": "label"}
        changes: dict[str, Any] = {"data.kind": "images", "data.split": split}
        changes["data.files"] = [str(Path(task["data"]) / "digits.npz")]
        changes |= {"tokens.augment": ["rotate", "crop"], "tokens.rotate": 10, "tokens.crop": [0.8, 1.0]}
        return Recipe.load(f"images/digits-{task['of'][1]}", changes | settings(task, 600, 64, best="loss"))


class Mnist(Classes):
    """MNIST: 55,000 images for training, 5,000 for validation, 10,000 for testing."""

    def prepare(self, options: argparse.Namespace) -> None:
        if options.data is None:
            raise SystemExit("--data FOLDER is needed: the folder with the idx files of MNIST")
        images_data.mnist(options.data, options.out / "data" / "mnist", options.seeds)

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", model, "scratch") for model in ("vit", "cnn")]

    def prefix(self, group: Group) -> str:
        return f"mnist.{group[1]}"

    def recipe(self, task: Task) -> Recipe:
        parts = ("train-10-0",) * 3 if task["tiny"] else ("train", "valid", "test")
        changes = files(Path(task["data"]) / "mnist", *parts) | VARIED
        return Recipe.load(f"images/mnist-{task['of'][1]}", changes | settings(task, 7000, 512, best="accuracy"))


class Pretrain(Mnist):
    """The ViT of MNIST as a masked autoencoder, without labels."""

    choose, higher, judged = "loss", False, False

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "vit", "mae")]

    def recipe(self, task: Task) -> Recipe:
        parts = ("train-10-0",) * 3 if task["tiny"] else ("train", "valid", "test")
        changes = files(Path(task["data"]) / "mnist", *parts) | VARIED
        changes |= settings(task, 10_000, 512, best="loss")
        if task["tiny"]:
            changes |= {"model.decoder_dim": 16, "model.decoder_depth": 1, "model.decoder_heads": 2}
        return Recipe.load("images/mnist-mae", changes)


class FewShot(Mnist):
    """10 and 100 labels per class, from random weights and from the masked autoencoder."""

    def groups(self, options: argparse.Namespace) -> list[Group]:
        sizes = [str(few) for few in images_data.FEW][: 1 if options.tiny else None]
        return [(size, "vit", way) for size in sizes for way in ("mae", "scratch", "probe")]

    def prefix(self, group: Group) -> str:
        return f"mnist_fewshot.{group[0]}.{group[2]}"

    def recipe(self, task: Task) -> Recipe:
        size, _, way = task["of"]
        end = f"{size}-{task['seed']}"
        parts = (f"train-{end}", f"valid-{end}", f"valid-{end}" if task["tiny"] else "test")
        changes = files(Path(task["data"]) / "mnist", *parts) | VARIED
        changes |= settings(task, *{"10": (1000, 64), "100": (2000, 128)}[size], best="accuracy")
        if way != "scratch":
            changes["train.init_from"] = str(Path(task["out"]) / "runs" / "pretrain-all-vit-mae-0")
        if way == "probe":
            changes["train.freeze"] = True
        return Recipe.load("images/mnist-vit", changes)


class Galaxies(Classes):
    """Eight classes of simulated galaxies: accuracy against the number of images."""

    def prepare(self, options: argparse.Namespace) -> None:
        sizes = [64] if options.tiny else [int(size) for size in STEPS]
        made = {"data.number": max(sizes), "data.valid": 16 if options.tiny else CHOSEN}
        made |= {"data.test": 16 if options.tiny else JUDGED}
        section = Recipe.load("images/galaxies", made).data
        images_data.simulated(section, options.out / "data" / "galaxies", sizes, options.jobs, ("label", "snr"))

    def groups(self, options: argparse.Namespace) -> list[Group]:
        sizes = options.sizes[: 1 if options.tiny else None]
        return [(size, model, "scratch") for size in sizes for model in options.models]

    def prefix(self, group: Group) -> str:
        return f"galaxies.{group[0]}.{group[1]}"

    def recipe(self, task: Task) -> Recipe:
        size, model, _ = task["of"]
        changes = files(Path(task["data"]) / "galaxies", f"train-{64 if task['tiny'] else size}", "valid", "test")
        changes |= ROUND | SEEN[model] | settings(task, *STEPS[size], best="accuracy")
        return Recipe.load(MODELS[model], changes)

    def test(self, run: Run, task: Task) -> Result:
        """Scores with the accuracy by signal-to-noise ratio."""
        found = run.evaluate("test")
        names, label = classes(run), found.outputs["label"]
        answer = found.outputs["probabilities"].argmax(1)
        kept: Result = {"classes": names, "confusion": confusion(label, answer, len(names)).tolist()}
        if "snr" in found.samples:
            edges = np.quantile(found.samples["snr"], [0.25, 0.5, 0.75])
            bins = np.searchsorted(edges, found.samples["snr"])
            kept["by_snr"] = [float((answer == label)[bins == one].mean()) for one in range(4)]
            kept["snr"] = edges.round(2).tolist()
        return kept

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        more = super().about(group, found) | SEEN[group[1]]
        if "by_snr" in found[0][0]:
            quarters = np.mean([one["by_snr"] for some in found for one in some], 0)
            more |= {"accuracy_by_snr": quarters.round(4).tolist(), "snr": found[0][0]["snr"]}
        return more


class Lenses(Part):
    """Einstein radius, ellipticity, centre and slope of simulated lenses, with uncertainty."""

    choose, higher = "loss", False

    def prepare(self, options: argparse.Namespace) -> None:
        number = 64 if options.tiny else options.number
        made = {"data.number": number, "data.valid": 16 if options.tiny else CHOSEN}
        recipe = Recipe.load("images/lenses", made | {"data.test": 16 if options.tiny else JUDGED})
        objective: Any = recipe.objective
        out = options.out / "data" / "lenses"
        images_data.simulated(recipe.data, out, [number], options.jobs, tuple(objective.targets))

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", model, "scratch") for model in LENSES]

    def recipe(self, task: Task) -> Recipe:
        number = 64 if task["tiny"] else task["number"]
        changes = files(Path(task["data"]) / "lenses", f"train-{number}", "valid", "test")
        changes |= {"tokens.augment": []}  # a mirror image has another ellipticity
        return Recipe.load(LENSES[task["of"][1]], changes | settings(task, 5000, 256, best="loss"))

    def test(self, run: Run, task: Task) -> Result:
        outputs = run.evaluate("test").outputs
        objective: Any = run.assembly.objective
        mean, std, truth = (np.asarray(outputs[key], np.float64) for key in ("mean", "std", "target"))
        off = np.abs(mean - truth)
        found = {"rmse": np.sqrt((off**2).mean(0)), "deviation": truth.std(0)}
        found |= {"coverage68": (off <= std).mean(0), "coverage95": (off <= 1.96 * std).mean(0)}
        return {"targets": list(objective.targets)} | {key: values.tolist() for key, values in found.items()}

    def scores(self, group: Group, found: list[Result]) -> Scores:
        (one,) = found
        place = one["targets"].index("einstein_radius")
        made: Scores = {f"lenses.{group[1]}.einstein_rmse": (one["rmse"][place], "arcsec", "lower")}
        if group[1] == "vit":
            for share in (68, 95):
                made[f"lenses.coverage{share}"] = (float(np.mean(one[f"coverage{share}"])), "share", "higher")
        return made

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        names = found[0][0]["targets"]
        keys = ("rmse", "deviation", "coverage68", "coverage95")
        means = {key: np.mean([some[0][key] for some in found], 0).round(4).tolist() for key in keys}
        return {"by_target": {name: {key: means[key][i] for key in keys} for i, name in enumerate(names)}}
