"""Which tokens were hidden? (BERT, masked autoencoders, ASTROMER)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from ..data.batch import Batch, Inputs
from ..data.chance import Chance
from ..errors import UserError
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from .base import PREFIX, Objective, Outputs


class Masked(Objective):
    """-sum ln p(hidden token | the others), over a share of the tokens (arXiv 1810.04805).

    Of the tokens asked for, most are hidden, some replaced by random ones, some left as they are, so that the model
    must doubt what it sees.
    """

    unit: ClassVar[str] = "tokens"
    hides: ClassVar[bool] = True
    reads_out: ClassVar[bool] = True
    standard: ClassVar[tuple[str, ...]] = ()

    share: float = Field(default=0.15, gt=0, le=1)
    """Share of the tokens asked for, at least one in every sample that has any."""
    random: float = Field(default=0.0, ge=0, le=1)
    """Share of those that are replaced by random tokens (BERT: 0.1)."""
    same: float = Field(default=0.0, ge=0, le=1)
    """Share of those that stay as they are (BERT: 0.1)."""

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Hide a share of every sample's tokens."""
        if self.random + self.same > 1:
            raise UserError("objective.random and objective.same of at most 1 together", f"{self.random + self.same}")
        ((name, stream),) = batch.streams.items()
        domain = tokens[name]
        if not domain.hides:
            raise UserError(f"tokens of which something can be hidden; `{domain.kind}` names none", "none")
        wanted = np.maximum(1, np.round(self.share * stream.lengths)).astype(np.int64)
        asked = chance.ranks("asked", stream.lengths) < np.repeat(wanted, stream.lengths)
        fate = chance.uniform("fate", stream.lengths)
        hidden = asked & (fate >= self.random + self.same)
        targets = {PREFIX + column: stream.columns[column] for column in domain.hides}
        if self.random:
            stream = stream.but(**domain.noise(stream, asked & (fate < self.random), chance))
        stream = stream.but(**domain.blank(stream, hidden))
        return batch.but(stream.but(hidden=hidden, asked=asked, **targets))

    def count(self, batch: Batch) -> float:
        """Tokens asked for."""
        return float(batch.stream.columns["asked"].sum())

    def step(self, model: Any, inputs: Inputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """The loss of the tokens asked for."""
        view = inputs.stream
        hidden = model.tokens(model.encode(view))
        flat = hidden.flatten(0, -2)
        asked = view.columns["asked"].flatten().bool()
        target = {
            name.removeprefix(PREFIX): column.flatten(0, hidden.dim() - 2)
            for name, column in view.columns.items()
            if name.startswith(PREFIX)
        }
        if not outputs:
            return model.readout.total(flat, target, asked), {}
        loss = model.readout.loss(flat, target).masked_fill(~asked, 0)
        if isinstance(view.valid, Ragged):
            parts = [view.valid.pad(part).sum(1) for part in (loss, asked)]
        else:
            parts = [part.unflatten(0, hidden.shape[:2]).sum(1) for part in (loss, asked)]
        return loss.sum(), {"loss": parts[0], "count": parts[1]}
