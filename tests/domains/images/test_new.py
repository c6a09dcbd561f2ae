"""A recipe from images: classes by folders, sizes, tables, and a training that begins with one name."""

import csv
import re

import numpy as np
import pytest

from sciformer.check.check import check
from sciformer.cli.main import main
from sciformer.domains.images.new import patch_side
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.domains.images.reader.examples import classes, picture, pixels
from tests.errors import refuses

TINY = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "train.steps": 3, "train.warmup": 1, "train.device": "cpu"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def passes(path):
    recipe = Recipe.load(path)
    assert check(recipe.change(TINY)).problems == []
    return recipe, path.read_text()


def test_a_folder_of_classes_needs_no_more_than_its_name(tmp_path):
    classes(tmp_path / "pets", 20)
    path = new("pets", [])
    assert str(path) == "pets.yaml"
    recipe, text = passes(path)
    assert (recipe.data.kind, recipe.objective.kind, recipe.tokens.patch) == ("images", "classify", 1)
    assert (recipe.data.channels, recipe.data.size, recipe.data.split.test) == (3, None, 0.0)
    assert "Found: 40 images to train on, 8 x 8 pixels, in colours." in text
    assert "Classes: cat (20), dog (20)." in text
    assert recipe.source.values["data"]["files"] == ["pets"]


def test_images_without_classes_are_learned_by_hiding(tmp_path):
    for number in range(12):
        picture(tmp_path / "sky" / f"{number}.png", pixels(8 + number, 20))
    recipe, text = passes(new("images", ["sky"]))
    assert (recipe.model.kind, recipe.objective.kind, recipe.objective.mask_ratio) == (
        "masked_autoencoder",
        "masked",
        0.75,
    )
    assert recipe.data.size == 8
    assert recipe.data.channels == 1
    assert "8 to 19 pixels high and 20 to 20 wide, grey" in text
    assert "No classes were found" in text


def test_tables_arrays_and_parts(tmp_path):
    for number in range(20):
        picture(tmp_path / f"img/{number}.png")
    (tmp_path / "list.csv").write_text("path,z\n" + "".join(f"img/{n}.png,{n / 10}\n" for n in range(20)))
    recipe, _ = passes(new("images", ["list.csv"]))
    assert (recipe.objective.kind, recipe.objective.targets) == ("regress", ["z"])
    np.savez(tmp_path / "x.npz", x_train=pixels(30, 9, 9), y_train=np.arange(30) % 3, x_test=pixels(9, 9, 9),
             y_test=np.arange(9) % 3)  # fmt: skip
    recipe, text = passes(new("images", ["x.npz"]))
    assert recipe.objective.kind == "classify"
    assert "Found: 30 images" in text
    assert "stratify: label" in text
    (tmp_path / "maps").mkdir()
    for number in range(10):
        np.save(tmp_path / "maps" / f"{number}.npy", np.where(np.eye(8) > 0, np.nan, number))
    recipe, _ = passes(new("images", ["maps"]))
    assert recipe.data.blank == 0
    for part in ("train", "test"):
        classes(tmp_path / part, 10)
    recipe, _ = passes(new("images", ["train", "test"], "two.yaml"))
    assert (recipe.data.files, recipe.data.test) == (["train"], ["test"])


def test_sides_of_patches():
    sizes = [(28, 28), (32, 32), (64, 64), (224, 224), (8, 8), (97, 103), (64, 256)]
    assert [patch_side(*size) for size in sizes] == [4, 4, 8, 32, 1, 14, 16]


def test_too_few_and_bad_ones(tmp_path):
    classes(tmp_path / "pets", 2)
    with refuses("10 images", "not 4"):
        new("images", ["pets"])
    (tmp_path / "pets" / "cat" / "0.png").write_bytes(b"no")
    with refuses("10 images", "not 3", hint="left out pets/cat/0.png: "):
        new("images", ["pets"])
    for path in (tmp_path / "pets").rglob("*.png"):
        path.write_bytes(b"no")
    with refuses("data.files", "left out pets/cat/0.png: "):
        new("images", ["pets"])
    with refuses("arrays, images, jets, lightcurves, patches, text", "'nothing'"):
        new("nothing", [])


