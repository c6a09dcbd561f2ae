"""Sentence pairs in two files or between tabs."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.readers.text_parts import read_lines
from sciformer.data.split import Split
from sciformer.domains.text.readers.pairs import Parallel, find_misalignment
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import ENGLISH, GERMAN, parts, shared, write
from tests.errors import refuses

NONE = Split(valid=0, test=0)
LETTER = st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"])


def parallel(*files, **options):
    return Parallel(kind="parallel", files=list(files), **{"columns": ["en", "de"], "split": NONE, **options})


def pairs(table):
    return list(zip(table["en"], table["de"]))


def refused(section, *mentions, **fields):
    with refuses(*mentions, **fields):
        section.open()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("last", [True, False])
def test_two_files_and_one_with_tabs_hold_the_same_pairs(tmp_path, end, packed, last):
    tail = end if last else ""
    write(tmp_path / f"a.en{packed}", "\ufeff" + end.join(ENGLISH) + tail)
    write(tmp_path / f"a.de{packed}", end.join(GERMAN) + tail)
    tabbed = write(tmp_path / f"a.tsv{packed}", end.join(f"{a}\t{b}" for a, b in zip(ENGLISH, GERMAN)) + tail)
    two, one = parallel(f"{tmp_path}/a.{{}}{packed}").open(), parallel(tabbed).open()
    for opened in (two, one):
        assert pairs(opened.sources["train"].load(0)) == list(zip(ENGLISH, GERMAN))
        assert opened.notes == []
    assert list(two.fingerprint) == [f"{tmp_path}/a.en{packed}", f"{tmp_path}/a.de{packed}"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(LETTER, max_size=12), max_size=9))
def test_every_line_survives(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    for end in ("\n", "\r\n"):
        name = write(folder / "a.txt.gz", "".join(line + end for line in lines))
        path = folder / "a.txt.gz"
        marked = bool(lines) and lines[0].startswith("\ufeff")  # a byte order mark at the beginning is none of the text
        assert read_lines(path) == ([lines[0][1:], *lines[1:]] if marked else lines), name


def test_columns_beyond_two_and_several_files(tmp_path):
    for number in "12":
        for column in ("en", "de", "fr"):
            write(tmp_path / f"{number}.{column}", f"{column} {number}a\n{column} {number}b\n")
    table = parts(parallel(f"{tmp_path}/?.{{}}", columns=["de", "fr", "en"]).open())["train"]
    assert list(table) == ["de", "fr", "en"]
    assert list(table["fr"]) == ["fr 1a", "fr 1b", "fr 2a", "fr 2b"]
    listed = parts(parallel(f"{tmp_path}/2.{{}}", f"{tmp_path}/1.{{}}").open())["train"]
    assert list(listed["en"]) == ["en 2a", "en 2b", "en 1a", "en 1b"]
    (tmp_path / "2.en").unlink()
    refused(parallel(f"{tmp_path}/?.{{}}"), f"{tmp_path}/?.en", "1", f"{tmp_path}/?.de", "2")
    refused(parallel(f"{tmp_path}/2.{{}}"), "2.en", file=tmp_path / "2.en")


def test_parts_have_their_own_files_or_a_share(tmp_path):
    for name, count in {"train": 40, "val": 5, "t17": 7}.items():
        for column, lines in (("en", ENGLISH), ("de", GERMAN)):
            write(tmp_path / f"{name}.{column}", "\n".join(f"{name} {line}" for line in lines[:count]))
    there = {name: f"{tmp_path}/{name}.{{}}" for name in ("train", "val", "t17")}
    given = {"valid": [there["val"]], "extra_parts": {"t17": [there["t17"]]}}
    section = parallel(there["train"], **given, split=Split(valid=0.3, test=0.25))
    opened = section.open()
    sizes = {name: len(table["en"]) for name, table in parts(opened).items()}
    assert sizes == {"train": 30, "valid": 5, "test": 10, "t17": 7}
    assert len(opened.fingerprint) == 6
    for wrong, key in (({"test": ["a"]}, "data.extra_parts"), ({"later": []}, "data.extra_parts.later")):
        refused(section.model_copy(update={"extra_parts": wrong}), *wrong, key=key)


def test_what_is_not_trained_on_is_counted(tmp_path):
    write(tmp_path / "a.en", "a b\n\nc d e f\na\ng h\n   \n")
    write(tmp_path / "a.de", "a b\nb\nc d e f g\na b c\n\n\n")
    name = f"{tmp_path}/a.{{}}"
    opened = parallel(name, valid=[name], longest=4, ratio=2.5).open()
    assert list(opened.sources["train"].load(0)["en"]) == ["a b"]
    valid = opened.sources["valid"].load(0)
    assert list(valid["en"]) == ["a b", "", "c d e f", "a", "g h", ""]
    assert list(valid["de"]) == ["a b", "b", "c d e f g", "a b c", "", ""]
    counts = [re.findall(r"[\d.]*\d", note) for note in opened.notes[1:]]
    assert counts == [["3", "6", "2"], ["1", "6", "4", "3"], ["1", "6", "2.5", "4"]]
    write(tmp_path / "a.de", "\n" * 6)
    refused(parallel(name), "pairs", hint="6 of 6 pairs")


@pytest.mark.parametrize("gone", [0, 17, 30])
def test_files_of_different_length_part_somewhere(tmp_path, gone):
    write(tmp_path / "a.en", "\n".join(ENGLISH))
    write(tmp_path / "a.de", "\n".join(GERMAN[:gone] + GERMAN[gone + 1 :]))
    counts = [f"{tmp_path}/a.de", "39", f"{tmp_path}/a.en", "40"]
    hint = f"near line {gone + 1}:"
    refused(parallel(f"{tmp_path}/a.{{}}"), *counts, file=tmp_path / "a.de", hint=hint)


def test_where_files_part_is_told_only_if_it_shows():
    drawn = random.Random(0)
    one = ["x" * drawn.randint(5, 90) for _ in range(300)]
    other = [line + "x" * drawn.randint(0, 9) for line in one]
    assert "near line 121:" in find_misalignment(one[:120] + one[135:], other, "a", "b")
    assert "after line 250" in find_misalignment(one[:250], other, "a", "b")
    drawn.shuffle(other)
    assert "line " not in find_misalignment(one[:250], other, "a", "b")
    assert find_misalignment(["a"], ["b", "c"], "a", "b") == ""


@pytest.mark.parametrize(
    ("raw", "mentions", "line", "hint"),
    [
        (b"a\tb\nc d\n", ["en, de", "'c d'"], 2, "{}"),
        (b"en\tde\na b\n", ["en, de", "'a b'"], 2, "{}"),
        (b"a\tb\tc\n", ["2", r"'a\tb\tc'"], 1, "{}"),
        (b"a\tb\n\xff\tb\n", ["UTF-8", "ff 09 62 0a", "byte 4"], 2, "--data.errors replace"),
        (b"", ["a.tsv"], None, None),
    ],
)
def test_broken_tables(tmp_path, raw, mentions, line, hint):
    (tmp_path / "a.tsv").write_bytes(raw)
    refused(parallel(f"{tmp_path}/a.tsv"), *mentions, file=tmp_path / "a.tsv", line=line, hint=hint)


def test_wrong_columns_and_empty_parts(tmp_path):
    name = write(tmp_path / "a.tsv", "a\tb\n")
    for columns in ([], ["en"], ["en", "en"], ["en", " "]):
        refused(parallel(name, columns=columns), columns, key="data.columns", hint="--data.columns en de")
    refused(parallel(), "parallel files", key="data.files")
    refused(parallel(name, valid=[write(tmp_path / "b.tsv.gz", "")]), "pair", key="data.valid")
    refused(parallel(name, split=Split(valid=0.1, test=0)), "2", "pair", "valid", "1", key="data.split.valid")
    refused(parallel(name, split=Split(by="fr")), "en, de", "'fr'", key="data.split.by")


def test_other_files_are_read_with_the_columns_they_have(tmp_path):
    for column, lines in (("en", ENGLISH), ("de", GERMAN)):
        write(tmp_path / f"test-1.{column}.gz", "\n".join(lines))
    section = parallel("gone.{}")

    def columns(*names):
        found = section.read([tmp_path / name for name in names]).load(0)
        return {name: list(column) for name, column in found.items()}

    both = {"en": ENGLISH, "de": GERMAN}
    assert columns("test-1.en.gz", "test-1.de.gz") == columns("test-1.{}.gz") == both
    assert columns("test-1.de.gz") == {"de": GERMAN}
    write(tmp_path / "news.txt", "one\n\n two\t\nthree")
    assert columns("news.txt") == {"en": ["one", "", "two", "three"]}
    write(tmp_path / "both.txt", "one\teins\n\ntwo\t\n")
    assert columns("both.txt") == {"en": ["one", "", "two"], "de": ["eins", "", ""]}
    assert columns(write(tmp_path / "named.txt", "en \tde\none\teins\n")) == {"en": ["one"], "de": ["eins"]}
    (tmp_path / "test-1.de.gz").unlink()
    assert columns("test-1.{}.gz") == {"en": ENGLISH}
    with refuses("en, de"):
        columns("news.txt", "both.txt")
    with refuses("nothing.de"):
        columns("nothing.{}")


@shared
def test_multi30k():
    folder = f"{SHARED}/multi30k"
    names = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test2017": "test_2017_flickr"}
    files = {part: [f"{folder}/{name}.{{}}.gz"] for part, name in names.items()}
    given = {"valid": files["valid"], "test": files["test"], "extra_parts": {"test2017": files["test2017"]}}
    opened = parallel(*files["train"], **given).open()
    found = parts(opened)
    assert [len(table["de"]) for table in found.values()] == [29_000, 1_014, 1_000, 1_000]
    assert pairs(found["train"])[0] == (
        "Two young, White males are outside near many bushes.",
        "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    )
    assert all(text == text.strip() for text in found["train"]["de"])
    assert [note.split(" are ")[0] for note in opened.notes] == ["1 of 1,014 pairs of valid"]
    tokenised = parallel(f"{folder}/tok/test_2016_flickr.lc.norm.tok.{{}}.gz").open().sources["train"].load(0)
    assert sum(len(text.split()) for text in tokenised["de"]) == 12_103
    four = parallel(*files["valid"], columns=["cs", "fr", "de", "en"]).open().sources["train"].load(0)
    assert list(four) == ["cs", "fr", "de", "en"]
