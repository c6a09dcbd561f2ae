"""Labelled texts in tables and in files of one class."""

import csv
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.split import Split
from sciformer.domains.text.readers.labelled import Lines
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import parts, shared, write
from tests.errors import refuses

NONE = Split(valid=0, test=0)
ROWS = [
    ("It was good, very good", "pos"),
    ('A "bad" film', "neg"),
    ("Nothing\tof it", "neg"),
    ("Zwei\nZeilen: ä", "pos"),
]
PLAIN = [(" ".join(text.split()), label) for text, label in ROWS]


def lines(*files, **options):
    return Lines(kind="lines", files=list(files), **{"split": NONE, **options})


def table(*files, **options):
    return lines(*files, **options).open().sources["train"].load(0)


def rows(found):
    return list(zip(found["text"], found["label"]))


def refused(expected, *files, **options):
    """`expected`: what the error mentions, and its fields."""
    mentions, fields = expected
    with refuses(*mentions, **fields):
        lines(*files, **options).open()


def error(*mentions, **fields):
    return mentions, fields


def as_csv(rows, head=("text", "label"), delimiter=",", end="\r\n"):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows([head, *rows] if head else rows)
    return out.getvalue()


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_form_holds_the_same(tmp_path, packed, end):
    tsv = "text\tlabel" + end + "".join(f"{text}\t{label}{end}" for text, label in PLAIN)
    assert rows(table(write(tmp_path / f"a.tsv{packed}", tsv))) == PLAIN
    turned = end.join(f"{label}\t{text}" for text, label in [("sentence", "class"), *PLAIN])
    assert rows(table(write(tmp_path / f"a.txt{packed}", "\ufeff" + turned))) == PLAIN
    for delimiter in ",;":
        name = write(tmp_path / f"a.csv{packed}", as_csv(ROWS, delimiter=delimiter, end=end))
        assert rows(table(name)) == ROWS
    objects = [{"id": i, "Review": text, "sentiment": label} for i, (text, label) in enumerate(ROWS)]
    found = table(write(tmp_path / f"a.jsonl{packed}", end.join(map(json.dumps, objects))))
    assert (rows(found), found["id"].tolist()) == (ROWS, [0, 1, 2, 3])
    assert rows(table(write(tmp_path / f"a.json{packed}", json.dumps(objects, indent=1)))) == ROWS


