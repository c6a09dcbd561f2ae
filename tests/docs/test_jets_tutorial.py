"""The tutorial on jets runs from the files to the ONNX tagger, with a training of seconds."""

import pytest

from tests.docs.commands import changed, run_page

SMALL = {"train.steps": 3, "train.batch": 8, "train.warmup": 1, "train.evaluate_every": 3, "train.device": "cpu"}
SMALL |= {"model.dim": 16, "model.depth": 1, "model.class_depth": 1}
SMALL |= {"tokens.widths": "[16]", "tokens.pair_widths": "[8]"}
CHANGES = {"train": SMALL, "check": SMALL, "inspect": {"samples": 1}}


def small(words):
    """The same command, quicker."""
    changes = CHANGES.get(words[0], {})
    if words[0] == "simulate" and "jets.root" in words:
        changes = {"number": 120}
    return changed(words, changes)


@pytest.mark.usefixtures("_without_drawing")
def test_the_tutorial_runs(tmp_path):
    _, seen, made = run_page("jets-tutorial.md", tmp_path, small, 10)
    assert seen == {"simulate", "new", "check", "train", "evaluate", "calibrate", "report", "inspect", "predict"} | {
        "export",
        "import",
    }
    assert {"scores.root", "scores.parquet", "jets.yaml", "theirs-recipe.yaml"} <= made
    assert {one.name for one in (tmp_path / "tagger").iterdir()} == {"model.onnx", "preprocessing.json", "README.md"}
