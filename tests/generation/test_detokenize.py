"""Pieces of text as tokens come: together they are the whole text, and a stop is never shown."""

import random

import pytest

from sciformer.generation.detokenize import Letters, Line
from tests.domains.text.fitted import fitted

TEXTS = [
    "The cat sat on the mat; the dog didn't. 世界 né 🙂 naïve café!",
    "Zwei Hunde spielen im Schnee, sagt man — «so ist es».\nThe dog sat too.",
    "a  b\tc\n\nthe the the cat's mat's dogs'",
]
UNITS = ["characters", "bytes", "words", "bpe", "wordpiece", "unigram"]


SIZES = {"bpe": 290, "wordpiece": 120, "unigram": 90}


@pytest.mark.parametrize("unit", UNITS)
def test_pieces_together_are_the_text(unit):
    tokens, rng = fitted(unit, TEXTS * 5, vocabulary=SIZES.get(unit)), random.Random(0)
    for text in [*TEXTS, " ".join(TEXTS) * 4]:
        ids = [int(i) for i in tokens.encode(text)]
        cut = 0 if unit == "bytes" else len(ids) // 3  # a byte is read for itself
        whole, before = tokens.decode(ids), tokens.decode(ids[:cut])
        assert whole.startswith(before.rstrip("\ufffd"))
        for most in (1, 5, 30):
            line, found, at = Line(tokens, ids[:cut], ["never there"], None), [], cut
            while at < len(ids):
                count = rng.randint(1, most)
                found.append(line.add(ids[at : at + count]))
                at += count
            assert "".join([*found, line.close()]) == whole[len(before) :]
            assert max(map(len, found)) < 2 + 40 * most


def test_half_a_character_is_held_back():
    tokens = fitted("bpe", TEXTS * 5, vocabulary=290)
    ids = [int(i) for i in tokens.encode("世")]
    assert len(ids) > 1
    letters = Letters(tokens, [])
    assert [letters.add([one]) for one in ids[:-1]] == [""] * (len(ids) - 1)
    assert letters.rest() == "\ufffd"
    assert letters.add(ids[-1:]).strip() == "世"
    assert letters.rest() == ""


def test_random_tokens_join_too():
    tokens, rng = fitted("bpe", TEXTS * 5, vocabulary=290), random.Random(1)
    ids = [rng.randrange(tokens.size) for _ in range(400)]
    line = Line(tokens, [], [], None)
    assert "".join([line.add([one]) for one in ids] + [line.close()]) == tokens.decode(ids)


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("the cat sat", ["sat", "cat"], list("the ")),
        ("the cat sat", ["cats", "cat s"], list("the ")),
        ("the cat", ["cats"], [*"the ", "cat"]),  # a beginning that stays one is text
        ("aab aac", ["aac"], ["aab", " "]),  # what might have begun it comes when it did not
        ("abcabd", ["abd", "bca"], ["a"]),
        ("ababaca", ["abac"], ["ab"]),
        ("cat", ["cat"], []),
        ("aaa", [], list("aaa")),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_first_of_several_stops_counts(text, stops, expected, size):
    tokens = fitted(texts=["abcdefghijklmnopqrstuvwxyz "])
    ids = tokens.encode(text).tolist()
    line = Line(tokens, [], stops, None)
    pieces = list(line.pieces(ids[i : i + size] for i in range(0, len(ids), size)))
    assert "".join(pieces) == "".join(expected)
    assert pieces == expected or size > 1
    assert line.over == ("".join(expected) != text)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_end_ends_and_shows_what_was_held_back(size):
    tokens = fitted(texts=["abcd"], end=True)
    ids = [*tokens.encode("abca"), tokens.specials["end"], *tokens.encode("dd")]
    line = Line(tokens, [], ["cab"], tokens.specials["end"])
    assert "".join(line.pieces([int(i) for i in ids[at : at + size]] for at in range(0, len(ids), size))) == "abca"
    assert line.over
