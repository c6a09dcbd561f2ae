"""Predictions as tables of every format, answered piece by piece, in the order of the samples."""

from types import SimpleNamespace

import awkward
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from sciformer.cli.main import main
from sciformer.data.columns import select
from sciformer.data.readers.arrays import Arrays
from sciformer.evaluation.predictions import add_predictions, flatten_columns, write_predictions
from sciformer.files.tables import create_table
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.errors import refuses
from tests.files.test_tables import SUFFIXES, read
from tests.training.tiny import go, image_recipe

ANSWERS = {
    "id": np.array([1, 2]),
    "probabilities": np.array([[0.25, 0.75], [0.5, 0.5]]),
    "class": np.array(["dog", "Chat, «noir»"]),
}
OBJECTIVE = SimpleNamespace(classes=["cat", "dog"])


def write(path, answers, objective=OBJECTIVE):
    with create_table(path) as file:
        add_predictions(file, {}, objective)
        add_predictions(file, answers, objective)


# The columns


@pytest.mark.parametrize("suffix", [".parquet", ".root", ".csv"])
def test_every_class_has_a_column_in_single_precision(tmp_path, suffix):
    path = tmp_path / f"scores{suffix}"
    write(path, ANSWERS)
    columns = {"id": [1, 2], "score_cat": [0.25, 0.5], "score_dog": [0.75, 0.5], "class": ANSWERS["class"].tolist()}
    if suffix == ".csv":
        columns = {name: list(map(str, values)) for name, values in columns.items()}
    assert read(path) == columns
    if suffix == ".root":
        with uproot.open(path) as file:
            assert file.classnames() == {"tree;1": "TTree"}
            assert file["tree"].typenames()["score_cat"] == "float"


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_arrays_stay_as_they_are_and_the_classes_are_named_once(tmp_path, suffix):
    write(tmp_path / f"a{suffix}", ANSWERS)
    found = read(tmp_path / f"a{suffix}")
    assert sorted(found) == ["class", "classes", "id", "probabilities"]
    assert found["probabilities"] == ANSWERS["probabilities"].tolist()
    assert [str(name) for name in found["classes"]] == ["cat", "dog"]
    write(tmp_path / f"b{suffix}", {**ANSWERS, "classes": np.arange(2)})
    assert read(tmp_path / f"b{suffix}")["classes"] == [0, 1]


def test_answers_without_names_are_numbered_and_values_have_those_of_their_targets():
    assert list(flatten_columns(ANSWERS)) == ["id", "score_0", "score_1", "class"]
    values = {"mean": np.ones((1, 2)), "cube": np.ones((1, 2, 2))}
    made = flatten_columns(values, SimpleNamespace(targets=["x", "y"]))
    assert list(made) == ["mean_x", "mean_y", "cube_0", "cube_1", "cube_2", "cube_3"]


def test_a_column_called_like_a_score_stays():
    made = flatten_columns({**ANSWERS, "score_dog": np.array([7.0, 8.0])}, OBJECTIVE)
    assert [made[name].tolist() for name in ("score_dog", "score_dog_of_file")] == [[0.75, 0.5], [7.0, 8.0]]


# From a run


