"""Objectives whose answer is written token by token, and judged by what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError
from ..nn.losses import disagreement
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, Textual
from .base import PREFIX, Objective, Outputs
from .next_token import NextToken, ask_tokens, shifted

PART = "part"  # the column that says which of several texts a token belongs to


class Seq2Seq(Objective):
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
            if isinstance(tokens, Textual) and not tokens.has_marker(role):
                raise UserError(
                    f"`objective.kind: {self.kind}` needs a token for the {role} of what is written, "
                    f"but these tokens have `{role}: false`",
                    hint=f"Set {role}: true for these tokens.",
                    key=f"tokens.{role}",
                )
        return {}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """What is written has a verb of its own."""
        raise UserError(
            f"`objective.kind: {self.kind}` has translations, not one answer for each sample",
            hint="Use `sciformer translate RUN FILE`.",
            key="objective.kind",
        )

    def generation_metrics(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """BLEU and chrF of the answers to all samples."""
        if self.bleu == "off":
            return {}
        from ..generation.translate import score_translations

        return score_translations(step.model, assembly, dataset, device).scores


class PromptedTranslation(Seq2Seq, NextToken):
    """GPT with a task: of samples put together from several texts, -sum ln p over the tokens of the last text alone."""

    frame: ClassVar[tuple[str, ...]] = ("end",)  # it begins behind the separator

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Each token but the last is an input; asked for are those that belong to the last text."""
        name = self.asked_stream(batch.streams)
        hides = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`").hides
        after = shifted(batch.streams[name], (*hides, PART))
        part = after.columns.pop(PREFIX + PART)
        return batch.with_columns(after.with_columns(asked=part == max(1, int(part.max(initial=1)))), name)

    def count(self, batch: Batch) -> float:
        return float(batch.streams[self.asked_stream(batch.streams)].columns["asked"].sum())


# What is the target of this source, token by token? (translation)


SOURCE, TARGET = "source", "target"


class Translate(Seq2Seq):
    """-sum_i ln p(target i + 1 | target up to i, source), in training with the target's own tokens as input."""

    unit: ClassVar[str] = "tokens"
    reads_out: ClassVar[bool] = True
    asks: ClassVar[str] = "translate"
    standard: ClassVar[tuple[str, ...]] = ("perplexity", "token_accuracy")

    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the probability spread over all tokens in training (0.1 in 2017); judged is without."""
    agreement: float = Field(default=0.0, ge=0)
    """Weight a of the disagreement between two passes with other dropout, in training: the loss is then
    (L1 + L2) / 2 + a / 4 (KL(p1 | p2) + KL(p2 | p1)) (R-Drop, arXiv 2106.14448; there 5)."""

    def asked_stream(self, streams: Iterable[str]) -> str:
        return TARGET

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Of the target, each token but the last is an input, each but the first is asked for."""
        if TARGET not in batch.streams:
            return batch
        hides = Maskable.require(tokens[TARGET], f"`objective.kind: {self.kind}`").hides
        target = shifted(batch.streams[TARGET], hides)
        return replace(batch, streams={**batch.streams, TARGET: target})

    def count(self, batch: Batch) -> float:
        return float(batch.streams[TARGET].lengths.sum())

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """The loss of every target token; for each sample its sum, how many tokens, and how many of them were right."""
        if TARGET not in inputs.streams:
            raise UserError("there are only sources, and no targets to judge by")
        view = inputs.streams[TARGET]
        if self.agreement and model.training and not outputs:
            return self._twice(model, inputs), {}
        hidden = model.translate(inputs.streams[SOURCE], view)
        return ask_tokens(model.readout, hidden, view, outputs, self.smoothing)

    def _twice(self, model: Any, inputs: ModelInputs) -> Tensor:
        """Every sample twice in one batch, so that dropout differs."""
        source, target = (_doubled(inputs.streams[name]) for name in (SOURCE, TARGET))
        hidden = model.translate(source, target)
        loss, _ = ask_tokens(model.readout, hidden, target, False, self.smoothing)
        first, second = model.readout(hidden).flatten(0, -2).chunk(2)
        apart = disagreement(first, second)
        if target.valid is not None:
            assert isinstance(target.valid, Tensor)
            apart = apart.masked_fill(~target.valid.flatten().chunk(2)[0], 0)
        return loss / 2 + self.agreement / 4 * apart.sum()


def _doubled(view: StreamView) -> StreamView:
    if isinstance(view.valid, Ragged):
        raise UserError(
            "objective.agreement needs padded samples, and cannot be used with train.packed: true",
            key="objective.agreement",
        )
    valid = None if view.valid is None else torch.cat([view.valid, view.valid])
    return StreamView({name: torch.cat([column, column]) for name, column in view.columns.items()}, valid)
