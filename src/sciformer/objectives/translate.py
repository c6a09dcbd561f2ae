"""What is the target of this source, token by token? (translation)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..data.batch import Batch, Inputs, View
from ..data.chance import Chance
from ..errors import UserError
from ..nn.losses import disagreement
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from .base import Outputs
from .next_token import ask_tokens, shifted
from .written import Written

SOURCE, TARGET = "source", "target"


class Translate(Written):
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

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Of the target, each token but the last is an input, each but the first is asked for."""
        if TARGET not in batch.streams:
            return batch
        target = shifted(batch.streams[TARGET], tokens[TARGET].hides)
        return replace(batch, streams={**batch.streams, TARGET: target})

    def count(self, batch: Batch) -> float:
        """Target tokens asked for."""
        return float(batch.streams[TARGET].lengths.sum())

    def step(self, model: Any, inputs: Inputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """The loss of every target token; for each sample its sum, how many tokens, and how many of them were right."""
        if TARGET not in inputs.streams:
            raise UserError("there are only sources, and no targets to judge by")
        view = inputs.streams[TARGET]
        if self.agreement and model.training and not outputs:
            return self._twice(model, inputs), {}
        hidden = model.translate(inputs.streams[SOURCE], view)
        return ask_tokens(model.readout, hidden, view, outputs, self.smoothing)

    def _twice(self, model: Any, inputs: Inputs) -> Tensor:
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


def _doubled(view: View) -> View:
    if isinstance(view.valid, Ragged):
        raise UserError(
            "objective.agreement needs padded samples, and cannot be used with train.packed: true",
            key="objective.agreement",
        )
    valid = None if view.valid is None else torch.cat([view.valid, view.valid])
    return View({name: torch.cat([column, column]) for name, column in view.columns.items()}, valid)