LETTER = st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])
CELL = st.text(LETTER, min_size=1, max_size=9).map(str.strip)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CELL.filter(bool), st.sampled_from(["yes", "no", "a, b"])), min_size=1, max_size=8))
def test_any_text_survives_in_csv_and_json(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("csv")
    assert rows(table(write(folder / "a.csv", as_csv(pairs)))) == pairs
    text = "".join(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in pairs)
    assert rows(table(write(folder / "a.jsonl", text))) == pairs


def test_columns_without_names_are_told_apart(tmp_path):
    many = [(f"a text of some words, number {i}", f"class{i % 3}") for i in range(30)]
    for turn in (1, -1):
        name = write(tmp_path / "a.tsv", "\n".join("\t".join(row[::turn]) for row in many))
        assert rows(table(name)) == many
    few = write(tmp_path / "b.csv", as_csv([("good film", "1"), ("bad film", "0")], head=None))
    assert rows(table(few)) == [("good film", 1), ("bad film", 0)]
    numbered = write(tmp_path / "c.tsv", "\n".join(f"{i}\tthe text {i}" for i in range(30)))
    refused(error("2", "'0 | the text 0'", key="data.columns", file=numbered, hint="label text"), numbered)
    named = write(tmp_path / "d.tsv", "x\ty\tz w\nx\tv\tz z\n")
    refused(error("3", "x | y | z w", key="data.columns", file=named), named)
    third = table(named, columns=["label", "who", "text"])
    assert (list(third["text"]), list(third["who"])) == (["z w", "z z"], ["y", "v"])
    refused(error("label, text", "3", key="data.columns", file=named), named, columns=["label", "text"])
    again = write(tmp_path / "e.tsv", "label\ttext\nx\ta b\n")
    assert rows(table(again, columns=["label", "text"])) == [("a b", "x")]


def test_the_text_and_the_label_are_found_by_name_or_named(tmp_path):
    cells = [("u", "v", "w", "2.5"), ("x", "y", "z", "")]
    name = write(tmp_path / "a.csv", as_csv(cells, ("body", "title", "kind", "score")))
    refused(error("`body`, `title`", key="data.text", file=name, hint="--data.text NAME"), name)
    found = table(name, text="title", label="kind")
    assert [list(found[key]) for key in ("body", "text", "label")] == [["u", "x"], ["v", "y"], ["w", "z"]]
    np.testing.assert_array_equal(found["score"], [2.5, np.nan])
    assert "label" not in table(name, text="title")
    refused(error(name, "'kinds'", key="data.label", hint="'kind'"), name, text="title", label="kinds")
    both = write(tmp_path / "b.csv", as_csv([("u", "v", "w")], ("text", "topic", "class")))
    refused(error("`topic`, `class`", key="data.label", file=both), both)
    clash = table(write(tmp_path / "c.csv", as_csv([("u", "v", "w")], ("text", "title", "label"))), text="title")
    assert (list(clash["text"]), list(clash["text_"])) == (["v"], ["u"])
    double = write(tmp_path / "d.csv", as_csv([("u", "v", "w")], None))
    refused(error("'a'", file=double), double, columns=["a", "text", "a"])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.tsv", "text\tlabel\na b\tx\nc d\n", error("2", "line 1", "1: 'c d'", line=3)),
        ("a.csv", 'text,label\n"a\nb",x\nc,d,e\n', error("2", "line 1", "3: 'c | d | e'", line=4)),
        ("a.csv", 'text,label\na,x\n"never closed,y\nb,z\n', error("CSV", line=3, hint="quote")),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"\n', error("JSON", """'{"text": "b"'""", line=2)),
        ("a.jsonl", '{"text": "a", "label": 1}\n[3]\n', error("[3]", line=2)),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', error("label", line=2)),
        ("a.tsv", "text\tlabel\na b\t\n", error("label", line=2)),
        ("a.txt", "only\nlines\n", error("1", "label", hint="data.classes")),
        ("a.tsv", "text\tlabel\n", error("text", key="data.files")),
        ("a.tsv", b"text\tlabel\nok\tx\ncaf\xe9\ty\n", error("e9 09 79 0a", "byte 19", line=3)),
    ],
)
def test_broken_files_name_the_line(tmp_path, name, text, expected):
    mentions, fields = expected
    path = write(tmp_path / name, text)
    refused((mentions, fields if "key" in fields else {**fields, "file": path}), path)


def test_a_file_for_each_class(tmp_path, here, monkeypatch):
    for part, count in {"train": 30, "test": 4}.items():
        for label in ("neg", "pos"):
            write(tmp_path / f"{part}.{label}.gz", "".join(f"a {label} text of {part} {i} \n\n" for i in range(count)))
    classes = {label: [f"train.{label}.gz"] for label in ("neg", "pos")}
    section = lines(classes=classes, test=["test.{}.gz"], split=Split(valid=0.1, test=0.5)).absolute_paths()
    monkeypatch.chdir("/")
    opened = section.open()
    assert {name: len(found["text"]) for name, found in parts(opened).items()} == {"train": 54, "valid": 6, "test": 8}
    names = [f"{part}.{label}" for part in ("train", "test") for label in ("neg", "pos")]
    assert list(opened.fingerprint) == [f"{tmp_path}/{name}.gz" for name in names]
    for found in parts(opened).values():
        assert all(text.split()[1] == label for text, label in rows(found))
    marked = lines(f"{tmp_path}/train.{{}}.gz", classes={"neg": [], "pos": []}).open().sources["train"].load(0)
    assert [label for _, label in rows(marked)] == ["neg"] * 30 + ["pos"] * 30
    judged = section.read([tmp_path / "test.{}.gz"]).load(0)
    assert rows(judged) == rows(parts(opened)["test"])


def test_equal_texts_stay_together(tmp_path):
    name = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"text {i % 40}\t{i % 2}\n" for i in range(400)))
    found = {part: set(kept["text"]) for part, kept in parts(lines(name, split=Split()).open()).items()}
    assert {part: len(texts) for part, texts in found.items()} == {"train": 32, "valid": 4, "test": 4}
    assert len(set.union(*found.values())) == 40


def test_few_labels_are_drawn_of_the_texts_to_train_on(tmp_path):
    name = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 5 == 0]}\n" for i in range(200)))
    found = parts(lines(name, split=Split(), labels_per_class=3).open())
    assert [len(table["text"]) for table in found.values()] == [6, 20, 20]
    assert len(table(name, labels_per_class=100)["text"]) == 140
    unlabelled = write(tmp_path / "b.csv", "text,who\na,b\n")
    refused(error("`label`", "text, who", key="data.labels_per_class"), unlabelled, labels_per_class=3)


def test_empty_texts_are_not_trained_on(tmp_path):
    name = write(tmp_path / "a.csv", "text,label\na,x\n,y\nb,y\n")
    opened = lines(name, valid=[name]).open()
    assert [list(table["text"]) for table in parts(opened).values()] == [["a", "b"], ["a", "", "b"]]
    assert [re.findall(r"\d+|valid", note) for note in opened.notes] == [["2", "3", "valid"], ["1", "2"]]


def test_other_files_need_no_label(tmp_path):
    section = lines("gone.tsv", columns=["label", "text"])

    def read(name, text):
        found = section.read([write(tmp_path / name, text)]).load(0)
        return {key: list(column) for key, column in found.items()}

    assert read("a.txt", "one\n\ntwo") == {"line": [1, 2, 3], "text": ["one", "", "two"]}
    assert read("a.tsv", "\n\nx\tone\n") == {"line": [3], "text": ["one"], "label": ["x"]}
    assert read("a.csv", 'text\n"one,\n two"\nthree\n') == {"line": [2, 4], "text": ["one,\n two", "three"]}
    two = '{"text": "one"}\n{"text": "two", "who": null}'
    assert read("a.jsonl", two) == {"line": [1, 2], "text": ["one", "two"], "who": ["", ""]}
    table = lines("gone.tsv").read([write(tmp_path / "b.csv", "text,line\none,7\n")]).load(0)
    assert {key: list(column) for key, column in table.items()} == {"line_of_file": [2], "text": ["one"], "line": [7]}
    both = section.read([write(tmp_path / f"{name}.txt", "one\ntwo") for name in "cd"]).load(0)
    assert list(both["file"]) == [str(tmp_path / name) for name in ("c.txt", "c.txt", "d.txt", "d.txt")]
    assert list(both["line"]) == [1, 2, 1, 2]


def test_columns_must_agree(tmp_path):
    names = [write(tmp_path / "a.csv", "text,label\na,b\n"), write(tmp_path / "b.csv", "text,label,who\na,b,c\n")]
    refused(error(names[0], "text, label", "text, label, who", file=names[1]), *names)
    assert len(table(names[0], write(tmp_path / "c.csv", "label,text\nb,a\n"))["text"]) == 2


@shared
def test_sentence_polarity():
    folder = f"{SHARED}/sentence_polarity"
    classes = {label: [f"{folder}/rt-polarity.{label}.gz"] for label in ("neg", "pos")}
    opened = lines(classes=classes, split=Split()).open()
    found = parts(opened)
    assert [len(table["text"]) for table in found.values()] == [8530, 1066, 1066]
    assert sum(int((table["label"] == "pos").sum()) for table in found.values()) == 5331
    texts = [set(table["text"]) for table in found.values()]
    assert len(set.union(*texts)) == sum(map(len, texts)) == 10_662
    assert opened.notes == []
    few = lines(classes=classes, split=Split(), labels_per_class=50).open().sources
    assert [source.sizes for source in few.values()] == [[100], [1066], [1066]]
