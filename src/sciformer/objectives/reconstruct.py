"""Reconstruction of tokens by an autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..data.batch import Batch, ModelInputs
from ..data.random import SampleRandom
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable
from .base import PREFIX, Objective, Outputs
from .next_token import flat_targets


class Reconstruct(Objective):
    """Reconstruction: -ln p(token | code) + loss of the codes, mean over tokens."""

    unit: ClassVar[str] = "tokens"
    reads_out: ClassVar[bool] = True
    asks: ClassVar[str] = "reconstruct"

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Add the tokens as targets; nothing is hidden."""
        name = self.asked_stream(batch.streams)
        domain = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`")
        stream = batch.streams[name]
        return batch.with_columns(stream.with_columns(**{PREFIX + c: stream.columns[c] for c in domain.hides}), name)

    def count(self, batch: Batch) -> float:
        return float(batch.streams[self.asked_stream(batch.streams)].lengths.sum())

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        view = inputs.view(self.stream)
        found = model.reconstruct(view)
        hidden = found.hidden
        loss = model.readout.loss(hidden.flatten(0, -2), flat_targets(view, hidden)) + found.loss.flatten()
        if view.real is not None:
            loss = loss.masked_fill(~view.real.flatten(), 0)
        if not outputs:
            return loss.sum(), {}
        each = view.pad(loss.unflatten(0, hidden.shape[:-1])).sum(1)
        real = torch.ones_like(loss) if view.real is None else view.real.flatten().float()
        return loss.sum(), {"loss": each, "count": view.pad(real.unflatten(0, hidden.shape[:-1])).sum(1)}

    @property
    def usage(self) -> str:
        return "sciformer train RECIPE --tokens.target.autoencoder RUN"
