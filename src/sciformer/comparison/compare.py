"""Comparison of recipes over several seeds, evaluated on the same samples.

    found = compare([Recipe.load("spins/ising-vit"), Recipe.load("spins/ising-cnn")], seeds=3, folder="runs/compare")
    found.verdict                       the best recipe for each metric, and whether the difference is significant
    compare(recipes, 1, "runs/few", labels=[20, 100, None], folds=3)            with 20, 100 or all labels per class

A second call resumes the comparison: complete runs are not trained again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ..errors import Stopped, UserError
from ..evaluation.evaluate import evaluate
from ..inspection.cost import format_large, samples_seen, tokens_per_second, training_cost
from ..inspection.plots.curves import draw_steps
from ..inspection.plots.style import name_in_words
from ..inspection.report.page import Page
from ..metrics import METRICS
from ..metrics.bootstrap import TOO_FEW, TOO_FEW_NOTE, too_few_samples
from ..progress import duration
from ..recipe import Recipe
from ..recipe.plugin import Plugin
from ..run import Run, train
from ..training.folder import Folder
from .plan import plan
from .statistics import (
    Comparison,
    Figure,
    Row,
    Trial,
    choose_points,
    common_metrics,
    find_unfairness,
    format_point,
    section_differences,
    verdict,
)

MAX_CURVES = 4  # metrics with a drawn learning curve
NO_FIGURE = Figure(math.nan, math.nan, 0)


def compare(
    recipes: Sequence[Recipe],
    seeds: int | Sequence[int] = 3,
    folder: str | Path = "runs/compare",
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    labels: Sequence[int | None] = (),
    folds: int | None = None,
    plugins: Sequence[Plugin] = (),
    show: bool = True,
    report: bool = True,
    log: Callable[[str], None] | None = None,
) -> Comparison:
    """Train every recipe at every grid point with every seed, and compare test scores.

    seeds    number of seeds (0, 1, 2, ...), or a list of seeds
    grid     values of keys: {"train.learning_rate": [1e-3, 3e-4]}; each recipe is compared at its best point
    labels   numbers of labels per class to train on (data.labels_per_class); None means all labels
    folds    number of folds (data.split.folds); each fold is the test part once, and its number replaces `{fold}` in
             train.init_from
    show     print the progress of each run
    report   also write the report of each run
    """
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    if not recipes or not numbers:
        message = "a comparison needs at least one recipe and one seed"
        raise UserError(f"{message}, but it has {len(recipes)} recipes and {len(numbers)} seeds")
    on_progress = log or (print if show else lambda text: None)
    where, planned = Path(folder), plan(recipes, numbers, grid or {}, labels, folds)
    rows: dict[tuple[str, str, str], Row] = {}
    compared: dict[str, Recipe] = {}
    for trial, recipe in planned:
        compared.setdefault(trial.recipe, recipe)
    for note in section_differences(compared):
        on_progress(f"note: {note}")
    for number, (trial, recipe) in enumerate(planned, 1):
        trial.path = str(where / trial.path)
        on_progress(f"run {number} of {len(planned)}: {trial.path}")
        try:
            wanted = report and not (Path(trial.path) / "report.html").exists()  # a complete run already has a report
            evaluate_trial(trial, train(recipe, trial.path, plugins=plugins, show=show, report=wanted))
        except Stopped:
            raise
        except Exception as error:  # kept with the trial, so that other runs continue
            trial.error = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            on_progress(f"{trial.path} failed: {trial.error}")
        row = Row(trial.recipe, trial.point, [], labels=trial.labels, objective=recipe.objective)
        rows.setdefault((trial.recipe, trial.labels, format_point(trial.point)), row).trials.append(trial)
    best = recipes[0].train.best
    found = Comparison(list(rows.values()), common_metrics(list(rows.values())), best, str(where))
    choose_points(found)
    found.warnings += find_unfairness(planned, found)
    found.verdict += verdict(found)
    Folder(where).write("comparison.json", json.dumps(found.to_json(), indent=1, allow_nan=False))
    comparison_page(found).write(where / "comparison.html")
    return found


def evaluate_trial(trial: Trial, run: Run) -> None:
    """Store scores and costs of a trained run in `trial`."""
    data, settings = run.data(), run.recipe.train
    parts = [part for part in ("test", "valid", "train") if part in data.parts()]
    trial.part, evaluated = parts[0], data.dataset(parts[0])
    size = max(64, settings.micro_batch or settings.batch)
    made = evaluate(run.step, data, evaluated, device=run.device, batch=size)
    trial.scores, trial.too_few = dict(made.scores), too_few_samples(made.outputs, data.objective.chosen())
    trial.scores |= data.objective.generation_metrics(run.step, data, evaluated, run.device)
    trial.valid = run.scores if "valid" in parts else {}  # without a validation part, run.scores are training scores
    if "valid" in parts and not trial.valid:
        trial.valid = evaluate(run.step, data, data.dataset("valid"), device=run.device, batch=size).scores
    found, _ = training_cost(run, data)
    trial.parameters, trial.flops_per_sample = found.parameters, found.flops_per_sample
    train_part = data.dataset("train")
    trial.samples, trial.counted = round(samples_seen(run, len(train_part))), train_part.unit
    trial.flops = found.flops_per_sample * trial.samples
    trial.seconds = float(run.about.get("seconds", math.nan))
    trial.unit = data.objective.unit
    trial.speed = tokens_per_second(run) / (max(found.tokens, 1e-12) if trial.unit == "samples" else 1)
    passed = run.folder.scores().get("along", {}).get("crossing")
    trial.crossing = math.nan if passed is None else float(passed)


# Table and page


def table_cells(found: Comparison, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the comparison table, as text."""
    crossing = any(math.isfinite(row.summarize("crossing").mean) for row in rows)
    units = {trial.unit for row in rows for trial in row.done}
    speed = f"{units.pop()}/s" if len(units) == 1 else "per s"
    counted = {trial.counted for row in rows for trial in row.done}
    piece = "window" if counted == {"windows"} else "sample"
    several = len(found.labels) > 1 or bool(found.labels[0])
    head = ["recipe"] + ["labels"] * several + ["point"] * found.grid + found.metrics + ["crossing"] * crossing
    head += ["parameters", f"FLOPs per {piece}", "total FLOPs", "time", speed, "runs" if found.folds else "seeds"]
    cells = []
    for row in rows:
        scores = [format_figure(row.score(metric)) for metric in found.metrics]
        passed = [format_figure(row.summarize("crossing"))] * crossing
        size, seconds = row.summarize("parameters").mean, row.summarize("seconds").mean
        about = [
            f"{size:,.0f}" if math.isfinite(size) else "–",
            _format_large(row.summarize("flops_per_sample").mean),
            _format_large(row.summarize("flops").mean),
            duration(seconds) if math.isfinite(seconds) else "–",
            format_figure(row.summarize("speed"), whole=True),
            f"{len(row.done)}" + (f" of {len(row.trials)}" if len(row.done) < len(row.trials) else ""),
        ]
        name = [row.recipe] + [row.labels] * several + [format_point(row.point)] * found.grid
        cells.append(name + scores + passed + about)
    return head, cells


