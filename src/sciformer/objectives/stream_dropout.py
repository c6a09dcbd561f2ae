"""Dropout of whole streams: in training, random samples lose a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from ..data.batch import Batch
from ..data.columns import Array
from ..data.random import SampleRandom
from ..errors import UserError
from ..tokens.base import Tokens
from .base import Objective


class StreamDropout(Objective):
    """Objective on the pooled vector, with dropout of whole streams.

    This is modality dropout (arXiv 1501.00102). If no stream is ever missing in training, a model may fail later on
    samples without a stream. A dropped stream has no tokens in the sample, as if it were missing in the data.
    """

    drop_stream: float = Field(default=0.0, ge=0, lt=1)
    """Modality dropout: probability to drop each stream of a sample in training (default: 0). At least one stream with
    tokens stays in each sample. Needs several streams, for example model.kind: multistream."""

    def augment(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom, training: bool) -> Batch:
        batch = super().augment(batch, tokens, rng, training)
        if not training or not self.drop_stream:
            return batch
        dropped = draw_streams(batch, list(batch.streams), self.drop_stream, rng, "drop_stream")
        kept = {name: one.keep(~dropped[name][one.sample]) for name, one in batch.streams.items()}
        return replace(batch, streams=kept)


def draw_streams(
    batch: Batch, names: Sequence[str], probability: float, rng: SampleRandom, option: str
) -> dict[str, Array]:
    """Draw the samples that lose a stream: a mask (B,) for each stream in `names`.

    At least one stream with tokens stays in each sample. If all streams of a sample were drawn, the stream with the
    largest random number stays.

    option  key of the objective, for the error and for the random numbers
    """
    if len(batch.streams) == 1:
        message = f"objective.{option} needs several streams of tokens, but the recipe has one"
        raise UserError(message, hint=f"Remove objective.{option}.", key=f"objective.{option}")
    drawn = np.stack([rng.uniform(f"{option.replace('_', ' ')} {name}") for name in names])
    there = np.stack([batch.streams[name].lengths > 0 for name in names])
    lost = (drawn < probability) & there
    others = [stream.lengths > 0 for name, stream in batch.streams.items() if name not in names]
    lone = ~((there & ~lost).any(0) | np.any([np.zeros(len(batch), bool), *others], 0))
    lost[np.where(there, drawn, -1).argmax(0)[lone], lone] = False
    return dict(zip(names, lost))
