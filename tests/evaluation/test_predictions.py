"""Tables of answers in every form: written piece by piece, complete or not there, in the order of the samples."""

import csv
import io
from types import SimpleNamespace

import awkward
import numpy as np
import pyarrow.parquet
import pytest
import torch
import uproot

from sciformer.cli import terminal
from sciformer.cli.main import main
from sciformer.cli.terminal import ProgressMeter
from sciformer.data.columns import select
from sciformer.data.readers.arrays import Arrays
from sciformer.evaluation import predictions
from sciformer.evaluation.predictions import (
    PredictionTable,
    branch_names,
    flatten_columns,
    write_answers,
    write_predictions,
)
from tests.errors import refuses
from tests.train.tiny import go, image_recipe

ANSWERS = {
    "id": np.array([1, 2]),
    "probabilities": np.array([[0.25, 0.75], [0.5, 0.5]]),
    "class": np.array(["dog", "Chat, «noir»"]),
}
OBJECTIVE = SimpleNamespace(classes=["cat", "dog"])
FORMS = (".csv", ".npz", ".parquet", ".root")


def read(path):
    """The columns of a table, whatever its form."""
    if path.suffix == ".root":
        with uproot.open(path) as file:
            found = file["tree"].arrays()
            return {name: found[name].to_list() for name in found.fields}
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pydict()
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name].tolist() for name in found}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


# The forms


@pytest.mark.parametrize("form", [".parquet", ".root"])
def test_every_class_has_a_column_in_single_precision(tmp_path, form):
    path = tmp_path / "new" / "folder" / f"scores{form}"
    assert write_answers(path, ANSWERS, OBJECTIVE) == 2
    found = read(path)
    assert found == {
        "id": [1, 2],
        "score_cat": [0.25, 0.5],
        "score_dog": [0.75, 0.5],
        "class": ["dog", "Chat, «noir»"],
    }
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    if form == ".root":
        with uproot.open(path) as file:
            assert file.classnames() == {"tree;1": "TTree"}
            assert file["tree"].typenames()["score_cat"] == "float"


def test_csv_has_a_column_for_each_class_too(tmp_path):
    path = tmp_path / "answers.csv"
    write_answers(path, ANSWERS, OBJECTIVE)
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))
    assert rows == [
        ["id", "score_cat", "score_dog", "class"],
        ["1", "0.25", "0.75", "dog"],
        ["2", "0.5", "0.5", "Chat, «noir»"],
    ]


def test_npz_names_the_classes_once(tmp_path):
    objective = SimpleNamespace(classes=["b", "a"])
    write_answers(tmp_path / "a.npz", {"probabilities": np.eye(2)}, objective)
    write_answers(tmp_path / "b.npz", {"probabilities": np.eye(2), "classes": np.arange(2)}, objective)
    with np.load(tmp_path / "a.npz") as found, np.load(tmp_path / "b.npz") as other:
        assert found["classes"].tolist() == ["b", "a"]
        assert other["classes"].tolist() == [0, 1]


def test_npz_has_the_arrays_as_they_are(tmp_path):
    assert write_answers(tmp_path / "a.npz", ANSWERS) == 2
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert sorted(found) == ["class", "id", "probabilities"]
        np.testing.assert_array_equal(found["probabilities"], ANSWERS["probabilities"])


def test_answers_without_names_are_numbered_and_values_have_those_of_their_targets():
    assert list(flatten_columns(ANSWERS)) == ["id", "score_0", "score_1", "class"]
    values = {"mean": np.ones((1, 2)), "cube": np.ones((1, 2, 2))}
    made = flatten_columns(values, SimpleNamespace(targets=["x", "y"]))
    assert list(made) == ["mean_x", "mean_y", "cube_0", "cube_1", "cube_2", "cube_3"]


def test_a_column_called_like_a_score_stays():
    made = flatten_columns({**ANSWERS, "score_dog": np.array([7.0, 8.0])}, OBJECTIVE)
    assert made["score_dog"].tolist() == [0.75, 0.5]
    assert made["score_dog_of_file"].tolist() == [7.0, 8.0]


def test_branches_have_names_that_root_can_spell():
    odd = ["score_t → b q", "score_t   b q", "0", "", "jet_pt"]
    assert list(branch_names(dict.fromkeys(odd)).values()) == ["score_t___b_q", "score_t___b_q__2", "_0", "_", "jet_pt"]


@pytest.mark.parametrize("form", FORMS)
def test_pieces_become_one_table_in_their_order(tmp_path, form):
    path = tmp_path / f"all{form}"
    with PredictionTable(path, OBJECTIVE) as sheet:
        for start, word in ((0, "a"), (3, "longer"), (6, "c")):
            number = np.arange(start, start + 3)
            sheet.add({"number": number, "whole": number.astype(np.float32), "name": np.array([word] * 3)})
            sheet.add({})
        assert not path.exists()
    assert sheet.count == 9
    found = read(path)
    assert [int(value) for value in found["number"]] == list(range(9))
    assert found["name"] == ["a"] * 3 + ["longer"] * 3 + ["c"] * 3


