"""Checks before a run is resumed: same recipe, same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import UserError
from ..recipe import Recipe
from ..recipe.document import differences
from .config import NEUTRAL_KEYS

Log = Callable[[str], None]
RESUME_HINT = "Use another --run, start over with --fresh, or resume with --accept-changes."


class Changed(UserError):
    """Error if the data differ from the data at the start of the run."""


def absolute_paths(recipe: Recipe) -> Recipe:
    """Recipe with absolute paths, valid in every folder."""
    streams = {name: one.absolute_paths() for name, one in recipe.streams.items()}
    tokens = streams if isinstance(recipe.tokens, Mapping) else streams["tokens"]
    return replace(recipe, data=recipe.data.absolute_paths(), tokens=tokens)


def check_same_recipe(old: Recipe, new: Recipe, accepted: bool, log: Log) -> None:
    """Raise an error if the recipe has changed; log the changes if `accepted`."""
    found = differences(absolute_paths(old).to_dict(), absolute_paths(new).to_dict(), NEUTRAL_KEYS)
    if not found:
        return
    lines = "\n".join(f"  {key}: {before!r} -> {after!r}" for key, before, after in found)
    if not accepted:
        message = f"the recipe differs from the recipe at the start of this run:\n{lines}"
        raise UserError(message, hint=RESUME_HINT, key=found[0][0])
    log(f"the recipe changed since this run was started:\n{lines}")


def note_versions(old: Mapping[str, object], new: Mapping[str, object], log: Log) -> None:
    """Log changes of the versions of Sciformer and PyTorch since the run was started."""
    names = {"sciformer": "Sciformer", "torch": "PyTorch"}
    changed = [f"{names[key]} {old[key]} -> {new[key]}" for key in names if key in old and old[key] != new[key]]
    if changed:
        log(f"note: {', '.join(changed)} since this run was started; weights can differ in the last digits")


def check_same_data(
    old: Mapping[str, str], new: Mapping[str, str], accepted: bool, log: Log, advice: str = RESUME_HINT
) -> None:
    """Raise an error if fingerprints of the data have changed; log this if `accepted`."""
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not changed:
        return
    words = ", ".join(f"{name} ({old.get(name, 'missing')} -> {new.get(name, 'missing')})" for name in changed[:4])
    if not accepted:
        raise Changed(f"the data differ from the data at the start of this run: {words}", hint=advice)
    log(f"the data changed since this run was started: {words}")
