"""Objectives whose answer is written token by token, and judged by what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ..data.batch import Batch
from ..data.chance import Chance
from ..data.dataset import Dataset
from ..tokens.base import Tokens
from .base import PREFIX, Objective
from .next_token import NextToken, shifted

PART = "part"  # the column that says which of several texts a token belongs to


class Written(Objective):
    """How an answer is written, and how it is compared with the truth."""

    beam: int = Field(default=1, ge=1)
    """Hypotheses kept while writing; 1 takes the likeliest token each time."""
    penalty: float = Field(default=0.6, ge=0)
    """Power a of the length penalty ((5 + length) / 6)^a by which a hypothesis' log probability is divided."""
    more: int = Field(default=50, ge=0)
    """An answer has at most so many tokens more than its source."""
    bleu: Literal["13a", "none", "intl", "char", "off"] = "13a"
    """How sacreBLEU splits answers and truths into words; none: at blanks, for text that was split before."""

    def afterwards(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """BLEU and chrF of the answers to all samples."""
        if self.bleu == "off":
            return {}
        from ..translate import score_translations

        return score_translations(step.model, assembly, dataset, device).scores


class Continue(Written, NextToken):
    """GPT with a task: of samples put together from several texts, -sum ln p over the tokens of the last text alone."""

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Each token but the last is an input; asked for are those that belong to the last text."""
        ((name, stream),) = batch.streams.items()
        after = shifted(stream, (*tokens[name].hides, PART))
        part = after.columns.pop(PREFIX + PART)
        return batch.but(after.but(asked=part == max(1, int(part.max(initial=1)))))

    def count(self, batch: Batch) -> float:
        """Tokens asked for."""
        return float(batch.stream.columns["asked"].sum())
