"""Runs of one step with weights shaken, so that exports have something to lose."""

from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.train.weights import save_weights
from tests.nn.parity import shake

TRAIN = {"steps": 1, "batch": 4, "device": "cpu"}


def shaken_run(folder, **sections):
    """A run in a folder; the shaken weights are those of its model."""
    run = train(Recipe.from_dict({"train": TRAIN, **sections}), folder / "run", show=False, report=False)
    shake(run.model)
    save_weights(run.folder.model, dict(run.model.named_parameters()), {"step": 1, "scores": {}})
    return run
