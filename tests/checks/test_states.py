"""The check of a recipe whose loss needs all samples."""

from sciformer.checks.check import check
from sciformer.recipe import Recipe


def test_a_wave_function_has_no_problem(tmp_path):
    changes = {"data.size": 6, "model.dim": 8, "model.depth": 1, "model.heads": 2, "train.device": "cpu"}
    for more in ({}, {"data.sampling": "chains", "data.chains": 12, "objective.measurements": 2}):
        found = check(Recipe.load("spins/wavefunction", {**changes, **more}), run=tmp_path / "run")
        assert found.problems == []
        assert found.figures["memory_bytes"] > 0
