"""Recipes that `sciformer new` wrote: each passes the check with a tiny model."""

from sciformer.checks.check import check
from sciformer.recipe import Recipe
from sciformer.recipe.new import new

TINY = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "train.steps": 3, "train.warmup": 1, "train.device": "cpu"}


def written(kind, names, out="made.yaml", **changes):
    """The recipe for files, and its page."""
    path = new(kind, names, out, overwrite=True)
    recipe = Recipe.load(path)
    assert check(recipe.change({**TINY, **changes})).problems == []
    return recipe, path.read_text("utf-8")
