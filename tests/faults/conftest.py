"""Undisturbed reference runs, trained once."""

import pytest
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tests.train.tiny import go, image_recipe, left, text_recipe


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A text recipe, and the result of its undisturbed run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("texts")
    recipe = text_recipe(folder)
    return recipe, left(go(recipe, folder / "run"))


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """An image recipe, and the result of its undisturbed run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("images")
    recipe = image_recipe(folder)
    return recipe, left(go(recipe, folder / "run"))


@pytest.fixture
def impatient(monkeypatch):
    """Let PyTorch check its workers every 0.2 s instead of 5 s."""
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (0.2,))
