"""The guide to jets runs, each command with a setting that takes seconds."""

import re

import pytest

from tests.docs.commands import DOCS, changed, run_page

STEPS = {"train.steps": 3, "train.warmup": 1, "train.evaluate_every": 3, "train.device": "cpu"}
SIZES = {"model.dim": 16, "model.depth": 1, "model.class_depth": 1, "model.heads": 2}
SIZES |= {"tokens.widths": "[16]", "tokens.pair_widths": "[8]"}
SMALL = {**STEPS, **SIZES, "train.batch": 8}
CHANGES = {
    **dict.fromkeys(("check", "train", "finetune"), SMALL),
    "pretrain": {**SMALL, "data.number": 64, "data.valid": 16, "data.test": 0},
    "compare": {**STEPS, "train.batch": 8, "data.number": 120, "data.valid": 60, "data.test": 0, "seeds": 1},
    "inspect": {"samples": 1},
}


def small(words):
    """The same command, quicker."""
    changes = CHANGES.get(words[0], {})
    if words[:2] == ["simulate", "jets"] and "train" in words:
        changes = {"number": 150}
    return changed(words, changes)


@pytest.mark.usefixtures("_without_drawing")
def test_the_guide_runs(tmp_path):
    text, seen, made = run_page("jets.md", tmp_path, small, 14)
    wanted = {"simulate", "new", "check", "train", "compare", "pretrain", "finetune", "evaluate", "report", "inspect"}
    assert wanted | {"predict", "export"} == seen
    assert {"first.yaml", "scores.root", "scores.parquet", "tagger-onnx"} <= made
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert shown == ["jets-attention.png"]
    assert all(1_000 < (DOCS / name).stat().st_size < 120_000 for name in shown)


def test_the_guide_names_every_recipe():
    text = (DOCS / "jets.md").read_text(encoding="utf-8")
    names = {path.stem for path in (DOCS.parent / "src/sciformer/domains/jets/recipes").glob("*.yaml")}
    assert {name for name in names if f"| `jets/{name}` |" in text} == names
    assert len(names) == text.count("\n| `jets/")
