"""Objectives whose answer is written token by token, and judged by what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from ..data.batch import Batch, Inputs
from ..data.chance import Chance
from ..data.dataset import Dataset
from ..errors import UserError
from ..tokens.base import Tokens
from .base import PREFIX, Objective, Outputs
from .next_token import NextToken, shifted

PART = "part"  # the column that says which of several texts a token belongs to


class Written(Objective):
    """How an answer is written, and how it is compared with the truth."""

    frame: ClassVar[tuple[str, ...]] = ("begin", "end")
    """Special tokens that writing begins and ends with."""

    beam: int = Field(default=1, ge=1)
    """Hypotheses kept while writing; 1 takes the likeliest token each time."""
    penalty: float = Field(default=0.6, ge=0, allow_inf_nan=False)
    """Power a of the length penalty ((5 + length) / 6)^a by which a hypothesis' log probability is divided."""
    more: int = Field(default=50, ge=0)
    """An answer has at most so many tokens more than its source."""
    bleu: Literal["13a", "none", "intl", "char", "off"] = "13a"
    """How sacreBLEU splits answers and truths into words; none: at blanks, for text that was split before."""

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """None; but of tokens to write, their frame must have been there in training."""
        for role in self.frame:
            if not getattr(tokens, role, True):
                raise UserError(
                    f"`objective.kind: {self.kind}` needs a token for the {role} of what is written, "
                    f"but these tokens have `{role}: false`",
                    hint=f"Set {role}: true for these tokens.",
                    key=f"tokens.{role}",
                )
        return {}

    def answer(self, model: Any, inputs: Inputs) -> Outputs:
        """What is written has a verb of its own."""
        raise UserError(
            f"`objective.kind: {self.kind}` has translations, not one answer for each sample",
            hint="Use `sciformer translate RUN FILE`.",
            key="objective.kind",
        )

    def afterwards(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """BLEU and chrF of the answers to all samples."""
        if self.bleu == "off":
            return {}
        from ..translate import score_translations

        return score_translations(step.model, assembly, dataset, device).scores


class Continue(Written, NextToken):
    """GPT with a task: of samples put together from several texts, -sum ln p over the tokens of the last text alone."""

    frame: ClassVar[tuple[str, ...]] = ("end",)  # it begins behind the separator

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Each token but the last is an input; asked for are those that belong to the last text."""
        ((name, stream),) = batch.streams.items()
        after = shifted(stream, (*tokens[name].hides, PART))
        part = after.columns.pop(PREFIX + PART)
        return batch.but(after.but(asked=part == max(1, int(part.max(initial=1)))))

    def count(self, batch: Batch) -> float:
        """Tokens asked for."""
        return float(batch.stream.columns["asked"].sum())
