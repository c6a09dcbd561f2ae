"""The objective `discriminate` beside `classify`: whose keys are whose, and whose heads fit whom."""

import numpy as np
import pytest

from sciformer.recipe import Recipe, RecipeError
from sciformer.run import train
from tests.errors import refuses


def recipe(folder, **objective):
    rng = np.random.default_rng(0)
    label = np.arange(60) % 2
    image = (rng.normal(size=(60, 4, 4)) + label[:, None, None]).astype(np.float32)
    np.savez(folder / "a.npz", image=image, label=np.array(["noise", "top"])[label])
    return Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "a.npz")], "split": {"valid": 0.25}},
            "tokens": {"kind": "patches", "patch": 2},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": objective,
            "train": {"steps": 2, "batch": 16, "warmup": 1, "device": "cpu"},
        }
    )


@pytest.mark.parametrize("key", ["background", "efficiencies", "spectrum"])
def test_a_key_of_it_under_classify_is_answered_by_its_kind(tmp_path, key):
    hint = f"objective.{key} belongs to objective.kind: discriminate."
    with refuses(key=f"objective.{key}", hint=hint, error=RecipeError):
        recipe(tmp_path, kind="classify", **{key: {} if key == "efficiencies" else "noise"})


def test_without_a_background_it_is_classify(tmp_path):
    plain, same = (train(recipe(tmp_path, kind=kind), tmp_path / kind, show=False) for kind in KINDS)
    assert plain.scores == same.scores
    assert plain.evaluate("test").scores == same.evaluate("test").scores


KINDS = ("classify", "discriminate")


@pytest.mark.parametrize("first", KINDS)
def test_heads_of_a_classifier_are_taken_by_either(tmp_path, first):
    start = train(recipe(tmp_path, kind=first), tmp_path / "first", show=False, report=False)
    (second,) = set(KINDS) - {first}
    asked = recipe(tmp_path, kind=second).change({"train.init_from": str(start.path)})
    run = train(asked, tmp_path / "second", show=False, report=False)
    assert run.about["init_from"]["new"] == []
