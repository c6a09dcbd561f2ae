"""Objectives of translation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError
from ..nn import Watch
from ..nn.losses import disagreement
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, Textual
from .base import PREFIX, Objective, Outputs
from .guided import Guided
from .next_token import NextToken, ask_tokens, shifted

PART = "part"  # column with the number of the text that a token belongs to


class Seq2Seq(Objective):
    """Base class of translation objectives, with options of generation and scores."""

    frame: ClassVar[tuple[str, ...]] = ("begin", "end")
    """Special tokens at the beginning and end of a generated sequence."""

    beam: int = Field(default=1, ge=1, le=1 << 16)
    """Beam width (default: 1, greedy decoding)."""
    penalty: float = Field(default=0.6, ge=0, allow_inf_nan=False)
    """Exponent a of the length penalty ((5 + length) / 6)^a, which divides the log probability (default: 0.6)."""
    more: int = Field(default=50, ge=0)
    """Maximum number of output tokens beyond the length of a source text (default: 50). For other sources, such as
    images, the maximum is the context of the target."""
    bleu: Literal["13a", "none", "intl", "char", "off"] = "13a"
    """Tokenizer of sacreBLEU (default: 13a). none: split at spaces, for text that is already tokenized; off: do not
    generate texts, so that there is no BLEU, chrF or exact_match."""

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """Check that the vocabulary has the special tokens in `frame`; return no heads."""
        for role in self.frame:
            if isinstance(tokens, Textual) and not tokens.has_marker(role):
                message = f"`objective.kind: {self.kind}` needs a {role} token, but tokens.{role} is false"
                raise UserError(message, hint=f"Set tokens.{role}: true.", key=f"tokens.{role}")
        return {}

    @property
    def usage(self) -> str:
        return "sciformer translate RUN FILE"

    def generation_metrics(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """BLEU, chrF and share of exact matches of the generated texts of all samples."""
        if self.bleu == "off":
            return {}
        from ..generation.translate import score_translations

        return score_translations(step.model, assembly, dataset, device).scores


class PromptedTranslation(Seq2Seq, NextToken):
    """Decoder-only translation: -sum ln p over the tokens of the target.

    In each sample, the target comes after the source.
    """

    frame: ClassVar[tuple[str, ...]] = ("end",)  # generation begins after the separator

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Shift the tokens by one; predict only the last text (the translation)."""
        name = self.asked_stream(batch.streams)
        hides = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`").hides
        after = shifted(batch.streams[name], (*hides, PART))
        part = after.columns.pop(PREFIX + PART)
        return batch.with_columns(after.with_columns(asked=part == max(1, int(part.max(initial=1)))), name)

    def count(self, batch: Batch) -> float:
        return float(batch.streams[self.asked_stream(batch.streams)].columns["asked"].sum())


# Encoder-decoder translation


SOURCE, TARGET = "source", "target"


class Translate(Guided, Seq2Seq, NextToken):
    """Translation: -sum_i ln p(target i + 1 | target up to i, source)."""

    asks: ClassVar[str] = "translate"
    lookahead: ClassVar[int] = 0

    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing in training: share of the probability spread over all tokens (default: 0; arXiv 1706.03762:
    0.1)."""
    agreement: float = Field(default=0.0, ge=0)
    """Weight a of R-Drop (default: 0; arXiv 2106.14448: 5). Each sample passes the model twice with different dropout,
    and the loss is (L1 + L2) / 2 + a / 4 (KL(p1 | p2) + KL(p2 | p1))."""

    coverage: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight a of the doubly stochastic penalty (default: 0; arXiv 1502.03044: 1). It adds a sum_j (1 - sum_i w_ij)^2
    to the loss of a sample, where w is the attention of target token i to source token j. The decoder needs
    attention to the source."""

    def asked_stream(self, streams: Iterable[str]) -> str:
        return TARGET

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        return super().corrupt(batch, tokens, rng) if TARGET in batch.streams else batch

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        if TARGET not in inputs.streams:
            message = "the model cannot be evaluated, because the data have sources but no targets"
            raise UserError(message, hint="Add a target for each source to the data.")
        view = inputs.streams[TARGET]
        if self.agreement and model.training and not outputs:
            return self._r_drop_loss(model, inputs), {}
        source, record = inputs.streams[SOURCE], Watch(hidden=False) if self.coverage and not outputs else None
        hidden = model.translate(source, view, record)
        loss, found = ask_tokens(model.readout, hidden, view, outputs, self.smoothing)
        if record is not None:
            loss = loss + self.coverage * coverage_penalty(record, source, view)
        return loss, found

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        if self.coverage and self.agreement:
            message = "objective.coverage and objective.agreement cannot be used together"
            raise UserError(message, hint="Set one of them to 0.", key="objective.coverage")
        return super().heads(dim, tokens)

    def _r_drop_loss(self, model: Any, inputs: ModelInputs) -> Tensor:
        """Loss of R-Drop: each sample is in the batch twice, with different dropout."""
        source, target = (_doubled(inputs.streams[name]) for name in (SOURCE, TARGET))
        hidden = model.translate(source, target)
        loss, _ = ask_tokens(model.readout, hidden, target, False, self.smoothing)
        first, second = model.readout(hidden).flatten(0, -2).chunk(2)
        apart = disagreement(first, second)
        if target.valid is not None:
            assert isinstance(target.valid, Tensor)
            apart = apart.masked_fill(~target.valid.flatten().chunk(2)[0], 0)
        return loss / 2 + self.agreement / 4 * apart.sum()


def coverage_penalty(record: Watch, source: StreamView, target: StreamView) -> Tensor:
    """Doubly stochastic penalty: sum_j (1 - sum_i w_ij)^2 over real source tokens j.

    The result is the mean over attention maps and heads.

    record   attention weights (B, H, N, M) of a decoder to the source, with gradients
    """
    if isinstance(source.valid, Ragged) or isinstance(target.valid, Ragged):
        message = "objective.coverage cannot be used with train.packed: true"
        raise UserError(message, hint="Set train.packed: false.", key="objective.coverage")
    maps = [w for name, w in record.attention.items() if name == "decoder.attention" or name.endswith(".cross")]
    if not maps:
        message = "objective.coverage needs a decoder with attention to the source"
        raise UserError(message, hint="Set model.score: additive.", key="objective.coverage")
    weights = torch.cat(maps, 1).float()
    if target.valid is not None:
        weights = weights.masked_fill(~target.valid[:, None, :, None], 0)
    off = (1 - weights.sum(2)) ** 2  # (B, H, M)
    if source.valid is not None:
        off = off.masked_fill(~source.valid[:, None], 0)
    return off.mean(1).sum()


def _doubled(view: StreamView) -> StreamView:
    if isinstance(view.valid, Ragged):
        message = "objective.agreement cannot be used with train.packed: true"
        raise UserError(message, hint="Set train.packed: false.", key="objective.agreement")
    valid = None if view.valid is None else torch.cat([view.valid, view.valid])
    return StreamView({name: torch.cat([column, column]) for name, column in view.columns.items()}, valid)
