"""Metrics of text: perplexity, token accuracy, entities, BLEU and chrF.

Losses and counts are sums over each document, so that each token counts equally. Entities are counted as in the CoNLL
tasks. A tag is `O` (outside), or the position and the type of an entity: `B-town` begins an entity, `I-town` continues
it. In the scheme BIOES, `E-town` ends an entity and `S-town` is an entity of a single word (BILOU writes L and U, BMES
writes M for I). Inconsistent sequences are read as in conlleval: an entity also begins where the type changes, and at
an `I-` after `O`.
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
POSITIONS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""Positions in an entity; BILOU and BMES use other letters for some positions."""
BEGINS, ENDS = ("B", "S"), ("E", "S")  # positions that begin and end an entity
Sequences = Iterable[Sequence[str]]


@metric("lower", ("loss", "count"), "exponential of the mean loss per token")
def perplexity(loss: ArrayLike, count: ArrayLike) -> float:
    """Perplexity exp(Σ loss / Σ count), with losses in nats; nan without tokens."""
    losses, counts = _sums("loss", loss, count)
    if not numbers(losses) or counts.sum() == 0:
        return NAN
    with np.errstate(over="ignore"):
        return float(np.exp(losses.sum() / counts.sum()))


@metric("higher", ("correct", "count"), "share of correct tokens")
def token_accuracy(correct: ArrayLike, count: ArrayLike) -> float:
    """Fraction of correct tokens, Σ correct / Σ count; nan if no token was counted."""
    rights, counts = _sums("correct", correct, count)
    if (rights < 0).any() or (rights > counts).any():
        message = "`correct` must be from 0 to `count`, but a sample has a value outside this range"
        raise UserError(message, hint="`correct` and `count` must be sums over the tokens of a sample.")
    return float(rights.sum() / counts.sum()) if numbers(rights) and counts.sum() > 0 else NAN


def _sums(name: str, values: ArrayLike, count: ArrayLike) -> tuple[Floats, Floats]:
    sums = floats(name, values)
    counts = finite_floats("count", count, sums.shape)
    if counts.min() < 0:
        raise UserError(f"`count` must not be negative, but it is {counts.min():g}")
    return sums, counts


# Entities: spans of tags


class Span(NamedTuple):
    """Entity: index of the first word, index after the last word, and type."""

    start: int
    stop: int
    type: str


class Found(NamedTuple):
    """Numbers of predicted, true and exactly matched entities of a type."""

    predicted: int
    true: int
    right: int

    @property
    def precision(self) -> float:
        """Precision right / predicted; 0 without predictions, nan without any entity."""
        return self.right / self.predicted if self.predicted else 0.0 if self.true else NAN

    @property
    def recall(self) -> float:
        """Recall right / true; 0 without true entities, nan without any entity."""
        return self.right / self.true if self.true else 0.0 if self.predicted else NAN

    @property
    def f1(self) -> float:
        """F1 score 2 right / (predicted + true); nan without any entity."""
        total = self.predicted + self.true
        return 2 * self.right / total if total else NAN


