"""The guide to images runs, each command with a setting that takes seconds."""

import pytest

from tests.docs.commands import changed
from tests.docs.test_guides import DOCS, runner

PAGE = DOCS / "images.md"
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
    seen = []

    def heard(words):
        seen.append(words[0])
        return small(words)

    text = PAGE.read_text(encoding="utf-8")
    results = runner.run(PAGE, tmp_path, heard)
    assert [result.problem for result in results if result.problem] == []
    assert len(results) == len(runner.BLOCK.findall(text)) >= 12
    wanted = {"simulate", "new", "check", "train", "evaluate", "predict", "compare", "pretrain", "finetune"}
    assert wanted | {"inspect", "report", "embed"} == set(seen)
    made = {path.name for path in tmp_path.iterdir()}
    assert {"first.yaml", "sky.yaml", "answers.csv", "mergers.csv", "map.png"} <= made
    assert "merger" in (tmp_path / "mergers.csv").read_text()


def test_the_guide_names_every_recipe():
    text = PAGE.read_text(encoding="utf-8")
    names = {path.stem for path in (DOCS.parent / "src/sciformer/domains/images/recipes").glob("*.yaml")}
    assert len(names) >= 20
    assert {name for name in names if f"`images/{name}`" in text} == names
