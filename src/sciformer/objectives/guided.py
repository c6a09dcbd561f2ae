"""Objectives with classifier-free guidance: some samples lose the condition."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from ..data.batch import Batch
from ..data.random import SampleRandom
from ..models.encoder_decoder import SOURCE
from ..tokens.base import Tokens
from .base import Objective


class Guided(Objective):
    """Base class of objectives with a target and a condition (stream `source`).

    In training, the condition of a random share of the samples has no tokens. The model then learns predictions with
    and without a condition, and guidance in generation uses the difference of both predictions (arXiv 2207.12598).
    """

    condition_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training samples whose source is left out (default: 0; 0.1 is usual). Generation with guidance, or
    without a prompt, needs a share above 0."""
    guidance: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of classifier-free guidance in generation (default: 1, no guidance). Above 1, samples agree more closely
    with the prompt and vary less."""

    def augment(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom, training: bool) -> Batch:
        batch = super().augment(batch, tokens, rng, training)
        if not (training and self.condition_dropout and SOURCE in batch.streams):
            return batch
        stream = batch.streams[SOURCE]
        kept = np.where(rng.uniform("condition") < self.condition_dropout, 0, stream.lengths)
        return batch.with_columns(stream.cut(stream.starts, kept), SOURCE)
