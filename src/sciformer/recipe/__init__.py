"""Recipes: load, inherit, change, validate and save. Also registry and plugins."""

from .document import RecipeError
from .recipe import Recipe, describe, recipes

__all__ = ["Recipe", "RecipeError", "describe", "recipes"]
