"""The parts of `lightcurves.py` on real curves: ASAS, Stripe 82, ZTF."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lightcurves_data import FOLDS, confusion, judged, keep, prepare
from lightcurves_tasks import TINY, Group, Part, Scores, calibrated, classes, files, settings, values
from pool import Result, Task
from sciformer.domains.lightcurves.periods import find_periods
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import Run

BODY = "lightcurves/transformer"  # recipe of the pretrained model
STEPS = {"20": (800, 32), "100": (2000, 64), "all": (2000, 64)}  # updates and curves in each, by labels of a class
FOLDED = 30_000  # simulated stars to pretrain on where each has its periods found, some 7 ms a star
BODIES = {"pretrained": ("transformer", "masked"), "supervised": ("transformer", "supervised")}
HOWS = ("head", "probe")  # a body that learns at a tenth of the head's rate, one that learns nothing more
WAYS = BODIES | {f"{way}_{how}": body for way, body in BODIES.items() for how in HOWS}  # what was pretrained, and how
WAYS |= {"folded_supervised": ("folded", "supervised")}
HEADS = ("pretrained_head", "supervised_head", "folded_supervised")
BEFORE = {  # keys of the recipe of `sciformer new` in version 0.1.0, where it differs from today's
    "tokens.centre": "mean",
    "tokens.times": "position",
    "tokens.periods": 0,
    "tokens.summary": False,
    "tokens.augment": [],
    "model.dim": 32,
    "model.depth": 2,
    "model.heads": 4,
    "model.dropout": 0.1,
    "model.mlp_ratio": 4,
    "model.position": "auto",
    "model.pool": "auto",
    "train.steps": 800,
    "train.batch": 8,
    "train.warmup": 80,
    "train.evaluate_every": 40,
    "train.min_lr_ratio": 0.1,
    "train.betas": [0.9, 0.95],
    "train.weight_decay": 0.1,
}
NOT_ASTROMER = ("model.dim", "model.depth", "model.heads")  # fixed by its published weights


def folder_of(options: argparse.Namespace) -> Path:
    """Folder of the real curves."""
    if options.data is None:
        raise SystemExit("--data FOLDER is needed: the folder with the real curves")
    return Path(options.data)


class Classes(Part):
    """Classification, with a confusion matrix over all folds."""

    metrics: tuple[str, ...] = ("macro_f1", "accuracy")

    def prefix(self, group: Group) -> str:
        """Prefix of the row ids."""
        raise NotImplementedError

    def test(self, run: Run, task: Task) -> Result:
        outputs = run.evaluate("test").outputs
        names = classes(run)
        answer = outputs["probabilities"].argmax(1)
        return {"classes": names, "confusion": confusion(outputs["label"], answer, len(names)).tolist()}

    def scores(self, group: Group, found: list[Result]) -> Scores:
        score = judged(np.sum([one["confusion"] for one in found], 0))
        return {f"{self.prefix(group)}.{metric}": (score[metric], "share", "higher") for metric in self.metrics}

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        sums = [np.sum([one["confusion"] for one in some], 0) for some in found]
        return {"classes": found[0][0]["classes"], "confusion": np.mean(sums, 0).round(1).tolist()}


class Asas(Classes):
    """All labels: the transformer against GRU, LSTM and CNN."""

    def prepare(self, options: argparse.Namespace) -> None:
        prepare(folder_of(options) / "asas_variables.parquet", options.out / "data" / "asas")

    def folds(self, group: Group) -> int:
        return FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", model, "scratch") for model in options.models]

    def prefix(self, group: Group) -> str:
        return f"asas.{group[1]}"

    def recipe(self, task: Task) -> Recipe:
        changes = files(task, "asas") | settings(task, *STEPS["all"], best="macro_f1")
        model, _, told = task["of"][1].partition("_")
        return Recipe.load(f"lightcurves/{model}", changes | ({"tokens.periods": 2} if told else {}))


class Pretrain(Part):
    """Pretraining without labels, or with the labels of simulated stars.

    Without labels, the data are simulated stars and the real curves outside a fold.
    """

    choose, higher, judged = "loss", False, False

    def prepare(self, options: argparse.Namespace) -> None:
        Asas().prepare(options)
        number = 400 if options.tiny else options.number
        trained = list((options.out / "results").glob("pretrain-all-transformer-masked-*.json"))
        wanted = len(options.seeds) if options.paired else options.folds
        if any(way.startswith("pretrained") for way in options.ways) and len(trained) < wanted:
            keep(Recipe.load(BODY, stars(number)).data, options.out / "data" / f"stars-{number}")

    def folds(self, group: Group) -> int:
        return FOLDS if group[2] == "masked" else 1

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return list(dict.fromkeys(("all", *WAYS[way]) for way in options.ways if way in WAYS))

    def recipe(self, task: Task) -> Recipe:
        number, batch = 400 if task["tiny"] else task["number"], 256
        if task["of"][1] == "folded":
            number = min(number, FOLDED)
            made = settings(task, number * 2 * task["epochs"] // batch, batch, best="loss")
            beside = {} if task["tiny"] else {"train.workers": max(4, task["workers"])}
            return Recipe.load("lightcurves/folded", stars(number) | made | beside)
        made = settings(task, number * task["epochs"] // batch, batch, best="loss")
        if task["of"][2] == "supervised":
            return Recipe.load(BODY, stars(number) | made)
        real = files(task, "asas")
        kept = Path(task["data"]) / f"stars-{number}"
        real["data.files"] = [str(kept / "*.parquet"), *real["data.files"]]
        asked = {"objective.kind": "masked", "objective.mask_ratio": 0.5, "tokens.gaussian": True}
        return Recipe.load(BODY, real | asked | made)


def stars(number: int) -> dict[str, Any]:
    """Data section for simulated stars."""
    found = {"data.kind": "lightcurves", "data.what": "stars", "data.number": number, "data.cadence": "asas"}
    return found | {"data.valid": min(5000, number), "data.test": 0}


class FewShot(Classes):
    """20, 100 and all labels per class, from several initial weights."""

    metrics: tuple[str, ...] = ("macro_f1",)

    def prepare(self, options: argparse.Namespace) -> None:
        Asas().prepare(options)
        if "astromer1" in options.ways and not (options.out / "astromer1").exists():
            from sciformer.interop import import_model

            import_model(folder_of(options) / "astromer1_macho_weights.npz", options.out / "astromer1")

    def folds(self, group: Group) -> int:
        return FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        sizes = options.sizes[:1] if options.tiny else options.sizes
        return [(size, "transformer", way) for size in sizes for way in options.ways]

    def prefix(self, group: Group) -> str:
        return f"asas_fewshot.{group[0]}.{group[2]}"

    def recipe(self, task: Task) -> Recipe:
        (size, _, way), out = task["of"], Path(task["out"])
        changes = files(task, "asas", size) | settings(task, *STEPS[size], best="macro_f1")
        if way == "astromer1":
            own = {key: value for key, value in changes.items() if key not in NOT_ASTROMER}
            own |= {"objective.balance": "classes", "train.init_from": str(out / "astromer1")}
            return Recipe.load("lightcurves/astromer-classify", own)
        if way in HEADS:  # the head is new, the body knows what to look at
            changes |= {"train.learning_rate": task["rate"] / 10, "train.head_lr_scale": 10}
        if way.endswith("_probe"):
            changes["train.freeze"] = True
        if way in WAYS:
            body, how = WAYS[way]
            fold = task["fold"] * (how == "masked")
            changes["train.init_from"] = str(out / "runs" / f"pretrain-all-{body}-{how}-{fold}")
        return Recipe.load("lightcurves/folded" if way.startswith("folded") else BODY, changes)

    def words(self, options: argparse.Namespace) -> str:
        return f" --epochs {options.epochs}"

    def same(self, group: Group) -> tuple[str, Group] | None:
        size, _, way = group
        model = {"scratch": "transformer", "folded": "folded"}.get(way)
        return ("asas", ("all", model, "scratch")) if size == "all" and model else None

    def known(self, group: Group) -> dict[str, str]:
        same = self.same(group)
        return {f"{self.prefix(group)}.macro_f1": f"asas.{same[1][1]}.macro_f1"} if same else {}


class Written(Classes):
    """The recipe that `sciformer new` writes for the labelled stars of a fold, as it is: nothing is tuned.

    It splits its own validation part off these stars. `before` is the recipe of version 0.1.0.
    """

    metrics: tuple[str, ...] = ("macro_f1",)
    rates: tuple[float, ...] = (1e-3,)  # that of the recipe

    def prepare(self, options: argparse.Namespace) -> None:
        Asas().prepare(options)

    def folds(self, group: Group) -> int:
        return FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        both = ("before", "now")
        return [("20", "new", way) for way in both if way in options.ways or not {*both} & {*options.ways}]

    def prefix(self, group: Group) -> str:
        return f"asas_new.{group[0]}.{group[2]}"

    def recipe(self, task: Task) -> Recipe:
        size, _, way = task["of"]
        told = files(task, "asas", size)
        path = Path(task["out"]) / "recipes" / f"{task['name']}.yaml"
        new("lightcurves", told["data.files"], path, changes={"data.test": told["data.test"]}, overwrite=True)
        changes = {"train.seed": task["seed"], "train.learning_rate": task["rate"], "train.workers": task["workers"]}
        changes |= ({"train.device": task["device"]} if task["device"] else {}) | (TINY if task["tiny"] else {})
        values = yaml.safe_load(path.read_text("utf-8"))
        if way == "before":
            del values["model"]["periods"]
            changes = BEFORE | changes
        return Recipe.from_dict(values, changes)


class StripeEightyTwo(Part):
    """RR Lyrae in five bands: class ab or c, and the period.

    The transformer has the peaks of a periodogram as input.
    """

    choose, higher = "loss", False

    def prepare(self, options: argparse.Namespace) -> None:
        prepare(folder_of(options) / "sdss_s82_rrlyrae.parquet", options.out / "data" / "s82")

    def folds(self, group: Group) -> int:
        return FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "folded", way) for way in ("kind", "period")]

    def recipe(self, task: Task) -> Recipe:
        kind = task["of"][2] == "kind"
        changes = files(task, "s82") | settings(task, 2000, 32, best="loss")
        if not kind:
            changes |= {"objective.kind": "regress", "objective.targets": ["period"], "data.meta": ["period"]}
        return Recipe.load("lightcurves/folded", changes)

    def test(self, run: Run, task: Task) -> Result:
        if task["of"][2] == "kind":
            return Asas().test(run, task)
        section: Any = run.recipe.data
        return values(run) | {"peak": highest_peaks(Path(section.test[0]))}

    def scores(self, group: Group, found: list[Result]) -> Scores:
        if group[2] == "kind":
            return {"s82.accuracy": (judged(np.sum([o["confusion"] for o in found], 0))["accuracy"], "share", "higher")}
        return {"s82.period_error": (calibrated(found)["rmse"], "d", "lower")}

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        if group[2] == "kind":
            return Asas().about(group, found)
        every = [one for some in found for one in some]
        truth, answer, peak = (np.concatenate([one[key] for one in every]) for key in ("target", "mean", "peak"))
        right = {"within_1_percent": answer, "peak_within_1_percent": peak}
        shares = {name: round(float((abs(period / truth - 1) < 0.01).mean()), 5) for name, period in right.items()}
        about = {key: round(value, 5) for key, value in calibrated(found[0]).items()}
        about |= {"peak_rmse": round(float(np.sqrt(((peak - truth) ** 2).mean())), 5)}
        return about | shares | {"peak_median": float(np.median(abs(peak - truth)).round(8))}


def highest_peaks(path: Path) -> list[float]:
    """Period of the highest peak of each curve of a file."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    made = []
    for row in pq.read_table(path).to_pylist():
        band = np.unique(list(row["band"]), return_inverse=True)[1]
        time, value, error = (np.asarray(row[name], np.float64) for name in ("time", "mag", "magerr"))
        made.append(float(find_periods(time, value, error, band).period[0]))
    return made


