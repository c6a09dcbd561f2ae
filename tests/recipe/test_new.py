"""A recipe from the user's own files: what is found, what is guessed, and that it runs."""

import gzip

import numpy as np
import pytest

from sciformer.check.check import check
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.errors import refuses

RANDOM = np.random.default_rng(0)
TINY = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "train.steps": 3, "train.warmup": 1, "train.device": "cpu"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def story(path, count=40):
    path.write_text("Once upon a time there was a bead on a string.\n" * count)
    return path.name


def passes(path):
    recipe = Recipe.load(path)
    assert check(recipe.change(TINY)).problems == []
    return recipe


def test_a_recipe_for_text_is_short_and_passes_the_check(tmp_path):
    path = new("text", [story(tmp_path / "story.txt")])
    assert str(path) == "story.yaml"
    recipe = passes(path)
    assert recipe.source.values["data"]["files"] == ["story.txt"]
    assert (recipe.data.documents, recipe.tokens.unit, recipe.model.kind) == ("file", "characters", "decoder")
    assert recipe.model.dim == 64
    assert recipe.tokens.context == 32
    text = path.read_text()
    assert "base: text/gpt-char" in text
    assert len(text.splitlines()) < 40
    assert all(
        "#" in line for line in text.splitlines() if line.strip().startswith(("dim", "context", "steps", "unit"))
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["story.txt", "story.yaml"]


def test_more_text_gets_a_larger_model_and_a_test_part(tmp_path):
    sizes = []
    for count in (40, 1000, 8000, 250_000):
        recipe = Recipe.load(new("text", [story(tmp_path / "story.txt", count)], overwrite=True))
        sizes.append((recipe.model.dim, recipe.tokens.context, recipe.train.steps, recipe.data.split.test))
    assert sizes == [(64, 32, 500, 0.0), (64, 64, 1000, 0.0), (128, 64, 2000, 0.1), (384, 256, 5000, 0.1)]


def test_lines_without_blanks_are_texts_of_their_own(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join("ab" * (1 + i % 6) for i in range(300)))
    recipe = passes(new("text", ["names.txt"]))
    assert (recipe.data.documents, recipe.tokens.context) == ("line", 16)


def test_many_different_characters_become_bytes_and_gzip_is_read(tmp_path):
    text = "".join(chr(0x4E00 + i % 2000) for i in range(4000))
    (tmp_path / "poem.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    recipe = Recipe.load(new("text", ["*.gz"]))
    assert recipe.name == "poem.yaml"
    assert recipe.tokens.unit == "bytes"


def test_images_with_names_of_their_own_are_found(tmp_path):
    np.savez(
        tmp_path / "sky.npz",
        pictures=RANDOM.integers(0, 255, (120, 12, 12, 3)).astype(np.uint8),
        sort=np.array(["spiral", "elliptic"])[np.arange(120) % 2],
        patient=np.arange(120) // 4,
        redshift=RANDOM.random(120),
    )
    path = new("patches", ["sky.npz"], tmp_path / "deep" / "mine.yaml")
    recipe = passes(path)
    assert recipe.data.rename == {"image": "pictures"}
    assert recipe.data.split.by == "patient"
    objective = recipe.objective
    assert (objective.kind, objective.label, objective.plot_against) == ("classify", "sort", "redshift")
    assert (recipe.tokens.patch, recipe.tokens.scale) == (2, "channel")
    text = path.read_text()
    assert "pictures       uint8 (120, 12, 12, 3)" in text
    assert "`sort` has 2 different values; others: `redshift` (values)" in text


@pytest.mark.parametrize(
    ("columns", "kind", "key", "value"),
    [
        ({"target": RANDOM.normal(size=40)}, "regress", "targets", ["target"]),
        ({"label": np.arange(40.0) % 3}, "classify", "label", "label"),
        ({"kind": np.arange(40) % 2, "target": RANDOM.normal(size=40)}, "regress", "targets", ["target"]),
        ({"number": np.arange(40)}, "masked", "mask_ratio", 0.5),
        ({}, "masked", "mask_ratio", 0.5),
    ],
)
def test_what_to_learn_is_guessed(tmp_path, columns, kind, key, value):
    np.savez(tmp_path / "a.npz", image=np.sign(RANDOM.normal(size=(40, 8, 8))), **columns)
    recipe = passes(new("arrays", ["a.npz"]))
    assert (recipe.objective.kind, getattr(recipe.objective, key)) == (kind, value)
    assert recipe.tokens.scale == "none"


def test_nothing_is_overwritten_unless_told(tmp_path):
    name = story(tmp_path / "story.txt")
    path = new("text", [name])
    path.write_text("mine")
    with refuses(file="story.yaml", hint="--overwrite"):
        new("text", [name])
    assert path.read_text() == "mine"
    assert "base:" in new("text", [name], overwrite=True).read_text()


def test_odd_names_stay_names(tmp_path):
    odd = 'a: b # "c"\nmodel: {x}.txt'
    story(tmp_path / odd)
    recipe = Recipe.load(new("text", [odd], "odd.yaml"))
    assert recipe.data.files == [odd]
    assert recipe.model.dim == 64


@pytest.mark.parametrize(
    ("kind", "name", "content", "mentions", "hint"),
    [
        ("txt", "a.txt", b"x" * 900, ("arrays, images, jets, lightcurves, patches", "'txt'"), "'text'"),
        ("text", "a.txt", "café ".encode("latin1") * 200, ("UTF-8", "a.txt"), "--data.errors replace"),
        ("text", "a.txt", b"\0\1" * 900, ("a.txt", "binary"), ""),
        ("text", "a.txt", b"short", (500, "not 5"), ""),
        ("text", "a.txt", b"", ("a.txt", "empty"), ""),
        ("patches", "a.txt", b"x" * 900, ("a.txt", ".npz", ".npy"), ""),
        ("patches", "a.npz", b"x" * 900, ("a.npz",), ""),
    ],
)
def test_wrong_files_give_the_errors_of_the_readers(tmp_path, kind, name, content, mentions, hint):
    (tmp_path / name).write_bytes(content)
    with refuses(*mentions, hint=hint):
        new(kind, [name])
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("column", "mentions", "hint"),
    [
        (np.zeros((9, 3, 8, 8)), ("`x`", (9, 3, 8, 8)), "numpy.moveaxis(x, 1, -1)"),
        (np.zeros((9, 3)), ("`x`", (9, 3)), ""),
        (np.full((9, 8, 8), np.nan), ("pixels",), ""),
    ],
)
def test_images_that_cannot_be_cut_are_refused(tmp_path, column, mentions, hint):
    np.savez(tmp_path / "a.npz", x=column)
    with refuses(*mentions, hint=hint):
        new("patches", ["a.npz"])


def test_names_are_needed_and_a_recipe_is_a_yaml_file(tmp_path):
    with refuses(hint="sciformer new text FILE"):
        new("text", [])
    story(tmp_path / "story.txt")
    with refuses("stroy", "story.txt"):
        new("text", ["stroy.txt"])
    with refuses("a.txt", hint="a.yaml"):
        new("text", ["story.txt"], "a.txt")
