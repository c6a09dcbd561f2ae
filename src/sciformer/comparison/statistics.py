"""Statistics of a comparison: means over runs, choice of grid points, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..inspection.cost import to_json
from ..metrics import METRICS, AtLeast
from ..objectives.base import Objective
from ..recipe import Recipe
from ..recipe.document import differences

# Student's t at 95 % confidence, by degrees of freedom.
STUDENT_T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 15: 2.13, 30: 2.04, 100: 1.98}
MIN_STANDARD_ERRORS = 2.0  # differences below this many standard errors are within the spread
SUMMARIES = ("crossing", "seconds", "speed", "flops")  # fields of a trial, summarised for each row

COMPARED_SECTIONS = {
    "data": "their data are different",
    "tokens": "their inputs are different",
    "objective": "their scores are not comparable",
}
Point = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """Mean (or median) over runs, its spread, and the number of runs.

    spread   sample standard deviation (NaN for one run)
    """

    mean: float
    spread: float
    count: int
    bound: bool = False
    """Whether a value is only a lower bound; the mean is then a lower bound too."""
    too_few: bool = False
    """Whether a part has too few samples for this score."""

    @classmethod
    def from_values(cls, values: Sequence[float], median: bool = False) -> Figure:
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        middle = np.median if median else np.mean
        bound = any(isinstance(value, AtLeast) for value in values)
        return cls(float(middle(values)) if values else math.nan, spread, len(values), bound)


@dataclass
class Trial:
    """Run of a comparison: recipe, grid point, seed, labels, fold and results."""

    recipe: str
    point: Point
    seed: int
    path: str
    part: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    too_few: list[str] = field(default_factory=list)
    """Names of the scores for which the part has too few samples."""
    valid: dict[str, float] = field(default_factory=dict)
    crossing: float = math.nan
    parameters: int = 0
    flops_per_sample: float = math.nan
    flops: float = math.nan
    samples: int = 0
    counted: str = "samples"
    """Unit of `samples` and `flops_per_sample`: samples or windows."""
    seconds: float = math.nan
    speed: float = math.nan
    unit: str = ""
    error: str = ""
    labels: str = ""
    """Training labels per class: a number as text, or `all` (default: empty, without --labels)."""
    fold: int | None = None
    """Index of the test fold (default: None, without folds)."""

    @property
    def bounds(self) -> list[str]:
        return [name for name, value in self.scores.items() if isinstance(value, AtLeast)]


@dataclass
class Row:
    """Runs of a recipe at one grid point and number of labels, over seeds and folds."""

    recipe: str
    point: Point
    trials: list[Trial]
    chosen: bool = True
    labels: str = ""
    objective: Objective = field(default_factory=Objective)
    """Objective of the recipe, which defines how to summarise scores."""

    @property
    def done(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.error]

    def score(self, metric: str, valid: bool = False) -> Figure:
        """Average and spread of a test score, or of a validation score if `valid`.

        The average is the mean, or the median if the objective prefers it.
        """
        every = [trial.valid if valid else trial.scores for trial in self.done]
        values = [scores[metric] for scores in every if metric in scores]
        figure = Figure.from_values(values, self.objective.summarises_by_median(metric))
        return replace(figure, too_few=not valid and any(metric in trial.too_few for trial in self.done))

    def summarize(self, name: str) -> Figure:
        """Mean and spread of a numeric field, over runs with a finite value."""
        values = [float(getattr(trial, name)) for trial in self.done]
        return Figure.from_values([value for value in values if math.isfinite(value)])


@dataclass
class Comparison:
    """Result of a comparison: its runs, common metrics, verdict and warnings."""

    rows: list[Row]
    metrics: list[str]
    best: str
    folder: str
    verdict: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def objective(self) -> Objective:
        """Objective of the first recipe; its `train.best` chooses the grid points."""
        return self.rows[0].objective if self.rows else Objective()

    @property
    def chosen(self) -> list[Row]:
        """Compared rows: for a grid, the row with the best validation score per recipe."""
        return [row for row in self.rows if row.chosen]

    @property
    def failed(self) -> list[Trial]:
        return [trial for row in self.rows for trial in row.trials if trial.error]

    @property
    def labels(self) -> list[str]:
        """Compared numbers of labels as text; [""] without the option --labels."""
        return list(dict.fromkeys(row.labels for row in self.rows))

    @property
    def folds(self) -> int:
        return len({trial.fold for row in self.rows for trial in row.trials if trial.fold is not None})

    @property
    def grid(self) -> bool:
        return any(row.point for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        rows = []
        for row in self.rows:
            scores = {name: asdict(row.score(name)) for name in self.metrics}
            runs = [asdict(trial) | {"bounds": trial.bounds} for trial in row.trials]
            about = {"recipe": row.recipe, "labels": row.labels, "point": row.point, "chosen": row.chosen}
            about |= {"scores": scores, "runs": runs}
            rows.append(about | {name: asdict(row.summarize(name)) for name in SUMMARIES})
        made = {"rows": rows, "verdict": self.verdict, "warnings": self.warnings}
        return to_json(made | {"chosen_by": f"validation {self.best}"})


def format_point(point: Point) -> str:
    """Format a grid point: `train.learning_rate=0.001,model.depth=4`."""
    return ",".join(f"{key}={value}" for key, value in point.items())


def common_metrics(rows: Sequence[Row]) -> list[str]:
    """Names of the metrics of all complete runs."""
    every = [trial.scores for row in rows for trial in row.done]
    return [name for name in every[0] if all(name in scores for scores in every)] if every else []


def choose_points(found: Comparison) -> None:
    """Choose the grid point of each recipe by validation score, never by test score."""
    if not found.grid:
        return
    for name, labels in dict.fromkeys((row.recipe, row.labels) for row in found.rows):
        rows = [row for row in found.rows if (row.recipe, row.labels) == (name, labels)]
        means = [row.score(found.best, valid=True).mean for row in rows]
        signed = [mean if found.objective.lower_is_better(found.best) else -mean for mean in means]
        winner = int(np.nanargmin(signed)) if np.isfinite(signed).any() else 0
        for number, row in enumerate(rows):
            row.chosen = number == winner


def verdict(found: Comparison) -> list[str]:
    """Best recipe, lead and significance, for each metric and number of labels."""
    told = []
    for labels in found.labels:
        head = f"{labels} labels{' of each class' * (labels != 'all')}: " if labels else ""
        rows = [row for row in found.chosen if row.done and row.labels == labels]
        told += [head + sentence for sentence in _verdict(found, rows)]
    return told


def _verdict(found: Comparison, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["No run was completed."]
    only = rows[0]
    if len(rows) < 2:
        at = f"; its best grid point by validation {found.best} is {format_point(only.point)}" if only.point else ""
        return [f"Only {only.recipe} has results, so there is nothing to compare{at}."]
    ranked = [name for name in found.metrics if name not in METRICS or METRICS[name].better != "neither"]
    return [_verdict_sentence(metric, rows) for metric in ranked]


def _verdict_sentence(metric: str, rows: Sequence[Row]) -> str:
    if any(row.score(metric).too_few for row in rows):
        return f"{metric}: too few samples to compare the recipes."
    sign = 1 if rows[0].objective.lower_is_better(metric) else -1
    ranked = sorted(rows, key=lambda row: sign * row.score(metric).mean)
    known = [row for row in ranked if math.isfinite(row.score(metric).mean)]
    if len(known) < 2:
        return f"{metric}: known for fewer than two recipes."
    first, second = known[:2]
    a, b = first.score(metric), second.score(metric)
    apart = abs(a.mean - b.mean)
    head = f"{metric}: {first.recipe} is ahead of {second.recipe} by {apart:.3g}"
    if a.bound or b.bound:
        return f"{metric}: too few samples; {first.recipe} or {second.recipe} has a lower bound only."
    if math.isclose(a.mean, b.mean, rel_tol=1e-6):  # smaller differences are rounding errors
        return f"{metric}: {first.recipe} and {second.recipe} are equal."
    if a.count < 2 or b.count < 2:
        return f"{head}; with one seed the spread is unknown, so this may be chance."
    many = "folds" if any(trial.fold is not None for trial in first.trials) else "seeds"
    error, freedom = _paired_error(first, second, metric) or _welch_error(a, b)
    if error == 0 or apart / error >= _student_t(freedom):
        times = f"{apart / error:.1f} standard errors" if error else "all seeds agree exactly"
        return f"{head}, beyond the spread ({times})."
    if apart / error >= MIN_STANDARD_ERRORS:
        return f"{head} ({apart / error:.1f} standard errors); with few {many} this may still be chance."
    return f"{head}, within the spread ({apart / error:.1f} standard errors): no significant difference."


def _paired_error(first: Row, second: Row, metric: str) -> tuple[float, float] | None:
    """Standard error of the paired difference over folds, and degrees of freedom.

    Returns None if the recipes have fewer than two folds in common. Pairing removes the difficulty of a fold. The seeds
    of a fold share its samples, so each fold counts once, with the mean over its seeds.
    """
    by_fold: list[dict[int, list[float]]] = [{}, {}]
    for known, row in zip(by_fold, (first, second)):
        for trial in row.done:
            if trial.fold is not None and metric in trial.scores:
                known.setdefault(trial.fold, []).append(trial.scores[metric])
    common = sorted(by_fold[0].keys() & by_fold[1].keys())
    if len(common) < 2:
        return None
    apart = [np.mean(by_fold[0][fold]) - np.mean(by_fold[1][fold]) for fold in common]
    return float(np.std(apart, ddof=1)) / math.sqrt(len(common)), len(common) - 1.0


def _welch_error(a: Figure, b: Figure) -> tuple[float, float]:
    """Standard error of a difference of means, and degrees of freedom (Welch 1947)."""
    first, second = a.spread**2 / a.count, b.spread**2 / b.count
    total = first + second
    return math.sqrt(total), total**2 / (first**2 / (a.count - 1) + second**2 / (b.count - 1)) if total else 1.0


def _student_t(freedom: float) -> float:
    return next(value for known, value in reversed(STUDENT_T_95.items()) if known <= max(1.0, freedom))


def find_unfairness(planned: Sequence[tuple[Trial, Recipe]], found: Comparison) -> list[str]:
    """Warnings about unfair differences between the compared recipes."""
    warnings = list(dict.fromkeys(one for labels in found.labels for one in _find_differences(planned, found, labels)))
    rows = [row for row in found.chosen if row.done]
    for labels in found.labels:
        budgets = {row.recipe: row.summarize("samples").mean for row in rows if row.labels == labels}
        if len(set(budgets.values())) > 1:
            listed = ", ".join(f"{key} {value:,.0f}" for key, value in budgets.items())
            head = "Training budgets differ" + (f" with {labels} labels" if labels else "")
            warnings.append(f"{head}, in training samples seen: {listed}.")
    sizes = {row.recipe: row.summarize("parameters").mean for row in rows}
    if sizes and max(sizes.values()) > 2 * min(sizes.values()):
        listed = ", ".join(f"{key} {value:,.0f}" for key, value in sizes.items())
        warnings.append(f"Model sizes differ, in parameters: {listed}.")
    if len(parts := {trial.part for row in rows for trial in row.done}) > 1:
        warnings.append(f"Recipes were evaluated on different parts of their data: {', '.join(sorted(parts))}.")
    if parts == {"train"}:
        warnings.append("There is no part `test` or `valid`: the scores are of the training data.")
    if found.grid and "valid" not in parts and any(not trial.valid for row in rows for trial in row.done):
        warnings.append("There is no part `valid` to choose the grid point with.")
    validated = any(trial.valid for row in rows for trial in row.done)
    if validated and any(labels not in ("", "all") for labels in found.labels):
        warnings.append(
            "Only the training part has few labels; the part `valid`, which chooses the best model, has all its labels."
        )
    if found.failed:
        warnings.append(f"{len(found.failed)} of {len(planned)} runs failed; means are over the complete runs.")
    return warnings


def _find_differences(planned: Sequence[tuple[Trial, Recipe]], found: Comparison, labels: str) -> list[str]:
    points = {row.recipe: row.point for row in found.chosen if row.labels == labels}
    made: dict[str, Recipe] = {}
    for trial, recipe in planned:
        if trial.labels == labels and trial.point == points[trial.recipe]:
            made.setdefault(trial.recipe, recipe)
    return section_differences(made)


def _irrelevant_keys(recipe: Recipe) -> list[str]:
    """Keys of data, tokens and objective without a warning if they differ.

    These keys belong to the model or change no score.
    """
    several = isinstance(recipe.tokens, dict)
    parts = {"data": recipe.data, "objective": recipe.objective}
    parts |= {f"tokens.{name}" if several else "tokens": tokens for name, tokens in recipe.streams.items()}
    return [f"{name}.{key}" for name, part in parts.items() for key in (*part.neutral_keys, *part.model_keys)]


def section_differences(recipes: Mapping[str, Recipe]) -> list[str]:
    """Differences of data, tokens and objective from the first recipe, in words."""
    (name, base), *others = recipes.items()
    warnings = []
    for other, recipe in others:
        for section, why in COMPARED_SECTIONS.items():
            ours, theirs = ({section: one.to_dict()[section]} for one in (base, recipe))
            if changed := differences(ours, theirs, [*_irrelevant_keys(base), *_irrelevant_keys(recipe)]):
                keys = ", ".join(str(key) for key, *_ in changed[:4])
                warnings.append(f"{name} and {other} differ in {keys}: {why}.")
    return warnings
