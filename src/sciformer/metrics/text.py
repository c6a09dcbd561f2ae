"""How well tokens are foretold, entities found and texts translated.

Sums over tokens come per document, so that a long one counts by its tokens. Entities are counted as the CoNLL tasks do:
a tag is `O`, outside, or a letter for the place in an entity and its type: `B-town` begins one, `I-town` goes on; with
BIOES also `E-town`, its end, and `S-town`, one of a single word. Sequences that make no sense are read as conlleval
reads them: an entity begins also where the type changes, and an `I-` after `O` begins one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from ..files.packages import require
from .arrays import NAN, Floats, finite_floats, floats, numbers
from .base import metric

OUTSIDE = "O"
Sequences = Iterable[Sequence[str]]


@metric("lower", ("loss", "count"), "exp of the mean loss of a token")
def perplexity(loss: ArrayLike, count: ArrayLike) -> float:
    """exp(Σ loss / Σ count), where `loss` (n,) sums −log p in nats over the `count` (n,) tokens of each sample.

    nan where no token was counted; infinity where the exponential is beyond a float.
    """
    losses, counts = _sums("loss", loss, count)
    if not numbers(losses) or counts.sum() == 0:
        return NAN
    with np.errstate(over="ignore"):
        return float(np.exp(losses.sum() / counts.sum()))


@metric("higher", ("correct", "count"), "share of tokens that are right")
def token_accuracy(correct: ArrayLike, count: ArrayLike) -> float:
    """Σ correct / Σ count: the share of tokens whose most probable value is right; nan where none was counted."""
    rights, counts = _sums("correct", correct, count)
    if (rights < 0).any() or (rights > counts).any():
        raise UserError(
            "`correct` must be in 0 .. `count`, but a sample has more than its count or less than 0",
            hint="Are they sums over tokens?",
        )
    return float(rights.sum() / counts.sum()) if numbers(rights) and counts.sum() > 0 else NAN


def _sums(name: str, values: ArrayLike, count: ArrayLike) -> tuple[Floats, Floats]:
    sums = floats(name, values)
    counts = finite_floats("count", count, sums.shape)
    if counts.min() < 0:
        raise UserError(f"`count` must be zero or more, not {counts.min():g}")
    return sums, counts


# Entities: spans of tags


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


# Translations (sacreBLEU)


@metric("higher", ("translation", "reference"), "n-grams of words shared with the reference, in per cent (sacreBLEU)")
def bleu(translation: Sequence[str], reference: Sequence[str], tokenize: str = "13a") -> float:
    """BLEU of the whole corpus in per cent (arXiv 1804.08771), one reference each, cased."""
    return _corpus(_bleu(tokenize), translation, reference)


@metric("higher", ("translation", "reference"), "n-grams of characters shared with the reference, in per cent")
def chrf(translation: Sequence[str], reference: Sequence[str]) -> float:
    """chrF2 of the whole corpus in per cent: F score of character n-grams."""
    return _corpus(_sacrebleu().CHRF(), translation, reference)


def signature(tokenize: str = "13a") -> str:
    """What sacreBLEU says was computed."""
    metric = _bleu(tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def _bleu(tokenize: str) -> Any:
    return _sacrebleu().BLEU(tokenize=tokenize, force=tokenize == "none")  # without its doubts about split text


def _corpus(metric: Any, translation: Sequence[str], reference: Sequence[str]) -> float:
    if len(translation) != len(reference) or not len(reference):
        raise UserError(
            "there must be as many translations as references, at least one of each, but there are "
            f"{len(translation)} translations and {len(reference)} references"
        )
    return float(metric.corpus_score([str(text) for text in translation], [[str(text) for text in reference]]).score)


def _sacrebleu() -> Any:
    return require("sacrebleu.metrics", "BLEU and chrF scores")
