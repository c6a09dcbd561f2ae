"""Contrastive learning: equal vectors for two views or streams of a sample.

The vectors of different samples become different.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView, stream_name
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.prepare import VIEW
from ..data.random import SampleRandom
from ..errors import UserError
from ..metrics.retrieval import ranks
from ..nn.heads import ClassHead
from ..tokens.base import Tokens
from ..tokens.protocols import Augmentable
from .base import Objective, Outputs, Widths

MAX_SCALE = 100.0  # largest 1 / temperature while it is learned (arXiv 2103.00020)
CHECKED_SAMPLES = 8  # samples augmented twice to see whether the views differ


class Projection(nn.Module):
    """Projection head: unit vectors z = f(y) / |f(y)| of pooled vectors y (B, D).

    Similarities are multiplied by exp((s + s') / 2), where s and s' are the `log_scale` of both projections.
    """

    def __init__(
        self, dim: int, width: int, hidden: Any, dropout: float, temperature: float, learn_temperature: bool
    ) -> None:
        super().__init__()
        self.layer = ClassHead(dim, width, hidden, dropout, "relu")
        self.log_scale: Tensor
        scale = torch.tensor(-math.log(temperature))
        if learn_temperature:
            self.log_scale = nn.Parameter(scale)
        else:
            self.register_buffer("log_scale", scale, persistent=False)

    def forward(self, y: Tensor) -> Tensor:
        z = self.layer(y)
        return F.normalize(z.to(torch.promote_types(z.dtype, torch.float32)), dim=-1)


class Contrast(Objective):
    """Contrastive loss (NT-Xent): -sum_b ln p_b, p = softmax of z . z' / t.

    p_b is the probability of the pair of sample b among all candidates in the batch. With one stream of tokens, z and
    z' are projections of two augmented views of a sample; the candidates are both views of all samples (SimCLR, arXiv
    2002.05709). With two streams, z and z' are projections of the first and the second stream; the candidates are the
    second streams of all samples (CLIP, arXiv 2103.00020). The loss is the mean over both directions. Equal samples of
    a batch are candidates too.
    """

    whole_batch: ClassVar[bool] = True
    standard: ClassVar[tuple[str, ...]] = (
        "recall_1",
        "recall_5",
        "mean_rank",
        "reverse_recall_1",
        "reverse_recall_5",
        "reverse_mean_rank",
        "pair_accuracy",
    )

    temperature: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """Temperature t that divides the similarities (default: 0.1)."""
    learn_temperature: bool = False
    """Learn the temperature, with `temperature` as its start value and 0.01 as its minimum (default: false)."""
    projection: int = Field(default=128, ge=1, le=1 << 16)
    """Width of the projected vectors (default: 128)."""
    hidden: Widths | None = None
    """Width of the hidden layer of the projection, or a list of widths (default: a linear projection)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate in the hidden layers of the projection, or at the input of a linear projection (default: 0)."""

    @property
    def sends(self) -> tuple[str, ...]:
        return ()

    @property
    def usage(self) -> str:
        return "sciformer embed RUN FILES"

    def asked_stream(self, streams: Iterable[str]) -> str:
        """Stream to embed and to inspect: `stream`, or the first stream."""
        names = [name for name in streams if not name.startswith(VIEW)]
        return stream_name(names, self.stream or names[0])

    def compared(self, streams: Iterable[str]) -> tuple[str, str]:
        """Names of the streams with the two vectors of a sample."""
        names = [name for name in streams if not name.startswith(VIEW)]
        if len(names) > 2:
            message = f"`objective.kind: {self.kind}` compares two streams of tokens, but there are {len(names)}"
            raise UserError(f"{message}: {', '.join(names)}", hint="Remove the other streams.", key="tokens")
        return (names[0], names[1]) if len(names) == 2 else (names[0], VIEW + names[0])

    def fit(self, train: Dataset) -> None:
        """Check the streams; for a single stream, check that two views of a sample differ."""
        first, second = self.compared(train.tokens)
        self.asked_stream(train.tokens)
        if not second.startswith(VIEW):
            return
        ids = np.arange(min(CHECKED_SAMPLES, len(train)))
        made = self.augment(train.batch(ids), train.tokens, SampleRandom(0, 0, ids), True).streams
        one, other = made[first], made[second]
        same = np.array_equal(one.lengths, other.lengths)
        if same and all(np.array_equal(column, other.columns[name]) for name, column in one.columns.items()):
            kind = train.tokens[first].kind
            raise UserError(
                f"`objective.kind: {self.kind}` needs two different views of each sample, but `tokens.kind: {kind}` "
                "does not change them",
                hint="Switch on augmentations of the tokens, or add a second stream of tokens.",
                key="tokens",
            )

    def augment(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom, training: bool) -> Batch:
        """Augment the samples: one stream as two views, two streams only in training.

        The two views of a single stream are made in an evaluation too.
        """
        if len(tokens) > 1:
            return super().augment(batch, tokens, rng, training)
        ((name, kind),) = tokens.items()
        kind = Augmentable.require(kind, f"`objective.kind: {self.kind}` with one stream")
        stream = batch.streams[name]
        views = {name: kind.augment_stream(stream, rng), VIEW + name: kind.augment_stream(stream, rng.branch(VIEW))}
        return replace(batch, streams=views)

    def check_predicts(self) -> None:
        try:
            super().check_predicts()
        except UserError as error:
            hint = f"{error.hint} For classes that are described by texts: --classes TEXT TEXT"
            raise error.with_fields(hint=hint) from error

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        made = Projection(dim, self.projection, self.hidden, self.dropout, self.temperature, self.learn_temperature)
        return {"project": made}

    def stream_heads(self, dims: Mapping[str, int], tokens: Mapping[str, Tokens]) -> dict[str, nn.Module]:
        self.compared(tokens)
        return {name: self.heads(dim, tokens[name])["project"] for name, dim in dims.items()}

    def head(self, model: Any, stream: str) -> Any:
        """Projection of a stream."""
        return model.heads[stream if stream in model.heads else "project"]

    def scale(self, model: Any, names: tuple[str, str]) -> Tensor:
        """Factor 1 / t of the similarities between two streams."""
        first, second = (self.head(model, name).log_scale for name in names)
        found: Tensor = ((first + second) / 2).exp().clamp(max=max(MAX_SCALE, 1 / self.temperature))
        return found

    def vectors(self, model: Any, view: StreamView) -> Tensor:
        """Unit vectors (B, projection) of a stream or view."""
        projected: Tensor = self.head(model, view.name)(model.pool(model.encode(view)))
        return projected

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        names = self.compared(inputs.streams)
        pair = [self.vectors(model, inputs.view(name)) for name in names]
        return self.compare(model, inputs, names, pair[0], pair[1], outputs)

    def compare(
        self, model: Any, inputs: ModelInputs, names: tuple[str, str], one: Tensor, other: Tensor, outputs: bool
    ) -> tuple[Tensor, Outputs]:
        """Summed loss over the pairs of all ranks, and outputs of the pairs of this rank.

        names        names of the two streams or views
        one, other   (B, projection) unit vectors of these two streams or views, on this rank
        """
        first, mine = inputs.gathered(one)
        second, _ = inputs.gathered(other)
        with torch.autocast(first.device.type, enabled=False):
            loss, matched = nt_xent(first, second, self.scale(model, names), views=names[1].startswith(VIEW))
        if not outputs:
            return loss.sum(), {}
        found = {"loss": loss[mine], "matched": matched[mine], "first": first[mine], "second": second[mine]}
        return loss.sum(), found

    def finish(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """Retrieval ranks of all samples instead of their vectors."""
        found = dict(outputs)
        if "first" in found:
            first, second = found.pop("first"), found.pop("second")
            found |= {"rank": ranks(first, second), "reverse_rank": ranks(second, first)}
        return found

    def exported(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Projected vectors of the stream of the objective."""
        view = inputs.view(self.asked_stream(inputs.streams))
        return {"vector": self.vectors(model, view)}


def nt_xent(first: Tensor, second: Tensor, scale: Tensor | float, views: bool) -> tuple[Tensor, Tensor]:
    """NT-Xent loss (B,) of pairs of unit vectors (B, D), and retrieval accuracy (B,).

    A direction, from `first` to `second` or back, counts as correct if the pair has the largest similarity among all
    candidates. The accuracy of a pair is 0, 1/2 or 1, for no, one or two correct directions.

    views   True: the vectors of both sides are candidates (SimCLR); False: only the vectors of the opposite side (CLIP)
    """
    across = scale * first @ second.T
    own = torch.arange(len(first), device=first.device)
    sides = []
    for logits, vectors in ((across, first), (across.T, second)):
        if views:
            within = (scale * vectors @ vectors.T).fill_diagonal_(-torch.inf)
            logits = torch.cat([logits, within], 1)
        sides.append((F.cross_entropy(logits, own, reduction="none"), (logits.argmax(1) == own).to(first.dtype)))
    (forth, found), (back, found_back) = sides
    return (forth + back) / 2, (found + found_back) / 2
