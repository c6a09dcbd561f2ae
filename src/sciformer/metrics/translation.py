"""How near a translation is to one that people made (sacreBLEU)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..files.packages import require
from .base import metric


@metric("higher", ("translation", "reference"), "n-grams of words shared with the reference, in per cent (sacreBLEU)")
def bleu(translation: Sequence[str], reference: Sequence[str], tokenize: str = "13a") -> float:
    """BLEU of the whole corpus in per cent (arXiv 1804.08771), one reference each, cased."""
    return float(_corpus(_bleu(tokenize), translation, reference).score)


@metric("higher", ("translation", "reference"), "n-grams of characters shared with the reference, in per cent")
def chrf(translation: Sequence[str], reference: Sequence[str]) -> float:
    """chrF2 of the whole corpus in per cent: F score of character n-grams."""
    return float(_corpus(_sacrebleu().CHRF(), translation, reference).score)


def signature(tokenize: str = "13a") -> str:
    """What sacreBLEU says was computed."""
    metric = _bleu(tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def _bleu(tokenize: str) -> Any:
    return _sacrebleu().BLEU(tokenize=tokenize, force=tokenize == "none")  # without its doubts about split text


def _corpus(metric: Any, translation: Sequence[str], reference: Sequence[str]) -> Any:
    if len(translation) != len(reference) or not len(reference):
        raise UserError(
            "there must be as many translations as references, at least one of each, but there are "
            f"{len(translation)} translations and {len(reference)} references"
        )
    return metric.corpus_score([str(text) for text in translation], [[str(text) for text in reference]])


def _sacrebleu() -> Any:
    return require("sacrebleu.metrics", "BLEU and chrF scores")
