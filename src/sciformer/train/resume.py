"""What a run was begun with, compared with what it is given now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import UserError
from ..recipe import Recipe
from ..recipe.document import differences
from .config import NEUTRAL_KEYS

Log = Callable[[str], None]
RESUME_HINT = "Use another --run, start over with --fresh, or go on with --accept-changes."


class Changed(UserError):
    """Data are there, but not those the run was begun with."""


def absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with absolute names of its files, so that it means the same from every folder."""
    tokens = recipe.tokens
    several = isinstance(tokens, Mapping)
    tokens = {name: one.absolute_paths() for name, one in tokens.items()} if several else tokens.absolute_paths()
    return replace(recipe, data=recipe.data.absolute_paths(), tokens=tokens)


def check_same_recipe(old: Recipe, new: Recipe, accepted: bool, log: Log) -> None:
    """Refuse another recipe, or say how it differs where that is accepted."""
    found = differences(absolute_paths(old).to_dict(), absolute_paths(new).to_dict(), NEUTRAL_KEYS)
    if not found:
        return
    lines = "\n".join(f"  {key}: {before!r} -> {after!r}" for key, before, after in found)
    if not accepted:
        message = f"the recipe differs from the recipe this run was begun with:\n{lines}"
        raise UserError(message, hint=RESUME_HINT, key=found[0][0])
    log(f"the recipe changed since this run was begun:\n{lines}")


def check_same_data(
    old: Mapping[str, str], new: Mapping[str, str], accepted: bool, log: Log, advice: str = RESUME_HINT
) -> None:
    """Refuse other data, by their fingerprints, or say how they differ where that is accepted."""
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return
    words = ", ".join(f"{name} ({old.get(name, 'not there')} -> {new.get(name, 'not there')})" for name in changed[:4])
    if not accepted:
        raise Changed(f"the data differ from the data this run was begun with: {words}", hint=advice)
    log(f"the data changed since this run was begun: {words}")