def test_bad_pictures_are_left_out_and_named(tmp_path):
    classes(tmp_path / "pets", 12)
    assert passes(new("images", ["pets"]))[0].data.bad_files == "stop"
    (tmp_path / "pets" / "cat" / "0.png").write_bytes(b"no")
    recipe, text = passes(new("images", ["pets"], "again.yaml"))
    assert recipe.data.bad_files == "skip"
    assert "# Found: 23 images to train on" in text
    assert re.search(r"# left out pets/cat/0\.png: .*b'no'", text)


def test_from_a_folder_to_answers_with_names(tmp_path, capsys):
    classes(tmp_path / "pets", 12)
    assert main(["new", "pets"]) == 0
    short = [word for key, value in TINY.items() for word in (f"--{key}", str(value))]
    assert main(["train", "pets.yaml", "--run", "runs/pets", "--quiet", *short]) == 0
    new_ones = [tmp_path / "new" / f"{name}.png" for name in ("b", "a")]
    for path in new_ones:
        picture(path)
    assert main(["predict", "runs/pets", "new/b.png", "new/a.png", "--quiet"]) == 0
    with open("predictions.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == ["new/b.png", "new/a.png"]
    assert set(rows[0]) == {"file", "class", "score_cat", "score_dog"}
    (tmp_path / "new" / "b.png").write_bytes(b"broken")
    assert main(["predict", "runs/pets", "new", "--quiet", "--out", "more.csv"]) == 2
    assert "new/b.png" in capsys.readouterr().err
    assert not (tmp_path / "more.csv").exists()


def listing(folder, column, values):
    for number in range(len(values)):
        picture(folder / f"img/{number}.png", pixels(8, 8))
    lines = "".join(f"img/{number}.png,{value}\n" for number, value in enumerate(values))
    (folder / "list.csv").write_text(f"file,{column}\n{lines}")


def test_a_table_of_images_needs_no_word(tmp_path):
    values = ["" if n % 9 == 4 else "n/a" if n == 3 else n / 7 for n in range(30)]
    listing(tmp_path, "brightness", values)
    recipe, text = passes(new("list.csv", []))
    assert (recipe.objective.kind, recipe.objective.targets) == ("regress", ["brightness"])
    assert "No classes were found" not in text
    (tmp_path / "notes.csv").write_text("name,note\nBob,hello\n")
    with refuses("'notes.csv'", file="notes.csv", hint="sciformer new KIND notes.csv"):
        new("notes.csv", [])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (range(100, 140), "regress"),  # as many numbers as images
        ([n % 3 for n in range(40)], "classify"),
        (["ab"[n % 2] for n in range(40)], "classify"),
        ([f"note {n}" for n in range(40)], "masked"),
        ([5] * 40, "masked"),
    ],
)
def test_what_a_column_may_be(tmp_path, values, kind):
    listing(tmp_path, "form", list(values))
    recipe, text = passes(new("list.csv", []))
    assert recipe.objective.kind == kind
    if kind == "classify":
        assert f"Classes in `form`: {values[0]} (" in text
        assert recipe.data.split.stratify == recipe.objective.label == "form"


def test_classes_of_images_do_not_change_along_a_column(tmp_path):
    np.savez(tmp_path / "a.npz", image=pixels(30, 8, 8), label=np.arange(30) % 3, snr=np.arange(30) / 7)
    recipe, text = passes(new("a.npz", []))
    assert recipe.objective.plot_against == ""
    assert "others: `snr` (values)" in text
    np.savez(tmp_path / "b.npz", image=pixels(30, 8, 8), label=np.arange(29) % 3)
    assert "`label` of b.npz has 29 entries, not 30" in new("b.npz", []).read_text()


def test_places_for_a_recipe(tmp_path):
    classes(tmp_path / "pets", 10)
    (tmp_path / "file").write_text("")
    with refuses("'.'", hint="NAME.yaml"):
        new("pets", [], ".")
    with refuses("file/a.yaml", file="file/a.yaml", hint="--out"):
        new("pets", [], "file/a.yaml")