class Supernovae(Part):
    """Redshift of supernovae, with uncertainty.

    The baseline is a fit to the brightest magnitudes alone.
    """

    choose, higher = "loss", False
    peak = float("nan")

    def prepare(self, options: argparse.Namespace) -> None:
        out = options.out / "data" / "ztf"
        prepare(folder_of(options) / "ztf_bts_snia.parquet", out, by="", known="redshift")
        self.peak = round(float(np.mean([peak_error(out / str(fold)) for fold in range(FOLDS)])), 5)

    def folds(self, group: Group) -> int:
        return FOLDS

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "transformer", "redshift")]

    def recipe(self, task: Task) -> Recipe:
        changes = files(task, "ztf") | settings(task, 3000, 64, best="loss")
        changes["data.bands"] = ["g", "R"]  # a single point of 44,339 is in another
        changes |= {"objective.kind": "regress", "objective.targets": ["redshift"], "data.meta": ["redshift"]}
        return Recipe.load(BODY, changes | {"tokens.centre": "learned"})  # how bright it looks tells how far it is

    def test(self, run: Run, task: Task) -> Result:
        return values(run)

    def scores(self, group: Group, found: list[Result]) -> Scores:
        score = calibrated(found)
        return {
            "ztf.redshift_rmse": (score["rmse"], "", "lower"),
            "ztf.coverage68": (score["coverage68"], "share", "higher"),
        }

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        return {key: round(value, 5) for key, value in calibrated(found[0]).items()} | {"peak_rmse": self.peak}


def peak_error(folder: Path) -> float:
    """Error on the test part of a redshift fitted to the brightest magnitudes.

    The fit is quadratic in the brightest magnitude of each band. It is linear in the distance of a standard candle with
    the brightest magnitude of all bands.
    """
    import pyarrow.parquet as pq

    found = []
    for part in ("train", "test"):
        rows = pq.read_table(folder / f"{part}.parquet").to_pylist()
        bands = [np.array(list(row["band"])) for row in rows]
        brightest = [
            [np.asarray(row["mag"])[band == name].min(initial=99.0) for name in "gR"] for row, band in zip(rows, bands)
        ]
        found.append((np.array(brightest), np.array([row["redshift"] for row in rows])))
    (train, known), (test, truth) = found
    usual = np.median(np.where(train < 99, train, np.nan)[(train < 99).all(1)], 0)

    def terms(peaks: Any) -> Any:
        g, r = (np.where(peaks < 99, peaks, usual) - 18).T
        return np.stack([np.ones_like(g), g, r, g * g, r * r, g * r, 10 ** (0.2 * np.minimum(g, r))], 1)

    fit = np.linalg.lstsq(terms(train), known, rcond=None)[0]
    return float(np.sqrt(((terms(test) @ fit - truth) ** 2).mean()))
