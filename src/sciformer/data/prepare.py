"""Preparation of batches: augmentation, mixup, corruption, normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..tokens.base import Tokens
from ..tokens.protocols import Augmentable
from .batch import Batch
from .mixup import shares
from .random import SampleRandom

if TYPE_CHECKING:
    from ..objectives.base import Objective

VIEW = "view of "  # prefix of the stream with the second view of a stream, for contrastive learning


def prepare(
    batch: Batch,
    tokens: Mapping[str, Tokens],
    objective: Objective,
    rng: SampleRandom,
    training: bool,
    counted: bool = True,
    other: tuple[Batch, SampleRandom] | None = None,
) -> Batch:
    """Augment, mix, corrupt and normalise a batch.

    counted  whether the loss is computed. If not, as for predictions, samples are not augmented, contrastive learning
             makes no second view of a stream, and the result has no `count` (divisor of the loss)
    other    partner samples for mixup, as many as in the batch, with their random numbers
    """
    if counted:
        batch = objective.augment(batch, tokens, rng, training)
    if other is not None:
        partner, share = augmented(other[0], tokens, other[1]), shares(objective.mixing, rng)
        streams = {
            name: Augmentable.require(tokens[name], "objective.mixup").mix(one, partner.streams[name], share)
            for name, one in batch.streams.items()
        }
        batch = objective.mixed(replace(batch, streams=streams), partner, share)
    batch = objective.corrupt(batch, tokens, rng)
    kinds = {name: tokens[name.removeprefix(VIEW)] for name in batch.streams}
    streams = {name: kinds[name].normalise(stream) for name, stream in batch.streams.items()}
    places = {name: np.prod(kinds[name].grid_shape or 0, dtype=int) for name in streams}
    most = {name: int(count) for name, count in places.items() if 0 < streams[name].lengths.max(initial=1) <= count}
    aside = {name: kinds[name].host_columns for name in streams}
    batch = replace(batch, streams=streams, sent=objective.sends, most=most, aside=aside)
    return replace(batch, count=objective.count(batch)) if counted else batch


def augmented(batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
    """Augment all streams with augmentable tokens."""
    kinds = {name: kind for name, kind in tokens.items() if isinstance(kind, Augmentable)}
    varied = {name: kinds[name].augment_stream(one, rng) for name, one in batch.streams.items() if name in kinds}
    return replace(batch, streams={**batch.streams, **varied})
