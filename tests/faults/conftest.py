"""Undisturbed reference runs, trained once."""

import pytest

from tests.training.tiny import go, image_recipe, left, text_recipe


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A text recipe, and the result of its undisturbed run."""
    folder = tmp_path_factory.mktemp("texts")
    recipe = text_recipe(folder)
    return recipe, left(go(recipe, folder / "run"))


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """An image recipe, and the result of its undisturbed run."""
    folder = tmp_path_factory.mktemp("images")
    recipe = image_recipe(folder)
    return recipe, left(go(recipe, folder / "run"))
