"""Words with tags in columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.split import Split
from sciformer.domains.text.readers.tagged import Columns
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import parts, shared, write
from tests.errors import refuses

NONE = Split(valid=0, test=0)
SENTENCES = [[("Ada", "B-person"), ("Lovelace", "I-person"), ("wrote", "O")], [("In", "O"), ("Paris", "B-location")]]


def columns(*files, **options):
    return Columns(kind="conll", files=list(files), **{"split": NONE, **options})


def sentences(table):
    stops = table["words"].lengths.cumsum()[:-1]
    assert (table["words"].lengths == table["tags"].lengths).all()
    words, tags = (np.split(table[name].values, stops) for name in ("words", "tags"))
    return [list(zip(one, other)) for one, other in zip(words, tags)]


def found(*files, **options):
    return sentences(columns(*files, **options).open().sources["train"].load(0))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("between", ["\t", " ", "   "])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_sentences_between_empty_lines(tmp_path, end, between, packed):
    blocks = [end.join(between.join(pair) for pair in sentence) for sentence in SENTENCES]
    for text in (
        (end * 2).join(blocks),
        end + (end + between + end).join(blocks) + end * 4,
        f"-DOCSTART- -X- O{end}{end}" + f"{end}{end}-DOCSTART-{end}{end}".join(blocks) + end,
    ):
        assert found(write(tmp_path / f"a.conll{packed}", text)) == SENTENCES


WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=5).filter(
    lambda word: word[0] not in "\ufeff-"
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_words_survive(tmp_path_factory, given):
    text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in given)
    assert found(write(tmp_path_factory.mktemp("c") / "a.conll", text)) == given


def test_other_columns_and_comments(tmp_path):
    text = "# sent_id = 1\n1\tAda\tNOUN\tx y\n2\twrote\tVERB\tz\n\n# text\n1\t#\tSYM\t_\n"
    name = write(tmp_path / "a.conllu", text)
    whole = [[("Ada", "NOUN"), ("wrote", "VERB")], [("#", "SYM")]]
    assert found(name, words=1, tags=2, comments=True) == whole
    plain = write(tmp_path / "b.conll", "Ada NNP B-PER\n# SYM O\n")
    assert found(plain) == [[("Ada", "B-PER"), ("#", "O")]]
    assert found(plain, tags=1) == [[("Ada", "NNP"), ("#", "SYM")]]


@pytest.mark.parametrize(
    ("text", "options", "mentions", "fields"),
    [
        ("a O\n\nb\n", {}, ["2", "line 1", "1: 'b'"], {"line": 3}),
        ("a\tO\nb c\tO\tx\n", {}, ["2", "line 1", r"3: 'b c\tO\tx'"], {"line": 2}),
        ("a O x\n# one\n", {}, ["3", "line 1", "2: '# one'"], {"line": 2, "hint": "--data.comments true"}),
        ("a\tO\nb\tO\n\tO\n", {}, [r"'\tO'"], {"line": 3}),
        ("a\tO\nb\tO\nb\t\n", {}, [r"'b\t'"], {"line": 3}),
        ("a\nb\n", {}, ["column 0", "1", "'a'"], {"hint": "data.tags"}),
        ("a O\nb O\n", {"tags": 2}, ["column 0", "column 2", "'a O'"], {"key": "data.tags", "hint": "data.words"}),
        (b"a\tO\nb\xff\tO\n", {}, ["ff 09 4f 0a", "byte 5"], {"line": 2}),
        ("a good film\tpos\na bad film\tneg\n", {}, ["column 0"], {"key": "data.kind", "hint": "lines"}),
    ],
)
def test_broken_files_name_the_line(tmp_path, text, options, mentions, fields):
    name = write(tmp_path / "a.conll", text)
    with refuses(name, *mentions, file=name, **fields):
        columns(name, **options).open()


def test_a_line_with_the_names_of_the_columns_is_skipped(tmp_path):
    assert found(write(tmp_path / "a.tsv", "Word\tTag\nAda\tB-per\n\nran\tO\n")) == [[("Ada", "B-per")], [("ran", "O")]]
    assert found(write(tmp_path / "b.tsv", "word\tNN\n")) == [[("word", "NN")]]


def test_a_hash_is_a_word_and_empty_lines_are_no_sentence(tmp_path):
    assert found(write(tmp_path / "a.conll", "# one\na O\n")) == [[("#", "one"), ("a", "O")]]
    with refuses("sentence", key="data.files"):
        columns(write(tmp_path / "b.conll", "\n\n")).open()


def test_parts_are_drawn_by_sentence(tmp_path):
    text = "\n".join(f"w{i % 20}\tO\n" + "x\tB\n" * (i % 20) for i in range(100))
    name = write(tmp_path / "a.conll", text)
    drawn = parts(columns(name, split=Split(valid=0.2, test=0.1)).open())
    kept = {part: {sentence[0][0] for sentence in sentences(table)} for part, table in drawn.items()}
    assert {part: len(words) for part, words in kept.items()} == {"train": 14, "valid": 4, "test": 2}
    assert len(set.union(*kept.values())) == 20


def test_files_of_their_own_and_files_without_tags(tmp_path, here):
    write(tmp_path / "a.conll", "a O\n\nb O\n")
    write(tmp_path / "b.conll", "b O\n\nc O\n")
    given = ("valid", "later")
    opened = columns("a.conll", valid=["b.conll"], extra_parts={"later": ["b.conll"]}).absolute_paths().open()
    first = {part: sentences(table)[0][0][0] for part, table in parts(opened).items()}
    assert first == {"train": "a", "valid": "b", "later": "b"}
    assert [note.split(" are ")[0] for note in opened.notes] == [f"1 of 2 sentences of {part}" for part in given]
    assert list(opened.fingerprint) == [f"{tmp_path}/a.conll", f"{tmp_path}/b.conll"]
    bare = columns("gone").read([write(tmp_path / "c.txt", "one\ntwo\n\nthree\n")]).load(0)
    assert list(bare) == ["sentence", "words", "line", "start", "end"]
    assert {name: bare[name].values.tolist() for name in ("line", "start", "end")} == {
        "line": [1, 2, 4],
        "start": [0, 4, 0],
        "end": [3, 7, 5],
    }
    assert (bare["words"].values.tolist(), bare["words"].lengths.tolist()) == (["one", "two", "three"], [2, 1])
    assert sentences(columns("gone").read(["b.conll"]).load(0)) == [[("b", "O")], [("c", "O")]]
    with refuses("2 of 5"):
        columns("gone").read(["b.conll", "c.txt"])


@shared
def test_wnut17():
    folder = f"{SHARED}/wnut17"
    names = {"valid": [f"{folder}/dev.conll.gz"], "test": [f"{folder}/test.conll.gz"]}
    opened = columns(f"{folder}/train.conll.gz", **names).open()
    counts = {
        part: (len(table["words"]), len(table["words"].values), sum(tag[0] == "B" for tag in table["tags"].values))
        for part, table in parts(opened).items()
    }
    assert counts == {"train": (3394, 62730, 1975), "valid": (1009, 15733, 836), "test": (1287, 23394, 1079)}
    assert opened.notes == []