def test_numbers_keep_the_type_of_the_first_piece(tmp_path):
    for form in (".parquet", ".root"):
        with PredictionTable(tmp_path / f"a{form}") as sheet:
            sheet.add({"x": np.array([1.5, 2.5]), "flag": np.array([True, False])})
            sheet.add({"x": np.array([3], np.int32), "flag": np.array([True])})
        assert read(tmp_path / f"a{form}") == {"x": [1.5, 2.5, 3.0], "flag": [True, False, True]}


# What may go wrong


@pytest.mark.parametrize("form", FORMS)
def test_what_fails_leaves_nothing_and_what_was_there(tmp_path, form):
    path = tmp_path / f"a{form}"
    path.write_bytes(b"before")

    def broken():
        with PredictionTable(path, OBJECTIVE, overwrite=True) as sheet:
            sheet.add(ANSWERS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_is_there_is_replaced_only_when_asked(tmp_path, form):
    path = tmp_path / f"a{form}"
    path.write_bytes(b"before")
    with refuses(file=path, hint="--overwrite"):
        write_answers(path, ANSWERS)
    assert path.read_bytes() == b"before"
    assert write_answers(path, ANSWERS, overwrite=True) == 2
    assert len(next(iter(read(path).values()))) == 2


def test_columns_that_only_some_files_have_are_answered(tmp_path):
    def mixed():
        with PredictionTable(tmp_path / "a.root", OBJECTIVE) as sheet:
            sheet.add(ANSWERS)
            sheet.add({**ANSWERS, "mass": np.ones(2)})

    with refuses("`mass`"):
        mixed()
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_answered(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses(".csv", ".npz", ".parquet", ".root", tmp_path / "a.txt", hint=str(tmp_path / "a.csv")):
        write_answers(tmp_path / "a.txt", ANSWERS)
    for form in FORMS:
        with refuses(tmp_path / "file"):
            write_answers(tmp_path / "file" / f"a{form}", ANSWERS)
        (tmp_path / f"a{form}").mkdir()
        with refuses(tmp_path / f"a{form}"):
            write_answers(tmp_path / f"a{form}", ANSWERS, overwrite=True)


@pytest.mark.parametrize(("form", "package"), [(".root", "uproot"), (".parquet", "pyarrow")])
def test_a_missing_package_is_answered_with_how_to_get_it(monkeypatch, tmp_path, form, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with refuses(f"`{package}`", hint="pip install "):
        predictions.check_table(tmp_path / f"a{form}")


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
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("run")
    return go(image_recipe(folder), folder / "images"), folder / "images.npz"


@pytest.fixture
def source(run, monkeypatch):
    table = {**Arrays(kind="arrays").read([run[1]]).load(0), "mass": np.arange(30) / 4}
    made = Pieces(table, [20, 1, 9])
    monkeypatch.setattr(Arrays, "read", lambda section, files: made)
    return made


@pytest.mark.parametrize("form", FORMS)
def test_samples_in_pieces_are_read_once_and_answered_as_the_whole(run, source, tmp_path, form):
    whole = run[0].predict(source.table)
    path = tmp_path / f"scores{form}"
    assert write_predictions(run[0], ["a"], path) == 30
    assert source.loaded == [0, 1, 2]
    found = read(path)
    np.testing.assert_allclose([float(value) for value in found["mass"]], np.arange(30) / 4)
    assert [str(value) for value in found["class"]] == whole["class"].tolist()
    scores = np.array(found["probabilities"] if form == ".npz" else [found["score_0"], found["score_1"]], float)
    np.testing.assert_allclose(scores if form == ".npz" else scores.T, whole["probabilities"], atol=1e-6)


def test_from_the_command_line(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["predict", str(run[0].path), str(run[1]), "--out", "scores.root"]
    assert main(line) == 0
    assert capsys.readouterr().out == "wrote 30 answers to scores.root\n"
    assert main(line) == 2
    said = capsys.readouterr().err
    assert "scores.root" in said
    assert "--overwrite" in said
    assert main([*line, "--overwrite", "--quiet"]) == 0
    with uproot.open("scores.root") as file:
        assert file["tree"].num_entries == 30
        assert awkward.to_list(file["tree"].arrays(["label"])["label"])[:4] == [0, 1, 0, 1]


def test_no_sample_is_no_table(run, source, tmp_path):
    source.sizes = []
    with refuses(file="a"):
        write_predictions(run[0], ["a"], tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


def test_notes_of_the_files_are_said(run, source, tmp_path, capsys):
    source.notes = ["5 of 35 samples have no entries: left out."]
    for show in (True, False):
        write_predictions(run[0], ["a"], tmp_path / f"{show}.csv", show=show)
        assert ("note: 5 of 35 samples" in capsys.readouterr().err) is show


def test_progress_in_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PROGRESS_INTERVAL", -1.0)
    with ProgressMeter(2000, show=True) as meter:
        meter.add(1000)
    assert capsys.readouterr().err.startswith("1,000/2,000 samples  ")
    with ProgressMeter(2000, show=False) as meter:
        meter.add(1000)
    assert capsys.readouterr().err == ""
