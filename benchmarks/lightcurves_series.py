"""The parts of `lightcurves.py` on simulated regular series: denoising, signals in noise, surface gravity."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import lightcurves_classic as classic
from lightcurves_data import Array
from lightcurves_tasks import Group, Part, Scores, calibrated, classes, settings, values
from pool import Result, Task
from sciformer.data.columns import Lists, Table
from sciformer.domains.lightcurves.simulate.chirps import whiten_series
from sciformer.domains.lightcurves.simulate.lightcurves import LightCurves
from sciformer.domains.lightcurves.simulate.oscillators import STEP_DAYS
from sciformer.recipe import Recipe
from sciformer.run import Run

WIDTHS = (3, 5, 7, 9, 13, 17, 25, 33, 49, 65)  # of filters
RATIOS = (8, 15, 50)  # of signal to noise
SMALL = {"data.number": 64, "data.valid": 16, "data.test": 16, "data.points": 128}


def square(table: Table, name: str) -> Array:
    """Array (B, N) of a column of lists of equal length."""
    column = table[name]
    assert isinstance(column, Lists)
    return np.asarray(column.values.reshape(len(column), -1), np.float64)


def simulated(task: Task, what: str, number: int, **more: Any) -> dict[str, Any]:
    """Data section for simulated series."""
    found = {"data.kind": "lightcurves", "data.what": what, "data.number": number, "data.valid": 1024}
    found |= {"data.cache": f"{task['data']}/{what}"}  # made once, not in every pass
    found |= {"data.test": 1024, "data.chunk_size": 1024} | {f"data.{key}": value for key, value in more.items()}
    return found | (SMALL if task["tiny"] else {})


def tables(run: Run, part: str, most: int = 512) -> Table:
    """First simulated series of a part of a run, with all their columns."""
    own = run.recipe.data
    count = min(most, own.number if part == "train" else getattr(own, part))
    assert isinstance(own, LightCurves)
    return own.make(count, part=part)


def recovered(run: Run, table: Table) -> tuple[Array, dict[str, Any]]:
    """Denoised series (B, N), and all outputs of the model."""
    known = {name: column for name, column in table.items() if name != "clean"}
    answers = run.predict(known)
    return np.stack([np.asarray(one, np.float64) for one in answers["recovered"]]), answers


class Denoise(Part):
    """Denoising of transits (fold 0) and oscillators (fold 1), against filters.

    The width of a filter is the best on other series.
    """

    choose, higher, pairs = "loss", False, False
    kinds = ("transits", "oscillators")

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "denoiser", "both")]

    def folds(self, group: Group) -> int:
        return len(self.kinds)

    def recipe(self, task: Task) -> Recipe:
        changes = simulated(task, self.kinds[task["fold"]], 20_000, gaps=False, points=1200)
        return Recipe.load("lightcurves/denoiser", changes | settings(task, 6000, 64, best="loss"))

    def test(self, run: Run, task: Task) -> Result:
        table, other = tables(run, "test"), tables(run, "valid", 64)
        clean, noisy = square(table, "clean"), square(table, "value")
        found: Result = {"model": classic.rms(recovered(run, table)[0] - clean), "data": classic.rms(noisy - clean)}
        for name, smooth in classic.FILTERS.items():
            width = classic.best_width(name, square(other, "value"), square(other, "clean"), WIDTHS)
            found |= {name: classic.rms(smooth(noisy, width) - clean), f"{name}_width": width}
        return found

    def scores(self, group: Group, found: list[Result]) -> Scores:
        made: Scores = {}
        for name in classic.FILTERS:
            ratios = {kind: one["model"] / one[name] for kind, one in zip(self.kinds, found, strict=False)}
            made |= {f"denoise.{kind}.ratio_{name}": (ratio, "x", "lower") for kind, ratio in ratios.items()}
            middle = float(np.exp(np.mean(np.log(list(ratios.values())))))
            made[f"denoise.ratio_{name}"] = (middle, "x", "lower")
        return made

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        return {"errors": dict(zip(self.kinds, found[0], strict=False))}


class Signal(Part):
    """Chirps: detection efficiency at 1 % false alarms, and overlap of waveforms."""

    choose, higher = "loss", False

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "gravitational-wave", "signals")]

    def recipe(self, task: Task) -> Recipe:
        changes = simulated(task, "signals", 30_000) | settings(task, 10_000, 64, best="loss")
        return Recipe.load("signals/gravitational-wave", changes)

    def test(self, run: Run, task: Task) -> Result:
        own, count = run.recipe.data, 64 if task["tiny"] else 4000
        options: dict[str, Any] = {"what": "signals", "points": own.points, "white": own.white}
        white = (lambda series: series) if own.white else whiten_series
        place = classes(run).index("signal")
        noise = LightCurves(seed=own.seed + 1, classes=["noise"], **options).make(count, part="test")
        level = recovered(run, noise)[1]["probabilities"][:, place]
        templates = LightCurves(seed=own.seed + 2, classes=["signal"], **options).make(count // 4, part="test")
        some = white(square(noise, "value")[: count // 4])
        silence = classic.bank(some, white(square(templates, "clean")))
        found: Result = {"noise": count, "templates": count // 4}
        for ratio in RATIOS:
            both: dict[str, Any] = options | {"snr": (float(ratio), float(ratio))}
            table = LightCurves(seed=own.seed + 3, classes=["signal"], **both).make(count // 4, part="test")
            waves, answers = recovered(run, table)
            data, truth = white(square(table, "value")), white(square(table, "clean"))
            alone = classic.matched(white(square(noise, "value"))[: len(truth)], truth)
            beside = classic.matched(data, truth)
            shares = classic.overlap(white(waves), truth)
            found[str(ratio)] = {
                "efficiency": classic.efficiency(answers["probabilities"][:, place], level),
                "matched_filter": classic.efficiency(beside, alone),
                "bank": classic.efficiency(classic.bank(data[:256], white(square(templates, "clean"))), silence),
                "overlap": float(np.mean(shares)),
                "overlap_median": float(np.median(shares)),
            }
        return found

    def scores(self, group: Group, found: list[Result]) -> Scores:
        names = ("efficiency", "matched_filter", "overlap")
        return {
            f"signal.{ratio}.{name}": (found[0][str(ratio)][name], "share", "higher")
            for ratio in RATIOS
            for name in names
        }

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        more = {str(ratio): [one[0][str(ratio)] for one in found] for ratio in RATIOS}
        return {"false_alarms": 0.01, "noise": found[0][0]["noise"], "templates": found[0][0]["templates"], "all": more}


class Gravity(Part):
    """log g of giants, against the peak of the spectrum.

    The relation of peak and log g is fitted to the training part.
    """

    choose, higher = "loss", False

    def groups(self, options: argparse.Namespace) -> list[Group]:
        return [("all", "astroconformer", "giants")]

    def recipe(self, task: Task) -> Recipe:
        changes = simulated(task, "oscillators", 20_000, gaps=False, classes=["giant"])
        return Recipe.load("lightcurves/astroconformer", changes | settings(task, 10_000, 64, best="loss"))

    def test(self, run: Run, task: Task) -> Result:
        found = values(run)
        known, table = tables(run, "train"), tables(run, "test")
        peaks = [classic.peak_frequency(1000 * square(some, "value"), STEP_DAYS) for some in (known, table)]
        answer = classic.Scaling(peaks[0], np.asarray(known["logg"]))(peaks[1])
        off = answer - np.asarray(table["logg"])
        return found | {"peak_rmse": classic.rms(off), "peak_median": float(np.median(np.abs(off)))}

    def scores(self, group: Group, found: list[Result]) -> Scores:
        rmse = calibrated(found)["rmse"]
        return {"logg.rmse": (rmse, "dex", "lower"), "logg.peak_rmse": (found[0]["peak_rmse"], "dex", "lower")}

    def about(self, group: Group, found: list[list[Result]]) -> dict[str, Any]:
        rest = {key: round(value, 5) for key, value in calibrated(found[0]).items() if key != "rmse"}
        return rest | {"peak_median": round(found[0][0]["peak_median"], 5)}