def format_figure(figure: Figure, whole: bool = False) -> str:
    """Format a figure as mean ± spread, with two digits of the spread."""
    if not math.isfinite(figure.mean):
        return "–"
    if figure.too_few:
        return TOO_FEW
    if figure.bound:
        return f"≥ {figure.mean:.4g}"
    if whole:
        return f"{figure.mean:,.0f}"
    if not math.isfinite(figure.spread):
        return f"{figure.mean:.4g}"
    if figure.spread == 0:
        return f"{figure.mean:.4g} ± 0"
    places = max(0, min(8, 1 - math.floor(math.log10(figure.spread))))
    return f"{figure.mean:.{places}f} ± {figure.spread:.{places}f}"


def table_caption(found: Comparison) -> str:
    """Caption of the comparison table: the evaluated part, and the meaning of ±."""
    parts = sorted({trial.part for row in found.rows for trial in row.done})
    over = f"{found.folds} folds and all seeds" if found.folds else "seeds"
    text = f"Scores on the part {' or '.join(parts) or 'test'}: mean ± sample standard deviation over {over}."
    if found.labels != [""]:
        text += " Labels: training labels per class."
    if any(row.score(metric).too_few for row in found.rows for metric in found.metrics):
        text += f" {TOO_FEW_NOTE}"
    if note := found.objective.summary_note(found.metrics):
        text += f" {note}"
    if found.grid:
        text += f" Each recipe at its grid point with the best validation {found.best}."
    return text


