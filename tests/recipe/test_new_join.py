"""Recipes for a table of objects: columns with files, further files, lists, numbers; and the refusals."""

import csv

import pytest

from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.data.readers.objects import write_objects
from tests.errors import refuses


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_objects(tmp_path / "objects")


def rewrite(path, change):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [change(row, number) for number, row in enumerate(rows)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_files_rows_and_numbers_become_streams(folder):
    notes = []
    path = new("join", [folder / "objects.csv", folder / "curves.csv"], folder / "mine.yaml", log=notes.append)
    recipe = Recipe.load(path)
    assert recipe.data.streams["picture"]["column"] == "picture"
    assert recipe.data.streams["curves"]["column"] == "name"
    assert recipe.streams["numbers"].columns == ("mass", "size")
    assert (recipe.model.kind, recipe.objective.label) == ("multistream", "label")
    assert any("picture" in note and "2 objects" in note for note in notes)
    splits = recipe.data.open()
    assert splits.sources["train"].load(0)["image"].lengths.max() == 64


def test_lists_of_the_table_are_a_stream_and_values_can_be_predicted(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n = 24
    columns = {
        "name": [f"o{i}" for i in range(n)],
        "time": [[1.0, 2.0, 3.0]] * n,
        "redshift": [i / n for i in range(n)],
    }
    columns |= {"mag": [[20.0, 21.0 + i, 22.0] for i in range(n)], "mass": [float(i) for i in range(n)]}
    parquet.write_table(pyarrow.table(columns), folder / "all.parquet")
    changes = {"objective.kind": "regress", "objective.targets": "redshift"}
    recipe = Recipe.load(new("join", [folder / "all.parquet"], folder / "mine.yaml", changes=changes))
    (stream,) = recipe.data.streams.values()
    assert (stream["column"], stream["value"]) == ("name", "mag")
    assert recipe.streams["numbers"].columns == ("mass",)
    assert recipe.objective.targets == ["redshift"]


def test_without_classes_tokens_of_all_streams_are_masked(folder):
    rewrite(folder / "objects.csv", lambda row, i: {key: row[key] for key in ("name", "picture", "mass")})
    recipe = Recipe.load(new("join", [folder / "objects.csv"], folder / "mine.yaml"))
    assert (recipe.objective.kind, recipe.objective.every_stream) == ("masked", True)


@pytest.mark.parametrize(
    ("change", "names", "mentions"),
    [
        (lambda row, i: {key: row[key] for key in ("name", "picture", "label")}, ["objects.csv"], "picture"),
        (lambda row, i: row | {"picture": "lost.png" if i == 3 else row["picture"]}, ["objects.csv"], "picture"),
        (lambda row, i: {"mass": row["mass"], "label": row["label"]}, ["objects.csv", "curves.csv"], "curves.csv"),
    ],
    ids=["one stream", "a lost file", "no ids"],
)
def test_tables_without_several_streams_are_refused(folder, change, names, mentions):
    rewrite(folder / "objects.csv", change)
    with refuses(mentions):
        new("join", [folder / name for name in names], folder / "mine.yaml")
