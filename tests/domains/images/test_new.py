"""A recipe from images: classes by folders, sizes, tables, arrays, and a training that begins with one name."""

import csv
import re

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.domains.images.new import patch_side
from sciformer.domains.images.reader import arrays
from sciformer.recipe.new import new
from tests.domains.images.reader.examples import classes, picture, pixels
from tests.errors import refuses
from tests.recipe.written import TINY, written

RANDOM = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("here")


def test_a_folder_of_classes_needs_no_more_than_its_name(tmp_path):
    classes(tmp_path / "pets", 20)
    assert str(new("pets", [])) == "pets.yaml"
    recipe, text = written("pets", [])
    assert (recipe.data.kind, recipe.objective.kind, recipe.tokens.patch) == ("images", "classify", 1)
    assert (recipe.data.channels, recipe.data.size, recipe.data.split.test) == (3, None, 0.0)
    assert "Found: 40 images to train on, 8 x 8 pixels, in colours." in text
    assert "Classes: cat (20), dog (20)." in text
    assert recipe.source.values["data"]["files"] == ["pets"]


def test_images_without_classes_are_learned_by_hiding(tmp_path):
    for number in range(12):
        picture(tmp_path / "sky" / f"{number}.png", pixels(8 + number, 20))
    recipe, text = written("images", ["sky"])
    assert (recipe.model.kind, recipe.objective.kind) == ("masked_autoencoder", "masked")
    assert recipe.objective.mask_ratio == 0.75
    assert (recipe.data.size, recipe.data.channels) == (8, 1)
    assert "8 to 19 pixels high and 20 to 20 wide, grey" in text
    assert "No classes were found" in text


def test_arrays_and_parts(tmp_path):
    parts = {"x_train": pixels(30, 9, 9), "y_train": np.arange(30) % 3}
    np.savez(tmp_path / "x.npz", **parts, x_test=pixels(9, 9, 9), y_test=np.arange(9) % 3)
    recipe, text = written("images", ["x.npz"])
    assert (recipe.objective.kind, recipe.data.split.stratify) == ("classify", "label")
    assert "Found: 30 images" in text
    (tmp_path / "maps").mkdir()
    for number in range(10):
        np.save(tmp_path / "maps" / f"{number}.npy", np.where(np.eye(8) > 0, np.nan, number))
    assert written("images", ["maps"])[0].data.blank == 0
    for part in ("train", "test"):
        classes(tmp_path / part, 10)
    recipe, _ = written("images", ["train", "test"])
    assert (recipe.data.files, recipe.data.test) == (["train"], ["test"])


def test_sides_of_patches():
    sizes = [(28, 28), (32, 32), (64, 64), (224, 224), (8, 8), (97, 103), (64, 256), (7, 13)]
    assert [patch_side(*size) for size in sizes] == [4, 4, 8, 32, 1, 14, 16, 1]


def test_too_few_and_bad_ones(tmp_path):
    classes(tmp_path / "pets", 12)
    assert written("images", ["pets"])[0].data.bad_files == "stop"
    (tmp_path / "pets" / "cat" / "0.png").write_bytes(b"no")
    recipe, text = written("images", ["pets"])
    assert recipe.data.bad_files == "skip"
    assert "# Found: 23 images to train on" in text
    assert re.search(r"# left out pets/cat/0\.png: .*b'no'", text)
    classes(tmp_path / "few", 2)
    with refuses("10 images", "have 4"):
        new("images", ["few"])
    (tmp_path / "few" / "cat" / "0.png").write_bytes(b"no")
    with refuses("10 images", "have 3", hint="left out few/cat/0.png: "):
        new("images", ["few"])
    for path in (tmp_path / "few").rglob("*.png"):
        path.write_bytes(b"no")
    with refuses("data.files", "left out few/cat/0.png: "):
        new("images", ["few"])


