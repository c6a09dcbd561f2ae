"""Choice of a recipe for samples in memory (for `sciformer.sklearn`).

The manifest of a field lists functions `choose(samples, purpose)` under `estimators`. The first function that can use
the samples returns a recipe, and a function that makes the columns for its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import UserError
from .field import extensions

Purpose = Literal["classify", "regress", "embed"]


@dataclass(frozen=True)
class Starter:
    """Recipe for samples, and a function from samples to the columns of its reader.

    recipe    name of a shipped recipe
    changes   values of recipe keys for these samples
    columns   function from samples to the columns of a table
    """

    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    columns: Callable[[Any], dict[str, Any]] = dict


def choose_recipe(samples: Any, purpose: Purpose) -> Starter:
    """Choose a recipe for samples in memory: arrays of numbers, images or texts."""
    for choose in extensions("estimators"):
        found: Starter | None = choose(samples, purpose)
        if found is not None:
            return found
    shape = f" of shape {samples.shape}" if hasattr(samples, "shape") else ""
    raise UserError(
        f"no recipe is known for samples of the type {type(samples).__name__}{shape}",
        hint="Name a recipe that reads these columns: recipe='jets/part', or the path of your own.",
        key="recipe",
    )
