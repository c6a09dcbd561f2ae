"""The guides and the tutorial of the fields run, each command with a setting that takes seconds."""

import re
from typing import NamedTuple

import pytest

from sciformer.recipe import recipes
from tests.docs.commands import DOCS, changed, run_page

STEPS = {"train.steps": 3, "train.warmup": 1, "train.evaluate_every": 3, "train.device": "cpu", "train.batch": 8}
SMALL = {**STEPS, "model.dim": 16, "model.depth": 1, "model.heads": 2}
JETS = SMALL | {"model.class_depth": 1, "tokens.widths": "[16]", "tokens.pair_widths": "[8]"}
TAGGER = {key: value for key, value in JETS.items() if key != "model.heads"}
SKY = {"data.number": 24, "data.valid": 8, "data.test": 8}
LATTICES = {"data.size": 16, "data.number": 60, "data.cache": "cache"}
SERIES = {"data.number": 16, "data.valid": 8, "data.test": 8, "data.points": 128, "train.batch": 4}
USUAL = {"new", "check", "train", "evaluate", "predict", "inspect", "report", "simulate"}
LEARNING = {"compare", "pretrain", "finetune"}


class Page(NamedTuple):
    """The options of each verb; further ones of commands with a word; then the verbs and files of the page."""

    changes: dict
    further: dict
    blocks: int
    verbs: set
    files: set


PAGES = {
    "atmosphere": Page(
        {
            **dict.fromkeys(("check", "train", "finetune"), SMALL),
            "pretrain": {**SMALL, "data.number": 120, "data.neighbourhood": "[12, 8, 16]"},
            "simulate": {"number": 300},
        },
        {},
        7,
        {"simulate", "new", "check", "train", "evaluate", "inspect", "finetune", "predict", "pretrain"},
        {"first.yaml", "hidden.yaml", "flows.nc", "ahead.nc", "centre.nc"},
    ),
    "images": Page(
        {
            **dict.fromkeys(("check", "train", "finetune"), SMALL),
            "pretrain": SMALL | {"model.decoder_dim": 16, "model.decoder_heads": 2},
            "compare": {**STEPS, **SKY, "model.dim": 16, "model.heads": 2, "seeds": 1},
            "simulate": {"number": 160},
        },
        {"images/lenses": SKY},
        12,
        USUAL | LEARNING | {"embed", "translate"},
        {"first.yaml", "sky.yaml", "answers.csv", "mergers.csv", "map.png"},
    ),
    "jets": Page(
        {
            **dict.fromkeys(("check", "train", "finetune"), JETS),
            "pretrain": {**JETS, "data.number": 64, "data.valid": 16, "data.test": 0},
            "compare": {**STEPS, "data.number": 120, "data.valid": 60, "data.test": 0, "seeds": 1},
        },
        {"simulate jets train": {"number": 150}},
        14,
        USUAL | LEARNING | {"export"},
        {"first.yaml", "scores.root", "scores.parquet", "tagger-onnx"},
    ),
    "jets-tutorial": Page(
        dict.fromkeys(("check", "train"), TAGGER),
        {"simulate jets.root": {"number": 120}},
        10,
        USUAL | {"calibrate", "export", "import"},
        {"scores.root", "scores.parquet", "jets.yaml", "theirs-recipe.yaml", "tagger"},
    ),
    "spins": Page(
        {
            "train": {key: value for key, value in SMALL.items() if key != "train.batch"},
            **dict.fromkeys(("pretrain", "finetune"), SMALL | LATTICES),
            "simulate": {"number": 12},
        },
        {
            "train spins/ising-vit": LATTICES,
            "train spins/wavefunction": {"data.size": 6},
            "--data.sampling": {"objective.measurements": 4, "objective.burn_in": 2},
            "simulate quantum": {"size": 6},
            "train spins/wavefunction-square": {"data.lattice": "chain", "data.size": 6, "tokens.patch": "[1,2]"},
        },
        7,
        {"simulate", "train", "pretrain", "finetune", "evaluate", "predict"},
        {"lattices.npz", "ground.npz", "waves.csv"},
    ),
    "lightcurves": Page(
        {
            **dict.fromkeys(("check", "train", "pretrain", "finetune"), SMALL),
            "compare": {**SMALL, "seeds": 1},
            "simulate": {"number": 80},
        },
        {
            "train --data.number": SERIES,
            "lightcurves/transient-multistream": {"data.points": None},
            "compare --labels": {"labels": "2,all", "folds": 2},
        },
        15,
        USUAL | LEARNING | {"embed", "calibrate"},
        {"first.yaml", "answers.csv", "vectors.parquet", "supernovae.parquet"},
    ),
}


@pytest.mark.usefixtures("_without_drawing")
@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs(name, tmp_path):
    if name == "images":
        pytest.importorskip("PIL")
    page = PAGES[name]

    def small(words):
        changes = {"samples": 1} if words[0] == "inspect" else page.changes.get(words[0], {})
        for asked, more in page.further.items():
            if set(asked.split()) <= set(words):
                changes = changes | more
        return changed(words, changes)

    text, seen, made = run_page(f"{name}.md", tmp_path, small, page.blocks)
    assert seen == page.verbs
    assert page.files <= made
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert all(1_000 < (DOCS / name).stat().st_size < 250_000 for name in shown)
    if name == "images":
        assert "merger" in (tmp_path / "mergers.csv").read_text()
    if name == "jets-tutorial":
        wanted = {"model.onnx", "preprocessing.json", "README.md"}
        assert {one.name for one in (tmp_path / "tagger").iterdir()} == wanted


@pytest.mark.parametrize("field", ["images", "jets", "lightcurves", "spins"])
def test_the_guide_names_every_recipe(field):
    text = (DOCS / f"{field}.md").read_text(encoding="utf-8")
    folders = (field, "signals") if field == "lightcurves" else (field,)
    names = {name for name in recipes() if name.partition("/")[0] in folders}
    assert len(names) >= 10
    assert {name for name in re.findall(r"`([\w-]+/[\w.-]+)`", text) if name.partition("/")[0] in folders} == names


PICTURES = {"train.steps": 3, "train.warmup": 1, "train.evaluate_every": 3, "train.device": "cpu", "train.batch": 4}
PICTURES |= {"model.dim": 16, "model.depth": 1, "model.heads": 2}
SCENES = {"data.number": 200, "data.chunk_size": 200, "data.valid": 4, "data.test": 4}


@pytest.mark.usefixtures("_without_drawing")
def test_the_guide_to_pictures_from_words_runs(tmp_path):
    pytest.importorskip("sklearn")

    def small(words):
        if words[0] != "train":
            return changed(words, {"number": 2, "guidance": None} if "--number" in words else {})
        more = SCENES if words[1].startswith("images/") else {"data.number": 2} if "ising" in words[1] else {}
        return changed(words, PICTURES | more | ({"model.decoder_depth": 1} if words[1] == "images/vq" else {}))

    _, seen, made = run_page("pictures.md", tmp_path, small, 15)
    assert seen == {"train", "generate", "inspect"}
    assert {"pictures", "drawn", "sevens", "lattices", "attention.png"} <= made
    assert (tmp_path / "pictures" / "contact-sheet.png").stat().st_size > 1000