class Pieces:
    """A table in three pieces; no two of them are held at a time."""

    def __init__(self, table, sizes):
        self.table, self.sizes, self.loaded = table, sizes, []

    def load(self, piece):
        start = sum(self.sizes[:piece])
        self.loaded.append(piece)
        return select(self.table, np.arange(start, start + self.sizes[piece]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return go(image_recipe(folder), folder / "images"), folder / "images.npz"


@pytest.fixture
def source(run, monkeypatch):
    table = {**Arrays(kind="arrays").read([run[1]]).load(0), "mass": np.arange(30) / 4}
    made = Pieces(table, [20, 1, 9])
    monkeypatch.setattr(Arrays, "read", lambda section, files: made)
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_in_pieces_are_read_once_and_answered_as_the_whole(run, source, tmp_path, suffix):
    whole = run[0].predict(source.table)
    path = tmp_path / f"scores{suffix}"
    assert write_predictions(run[0], ["a"], path) == 30
    assert source.loaded == [0, 1, 2]
    found = read(path)
    np.testing.assert_allclose([float(value) for value in found["mass"]], np.arange(30) / 4)
    assert [str(value) for value in found["class"]] == whole["class"].tolist()
    scores = found.get("probabilities") or np.array([found["score_0"], found["score_1"]], float).T
    np.testing.assert_allclose(scores, whole["probabilities"], atol=1e-6)


def test_from_the_command_line(run, here, capsys):
    line = ["predict", str(run[0].path), str(run[1]), "--out", "scores.root"]
    assert [main(line), main(line), main([*line, "--overwrite", "--quiet"])] == [0, 2, 0]
    told = capsys.readouterr()
    assert told.out.startswith("wrote 30 predictions to scores.root\n")
    assert all(word in told.err for word in ("scores.root", "--overwrite"))
    with uproot.open("scores.root") as file:
        assert file["tree"].num_entries == 30
        assert awkward.to_list(file["tree"].arrays(["label"])["label"])[:4] == [0, 1, 0, 1]


def test_no_sample_is_no_table(run, source, tmp_path):
    source.sizes = []
    with refuses(file="a"):
        write_predictions(run[0], ["a"], tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


def events(path, pt):
    """Events with particles of these transverse momenta."""
    px = pa.array(pt, pa.list_(pa.float32()))
    pq.write_table(pa.table({"px": px, "py": px, "pz": px, "energy": twice(px), "y": np.arange(len(pt)) / 8}), path)
    return str(path)


def twice(lists):
    return pa.array([[2 * value for value in row] for row in lists.to_pylist()], pa.list_(pa.float32()))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_without_entries_keep_their_row(tmp_path, suffix):
    """Once they were left out, and the rows could be joined to the events only by a column of their numbers."""
    full = [[1.0 + n, 2.0] for n in range(24)]
    tokens = {"kind": "particles", "vector": ["px", "py", "pz", "energy"], "features": "kin"}
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "events", "files": [events(tmp_path / "a.parquet", full)]},
            "tokens": tokens,
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "regress", "targets": ["y"]},
            "train": {"steps": 2, "batch": 4, "warmup": 0, "device": "cpu"},
        }
    )
    run = train(recipe, tmp_path / "run", show=False, report=False)
    new = events(tmp_path / "b.parquet", [[3.0], [], [5.0, 1.0], []])
    assert write_predictions(run, [new], tmp_path / f"c{suffix}") == 4
    found = read(tmp_path / f"c{suffix}")
    (mean,) = (np.ravel(np.asarray(found[name], float)) for name in found if name.startswith("mean"))
    assert np.isnan(mean).tolist() == [False, True, False, True]
    assert np.isnan(run.predict([new])["mean"][:, 0]).tolist() == [False, True, False, True]
    assert run.evaluate(files=[new]).size == 2


def test_notes_of_the_files_are_said(run, source, tmp_path, capsys):
    source.notes = ["5 of 35 samples have no entries: left out."]
    for show in (True, False):
        write_predictions(run[0], ["a"], tmp_path / f"{show}.csv", show=show)
        assert ("note: 5 of 35 samples" in capsys.readouterr().err) is show


TOY_FORMAT = """
from sciformer.files.formats.base import Format, TableWriter
from sciformer.recipe.registry import register


class ToyWriter(TableWriter):
    def __init__(self, path, table):
        self.file = path.open("w")

    def add(self, table):
        self.file.write("".join(f"{name}: {column.tolist()}\\n" for name, column in table.items()))

    def close(self, about):
        self.file.close()

    stop = lambda self: self.file.close()


register("format", "toy")(Format("toy", (".toy",), writer=ToyWriter))
"""


@pytest.mark.usefixtures("own_plugins")
def test_a_format_of_a_plugin_is_written(run, tmp_path, here, capsys):
    line = ["predict", str(run[0].path), str(run[1]), "--out", "scores.toy"]
    assert main(line) == 2
    assert ".csv, .h5, .jsonl, .npz, .parquet, .root or .conll" in capsys.readouterr().err
    (tmp_path / "toy_format.py").write_text(TOY_FORMAT)
    assert main([*line, "--plugin", "toy_format.py"]) == 0
    assert capsys.readouterr().out == "wrote 30 predictions to scores.toy\n"
    names = [line.partition(":")[0] for line in (tmp_path / "scores.toy").read_text().splitlines()]
    assert names == ["label", "drift", "score_0", "score_1", "class"] * 2  # in two blocks
