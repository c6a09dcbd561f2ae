"""How well spans of tags are found: precision, recall and F1 of whole entities, as the CoNLL tasks count them.

A tag is `O`, outside, or a letter for the place in an entity and its type: `B-town` begins one, `I-town` goes on; with
BIOES also `E-town`, its end, and `S-town`, one of a single word. Sequences that make no sense are read as conlleval
reads them: an entity begins also where the type changes, and an `I-` after `O` begins one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import UserError
from .arrays import NAN
from .base import metric

OUTSIDE = "O"
Sequences = Iterable[Sequence[str]]


class Span(NamedTuple):
    """An entity: the words start .. stop - 1, and its type."""

    start: int
    stop: int
    type: str


class Found(NamedTuple):
    """How many entities of a type were predicted, are true, and are both, to the last word."""

    predicted: int
    true: int
    right: int

    @property
    def precision(self) -> float:
        """right / predicted; 0 where none was predicted, nan where there was none to find either."""
        return self.right / self.predicted if self.predicted else 0.0 if self.true else NAN

    @property
    def recall(self) -> float:
        """right / true; 0 where none is true but some were predicted, nan where there is neither."""
        return self.right / self.true if self.true else 0.0 if self.predicted else NAN

    @property
    def f1(self) -> float:
        """2 right / (predicted + true), nan where there is neither."""
        total = self.predicted + self.true
        return 2 * self.right / total if total else NAN


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities in the tags of one sample, in their order."""
    found: list[Span] = []
    start, before, old = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, _, kind = str(tag).partition("-")
        kind = "" if letter == OUTSIDE else kind
        inside = before != OUTSIDE
        new = letter in ("B", "S") or before in ("E", "S") or not inside or kind != old
        if inside and (new or letter == OUTSIDE):
            found.append(Span(start, place, old))
        if letter != OUTSIDE and new:
            start = place
        before, old = letter, kind
    return found


def entities(tags: Sequences, truth: Sequences) -> dict[str, Found]:
    """Entities of each type, in sorted order, of the predicted and the true tags of many samples."""
    predicted, true, right = Counter[str](), Counter[str](), Counter[str]()
    guesses, facts = _listed("tags", tags), _listed("truth", truth)
    if len(guesses) != len(facts):
        raise UserError(f"there are tags of {len(guesses)} samples, but the truth has {len(facts)} samples")
    for number, (guess, fact) in enumerate(zip(guesses, facts)):
        if len(guess) != len(fact):
            raise UserError(f"sample {number} has {len(fact)} words in the truth, but {len(guess)} tags")
        here, there = set(spans(guess)), set(spans(fact))
        predicted.update(span.type for span in here)
        true.update(span.type for span in there)
        right.update(span.type for span in here & there)
    return {kind: Found(predicted[kind], true[kind], right[kind]) for kind in sorted({*predicted, *true})}


@metric("higher", ("tags", "truth"), "F1 of entities: all their words and the type must be right")
def entity_f1(tags: Sequences, truth: Sequences) -> float:
    """2 right / (predicted + true) over all entities; right are those whose first word, last word and type agree."""
    return _all(tags, truth).f1


@metric("higher", ("tags", "truth"), "share of the predicted entities that are right")
def entity_precision(tags: Sequences, truth: Sequences) -> float:
    """The share of the predicted entities that are right."""
    return _all(tags, truth).precision


@metric("higher", ("tags", "truth"), "share of the true entities that were found")
def entity_recall(tags: Sequences, truth: Sequences) -> float:
    """The share of the true entities that were found."""
    return _all(tags, truth).recall


def _all(tags: Sequences, truth: Sequences) -> Found:
    found = list(entities(tags, truth).values())
    return Found(*(sum(one[i] for one in found) for i in range(3)))


def _listed(name: str, sequences: Sequences) -> list[list[str]]:
    listed = []
    for one in sequences:
        if isinstance(one, str) or not hasattr(one, "__len__"):
            raise UserError(f"`{name}` must have a list of tags for each sample, not {one!r}")
        listed.append([str(tag) for tag in one])
    return listed
