"""Vocabularies learned from texts."""

import hashlib
import json
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.domains.text import subwords
from sciformer.domains.text.tokens import SUBWORD_UNITS, Text, as_table
from sciformer.domains.text.unigram import (
    _best_scores,
    _candidate_pieces,
    _expected_counts,
    _letter_runs,
    _part_edges,
    _text_edges,
    learn_pieces,
)
from tests.errors import refuses

TEXTS = [
    "two young men are outside near many bushes .",
    "several men in hard hats are operating a giant pulley system .",
    "zwei junge weiße männer sind im freien in der nähe vieler büsche .",
    "mehrere männer mit schutzhelmen bedienen ein antriebsradsystem .",
] * 3
PROGRAM = """
import hashlib, json, sys
from sciformer.domains.text.tokens import Text, as_table
texts = json.load(sys.stdin)
for unit in ("words", "bpe", "wordpiece", "unigram"):
    tokens = Text(kind="text", unit=unit, vocabulary=None if unit == "words" else 300)
    tokens.fit([as_table(texts)])
    print(hashlib.sha256(json.dumps(tokens.state).encode()).hexdigest())
"""


def fitted(unit, texts=TEXTS, **options):
    tokens = Text(kind="text", unit=unit, **options)
    tokens.fit([as_table(list(texts))])
    return tokens


def digests(texts):
    states = [
        fitted(unit, texts, vocabulary=None if unit == "words" else 300).state for unit in ("words", *SUBWORD_UNITS)
    ]
    return [hashlib.sha256(json.dumps(state).encode()).hexdigest() for state in states]


def test_the_same_text_gives_the_same_vocabulary_in_every_process():
    command = [sys.executable, "-c", PROGRAM]
    there = subprocess.run(command, input=json.dumps(TEXTS), capture_output=True, text=True, check=True).stdout
    here = digests(TEXTS)
    assert there.split() == here  # hash tables have another order there
    assert len(set(here)) == 4
    assert digests(TEXTS[::-1]) == here
    assert all(one != other for one, other in zip(digests(TEXTS[:-3]), here))


@pytest.mark.parametrize(("unit", "few", "more"), [("bpe", 270, 300), ("wordpiece", 100, 130), ("unigram", 40, 55)])
def test_the_size_is_what_was_asked_for_or_what_there_is(unit, few, more):
    small, large, whole = (fitted(unit, vocabulary=size) for size in (few, more, 100_000))
    assert (small.size, large.size) == (few, more)
    assert more < whole.size < 1000
    lengths = [len(tokens.encode(" ".join(TEXTS))) for tokens in (small, large, whole)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2]
    single = fitted(unit, ["ab"])
    assert single.decode(single.encode("ab")) == "ab"


def test_too_small_a_vocabulary():
    with refuses(262, 261, key="tokens.vocabulary"):
        fitted("bpe", vocabulary=261)
    with refuses(20, key="tokens.vocabulary"):
        fitted("wordpiece", vocabulary=20)
    with refuses(6, key="tokens.vocabulary"):
        fitted("words", vocabulary=6)
    with refuses(99, 12, key="tokens.minimum"):
        fitted("words", minimum=99)
    few = fitted("unigram", vocabulary=9)  # the blank and the two likeliest letters
    assert few.size == 9
    assert few.decode(few.encode("en x")) == "en <unk>"


def test_words_by_frequency_then_alphabet():
    tokens = fitted("words", ["b a c a", "d <unk> <s> c a"])
    assert tokens.state == {"words": "a\nc\nb\nd"}
    assert tokens.specials == {"padding": 0, "unknown": 1, "begin": 2, "end": 3, "mask": 4, "separator": 5}
    assert tokens.encode("a d <unk> x <s>").tolist() == [6, 9, 1, 1, 1]
    assert fitted("words", ["b a c a", "d c a"], vocabulary=8).state == {"words": "a\nc"}
    assert fitted("words", ["b a c a", "d c a"], minimum=2).state == {"words": "a\nc"}
    assert fitted("words", ["B a b A"], lower=True).state == {"words": "a\nb"}


