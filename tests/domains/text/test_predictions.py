"""Predictions for text files, which can be joined to the lines of these files."""

import csv
import json

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.readers.text_parts import strings
from sciformer.domains.text.readers.tagged import Columns
from sciformer.evaluation.predictions import write_predictions
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.domains.text.readers.files import write
from tests.errors import refuses

SENTENCES = [
    "Ada/B-person left/O Rome/B-place ./O",
    "Max/B-person likes/O New/B-place York/I-place ./O",
    "we/O left/O New/B-place York/I-place ,/O Ada/B-person",
] * 8
MODEL = {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2}
TRAIN = {"batch": 8, "warmup": 1, "device": "cpu", "learning_rate": 0.03}


def tagged(sentences):
    return "\n".join("".join("\t".join(pair.split("/")) + "\n" for pair in one.split()) for one in sentences)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    file = write(folder / "train.conll", tagged(SENTENCES))
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "conll", "files": [file], "valid": [file]},
            "tokens": {"kind": "text", "column": "words", "unit": "words", "context": 16},
            "model": MODEL,
            "objective": {"kind": "tag"},
            "train": {**TRAIN, "steps": 40},
        }
    )
    run = train(recipe, folder / "run", show=False, report=False)
    assert run.scores["entity_f1"] == 1
    return run.path


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    file = write(
        folder / "a.tsv", "text\tlabel\n" + "".join(f"good film {n}\tpos\nbad film {n}\tneg\n" for n in range(8))
    )
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "lines", "files": [file], "valid": [file]},
            "tokens": {"kind": "text", "unit": "words", "context": 8},
            "model": MODEL,
            "objective": {"kind": "classify"},
            "train": {**TRAIN, "steps": 2},
        }
    )
    return train(recipe, folder / "run", show=False, report=False).path


def rows_of(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_tagger_reads_running_text(tagger, tmp_path, end):
    file = write(tmp_path / "plain.txt", end.join(["Ada left Rome.", "", " \t", "  Max  likes New  York"]))
    out = tmp_path / "p.csv"
    assert write_predictions(Run(tagger), [file], out) == 2
    rows = rows_of(out)
    assert [(row["sentence"], row["line"], row["word"], row["tag"]) for row in rows] == [
        *(("1", "1", *pair.split("/")) for pair in SENTENCES[0].split()),
        *(("2", "4", *pair.split("/")) for pair in SENTENCES[1].split()[:-1]),
    ]
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)


def test_entities_have_their_place_in_the_text(tagger, tmp_path, capsys):
    lines = ["we  left New  York, Ada", "we left , we", "Max likes New York ."]
    file, out = write(tmp_path / "plain.txt", "\n".join(lines)), tmp_path / "spans.jsonl"
    assert main(["predict", str(tagger), file, "--rows", "entities", "--out", str(out)]) == 0
    assert "4 rows" in capsys.readouterr().out
    rows = rows_of(out)
    assert [(row["line"], row["type"], row["entity"]) for row in rows] == [
        (1, "place", "New  York"),
        (1, "person", "Ada"),
        (3, "person", "Max"),
        (3, "place", "New York"),
    ]
    assert all(lines[row["line"] - 1][row["start"] : row["end"]] == row["entity"] for row in rows)
    assert [(row["word_start"], row["word_end"]) for row in rows] == [(2, 4), (5, 6), (0, 1), (2, 4)]
    words = write_predictions(Run(tagger), [file], tmp_path / "words.jsonl")
    assert words == 3
    likely = rows_of(tmp_path / "words.jsonl")[2]["probability"]
    assert rows[3]["probability"] == pytest.approx(likely[2] * likely[3], rel=1e-5)


def test_tagged_words_keep_their_lines_and_truth(tagger, tmp_path):
    file = write(tmp_path / "a.txt", "\n\n" + tagged(SENTENCES[:1]).replace("B-place", "B-beast"))
    write_predictions(Run(tagger), [file], tmp_path / "p.csv")
    rows = rows_of(tmp_path / "p.csv")
    assert [row["line"] for row in rows] == ["3", "4", "5", "6"]
    assert [(row["truth"], row["tag"]) for row in rows][2] == ("B-beast", "B-place")
    write_predictions(Run(tagger), [file], tmp_path / "p.conll")
    assert (tmp_path / "p.conll").read_text().splitlines()[2:4] == ["Rome\tB-beast\tB-place", ".\tO\tO"]
    both = [file, write(tmp_path / "b.conll", tagged(SENTENCES[1:2]))]
    write_predictions(Run(tagger), both, tmp_path / "both.csv")
    assert {row["file"] for row in rows_of(tmp_path / "both.csv")} == set(both)


def test_texts_without_words_and_entities(tagger, tmp_path):
    file = write(tmp_path / "blank.txt", "\n \n")
    with refuses("blank.txt", file=file):
        write_predictions(Run(tagger), [file], tmp_path / "p.csv")
    file = write(tmp_path / "none.txt", "we left ,\n")
    for suffix in (".csv", ".jsonl", ".npz"):
        assert write_predictions(Run(tagger), [file], tmp_path / f"p{suffix}", rows="entities") == 0
    assert rows_of(tmp_path / "p.csv") == []


