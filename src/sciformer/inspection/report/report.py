"""Report of a run on one page: settings, data, training, scores, attention, cost.

Sections that need missing data or a missing model are left out, and the page says so. The numbers of the page are
also in `scores.json`, for programs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ...assembly import Assembly
from ...data.batch import describe
from ...data.dataset import ADDED_COLUMNS
from ...data.random import SampleRandom
from ...data.source import Chosen
from ...errors import UserError
from ...evaluation.evaluate import Evaluation, evaluate
from ...metrics import METRICS, AtLeast
from ...metrics.bootstrap import TOO_FEW, TOO_FEW_NOTE, format_interval, too_few_samples
from ...metrics.calibration import reliability
from ...metrics.classification import confusion, roc
from ...recipe.field import extensions
from ...training.resume import Changed
from ...training.weights import load_weights
from .. import attention, cost
from ..attention import even_steps, sample_ids, sample_name
from ..plots import curves
from ..plots.denoised import draw_recovered
from ..plots.style import ignore_missing_glyphs, name_in_words
from . import figures
from .figures import choose_part
from .page import Page
from .plot_against import AnswersAgainst, answers_against, draw_answers_against

if TYPE_CHECKING:
    from ...run import Run

MAX_EVALUATED_SAMPLES = 20_000  # samples to evaluate in a part
MAX_EVALUATED_TRAIN_SAMPLES = 1024  # samples to evaluate in train, if it is the only part


class ReportData:
    """Data, model and scores of a run, for the report."""

    def __init__(self, run: Run) -> None:
        self.run, self.objective = run, run.recipe.objective  # from the recipe; with data, the fitted objective
        self.data: Assembly | None = None
        self.kept: dict[str, Any] = {}  # metadata of the weights; empty without weights
        self.missing: list[str] = []
        self.evaluated: dict[str, Evaluation] = {}
        self.numbers: dict[str, Any] = {}  # for scores.json
        path = run.path / "scores.json"
        self.before = path.read_text("utf-8", "replace") if path.exists() else ""  # kept if no part can be evaluated
        try:
            self.kept = {"step": None, **load_weights(run.folder.model)[1]}
            self.data = run.data()
        except (UserError, OSError) as error:
            gone = "data have changed since this run" if isinstance(error, Changed) else "data are missing"
            what = gone if self.kept else "model is missing"
            self.missing.append(f"The {what}; the affected sections are left out: {str(error).rstrip('.')}.")
            return
        assert self.data.splits is not None
        if self.data.splits.fingerprint != run.about.get("data", {}):
            self.missing.append("The data have changed since this run; the scores here are of the present data.")
        self.objective, self.numbers["step"] = self.data.objective, self.kept["step"]
        self._evaluate_parts(self.data, max(64, run.recipe.train.micro_batch or run.recipe.train.batch))

    def _evaluate_parts(self, data: Assembly, size: int) -> None:
        """Evaluate all parts except train; if train is the only part, evaluate train."""
        about = self.numbers["parts"] = {}
        for part in [part for part in data.parts() if part != "train"] or ["train"]:
            dataset, most = (
                data.dataset(part),
                MAX_EVALUATED_TRAIN_SAMPLES if part == "train" else MAX_EVALUATED_SAMPLES,
            )
            some = dataset
            if data.objective.needs_all:
                most = len(dataset)
            if dataset.windows is None and len(dataset) > most:  # of windows, only the first ones are evaluated
                some = data.samples(Chosen(dataset.source, even_steps(len(dataset), most)))
            made = evaluate(self.run.step, data, some, device=self.run.device, batch=size, limit=most)
            self.evaluated[part] = made
            about[part] = {"samples": dataset.samples, "judged": made.size, "scores": made.scores}
            if len(dataset) != dataset.samples:
                about[part] |= {"windows": len(dataset), "judged_windows": made.windows}
            objective = data.objective
            about[part]["intervals"] = objective.score_intervals(made.outputs)
            if few := too_few_samples(made.outputs, objective.chosen()):
                about[part]["too_few"] = few
            if bounds := [name for name, value in made.scores.items() if isinstance(value, AtLeast)]:
                about[part]["bounds"] = bounds  # scores with a lower bound only


def write_report(run: Run) -> Path:
    """Write report.html and scores.json of a run; return the path of the report."""
    with ignore_missing_glyphs():
        found = ReportData(run)
        along, trouble = answers_against(found)
        page = Page(run.recipe.about.title or run.path.resolve().name, f"Report of the run {run.path.resolve().name}")
        page.text("\n\n".join([_result(found, along), *found.missing]))
        cost.setting(page, run)
        _data(page, found)
        _training(page, found)
        _scores(page, found)
        if found.objective.plot_against:
            draw_answers_against(page, found, along, trouble)
        for section in extensions("report"):
            section(page, found)
        figures.attention_section(page, found)
        figures.reasons_section(page, found)
        cost.section(page, run, found.data, found.numbers)
        page.section("How to reproduce")
        plugins = "".join(f" --plugin {one['name']}" for one in run.about.get("plugins", []))
        page.code(f"sciformer train recipe.yaml --run NEW_FOLDER{plugins}")
        with page.details("recipe.yaml"):
            page.code(run.folder.recipe.read_text("utf-8"))
        if found.evaluated or not found.before:
            run.folder.write("scores.json", json.dumps(cost.to_json(found.numbers), indent=1, allow_nan=False))
        return run.folder.write("report.html", page.html())


def _result(found: ReportData, along: AnswersAgainst | None) -> str:
    records, scores = found.run.records, found.kept.get("scores", {})
    steps = max((record.get("step", 0) for record in records), default=0)
    if not found.kept:
        return f"No model was saved; the log ends at step {steps}."
    if "mean_of" in found.kept:
        text = f"The saved model is the mean of steps {', '.join(map(str, found.kept['mean_of']))}"
    else:
        held = any(key.startswith("valid_") for record in records for key in record)
        text = f"The best model is from step {found.kept['step']} of {steps}"
        few = found.numbers.get("parts", {}).get("valid", {}).get("too_few", ())
        order = [name for name in dict.fromkeys([found.run.recipe.train.best, *scores]) if name in scores]
        order = [name for name in order if name not in few]
        text += ": " + ", ".join(f"{name_in_words(name)} {scores[name]:.4g}" for name in order[:3])
        text += " on the validation part" if held else " on training samples (there is no validation part)"
    if along is None or along.crossing is None:
        return f"{text}."
    (value, error), reference = along.crossing, found.objective.reference
    if math.isnan(value):
        return f"{text}. The {along.what} has no single crossing of 0.5 along {found.objective.plot_against}."
    text += f". The {along.what} crosses 0.5 at {found.objective.plot_against} {value:.5g}"
    text += f" ± {error:.2g}" if math.isfinite(error) else ""
    return f"{text}." if reference is None else f"{text}; the reference is {reference:.5g} ({value - reference:+.2g})."


def _data(page: Page, found: ReportData) -> None:
    page.section("Data")
    about, data = found.run.about, found.data
    page.table(["file", "size and fingerprint"], list(about.get("data", {}).items()), "Training data")
    sizes = about.get("samples", {})
    rows: dict[str, dict[str, str]] = {
        unit: {p: f"{n:,}" for p, n in about[unit].items()} for unit in ("samples", "windows") if unit in about
    }
    for part in [] if data is None else data.parts():
        assert data is not None
        dataset = data.dataset(part)
        first = dataset.batch(np.arange(min(1, len(dataset)))).samples
        names = [name for name in first if name not in ADDED_COLUMNS]
        for name, words in describe({name: dataset.sample_column(name) for name in names}).items():
            rows.setdefault(name, {})[part] = words
    page.table(["", *sizes], [[name, *(row.get(part, "") for part in sizes)] for name, row in rows.items()], "Samples")
    if data is not None:
        train = data.dataset("train")
        some = train.batch(sample_ids(len(train), 4))
        if found.objective.lookahead:  # show one window
            some = found.objective.corrupt(some, data.tokens, SampleRandom(0, 0, some.ids))
        names = [sample_name(some, row, found.objective).replace(", ", "\n") for row in range(len(some))]
        for stream in data.tokens:
            shown = some.only(stream)
            panels = [(name, shown.take(np.array([row])), None) for row, name in enumerate(names)]
            what = f"Samples of the training part{f': {stream}' if len(data.tokens) > 1 else ''}."
            page.figure(attention.draw_samples(data, panels), what, "Drawings of training samples")


def _training(page: Page, found: ReportData) -> None:
    page.section("Training")
    records = found.run.records
    keys = list(dict.fromkeys(key for record in records for key in record))
    single: list[str] = []  # curves of one point
    scores = {key: key.partition("_")[2] for key in keys}  # after the name of the part
    few = {f"{part}_{name}" for part, one in found.numbers.get("parts", {}).items() for name in one.get("too_few", ())}

    def history(columns: dict[str, str], ylabel: str, caption: str = "", prefix: str = "") -> None:
        columns = {key: name for key, name in columns.items() if key in keys and key not in few}
        points = {key: [record for record in records if key in record] for key in columns}
        if columns and max(map(len, points.values())) == 1:
            for key, name in columns.items():
                (one,) = points[key]
                bound = "≥ " * (scores[key] in one.get("bounds", ()))
                single.append(f"{prefix}{name} {bound}{one[key]:.4g} (step {one['step']})")
        elif columns:
            words = caption or f"{ylabel.capitalize()} against step."
            figure = curves.draw_history(records, columns, ylabel=ylabel, bounds=scores)
            page.figure(figure, words, f"{ylabel} against step")

    history({"loss": "training", "valid_loss": "validation", "train_loss": "training, evaluated"}, "loss")
    measured = {key: name for key, name in scores.items() if name in METRICS}
    shares = {key: name_in_words(name) for key, name in measured.items() if METRICS[name].needs[0] == "probabilities"}
    history(shares, "score", "Scores against step.")
    for group in found.objective.score_groups(scores.values()):
        lines = {key: group.labels[name] for key, name in scores.items() if name in group.labels}
        history(lines, group.title, f"{group.plural} against step.", f"{group.title} at ")
    for key, name in measured.items():
        if key not in shares:
            words = name_in_words(name)
            history({key: words}, words, f"{words.capitalize()} ({METRICS[name].help}) against step.")
    more = {"learning_rate": "learning rate", "norm": "gradient norm", "tokens_per_s": "tokens per second"}
    if more.keys() & keys:
        with page.details("Learning rate, gradient, speed"):
            for key, name in more.items():
                history({key: name}, name)
    if single:
        page.text(f"Evaluated once: {', '.join(single)}.")
    left = [str(record["step"]) for record in records if record.get("left_out")]
    page.text(f"Steps skipped because of a non-finite gradient: {', '.join(left[:20]) or 'none'}.")


def _scores(page: Page, found: ReportData) -> None:
    page.section("Scores")
    if not found.evaluated:
        page.text("Not shown: scores need the data and the model.")
        if found.before:
            with page.details("scores.json of the last report"):
                page.code(found.before)
        return
    about, names = found.numbers["parts"], list(next(iter(found.evaluated.values())).scores)
    apart = {name for group in found.objective.score_groups(names) for name in group.labels}
    names = [name for name in names if name not in apart]  # grouped scores have their own table
    head = ["", *(words for part in about for words in (part, "95 % interval"))]
    rows = [["samples", *(words for one in about.values() for words in (f"{one['judged']:,}", ""))]]
    for name in names:
        values = (
            (TOO_FEW if name in one.get("too_few", ()) else one["scores"][name], one["intervals"].get(name))
            for one in about.values()
        )
        rows.append([name_in_words(name), *(cell for value, ends in values for cell in (value, format_interval(ends)))])
    page.table(head, rows, "Scores of the model on each part, with intervals over random draws of its samples")
    if any("too_few" in one for one in about.values()):
        page.text(TOO_FEW_NOTE)
    if kept := found.run.calibration:
        state = {name: ", ".join(f"{one:.4g}" for one in np.ravel(value)) for name, value in kept["state"].items()}
        numbers = ", ".join(map(" ".join, state.items()))
        page.text(f"Calibrated: {numbers}, fitted to {kept['samples']:,} samples of {kept['part']}.")
    for part, one in about.items():
        unit, evaluated = ("windows", "judged_windows") if "windows" in one else ("samples", "judged")
        if one[evaluated] < one[unit]:
            page.text(f"{part}: {one[evaluated]:,} of {one[unit]:,} {unit} were evaluated.")
    assert found.data is not None
    part = choose_part(found.data)
    outputs, samples = found.evaluated[part].outputs, found.evaluated[part].samples
    for title, table in found.objective.details(outputs, samples).items():
        page.table(list(table[0]), [list(row.values()) for row in table], f"{title} ({part})")
    draw: dict[str, Callable[[], Figure]] = {}
    if "probabilities" in outputs:
        pair, classes = (outputs["probabilities"], outputs["label"]), found.objective.classes
        draw["Confusion matrix"] = lambda: curves.draw_confusion(confusion(*pair), classes)
        draw["Reliability diagram"] = lambda: curves.draw_reliability(reliability(*pair))
        if len(classes) == 2 and not too_few_samples(outputs, ["auc"]):
            draw["ROC curve"] = lambda: curves.draw_roc(roc(*pair))
    elif "std" in outputs:
        for i, name in enumerate(found.objective.targets[:4]):
            three = [outputs[key][:, i] for key in ("mean", "std", "target")]
            draw[f"Predictions and residuals of {name}"] = partial(curves.draw_residuals, *three)
    draw |= found.objective.figures(outputs, samples)
    if "residual" in outputs:
        draw["Input, denoised and true series"] = partial(draw_recovered, found.run, found.data, part)
    for caption, figure in draw.items():
        try:
            page.figure(figure(), f"{caption} ({part}).", caption)
        except UserError as error:  # a diverged model, or a part with one class
            page.text(f"{caption}: not drawn; {str(error).rstrip('.')}.")
