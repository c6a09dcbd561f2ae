"""Runs of a comparison: recipes x grid points x seeds x numbers of labels x folds."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..recipe import Recipe
from .statistics import Trial, format_point

OPTIONS = {"train.seed": "--seeds", "data.labels_per_class": "--labels", "data.split.fold": "--folds"}


def parse_grid(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a grid, for example `train.learning_rate=1e-3,3e-4`, into {key: texts}."""
    grid: dict[str, list[str]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        found = list(dict.fromkeys(value for value in values.split(",") if value))
        if not equals or "." not in key or not found or key in grid:
            again = f"sets {key} a second time" if key in grid else "must be KEY=VALUE,VALUE with a dotted key"
            message = f"--grid {word!r} {again}"
            raise UserError(message, hint="Write for example --grid train.learning_rate=1e-3,3e-4.", key="--grid")
        grid[key.removeprefix("--")] = found
    return grid


def parse_labels(text: str) -> list[int | None]:
    """Parse numbers of labels such as `20,100,all`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if any(word != "all" and not (word.isdecimal() and int(word)) for word in words):
        message = f"--labels {text!r} is not a list of numbers or `all`"
        raise UserError(message, hint="Write for example --labels 20,100,all.", key="--labels")
    return [None if word == "all" else int(word) for word in dict.fromkeys(words)]


def plan(
    recipes: Sequence[Recipe],
    seeds: Sequence[int],
    grid: Mapping[str, Sequence[Any]],
    labels: Sequence[int | None] = (),
    folds: int | None = None,
) -> list[tuple[Trial, Recipe]]:
    """Plan all runs with their recipes before any training, to find mistakes early."""
    planned = []
    if key := next((key for key in OPTIONS if key in grid), ""):
        raise UserError(f"{key} cannot be part of the grid", hint=f"Use {OPTIONS[key]} instead.", key=key)
    counts: list[Any] = list(dict.fromkeys(labels)) or [...]
    turns = range(folds) if folds is not None else [None]
    for name, recipe in zip(_names(recipes), recipes):
        for count, values in itertools.product(counts, itertools.product(*grid.values())):
            point = dict(zip(grid, values))
            path = Path(name) / _slug(format_point(point)) if point else Path(name)
            word = "" if count is ... else "all" if count is None else str(count)
            for fold, seed in itertools.product(turns, seeds):
                changes = {**point, "train.seed": seed, **_label_and_fold_changes(recipe, count, folds, fold)}
                parts = [f"labels-{word}"] * bool(word) + [f"fold-{fold}"] * (fold is not None) + [f"seed-{seed}"]
                trial = Trial(name, point, seed, str(path.joinpath(*parts)), labels=word, fold=fold)
                planned.append((trial, recipe.change(changes, where="in the grid")))
    return planned


def _label_and_fold_changes(recipe: Recipe, count: Any, folds: int | None, fold: int | None) -> dict[str, Any]:
    """Recipe changes for the number of labels per class and the fold."""
    changes: dict[str, Any] = {}
    kind, fields = recipe.data.kind, type(recipe.data).model_fields
    if count is not ...:
        if "labels_per_class" not in fields:
            message = f"`data.kind: {kind}` does not support --labels: it has no data.labels_per_class"
            raise UserError(message, key="data.kind")
        changes["data.labels_per_class"] = count
    if folds is not None:
        if "split" not in fields:
            raise UserError(f"`data.kind: {kind}` does not support --folds: it has no data.split", key="data.kind")
        changes |= {"data.split.folds": folds, "data.split.fold": fold}
        if "{fold}" in recipe.train.init_from:
            changes["train.init_from"] = recipe.train.init_from.replace("{fold}", str(fold))
    return changes


def _names(recipes: Sequence[Recipe]) -> list[str]:
    names: list[str] = []
    for recipe in recipes:
        stem = _slug(Path(recipe.name).name.removesuffix(".yaml").removesuffix(".yml")) or "recipe"
        numbered = (f"{stem}-{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([stem], numbered) if name not in names))
    return names


def _slug(text: str) -> str:
    """Folder name made from a text; a long name is cut and ends with a hash."""
    name = re.sub(r"[^\w.=,+-]+", "-", text).strip("-.")
    return name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