def marks_entity(tag: str) -> bool:
    """Whether a tag is valid: `O`, or a position and the type of an entity."""
    return tag == OUTSIDE or (tag[:1] in POSITIONS and tag[1:2] == "-")


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into position (B, I, E, S or O) and type of the entity."""
    letter, _, kind = tag.partition("-")
    return (OUTSIDE, "") if letter == OUTSIDE else (POSITIONS.get(letter, letter), kind)


def spans(tags: Sequence[str]) -> list[Span]:
    """Entities marked by the tags of a sample, in order."""
    found: list[Span] = []
    start, before, old = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, kind = split_tag(str(tag))
        inside = before != OUTSIDE
        new = letter in BEGINS or before in ENDS or not inside or kind != old
        if inside and (new or letter == OUTSIDE):
            found.append(Span(start, place, old))
        if letter != OUTSIDE and new:
            start = place
        before, old = letter, kind
    return found


def entities(tags: Sequences, truth: Sequences) -> dict[str, Found]:
    """Counts of entities by type, from predicted and true tags of many samples."""
    predicted, true, right = Counter[str](), Counter[str](), Counter[str]()
    guesses, facts = _listed("tags", tags), _listed("truth", truth)
    if len(guesses) != len(facts):
        raise UserError(f"there are predicted tags of {len(guesses)} samples, but true tags of {len(facts)} samples")
    for number, (guess, fact) in enumerate(zip(guesses, facts)):
        if len(guess) != len(fact):
            raise UserError(f"sample {number} has {len(fact)} true tags, but {len(guess)} predicted tags")
        here, there = set(spans(guess)), set(spans(fact))
        predicted.update(span.type for span in here)
        true.update(span.type for span in there)
        right.update(span.type for span in here & there)
    return {kind: Found(predicted[kind], true[kind], right[kind]) for kind in sorted({*predicted, *true})}


@metric("higher", ("tags", "truth"), "F1 of entities, counted by exact match of words and type")
def entity_f1(tags: Sequences, truth: Sequences) -> float:
    """F1 over all entities: 2 correct / (predicted + true).

    An entity is correct if its words and its type match exactly.
    """
    return _all(tags, truth).f1


@metric("higher", ("tags", "truth"), "share of predicted entities that are correct")
def entity_precision(tags: Sequences, truth: Sequences) -> float:
    """Precision over all entities: right / predicted."""
    return _all(tags, truth).precision


@metric("higher", ("tags", "truth"), "share of true entities that were found")
def entity_recall(tags: Sequences, truth: Sequences) -> float:
    """Recall over all entities: right / true."""
    return _all(tags, truth).recall


def _all(tags: Sequences, truth: Sequences) -> Found:
    return Found(*(sum(counts) for counts in zip((0, 0, 0), *entities(tags, truth).values())))


def _listed(name: str, sequences: Sequences) -> list[list[str]]:
    listed = list(sequences)
    if wrong := [one for one in listed if isinstance(one, str) or not hasattr(one, "__len__")]:
        raise UserError(f"`{name}` must have a list of tags for each sample, not {wrong[0]!r}")
    return [[str(tag) for tag in one] for one in listed]


# Translations (sacreBLEU)


@metric("higher", ("translation", "reference"), "n-grams of words shared with the reference, in per cent (sacreBLEU)")
def bleu(translation: Sequence[str], reference: Sequence[str], tokenize: str = "13a") -> float:
    """Corpus BLEU in per cent: case-sensitive, one reference per text (arXiv 1804.08771)."""
    return _corpus(_bleu(tokenize), translation, reference)


@metric("higher", ("translation", "reference"), "n-grams of characters shared with the reference, in per cent")
def chrf(translation: Sequence[str], reference: Sequence[str]) -> float:
    """Corpus chrF2 in per cent: F-score of character n-grams."""
    return _corpus(_sacrebleu().CHRF(), translation, reference)


@metric("higher", ("translation", "reference"), "share of texts equal to the reference")
def exact_match(translation: Sequence[str], reference: Sequence[str]) -> float:
    """Share of texts equal to the reference, ignoring the width of white space."""
    _check_pairs(translation, reference)
    same = [str(text).split() == str(right).split() for text, right in zip(translation, reference)]
    return float(np.mean(same))


def signature(tokenize: str = "13a") -> str:
    """Signature of sacreBLEU: version and options."""
    metric = _bleu(tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def _bleu(tokenize: str) -> Any:
    # `force` silences a warning about text that is already tokenized.
    return _sacrebleu().BLEU(tokenize=tokenize, force=tokenize == "none")


def _corpus(metric: Any, translation: Sequence[str], reference: Sequence[str]) -> float:
    _check_pairs(translation, reference)
    return float(metric.corpus_score([str(text) for text in translation], [[str(text) for text in reference]]).score)


def _check_pairs(translation: Sequence[str], reference: Sequence[str]) -> None:
    if len(translation) != len(reference) or not len(reference):
        raise UserError(
            "there must be one reference for each translation, and at least one translation, but there are "
            f"{len(translation)} translations and {len(reference)} references"
        )


def _sacrebleu() -> Any:
    return require("sacrebleu.metrics", "BLEU and chrF scores")