def test_a_long_line_is_one_text(tagger, tmp_path):
    file = write(tmp_path / "long.txt", "we left New York , Ada . " * 300)
    write_predictions(Run(tagger), [file], tmp_path / "p.csv", rows="entities")
    rows = rows_of(tmp_path / "p.csv")
    assert {row["line"] for row in rows} == {"1"}
    assert int(rows[-1]["word_end"]) > 2000


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("w.txt", "New\tB-place\nYork\tI-place\n\nAda\tB-person\n", ["New York", "Ada"]),
        ("w.txt", "New B-place\nYork I-place\nAda B-beast\n", ["New York Ada"]),  # most tags are known
        ("w.txt", "New\tX\nYork\tY\n", ["New York"]),  # tabs
        ("w.jsonl", '{"id": 7, "text": "Ada left."}\n{"id": 8, "text": "Max left."}\n', ["Ada left .", "Max left ."]),
        ("w.csv", 'id,review\n7,"Ada, left."\n', ["Ada , left ."]),
        ("w.txt", "New\nYork\n\nAda\n", ["New York", "Ada"]),  # without tags
        ("w.bio.gz", "New X\nYork Y\n", ["New York"]),  # by its name
        ("w.txt", "Ada left\nMax left\n", ["Ada left", "Max left"]),  # as many words in each line
        ("w.txt", "Ada left Rome.\n", ["Ada left Rome ."]),
        ("w.txt", "1\tAda left\n2\tMax left\n", ["1 Ada left", "2 Max left"]),  # tabs, but texts
    ],
)
def test_the_form_of_a_file_is_found(tmp_path, name, text, words):
    section = Columns(kind="conll", files=[write(tmp_path / "train.conll", tagged(SENTENCES))])
    section.state["learned"] = section.open().learned
    table = section.read([write(tmp_path / name, text)]).load(0)
    assert ("tags" in table) is ("B-place" in text or ".bio" in name)
    found = table["words"]
    sentences = np.split(found.values, found.lengths.cumsum()[:-1])
    assert [" ".join(one) for one in sentences] == words


def test_tables_without_a_column_of_texts_are_refused(tagger, tmp_path):
    file = write(tmp_path / "a.csv", "colour,size\nred,small\nblue,big\n")
    with refuses("colour | size", hint=".txt", file=file):
        Run(tagger).predict([file])


def test_the_option_decides_before_the_rule(tagger, tmp_path, here, capsys):
    write(tmp_path / "two.txt", "Ada left\nMax left\n")
    for form, count in (("text", 2), ("columns", 1), ("auto", 2)):
        assert main(["predict", str(tagger), "two.txt", "--data.form", form, "--overwrite"]) == 0
        assert f"{count} prediction" in capsys.readouterr().out
    with refuses("columns", key="data.form"):
        Run(tagger, reading={"data.form": "colums"}).predict(["two.txt"])
    with refuses(key="data.files", hint="data.form"):
        Run(tagger, reading={"data.files": "x"}).predict(["two.txt"])
    with refuses("`tags`", key="objective.label"):
        Run(tagger).evaluate(files=["two.txt"])


def test_predictions_of_texts_have_text_and_line(classifier, tmp_path):
    file, out = write(tmp_path / "new.txt", "good film\n\nbad film"), tmp_path / "p.csv"
    assert write_predictions(Run(classifier), [file], out) == 3
    rows = rows_of(out)
    assert list(rows[0]) == ["line", "text", "score_neg", "score_pos", "class"]
    assert [(row["line"], row["text"]) for row in rows] == [("1", "good film"), ("2", ""), ("3", "bad film")]
    both = [file, write(tmp_path / "more.txt", "a film")]
    write_predictions(Run(classifier), both, out, overwrite=True)
    assert [(row["file"], row["line"]) for row in rows_of(out)] == [
        *((file, str(n)) for n in (1, 2, 3)),
        (both[1], "1"),
    ]
    with refuses("--rows", "classify", key="--rows"):
        write_predictions(Run(classifier), [file], out, rows="words")


def test_a_file_of_one_class_is_evaluated(classifier, tmp_path):
    name = f"pos:{write(tmp_path / 'more.txt', 'good film' + chr(10) + 'good plot')}"
    found = Run(classifier).evaluate(files=[name])
    assert found.samples["label"].tolist() == ["pos", "pos"]
    with refuses("`label`", hint="NAME:FILE"):
        Run(classifier).evaluate(files=[name.removeprefix("pos:")])


def test_replaced_bytes_are_counted(classifier, tmp_path, capsys):
    file = write(tmp_path / "new.txt", b"good \xff film\n")
    line = ["predict", str(classifier), file, "--out", str(tmp_path / "p.csv"), "--quiet"]
    assert main(line) == 2
    assert main([*line, "--data.errors", "replace"]) == 0
    assert "U+FFFD" in capsys.readouterr().err


def test_words_of_samples_in_memory_are_tagged_one_by_one(tagger):
    """Once the text of a Python list, with its brackets and quotes, was tagged."""
    run = Run(tagger)
    for words in (
        [["Ada", "left", "Rome", "."]],
        [["Ada", "left", "Rome", "."], ["Max", "likes", "New", "York"]],
        [["Ada", "left", "Rome", "."], ["Max", "likes", "Rome"]],
        [("Ada", "left", "Rome", "."), []],
    ):
        for column in (words, strings(list(map(list, words)))):
            tags = run.predict({"words": column})["tags"]
            assert [len(row) for row in tags] == [len(row) for row in words]
            assert list(tags[0]) == ["B-person", "O", "B-place", "O"]
    assert list(run.predict({"words": np.array([["Ada", "left", "Rome", "."]])})["tags"][0])[2] == "B-place"
    assert list(run.predict({"words": np.array([b"Ada left Rome ."])})["tags"][0]) == ["B-person", "O", "B-place", "O"]
    for column in ([None], [{"Ada": 1}], [["Ada", None]], [["Ada"], "Max"]):
        with refuses("`words"):
            run.predict({"words": strings(column)})
