"""Recipes: load, inherit, change, validate and save them; registry and plugins."""

from .document import RecipeError, differences
from .options import Option, options, parse_arguments
from .recipe import Recipe, describe, recipes
from .validate import About

__all__ = [
    "About",
    "Option",
    "Recipe",
    "RecipeError",
    "describe",
    "differences",
    "options",
    "parse_arguments",
    "recipes",
]
