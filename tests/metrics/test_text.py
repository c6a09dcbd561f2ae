"""Entities counted by hand, and against a slow reading of the rules of conlleval."""

import math
import random

import numpy as np
import pytest

from sciformer.metrics.text import (
    entities,
    entity_f1,
    entity_precision,
    entity_recall,
    perplexity,
    spans,
    token_accuracy,
)
from tests.errors import refuses

ENTITIES = (entity_f1, entity_precision, entity_recall)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-a", [(0, 1, "a")]),
        ("B-a I-a O", [(0, 2, "a")]),
        ("B-a B-a", [(0, 1, "a"), (1, 2, "a")]),
        ("B-a I-b", [(0, 1, "a"), (1, 2, "b")]),
        ("O I-a I-a", [(1, 3, "a")]),  # after O an entity begins all the same
        ("I-a", [(0, 1, "a")]),
        ("B-a O I-a", [(0, 1, "a"), (2, 3, "a")]),
        ("S-a S-a", [(0, 1, "a"), (1, 2, "a")]),
        ("B-a I-a E-a B-b E-b", [(0, 3, "a"), (3, 5, "b")]),
        ("B-a E-a I-a", [(0, 2, "a"), (2, 3, "a")]),
        ("E-a E-a", [(0, 1, "a"), (1, 2, "a")]),
        ("S-a I-a", [(0, 1, "a"), (1, 2, "a")]),
        ("B-creative-work I-creative-work", [(0, 2, "creative-work")]),
    ],
)
def test_spans_by_hand(tags, expected):
    assert spans(tags.split()) == expected


def test_scores_by_hand():
    truth = [["B-a", "I-a", "O", "B-b"], ["O", "O"], ["S-a"]]
    tags = [["B-a", "I-a", "O", "B-a"], ["O", "B-b"], ["O"]]
    found = entities(tags, truth)
    assert found == {"a": (2, 2, 1), "b": (1, 1, 0)}
    for kind, share in (("a", 0.5), ("b", 0.0)):
        assert (found[kind].precision, found[kind].recall, found[kind].f1) == (share, share, share)
    half = [["B-a", "O", "O", "B-b"], ["O", "O"], ["S-a"]]  # a span that ends too early is no span
    for guesses, share in ((tags, 1 / 3), (truth, 1), (half, 2 / 3)):
        assert [metric(guesses, truth) for metric in ENTITIES] == pytest.approx([share] * 3)


def test_where_there_is_nothing():
    nothing, one = [["O", "O"]], [["B-a", "O"]]
    for metric in ENTITIES:
        assert metric(nothing, one) == metric(one, nothing) == 0
        assert np.isnan([metric(nothing, nothing), metric([], [])]).all()


def ends(before, old, tag, kind):
    """`chunk_end` of conlleval."""
    if before in "ES" or (before, tag) in {(a, b) for a in "BI" for b in "BSO"}:
        return True
    return before != "O" and old != kind


def begins(before, old, tag, kind):
    """`chunk_start` of conlleval."""
    if tag in "BS" or (before, tag) in {(a, b) for a in "ESO" for b in "EI"}:
        return True
    return tag != "O" and old != kind


def read(tags):
    """Entities word by word, in the words of conlleval."""
    found, open_, before, old = set(), None, "O", ""
    for place, whole in enumerate([*tags, "O"]):
        tag, _, kind = whole.partition("-")
        if open_ is not None and ends(before, old, tag, kind):
            found.add((open_, place, old))
            open_ = None
        if begins(before, old, tag, kind):
            open_ = place
        before, old = tag, kind
    return found


def test_against_the_rules_of_conlleval():
    choose = random.Random(0)
    letters = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in "ab")]
    guesses = [[choose.choice(letters) for _ in range(choose.randrange(9))] for _ in range(3000)]
    facts = [[choose.choice([tag, tag, choose.choice(letters)]) for tag in tags] for tags in guesses]
    assert all({tuple(span) for span in spans(tags)} == read(tags) for tags in guesses + facts)
    right = sum(len(read(guess) & read(fact)) for guess, fact in zip(guesses, facts))
    predicted, true = (sum(len(read(tags)) for tags in side) for side in (guesses, facts))
    assert right > 1000
    expected = [2 * right / (predicted + true), right / predicted, right / true]
    assert [metric(guesses, facts) for metric in ENTITIES] == expected
    arrays = [np.empty(len(side), object) for side in (guesses, facts)]
    for array, side in zip(arrays, (guesses, facts)):
        array[:] = [np.array(tags, str) for tags in side]
    assert entity_f1(*arrays) == expected[0]


def test_mistakes():
    with refuses("1 samples", "2 samples"):
        entity_f1([["O"]], [["O"], ["O"]])
    with refuses("sample 0", 2, 1):
        entity_f1([["O"]], [["O", "O"]])
    with refuses("`tags`", "'O'"):
        entity_f1(["O"], [["O"]])


def test_perplexity_and_token_accuracy():
    assert perplexity([math.log(4) * 3, 0.0], [3, 0]) == pytest.approx(4)
    assert perplexity([10 * math.log(50), math.log(2)], [10, 1]) == pytest.approx((50**10 * 2) ** (1 / 11))
    assert perplexity([1e9], [1]) == math.inf
    assert token_accuracy([1, 2], [4, 2]) == 0.5
    for metric in (perplexity, token_accuracy):
        assert np.isnan(metric([0.0], [0]))
        assert np.isnan(metric([0.0, np.nan], [1, 1]))
        with refuses("`count`", -1):
            metric([0.0, 0.0], [1, -1])
        with refuses("(0,)"):
            metric([], [])
    with refuses("`correct`", "`count`"):
        token_accuracy([3], [2])