def test_from_a_folder_to_answers_with_names(tmp_path, capsys):
    classes(tmp_path / "pets", 12)
    assert main(["new", "pets"]) == 0
    short = [word for key, value in TINY.items() for word in (f"--{key}", str(value))]
    assert main(["train", "pets.yaml", "--run", "runs/pets", "--quiet", *short]) == 0
    for name in ("b", "a"):
        picture(tmp_path / "new" / f"{name}.png")
    assert main(["predict", "runs/pets", "new/b.png", "new/a.png", "--quiet"]) == 0
    with open("predictions.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == ["new/b.png", "new/a.png"]
    assert set(rows[0]) == {"file", "class", "score_cat", "score_dog", "drift"}
    (tmp_path / "new" / "b.png").write_bytes(b"broken")
    assert main(["predict", "runs/pets", "new", "--quiet", "--out", "more.csv"]) == 2
    assert "new/b.png" in capsys.readouterr().err
    assert not (tmp_path / "more.csv").exists()


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("form", range(100, 140), "regress"),  # as many numbers as images
        ("form", [n % 3 for n in range(40)], "classify"),
        ("form", ["ab"[n % 2] for n in range(40)], "classify"),
        ("form", [f"note {n}" for n in range(40)], "masked"),
        ("form", [5] * 40, "masked"),
        ("brightness", ["" if n % 9 == 4 else "n/a" if n == 3 else n / 7 for n in range(30)], "regress"),
    ],
)
def test_a_table_of_images_needs_no_word(tmp_path, column, values, kind):
    for number in range(len(values)):
        picture(tmp_path / f"img/{number}.png", pixels(8, 8))
    lines = "".join(f"img/{number}.png,{value}\n" for number, value in enumerate(values))
    (tmp_path / "list.csv").write_text(f"file,{column}\n{lines}")
    recipe, text = written("list.csv", [])
    assert recipe.objective.kind == kind
    assert ("No classes were found" in text) == (kind == "masked")
    if kind == "classify":
        assert f"Classes in `form`: {values[0]} (" in text
        assert recipe.data.split.stratify == recipe.objective.label == "form"
    elif kind == "regress":
        assert recipe.objective.targets == [column]


def test_classes_of_images_do_not_change_along_a_column(tmp_path):
    np.savez(tmp_path / "a.npz", image=pixels(30, 8, 8), label=np.arange(30) % 3, snr=np.arange(30) / 7)
    recipe, text = written("a.npz", [])
    assert recipe.objective.plot_against == ""
    assert "`snr` (values)" in text
    np.savez(tmp_path / "b.npz", image=pixels(30, 8, 8), label=np.arange(29) % 3)
    assert "`label` of b.npz has 29 entries, not 30" in new("b.npz", []).read_text()


# Arrays with names of their own


def test_columns_of_arrays_are_found(tmp_path):
    columns = {"sort": np.array(["spiral", "elliptic"])[np.arange(120) % 2], "patient": np.arange(120) // 4}
    np.savez(tmp_path / "sky.npz", pictures=pixels(120, 12, 12, 3), redshift=RANDOM.random(120), **columns)
    recipe, text = written("patches", ["sky.npz"], tmp_path / "deep" / "mine.yaml")
    assert (recipe.data.rename, recipe.data.split.by) == ({"image": "pictures"}, "patient")
    objective = recipe.objective
    assert (objective.kind, objective.label, objective.plot_against) == ("classify", "sort", "redshift")
    assert (recipe.tokens.patch, recipe.tokens.scale) == (2, "channel")
    assert "pictures       uint8 (120, 12, 12, 3)" in text
    assert "`redshift` (values)" in text


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
    recipe, _ = written("arrays", ["a.npz"])
    assert (recipe.objective.kind, getattr(recipe.objective, key), recipe.tokens.scale) == (kind, value, "none")


@pytest.mark.parametrize(
    ("column", "mentions", "hint"),
    [
        (np.zeros((9, 3, 8, 8)), ("`x`", (9, 3, 8, 8)), "numpy.moveaxis(x, 1, -1)"),
        (np.zeros((9, 3)), ("`x`", (9, 3)), ""),
        (np.full((9, 8, 8), np.nan), ("pixels",), ""),
        (None, ("a.npz",), ""),
    ],
)
def test_arrays_that_cannot_be_cut_are_refused(tmp_path, column, mentions, hint):
    if column is None:
        (tmp_path / "a.npz").write_bytes(b"x" * 900)
    else:
        np.savez(tmp_path / "a.npz", x=column)
    with refuses(*mentions, hint=hint):
        new("patches", ["a.npz"])
    (tmp_path / "a.txt").write_bytes(b"x" * 900)
    with refuses("a.txt", ".npz", ".npy"):
        new("patches", ["a.txt"])
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_file_of_many_arrays_is_opened_a_few_times(tmp_path, monkeypatch):
    columns = {f"c{number}": np.arange(40) / 7 + number for number in range(300)}
    np.savez(tmp_path / "wide.npz", image=pixels(40, 8, 8), label=np.arange(40) % 2, **columns)
    opened = []
    contents = arrays._contents
    monkeypatch.setattr(arrays, "_contents", lambda *words: opened.append(words) or contents(*words))
    recipe, text = written("images", ["wide.npz"])
    assert len(opened) < 40
    assert recipe.objective.label == "label"
    assert "and 288 more" in text
    assert max(map(len, text.splitlines())) < 500
