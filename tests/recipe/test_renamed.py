"""Old names of keys and values are answered with the new ones."""

import pytest

from sciformer.models.trunks import CLOUD_TRUNKS
from sciformer.recipe import Recipe
from sciformer.recipe.registry import find, names
from sciformer.recipe.renamed import KEYS, VALUES
from sciformer.recipe.validate import train_class
from tests.errors import refuses


@pytest.mark.parametrize("section", KEYS)
def test_every_new_key_exists(section):
    sections = [train_class()] if section == "train" else [find(section, kind) for kind in names(section)]
    assert set(KEYS[section].values()) <= {key for one in sections for key in one.model_fields}


def test_an_old_key_is_answered_with_the_new_one():
    for old, new in KEYS["model"].items():
        with refuses(f"model.{old}", new, key=f"model.{old}", hint=f"model.{new}"):
            Recipe.load("jets/pfn", {f"model.{old}": 1})


def test_an_old_value_is_answered_with_the_new_one():
    assert set(VALUES["model.trunk"].values()) <= set(CLOUD_TRUNKS)
    for old, new in VALUES["model.trunk"].items():
        with refuses(old, new, key="model.trunk", hint=f"model.trunk: {new}"):
            Recipe.load("jets/pfn", {"model.trunk": old})
