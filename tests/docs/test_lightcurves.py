"""The guide to light curves runs, each command with a setting that takes seconds."""

import pytest

from sciformer.recipe import recipes
from tests.docs.commands import DOCS, changed, run_page

STEPS = {"train.steps": 3, "train.warmup": 1, "train.evaluate_every": 3, "train.device": "cpu"}
SMALL = {**STEPS, "model.dim": 16, "model.depth": 1, "model.heads": 2, "train.batch": 8}
SERIES = {"data.number": 16, "data.valid": 8, "data.test": 8, "data.points": 128, "train.batch": 4}
CHANGES = {
    **dict.fromkeys(("check", "train", "pretrain", "finetune"), SMALL),
    "compare": {**SMALL, "seeds": 1},
    "inspect": {"samples": 1},
    "simulate": {"number": 80},
}


def small(words):
    """The same command, quicker."""
    changes = CHANGES.get(words[0], {})
    if words[0] == "train" and "data.number" in " ".join(words):
        changes = changes | SERIES
    if words[0] == "compare" and "--labels" in words:
        changes = changes | {"labels": "2,all", "folds": 2}
    return changed(words, changes)


@pytest.mark.usefixtures("_without_drawing")
def test_the_guide_runs(tmp_path):
    _, seen, made = run_page("lightcurves.md", tmp_path, small, 15)
    wanted = {"simulate", "new", "check", "train", "evaluate", "predict", "compare", "pretrain", "finetune", "embed"}
    assert wanted | {"inspect", "report", "calibrate"} == seen
    assert {"first.yaml", "answers.csv", "vectors.parquet", "supernovae.parquet"} <= made


def test_the_guide_names_every_recipe():
    text = (DOCS / "lightcurves.md").read_text(encoding="utf-8")
    names = {name for name in recipes() if name.startswith(("lightcurves/", "signals/"))}
    assert len(names) >= 11
    assert {name for name in names if f"`{name}`" in text} == names
