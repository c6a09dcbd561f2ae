"""The guide to images runs, each command with a setting that takes seconds."""

import pytest

from tests.docs.commands import DOCS, changed, run_page

STEPS = {"train.steps": 2, "train.warmup": 1, "train.evaluate_every": 2, "train.device": "cpu"}
SMALL = {**STEPS, "model.dim": 16, "model.depth": 1, "model.heads": 2, "train.batch": 8}
SKY = {"data.number": 24, "data.valid": 8, "data.test": 8}
CHANGES = {
    **dict.fromkeys(("check", "train", "finetune"), SMALL),
    "pretrain": SMALL | {"model.decoder_dim": 16, "model.decoder_heads": 2},
    "compare": {**STEPS, **SKY, "train.batch": 8, "model.dim": 16, "model.heads": 2, "seeds": 1},
    "inspect": {"samples": 1},
    "simulate": {"number": 160},
}


def small(words):
    """The same command, quicker."""
    changes = CHANGES.get(words[0], {})
    if "images/lenses" in words:
        changes = changes | SKY
    return changed(words, changes)


@pytest.mark.usefixtures("_without_drawing")
def test_the_guide_runs(tmp_path):
    pytest.importorskip("PIL")
    _, seen, made = run_page("images.md", tmp_path, small, 12)
    wanted = {"simulate", "new", "check", "train", "evaluate", "predict", "compare", "pretrain", "finetune"}
    assert wanted | {"inspect", "report", "embed"} == seen
    assert {"first.yaml", "sky.yaml", "answers.csv", "mergers.csv", "map.png"} <= made
    assert "merger" in (tmp_path / "mergers.csv").read_text()


def test_the_guide_names_every_recipe():
    text = (DOCS / "images.md").read_text(encoding="utf-8")
    names = {path.stem for path in (DOCS.parent / "src/sciformer/domains/images/recipes").glob("*.yaml")}
    assert len(names) >= 20
    assert {name for name in names if f"`images/{name}`" in text} == names
