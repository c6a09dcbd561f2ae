"""Most probable valid sequence of entity tags (Viterbi algorithm).

A tag is `O`, or a position and a type. `B-town` begins an entity and `I-town` continues it. In the scheme BIOES,
`E-town` ends an entity and `S-town` is an entity of a single word (BILOU writes L and U, BMES writes M for I).
Sequences such as `O I-town` or `B-person I-town` are not valid. The Viterbi algorithm finds the valid sequence y with
the largest sum_w ln p(y_w).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..data.columns import Array
from ..metrics.text import BEGINS, ENDS, OUTSIDE, split_tag


class Transitions(NamedTuple):
    """Valid sequences of K tags.

    first   (K,) True for tags that may begin a sentence
    next    (K, K) True where the tag of the column may follow the tag of the row
    last    (K,) True for tags that may end a sentence
    """

    first: Array
    next: Array
    last: Array

    def allow(self, path: Array) -> bool:
        """Whether a sequence of tags, given as numbers (N,), is valid."""
        return not len(path) or bool(
            self.first[path[0]] and self.last[path[-1]] and self.next[path[:-1], path[1:]].all()
        )


def find_transitions(tags: Sequence[str]) -> Transitions:
    """Valid transitions between the tags of the training data.

    An entity begins with B or S; if its type has neither, it may begin with any position. An entity may end at any
    position; if its type has E, it must end with E or S.
    """
    pairs = [split_tag(tag) for tag in tags]
    known = {kind: {letter for letter, one in pairs if one == kind} for _, kind in pairs}
    begins = np.array([letter == OUTSIDE or letter in _begins(known[kind]) for letter, kind in pairs])
    open_end = np.array([letter in ("B", "I") and "E" in known[kind] for letter, kind in pairs])
    closed = np.array([letter == OUTSIDE or letter in ENDS for letter, _ in pairs])
    continues = np.array(
        [
            [not closed[i] and kind == one[1] and one[0] not in (*BEGINS, OUTSIDE) for one in pairs]
            for i, (_, kind) in enumerate(pairs)
        ]
    )
    return Transitions(begins, continues | (begins[None, :] & ~open_end[:, None]), ~open_end)


def _begins(letters: set[str]) -> set[str]:
    return {*BEGINS} if letters & {*BEGINS} else letters


def begins_with_position_b(lists: Iterable[Sequence[str]]) -> bool:
    """Whether at least half of the entities begin with B or S.

    If not, the scheme is IOB1, in which most entities begin with I.
    """
    count = {True: 0, False: 0}
    for tags in lists:
        before = (OUTSIDE, "")
        for letter, kind in map(split_tag, map(str, tags)):
            if letter in BEGINS or (letter != OUTSIDE and (before[0] in (OUTSIDE, *ENDS) or before[1] != kind)):
                count[letter in BEGINS] += 1
            before = letter, kind
    return count[True] >= count[False]


def most_probable_tags(scores: Array, transitions: Transitions | None) -> Array:
    """Tag numbers (N,) of N words, from log probabilities (N, K).

    The result is the most probable valid sequence. Without `transitions`, or if no sequence is valid, it is the most
    probable tag of each word.
    """
    best = scores.argmax(-1)
    if transitions is None or transitions.allow(best):
        return np.asarray(best)
    blocked = np.where(transitions.next, 0.0, -np.inf)
    total = np.where(transitions.first, scores[0], -np.inf)
    steps = np.zeros(scores.shape, np.int64)  # best tag before each tag
    for word in range(1, len(scores)):
        ways = total[:, None] + blocked
        steps[word] = ways.argmax(0)
        total = ways.max(0) + scores[word]
    total = np.where(transitions.last, total, -np.inf)
    if not np.isfinite(total.max()):
        return np.asarray(best)
    path = np.empty(len(scores), np.int64)
    path[-1] = total.argmax()
    for word in range(len(scores) - 1, 0, -1):
        path[word - 1] = steps[word, path[word]]
    return path
