"""Other models for the data, tokens and objective of a recipe (--rivals)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..assembly import Assembly, log_nothing
from ..errors import UserError
from ..recipe import Recipe, recipes
from ..recipe.field import fields

SHARED_SECTIONS = ("data", "train")  # changes of these sections belong to all recipes of a comparison


def split_changes(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split changes into keys of `data` and `train`, for all recipes, and other keys."""
    shared = {key: value for key, value in changes.items() if key.partition(".")[0] in SHARED_SECTIONS}
    return shared, {key: value for key, value in changes.items() if key not in shared}


def changed_rival(recipe: Recipe, changed: Recipe, keys: Mapping[str, Any]) -> Recipe:
    """Append the changed keys to the name of a recipe; refuse a change without effect."""
    if changed == recipe:
        raise UserError(
            f"the recipe {recipe.name} already has this value of {', '.join(keys)}, so there is nothing to compare",
            key=next(iter(keys)),
        )
    words = ",".join(f"{key}={value}" for key, value in keys.items())
    return replace(changed, name=f"{Path(recipe.name).stem} {words}")


def rivals(recipe: Recipe, log: Callable[[str], None] = log_nothing) -> list[Recipe]:
    """Recipes with different models of the same field, for the same data.

    Each rival has the data, tokens, objective and training of this recipe. The model, the embedding and the head come
    from a shipped recipe. For each different trunk, the model with the nearest number of parameters is taken.
    """
    if len(recipe.streams) > 1:
        message = f"--rivals cannot be used with several streams of tokens ({', '.join(recipe.streams)})"
        raise UserError(message, hint="Name the recipes to compare.", key="--rivals")
    field = _field_of(recipe)
    others = [Recipe.load(name) for name in recipes()] if field else []
    possible = [one for one in others if _field_of(one) == field and _fits(one, recipe)]
    state = Assembly.open(recipe, log=log).state() if possible else {}
    size = _parameters(recipe, state) if possible else 0
    nearest: dict[str, tuple[float, Recipe]] = {}
    for other in possible:
        try:
            made = _transfer(other, recipe)
            far = abs(math.log(_parameters(made, state) / size))
        except UserError as error:
            log(f"note: the model of {other.name} cannot be used with these data: {error.message}")
            continue
        if far < nearest.get(other.model.trunk, (math.inf,))[0]:
            nearest[other.model.trunk] = (far, made)
    if not nearest:
        message = f"no other shipped recipe has a model for the data and the objective of {recipe.name}"
        raise UserError(message, hint="Name the recipes to compare.", key="--rivals")
    return [made for _, made in nearest.values()]


def _field_of(recipe: Recipe) -> str:
    """Field of the tokens of a recipe; "" for several streams or a plugin."""
    kinds = [tokens.kind for tokens in recipe.streams.values()]
    found = [name for name, field in fields().items() if len(kinds) == 1 and kinds[0] in field.tokens]
    return found[0] if found else ""


def _fits(other: Recipe, recipe: Recipe) -> bool:
    """Whether two recipes have the same kind of model, but different trunks."""
    return other.model.kind == recipe.model.kind and other.model.trunk != recipe.model.trunk


def _transfer(other: Recipe, recipe: Recipe) -> Recipe:
    sections = {name: dict(recipe.to_dict()[name]) for name in ("about", "data", "tokens", "objective", "train")}
    for name in ("tokens", "objective"):
        keys, theirs = getattr(recipe, name).model_keys, other.to_dict()[name]
        sections[name] |= {key: theirs[key] for key in keys if key in theirs and key in sections[name]}
    return Recipe.from_dict({**sections, "model": other.to_dict()["model"]}, name=other.name)


def _parameters(recipe: Recipe, state: Mapping[str, Any]) -> int:
    """Number of parameters of the network, built on the meta device without memory."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in Assembly.from_state(recipe, state).network().parameters())
