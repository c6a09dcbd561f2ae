"""Old names of keys and values are answered with the new ones."""

import pytest

from sciformer.recipe import Recipe
from sciformer.recipe.field import fields
from sciformer.recipe.registry import find, names
from sciformer.recipe.renamed import KEYS, VALUES
from sciformer.recipe.validate import train_class
from tests.errors import refuses


@pytest.mark.parametrize("section", KEYS)
def test_every_new_key_exists(section):
    points = {"train": (), "model": ("model", "trunk", "position", "pooling")}.get(section, (section,))
    sections = [train_class(), *(find(point, name) for point in points for name in names(point))]
    assert set(KEYS[section].values()) <= {key for one in sections for key in one.model_fields}


def test_an_old_key_is_answered_with_the_new_one():
    for old, new in KEYS["model"].items():
        with refuses(f"model.{old}", new, key=f"model.{old}", hint=f"model.{new}"):
            Recipe.load("jets/pfn", {f"model.{old}": 1})


def renamed_values():
    """(key, old, new) of the library and of its fields."""
    tables = [VALUES, *(field.renamed for field in fields().values())]
    return [(key, old, new) for table in tables for key, names in table.items() for old, new in names.items()]


@pytest.mark.parametrize(("key", "old", "new"), renamed_values())
def test_an_old_value_is_answered_with_the_new_one(key, old, new):
    section, _, option = key.partition(".")
    assert new in names(section if option == "kind" else option)
    with refuses(old, new, key=key, hint=f"{key}: {new}"):
        Recipe.load("jets/pfn", {key: old})


def test_fields_rename_too():
    assert {old for _, old, _ in renamed_values()} >= {"curves", "columns", "lorentz", "points"}
