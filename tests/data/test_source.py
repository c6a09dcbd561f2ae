"""Files whose columns have other names than those of the training: one mapping for every reader and command."""

import csv

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.data.readers.arrays import Arrays
from sciformer.data.readers.events.reader import EventFiles
from sciformer.domains.text.readers.labelled import Lines
from sciformer.domains.text.readers.running import TextFiles
from sciformer.domains.text.readers.tagged import Columns
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import Run, train
from tests.errors import refuses
from tests.recipe.written import TINY


def write_curves(path, names):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        for star in range(12):
            rows.writerows(
                (f"S{star}", "AB"[star % 2], star / 7, 5e4 + n, 15 + np.sin(n * (1 + star % 2))) for n in range(9)
            )


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    """A run on light curves with an extra column, and files with usual and other names."""
    folder = tmp_path_factory.mktemp("curves")
    write_curves(folder / "a.csv", ("objectid", "type", "colour", "mjd", "mag"))
    write_curves(folder / "b.csv", ("who", "sort", "B_V", "HJD", "Vmag"))
    path = new("lightcurves", [str(folder / "a.csv")], folder / "a.yaml", changes={"tokens.extra": ["colour"]})
    train(Recipe.load(path, {**TINY, "train.batch": 4}), folder / "run", show=False, report=False)
    return folder


NAMES = {"time": "HJD", "value": "Vmag", "id": "who", "label": "sort", "colour": "B_V"}


def test_answers_do_not_depend_on_the_names_of_columns(curves):
    usual, other = Run(curves / "run").predict(curves / "a.csv"), Run(curves / "run", columns=NAMES)
    found = other.predict(curves / "b.csv")
    np.testing.assert_array_equal(found["probabilities"], usual["probabilities"])
    assert list(found["id"]) == list(usual["id"])
    assert (
        other.evaluate(files=[curves / "b.csv"]).scores == Run(curves / "run").evaluate(files=[curves / "a.csv"]).scores
    )
    with refuses(key="data.time", hint="--map time=COLUMN", file=curves / "b.csv"):
        Run(curves / "run").predict(curves / "b.csv")


@pytest.mark.parametrize(
    ("columns", "mentions", "hint"),
    [
        ({"tim": "HJD"}, ("'tim'",), "'time'"),
        ({**NAMES, "colour": "BV"}, ("`BV`", "`colour`"), "'B_V'"),
        ({**NAMES, "time": "JD"}, ("`JD`",), "'HJD'"),
    ],
)
def test_wrong_names_are_refused(curves, columns, mentions, hint):
    with refuses(*mentions, hint=hint):
        Run(curves / "run", columns=columns).predict(curves / "b.csv")


def test_the_commands_take_a_map(curves, here, capsys):
    words = [word for pair in NAMES.items() for word in ("--map", "=".join(pair))]
    line = [str(curves / "run"), str(curves / "b.csv"), *words]
    assert main(["predict", *line]) == 0
    assert main(["evaluate", *line]) == 0
    assert main(["embed", *line]) == 0
    assert "12 vectors" in capsys.readouterr().out
    assert main(["evaluate", str(curves / "run"), "--map", "time=HJD"]) == 2
    assert main(["predict", *line[:2], "--map", "time"]) == 2
    assert "OURS=THEIRS" in capsys.readouterr().err


def test_events_and_their_formulas(tmp_path):
    lists = Lists(np.arange(6.0), np.array([2, 4]))
    np.savez(tmp_path / "b.npz", pT=lists.values, pT_lengths=lists.lengths, truth=np.array([0, 1]))
    section = EventFiles(kind="events", new={"x": "2 * pt", "y": "x + 1"}, classes={"a": "is_a", "b": "is_b"})
    section = section.want(["x", "y"], ["label"])
    table = section.with_columns({"pt": "pT", "label": "truth"}).read([tmp_path / "b.npz"]).load(0)
    np.testing.assert_array_equal(table["y"].values, 2 * lists.values + 1)
    np.testing.assert_array_equal(table["label"], [0, 1])
    table = section.with_columns({"x": "pT"}).read([tmp_path / "b.npz"]).load(0)  # instead of its formula
    np.testing.assert_array_equal(table["y"].values, lists.values + 1)


def test_texts_tags_and_arrays(tmp_path):
    (tmp_path / "a.csv").write_text("note,stars,age\ngood,1,3\nbad,0,4\n")
    section = Lines(kind="lines").want(["text"], ["label", "years"])
    table = section.with_columns({"text": "note", "label": "stars", "years": "age"}).read([tmp_path / "a.csv"]).load(0)
    assert list(table["text"]) == ["good", "bad"]
    assert (list(table["label"]), list(table["years"])) == ([1, 0], [3, 4])
    (tmp_path / "a.conll").write_text("1 dogs N\n2 bark V\n")
    words = Columns(kind="conll").with_columns({"words": "1"}).read([tmp_path / "a.conll"]).load(0)["words"]
    assert list(words.values) == ["dogs", "bark"]
    np.savez(tmp_path / "a.npz", pictures=np.ones((3, 4, 4)))
    assert (
        Arrays(kind="arrays").with_columns({"image": "pictures"}).read([tmp_path / "a.npz"]).load(0)["image"].shape[0]
        == 3
    )
    with refuses(key="--map"):
        TextFiles(kind="text").with_columns({"text": "note"})
