"""What every unit of text keeps to."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists
from sciformer.data.random import SampleRandom
from sciformer.domains.text.tokens import SUBWORD_UNITS, Text, as_table
from sciformer.testing import check_tokens
from tests.domains.text.fitted import fitted
from tests.errors import refuses

UNITS = get_args(Text.model_fields["unit"].annotation)
LEARNED = [unit for unit in UNITS if unit != "bytes"]
TEXTS = [
    "to be, or not to be",
    "",
    "a",
    "that is the question: " * 3,
    "Zwei Männer und eine Frau.\nZwei Hunde und eine Katze.",
]
PAIRS = {**as_table(TEXTS), "other": as_table(TEXTS[::-1])["text"]}
WORDS = Lists(np.array(["Zwei", "Männer", "not", "x-ray", "."], object), np.array([3, 0, 2]))
plain = st.text(st.characters(codec="utf-8"), max_size=30)  # no halves of characters


ALL = {unit: fitted(unit, TEXTS) for unit in UNITS}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"begin": True, "end": True, "scale": True},
        {"column": ["text", "other"], "end": True, "tie": False},
        {"column": "other", "learn": ["text", "other"], "lower": True, "unicode_form": "nfkc"},
    ],
    ids=["plain", "framed", "two columns", "joint"],
)
def test_conformance(unit, options):
    tokens = Text(kind="text", unit=unit, context=100, **options)
    assert check_tokens(tokens, PAIRS, draw="scale" in options) == []
    if "column" not in options:
        assert check_tokens(tokens, {"text": WORDS}, draw=False) == []


@settings(max_examples=200, deadline=None)
@given(plain)
def test_nothing_is_lost_in_bytes_and_byte_pairs(text):
    for unit in ("bytes", "bpe"):
        tokens = ALL[unit]
        ids = tokens.encode(text)
        assert (ids.dtype, tokens.decode(ids)) == (np.int32, text)
        assert tokens.writable[ids].all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(" ".join(TEXTS).split()), max_size=8), st.sampled_from([" ", "  ", "\n", " \n"]))
def test_known_words_come_back(words, between):
    text = between.join(words)
    for unit in ("words", "bpe", "unigram"):
        assert ALL[unit].decode(ALL[unit].encode(text)).split() == words
    assert ALL["words"].decode(ALL["words"].encode(text)) == " ".join(words)
    pieces = ALL["wordpiece"].decode(ALL["wordpiece"].encode(text))  # marks stand without blanks
    assert pieces.replace(" ", "") == "".join(words)


@settings(max_examples=60, deadline=None)
@given(st.text("ab \n", max_size=12))
def test_ends_of_lines_may_be_words(text):
    tokens = fitted("words", ["a b ab ba aa bb aab"], lines=True)
    ids, known = tokens.encode(text), set(tokens.state["words"].split("\n"))
    assert (ids == tokens.specials["end"]).sum() == text.count("\n")
    assert len(ids) == len(text.split()) + text.count("\n")
    lines = [" ".join(word if word in known else "<unk>" for word in line.split()) for line in text.split("\n")]
    assert tokens.decode(ids) == "\n".join(lines)
    assert tokens.tokenize(as_table([text])).columns["word"].tolist() == list(range(len(ids)))
    assert tokens.writable[tokens.specials["end"]]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20) | st.sampled_from(["a <s> b", "</s> <mask>", "<sep> <pad> [CLS]"]))
def test_any_text_can_be_encoded(text):
    for tokens in ALL.values():
        ids = tokens.encode(text)
        assert ((ids >= 0) & (ids < tokens.size)).all()
        special = {number for role, number in tokens.specials.items() if role != "unknown"}
        assert not special & set(ids.tolist())  # no text means one of them, whatever it says
        assert isinstance(tokens.decode(ids), str)
        stream = tokens.tokenize(as_table([text]))
        np.testing.assert_array_equal(stream.columns["ids"], ids)
        if not tokens.coder.words:
            assert set(stream.columns) == {"ids"}


@pytest.mark.parametrize("unit", UNITS)
def test_half_characters_and_strange_ones(unit):
    tokens = ALL[unit]
    unknown = tokens.specials["unknown"]
    for text in ("\ud800", "日"):
        ids = tokens.encode(text)
        if unit in ("bytes", "bpe"):
            assert unknown not in ids
            assert tokens.decode(ids) == text.replace("\ud800", "\ufffd")
        elif unit != "wordpiece" or text == "日":  # there what is unreadable is left out, as BERT does
            assert unknown in ids


@pytest.mark.parametrize("unit", UNITS)
def test_special_tokens_around_a_text(unit):
    tokens = fitted(unit, TEXTS, begin=True, end=True)
    stream = tokens.tokenize(as_table(["to be", ""]))
    begin, end = tokens.specials["begin"], tokens.specials["end"]
    inside = tokens.encode("to be")
    assert stream.columns["ids"].tolist() == [begin, *inside, end, begin, end]
    assert stream.lengths.tolist() == [len(inside) + 2, 2]
    assert tokens.decode(stream.columns["ids"]) == "to be"
    assert tokens.maskable(stream).tolist() == [False, *[True] * len(inside), False, False, False]
    assert {"begin", "end", "mask", "unknown", "separator"} <= set(tokens.specials)
    assert not tokens.writable[list(tokens.specials.values())].any()
    assert tokens.token_labels(stream.take(np.array([1]))) == ["<s>", "</s>"]


@pytest.mark.parametrize("unit", UNITS)
def test_two_columns_and_the_words_in_them(unit):
    tokens = Text(kind="text", unit=unit, column=["text", "other"], begin=True, end=True)
    tokens.fit([PAIRS])
    table = {"text": np.array(["to be", ""]), "other": np.array(["a not", "be to a"])}
    stream = tokens.tokenize(table)
    one, two = tokens.encode("to be"), tokens.encode("a not")
    begin, between, end = (tokens.specials[role] for role in ("begin", "separator", "end"))
    first = stream.take(np.array([0])).columns
    assert first["ids"].tolist() == [begin, *one, between, *two, end]
    assert first["part"].tolist() == [0] * (len(one) + 2) + [1] * (len(two) + 1)
    assert tokens.source_columns == ("text", "other")
    if tokens.coder.words:
        word = first["word"]
        assert word[[0, len(one) + 1, -1]].tolist() == [-1, -1, -1]
        assert sorted(set(word.tolist())) == [-1, 0, 1, 2, 3]
        assert (np.diff(word[word >= 0]) >= 0).all()
        last = stream.take(np.array([1])).columns["word"]
        assert sorted(set(last.tolist())) == [-1, 0, 1, 2]
    else:
        assert "word" not in first


@pytest.mark.parametrize("unit", ["words", *SUBWORD_UNITS])
def test_texts_that_are_split_into_words(unit):
    tokens = fitted(unit, TEXTS, end=True)
    stream = tokens.tokenize({"text": WORDS})
    assert len(stream) == 3
    first, word = (stream.take(np.array([0])).columns[name] for name in ("ids", "word"))
    assert word[-1] == -1
    for number, text in enumerate(["Zwei", "Männer", "not"]):
        assert first[word == number].tolist() == tokens.encode(text).tolist()
        assert tokens.decode(first[word == number]) == text
    assert stream.take(np.array([1])).columns["ids"].tolist() == [tokens.specials["end"]]
    last = stream.take(np.array([2])).columns
    assert sorted(set(last["word"].tolist())) == [-1, 0, 1]  # x-ray is one word, whatever marks are in it
    ((ids, numbers),) = tokens.coder.encode_words([["", "Zwei", "", "not"]])
    assert [tokens.decode(ids[numbers == place]) for place in (1, 3)] == ["Zwei", "not"]
    tokens.fit([{"text": WORDS}])
    assert tokens.decode(tokens.encode("Zwei")) == "Zwei"


@pytest.mark.parametrize("unit", UNITS)
def test_noise_is_any_token_that_stands_for_text(unit):
    tokens = fitted(unit, TEXTS, begin=True, end=True)
    stream = tokens.tokenize(as_table(TEXTS * 20))
    mask = tokens.maskable(stream)
    noise = tokens.random_replacement(stream, mask, SampleRandom(0, 0, np.arange(len(stream))))["ids"][mask]
    assert tokens.writable[noise].all()
    assert len(np.unique(noise)) > 8
    assert (tokens.mask_out(stream, mask)["ids"][mask] == tokens.specials["mask"]).all()


def test_letters_of_split_texts_have_blanks_between():
    for unit in ("characters", "bytes"):
        stream = ALL[unit].tokenize({"text": WORDS.take(np.array([0, 1]))})
        assert ALL[unit].decode(stream.columns["ids"]) == "Zwei Männer not"
        assert stream.lengths[1] == 0


@pytest.mark.parametrize("unit", UNITS)
def test_small_letters_and_normal_form(unit):
    tokens = fitted(unit, ["ＡB é"], lower=True, unicode_form="nfkc")
    np.testing.assert_array_equal(tokens.encode("ab e\u0301"), tokens.encode("ＡＢ É"))
    assert tokens.decode(tokens.encode("AB É")) == "ab é"
    nfc = fitted(unit, ["é Ａ"], unicode_form="nfc")
    np.testing.assert_array_equal(nfc.encode("e\u0301"), nfc.encode("é"))
    assert nfc.decode(nfc.encode("é")) == "é"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text("abc .,", min_size=1, max_size=12), min_size=1, max_size=5), st.sampled_from(LEARNED))
def test_pieces_of_data_change_nothing(texts, unit):
    assume("".join(texts).strip())
    cut = Text(kind="text", unit=unit)
    cut.fit(as_table([text]) for text in texts)
    assert fitted(unit, texts).state == cut.state


@pytest.mark.parametrize("unit", LEARNED)
def test_nothing_to_learn_from(unit):
    for tables in ([], [as_table([])], [as_table(["", ""])]):
        with refuses():
            Text(kind="text", unit=unit).fit(iter(tables))
    with refuses("`text`", "image"):
        Text(kind="text", unit=unit).fit([{"image": np.zeros(2)}])
    with refuses(hint="fit"):
        Text(kind="text", unit=unit).encode("a")


@pytest.mark.parametrize("unit", UNITS)
def test_a_line_of_100000_tokens(unit):
    tokens, long = ALL[unit], "a to " * 60_000
    ids = tokens.encode(long)
    assert len(ids) >= 100_000
    assert tokens.decode(ids).split() == long.split()
    assert tokens.decode(tokens.encode("a" * 100_000)) in ("a" * 100_000, "<unk>")


@pytest.mark.parametrize("unit", UNITS)
def test_words_for_axes_and_drawings(unit):
    tokens = fitted(unit, TEXTS, end=True)
    stream = tokens.tokenize(as_table(["to be $not$ a\nquestion " * 4]))
    words = tokens.token_labels(stream)
    assert len(words) == int(stream.lengths[0])
    assert words[-1] == "</s>"
    assert not any(mark in "".join(words) for mark in "Ġ▁Ċ \n")
    if unit in ("words", *SUBWORD_UNITS):
        assert words[:2] == ["to", "be"]
    for weights in (np.linspace(0, 1, len(words)), np.zeros(len(words)), None):
        axes = Figure(figsize=(6, 2)).subplots()
        tokens.draw(Batch({"t": stream}), weights, axes)
        assert [text.get_text() for text in axes.texts] == words
        axes.figure.draw_without_rendering()
    tokens.draw(Batch({"t": ALL[unit].tokenize(as_table([""]))}), None, Figure().subplots())


# Words: those that a file has split already, and ends of lines as tokens (as WikiText is counted)


def word_table(*words):
    return {"words": Lists(np.array(words, object), np.array([len(words)]))}


def test_a_word_with_a_blank_in_it_is_learned_as_one_and_one_of_two_lines_shifts_no_other():
    seen = word_table("1 000", "New York", "1\xa0000", "cat", "1 000")
    tokens = Text(kind="text", unit="words", column="words", lower=True)
    tokens.fit([seen])
    stream = tokens.tokenize(seen)
    assert (stream.columns["ids"] != tokens.specials["unknown"]).all()
    assert tokens.token_labels(stream) == ["1 000", "new york", "1\xa0000", "cat", "1 000"]
    assert stream.columns["word"].tolist() == [0, 1, 2, 3, 4]
    assert tokens.encode("1 000 cat").tolist() == [*[tokens.specials["unknown"]] * 2, tokens.encode("cat")[0]]
    seen = word_table("a\nb", "cat", "cat", "dog")
    tokens.fit([seen])
    assert tokens.token_labels(tokens.tokenize(seen)) == ["<unk>", "cat", "cat", "dog"]


SAMPLE = " = A title = \n \n the cat sat on <unk> . \n the end"


@pytest.mark.parametrize("special", [{}, dict.fromkeys(("padding", "begin", "end", "mask", "separator"), "<eos>")])
def test_every_end_of_a_line_is_counted(special, tmp_path):
    tokens = fitted("words", [SAMPLE], lines=True, special=special)
    stream = tokens.tokenize(as_table([SAMPLE]))
    ids, end = stream.columns["ids"], tokens.specials["end"]
    assert np.flatnonzero(ids == end).tolist() == [4, 5, 12]
    assert ids[10] == tokens.specials["unknown"]  # the unknown word of the data is ours too
    assert tokens.decode(ids) == "= A title =\n\nthe cat sat on <unk> .\nthe end"
    if special:
        assert tokens.token_labels(stream)[3:7] == ["=", "<eos>", "<eos>", "the"]
        assert tokens.size == len(set(SAMPLE.split())) + 1
        assert set(tokens.specials.values()) == {end, tokens.specials["unknown"]}
    with refuses(key="tokens.lines"):  # no such file has that rule
        tokens.save(tmp_path / "tokenizer.json")
    plain = fitted("words", [SAMPLE])
    assert len(plain.encode(SAMPLE)) == len(SAMPLE.split())
    assert not plain.writable[plain.specials["end"]]