def test_names_of_special_tokens():
    bert = {"padding": "[PAD]", "unknown": "[UNK]", "begin": "[CLS]", "end": "[SEP]", "separator": "[SEP]"}
    for unit in ("words", *SUBWORD_UNITS):
        tokens = fitted(unit, special=bert, begin=True, end=True)
        assert tokens.specials["end"] == tokens.specials["separator"]
        shown = tokens.token_labels(tokens.tokenize(as_table(["two"])))
        assert shown[0] == "[CLS]"
        assert shown[-1] == "[SEP]"
        same = fitted(unit, special={"padding": "<unk>"})
        assert same.specials["padding"] == same.specials["unknown"]
        assert unit == "bpe" or same.encode("日")[-1] == same.specials["unknown"]
    with refuses("'start'", key="tokens.special"):
        fitted("words", special={"start": "<s>"})


@pytest.mark.parametrize("unit", SUBWORD_UNITS)
def test_minimum_keeps_rare_pieces_apart(unit):
    rare, often = (fitted(unit, ["abcd abcd xyz"], minimum=least) for least in (2, 3))
    if unit == "unigram":
        assert rare.state == often.state
    else:
        assert len(rare.encode("abcd")) == 1
        assert len(often.encode("abcd")) > 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab .\n", max_size=12), max_size=4), st.integers(1, 6), st.sampled_from(SUBWORD_UNITS))
def test_long_texts_are_encoded_in_parts(texts, long, unit):
    tokens = fitted(unit, ["ab ba.\nabab a. b\n" * 4])
    whole = tokens.tokenize(as_table(texts))
    assert tokens.coder.cuts
    before = subwords.MAX_BATCH_CHARACTERS
    try:
        subwords.MAX_BATCH_CHARACTERS = long
        parts = tokens.tokenize(as_table(texts))
    finally:
        subwords.MAX_BATCH_CHARACTERS = before
    assert parts.lengths.tolist() == whole.lengths.tolist()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(parts.columns[name], column)


def test_a_long_text_is_learned_from_in_parts(monkeypatch):
    text = " ".join(TEXTS)
    whole = fitted("wordpiece", [text], vocabulary=150).state
    monkeypatch.setattr(subwords, "MAX_BATCH_CHARACTERS", 50)
    assert len(subwords.cut_text(text)) > 5
    assert "".join(subwords.cut_text(text)) == text
    assert fitted("wordpiece", [text], vocabulary=150).state == whole
    assert subwords.cut_text("x" * 200) == ["x" * 200]


def ways(word):
    """All ways to cut a word."""
    for cuts in range(len(word)):
        for places in combinations(range(1, len(word)), cuts):
            yield [word[i:j] for i, j in zip((0, *places), (*places, len(word)))]


def test_unigram_sums_over_all_ways():
    words, weight = ["abab", "ba", "c", "abc"], np.array([3.0, 2.0, 1.0, 5.0])
    lengths = np.array([len(word) for word in words])
    runs = _candidate_pieces(_letter_runs(words, lengths, weight), 100)
    line = "".join(words)
    pieces = [line[first : first + long] for first, long in zip(runs.first, runs.long)]
    assert pieces == ["a", "b", "c", "ab", "ba", "bc", "aba", "abc", "bab", "abab"]
    assert runs.times.tolist() == [13, 13, 6, 11, 5, 5, 3, 5, 3, 3]
    p = np.random.default_rng(0).dirichlet(np.ones(len(pieces)))
    likely = dict(zip(pieces, p))
    expected = dict.fromkeys(pieces, 0.0)
    for word, times in zip(words, weight):
        chance = {tuple(way): np.prod([likely.get(piece, 0) for piece in way]) for way in ways(word)}
        for way, share in chance.items():
            for piece in way:
                expected[piece] += times * share / sum(chance.values())
    found = _expected_counts(_text_edges(runs, lengths), p, weight)
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)
    best = _best_scores(_part_edges(runs), np.log(p))
    for piece, score in zip(pieces, best):
        scores = [
            np.log([likely[part] for part in way]).sum()
            for way in ways(piece)
            if len(way) > 1 and set(way) <= set(pieces)
        ]
        np.testing.assert_allclose(score, max(scores, default=-np.inf))


def test_unigram_finds_the_words_a_text_is_made_of():
    rng = np.random.default_rng(0)
    parts = ["quark", "boson", "lep", "ton"]
    counts = {}
    for _ in range(300):
        word = "".join(rng.choice(parts, rng.integers(1, 4)))
        counts[word] = counts.get(word, 0) + 1
    letters = set("".join(parts))
    found = learn_pieces(counts, len(letters) + 4)
    assert set(parts) <= {piece for piece, _ in found}
    assert letters <= {piece for piece, _ in found}
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert sum(np.exp(scores)) < 1.01
    assert len(learn_pieces({"x" * 1000: 1}, 5)) <= 5  # longer than any word
