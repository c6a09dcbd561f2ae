"""The most probable valid tags, against all sequences."""

from itertools import product

import numpy as np
import pytest

from sciformer.metrics.text import spans
from sciformer.objectives.viterbi import begins_with_position_b, find_transitions, most_probable_tags

BIO = ["B-a", "B-b", "I-a", "I-b", "O"]
BIOES = ["B-a", "E-a", "I-a", "O", "S-a", "S-b"]


def valid(tags, known):
    """Whether a sequence is valid, by the definition of the scheme."""
    letters = {"L": "E", "U": "S", "M": "I"}
    pairs = [(letters.get(tag[0], tag[0]), tag[2:]) for tag in tags]
    types = {kind: {letters.get(tag[0], tag[0]) for tag in known if tag[2:] == kind} for _, kind in pairs}
    for (old, before), (new, kind) in zip([("O", ""), *pairs], [*pairs, ("O", "")]):
        open_entity = old in "BI" and "E" in types.get(before, ())
        if new in "IE":
            if old in "BI" and before == kind:
                continue
            if types[kind] & {"B", "S"}:
                return False
        if open_entity:
            return False
    return True


@pytest.mark.parametrize(
    "known",
    [
        BIO,
        BIOES,
        [tag.replace("E-", "L-").replace("S-", "U-") for tag in BIOES],
        ["B-a", "E-a", "M-a", "S-a"],  # every word belongs to an entity
        ["I-a", "I-b", "O"],
        ["B-a", "I-a", "I-b", "O"],
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_best_of_all_valid_sequences_is_found(known, count):
    rng, transitions = np.random.default_rng(count), find_transitions(known)
    for _ in range(20):
        scores = np.log(rng.dirichlet(np.full(len(known), 0.3), count))
        every = {path: scores[range(count), path].sum() for path in product(range(len(known)), repeat=count)}
        allowed = {path: total for path, total in every.items() if valid([known[k] for k in path], known)}
        assert all(transitions.allow(np.array(path)) is (path in allowed) for path in every)
        best = max(allowed, key=allowed.get) if allowed else max(every, key=every.get)
        found = tuple(most_probable_tags(scores, transitions))
        assert found == best
        assert most_probable_tags(scores, None).tolist() == scores.argmax(1).tolist()


def test_no_word_and_no_valid_sequence():
    transitions = find_transitions(["B-a", "E-a"])
    assert most_probable_tags(np.zeros((0, 2)), transitions).tolist() == []
    assert most_probable_tags(np.array([[-1.0, -2.0]]), transitions).tolist() == [0]  # an entity of one word
    assert most_probable_tags(np.log([[0.1, 0.9], [0.9, 0.1]]), transitions).tolist() == [0, 1]


def test_impossible_scores_are_avoided():
    scores = np.log(np.array([[0.0, 0.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.4, 0.2, 0.2]]) + 1e-300)
    path = most_probable_tags(scores, find_transitions(BIO))
    assert find_transitions(BIO).allow(path)


@pytest.mark.parametrize(
    ("lists", "begins"),
    [
        (["O B-a I-a O", "B-a B-a"], True),
        (["O I-a I-a O I-b", "I-a B-a I-a"], False),  # IOB1
        (["O I-a O", "B-a I-a O B-b"], True),  # one mistake
        (["O O"], True),
        (["S-a O B-a E-a"], True),
    ],
)
def test_the_scheme_of_the_tags(lists, begins):
    assert begins_with_position_b([one.split() for one in lists]) is begins


def test_spans_of_other_letters():
    tags = {"BIOES": "B-a I-a E-a S-b O", "BILOU": "B-a I-a L-a U-b O", "BMES": "B-a M-a E-a S-b O"}
    assert len({tuple(spans(one.split())) for one in tags.values()}) == 1
    assert spans(tags["BILOU"].split()) == [(0, 3, "a"), (3, 4, "b")]