def show_comparison(found: Comparison, console: Console) -> None:
    """Print the table, verdict, warnings and failed runs of a comparison."""
    from ..cli.show import plain_table

    head, cells = table_cells(found, found.chosen)
    lines = [head, *cells]
    if sum(max(len(cell) for cell in column) + 2 for column in zip(*lines)) > console.width:  # transpose a wide table
        lines = [list(column) for column in zip(*lines)]
    console.print(plain_table(lines[0], lines[1:]))
    console.print(Text(table_caption(found), style="dim"))
    for sentence in found.verdict:
        console.print(Text(sentence))
    for warning in found.warnings:
        console.print(Text("note: ", style="yellow") + Text(warning))
    for trial in found.failed:
        console.print(Text("failed: ", style="bold red") + Text(f"{trial.path}: {trial.error}"))
    console.print(Text(f"written to {found.folder}/comparison.html and comparison.json", style="dim"))


def comparison_page(found: Comparison) -> Page:
    """Comparison as an HTML page."""
    page = Page("Comparison", ", ".join(dict.fromkeys(row.recipe for row in found.rows)))
    page.section("Result")
    page.text("\n\n".join(found.verdict))
    head, cells = table_cells(found, found.chosen)
    lines = [head, *cells]
    if len(head) > len(cells) + 1:  # a column for each recipe fits the page, a column for each score does not
        lines = [list(column) for column in zip(*lines)]
    page.table(lines[0], lines[1:], table_caption(found))
    if len(found.labels) > 1:
        _curves(page, found)
    if found.warnings:
        page.section("Warnings")
        page.text("\n\n".join(found.warnings))
    if found.grid:
        page.section("Grid", note=f"Each recipe is compared at the point with the best validation {found.best}.")
        scores = [format_figure(row.score(found.best, valid=True)) for row in found.rows]
        rows = [
            [f"{row.recipe} {row.labels}".strip(), format_point(row.point), score, "chosen" if row.chosen else ""]
            for row, score in zip(found.rows, scores)
        ]
        caption = "Validation scores of every point: mean ± spread over runs."
        page.table(["recipe", "point", f"validation {found.best}", ""], rows, caption)
    page.section("Runs")
    runs = [
        [
            trial.path,
            trial.seed,
            trial.error or "complete",
            *(TOO_FEW if name in trial.too_few else trial.scores.get(name) for name in found.metrics),
        ]
        for row in found.rows
        for trial in row.trials
    ]
    page.table(["run", "seed", "state", *found.metrics], runs, "Scores of every run.")
    return page


def _curves(page: Page, found: Comparison) -> None:
    ranked = [name for name in found.metrics if name in METRICS and METRICS[name].better != "neither"]
    for metric in ranked[:MAX_CURVES]:
        scores = {(row.recipe, row.labels): row.score(metric) for row in found.chosen}
        bands = {}
        for name in dict.fromkeys(row.recipe for row in found.chosen):
            line = [scores.get((name, labels), NO_FIGURE) for labels in found.labels]
            bands[name] = ([one.mean for one in line], [0 if math.isnan(one.spread) else one.spread for one in line])
        drawn = draw_steps(found.labels, bands, "labels per class", name_in_words(metric))
        caption = f"{name_in_words(metric)} against the number of labels: mean and spread."
        page.figure(drawn, caption, f"{metric} against labels")


def _format_large(value: float) -> str:
    return format_large(value) if math.isfinite(value) else "–"
