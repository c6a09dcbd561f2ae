"""What files hold, by their names and their beginnings."""

from pathlib import Path

import pytest

from sciformer.data.readers.text_parts import read_lines
from sciformer.domains.text.new import (
    are_translations,
    find_name_pattern,
    is_tagged,
    lines_match,
    tab_separated_columns,
)
from sciformer.recipe.guess import group_by_part
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import shared, write

ENGLISH = [f"This is the {'very ' * (i * 7 % 5)}long sentence {i}" for i in range(40)]
GERMAN = [f"Dies ist der {'sehr ' * (i * 7 % 5)}lange Satz {i}" for i in range(40)]


def found(*names):
    return find_name_pattern([Path(name) for name in names])


@pytest.mark.parametrize(
    ("names", "values", "marks"),
    [
        ("train.en train.de", ["en", "de"], ["train.{}"]),
        ("d/train.en.gz d/train.de.gz d/val.de.gz d/val.en.gz", ["en", "de"], ["d/train.{}.gz", "d/val.{}.gz"]),
        ("news-src.txt news-tgt.txt", ["src", "tgt"], ["news-{}.txt"]),
        ("a.b.en a.b.de test_1.en test_1.de", ["en", "de"], ["a.b.{}", "test_1.{}"]),
        ("x.en x.de x.fr", ["en", "de", "fr"], ["x.{}"]),
        ("rt.neg.gz rt.pos.gz", ["neg", "pos"], ["rt.{}.gz"]),
        ("one.txt two.txt", ["one", "two"], ["{}.txt"]),
        ("train.txt valid.txt", None, None),
        ("a.en b.de", None, None),
        ("a/x.en b/x.de", None, None),
        ("x.en x.de y.en", None, None),
        ("story.txt", None, None),
    ],
)
def test_names_that_differ_in_one_part(names, values, marks):
    hit = found(*names.split())
    assert hit == (None if values is None else (values, marks))


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("a.txt b.txt", {"train": ["a.txt", "b.txt"]}),
        ("train.{} val.{} dev.{}", {"train": ["train.{}"], "valid": ["val.{}", "dev.{}"]}),
        ("x/wiki.train.gz x/wiki.test.gz", {"train": ["x/wiki.train.gz"], "test": ["x/wiki.test.gz"]}),
        (
            "train.gz test_2016.gz test_2017.gz",
            {"train": ["train.gz"], "test": ["test_2016.gz"], "test_2017": ["test_2017.gz"]},
        ),
        ("test.txt", {"train": ["test.txt"]}),
        ("test.txt valid.txt", {"train": ["test.txt", "valid.txt"]}),
        ("my.txt test.txt", {"train": ["my.txt"], "test": ["test.txt"]}),
        ("train/{}.gz test/{}.gz", {"train": ["train/{}.gz"], "test": ["test/{}.gz"]}),
        ("a/x.txt test/x.txt test/y.txt", {"train": ["a/x.txt"], "test": ["test/x.txt", "test/y.txt"]}),
        ("test/a.txt test/b.txt", {"train": ["test/a.txt", "test/b.txt"]}),
    ],
)
def test_parts_by_name(names, parts):
    assert group_by_part(names.split()) == parts


def test_lines_that_belong_together(tmp_path):
    assert lines_match(ENGLISH, GERMAN)
    assert not lines_match(ENGLISH, GERMAN[1:])
    assert not lines_match(ENGLISH, GERMAN[3:] + GERMAN[:3])
    assert not lines_match(["same"] * 20, ["same"] * 20)
    for name, lines in {"a.one": ENGLISH, "a.two": GERMAN, "b.one": ENGLISH, "b.two": sorted(GERMAN)}.items():
        write(tmp_path / name, "\n".join(lines))
    for name, truth in {"a": True, "b": False}.items():
        assert are_translations(find_name_pattern([tmp_path / f"{name}.one", tmp_path / f"{name}.two"])) is truth


def test_pairs_between_tabs(tmp_path):
    def columns(name, text):
        return tab_separated_columns(Path(write(tmp_path / name, text)))

    both = "\n".join(f"{a}\t{b}" for a, b in zip(ENGLISH, GERMAN))
    assert columns("a.txt", both) == ["source", "target"]
    assert columns("a.tsv.gz", "en\tde\n" + both) == ["en", "de"]
    assert columns("a.tsv", "\n".join(f"{a}\t{i % 2}" for i, a in enumerate(ENGLISH))) == []
    assert columns("a.tsv", "\n".join(f"{i}\t{a}" for i, a in enumerate(ENGLISH))) == []
    assert columns("a.tsv", both.replace("\t", "\t\t")) == []
    assert columns("a.txt", "\n".join(ENGLISH)) == []


@pytest.mark.parametrize(
    ("name", "text", "truth"),
    [
        ("a.conll", "anything", True),
        ("a.conllu.gz", "anything", True),
        ("a.txt", "Ada B-per\nwrote O\n\n" * 10, True),
        ("a.txt", "Ada NN B-per\nwrote V O\n\n" * 10, True),
        ("a.txt", "Ada B-per\nwrote O\n" * 10, False),
        ("a.txt", "Ada B-per\nwrote a lot O\n\n" * 10, False),
        ("a.txt", "Ada said\nwords word\n\n" * 10, False),
        ("a.txt", "".join(f"w{i} t{i}\n\n" for i in range(200)), False),
        ("a.txt", "".join(f"w{i} t{i % 9}\n\n" for i in range(200)), True),
        ("a.txt", "one\ntwo\n\n" * 20, False),
    ],
)
def test_words_with_tags(tmp_path, name, text, truth):
    assert is_tagged(Path(write(tmp_path / name, text))) is truth


@shared
def test_real_files():
    def there(*names):
        return [SHARED / name for name in names]

    pair = find_name_pattern(there("multi30k/train.fr.gz", "multi30k/train.cs.gz"))
    assert pair.values == ["fr", "cs"]
    assert are_translations(pair)
    polarity = find_name_pattern(there("sentence_polarity/rt-polarity.neg.gz", "sentence_polarity/rt-polarity.pos.gz"))
    assert not lines_match(*(read_lines(Path(polarity.names[0].format(label))) for label in polarity.values))
    assert [is_tagged(path) for path in there("wnut17/dev.conll.gz", "wikitext2/test.txt.gz")] == [True, False]
    assert tab_separated_columns(SHARED / "wikitext2/test.txt.gz") == []
