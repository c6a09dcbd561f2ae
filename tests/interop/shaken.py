"""Runs of one step with weights shaken, so that exports have something to lose."""

from contextlib import contextmanager

import numpy as np
import torch

from sciformer.data.columns import select
from sciformer.data.source import Data, Memory, Splits
from sciformer.recipe import Recipe
from sciformer.recipe.registry import REGISTERED, register
from sciformer.run import train
from sciformer.training.weights import save_weights
from tests.nn.parity import shake

TRAIN = {"steps": 1, "batch": 4, "device": "cpu"}


def shaken_run(folder, **sections):
    """A run in a folder; the shaken weights are those of its model."""
    run = train(Recipe.from_dict({"train": TRAIN, **sections}), folder / "run", show=False, report=False)
    shake(run.model)
    save_weights(run.folder.model, dict(run.model.named_parameters()), {"step": 1, "scores": {}})
    return run


def graph_run(folder, **sections):
    """A run in a folder; its weights and statistics are shaken so that samples have different answers."""
    run = train(Recipe.from_dict({"train": {**TRAIN, "batch": 8}, **sections}), folder, show=False, report=False)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in [*run.model.named_parameters(), *run.model.named_buffers()]:
            noise = 0.3 * torch.randn(tensor.shape, generator=generator)
            tensor.add_(noise.abs() if "var" in name else noise)
    return run


@contextmanager
def made_data(kind, make):
    """Register a table of 24 samples without files as data of a recipe: 16 to train, 8 to validate."""

    class Made(Data):
        def open(self, log=None):
            parts = {"train": np.arange(16), "valid": np.arange(16, 24)}
            return Splits({name: Memory(select(make(), rows)) for name, rows in parts.items()})

    register("data", kind)(Made)
    yield
    del REGISTERED["data"][kind]
