"""Contrast of source and target, with prediction of the target (CoCa)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, Stream, StreamView
from ..data.columns import Array
from ..data.random import SampleRandom
from ..errors import UserError
from ..nn.gather import gather_row
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable
from .base import PREFIX, Outputs
from .contrast import Contrast
from .next_token import ask_tokens
from .seq2seq import SOURCE, TARGET, Seq2Seq

CAPTION_LOSS = "caption_loss"


class ContrastAndCaption(Contrast, Seq2Seq):
    """Contrast and caption: a L_contrast + b L_caption (CoCa, arXiv 2205.01917).

    L_contrast is the loss of `contrast` between source and target. L_caption is the mean over all target tokens of the
    batch of -ln p(token i + 1 | tokens up to i, source).
    """

    asks: ClassVar[str] = "caption"
    standard: ClassVar[tuple[str, ...]] = (*Contrast.standard, "perplexity", "token_accuracy")

    contrast_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight a of the contrast (default: 1)."""
    caption_weight: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Weight b of the caption (default: 2)."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing of the caption in training: share of the probability spread over all tokens (default: 0)."""

    @property
    def usage(self) -> str:
        return "sciformer translate RUN FILE"

    def stream_heads(self, dims: Mapping[str, int], tokens: Mapping[str, Tokens]) -> dict[str, nn.Module]:
        Seq2Seq.heads(self, dims[TARGET], tokens[TARGET])  # checks the special tokens
        return super().stream_heads(dims, tokens)

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Add the next token as the target of each token, except the last token."""
        if TARGET not in batch.streams:
            return batch
        hides = Maskable.require(tokens[TARGET], f"`objective.kind: {self.kind}`").hides
        return batch.with_columns(with_next(batch.streams[TARGET], hides), TARGET)

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        for name in (SOURCE, TARGET):
            if name not in inputs.streams:
                message = f"the model cannot be evaluated, because the data have no {name}"
                raise UserError(message, hint=f"Add the {name} to the data.", key="tokens")
        source, target = inputs.view(SOURCE), inputs.view(TARGET)
        *encoded, hidden = model.caption(source, target)
        names = (SOURCE, TARGET)
        one, other = (self.head(model, name)(model.pool(read)) for name, read in zip(names, encoded))
        contrast, found = self.compare(model, inputs, names, one, other, outputs)
        target = padded(target)
        caption, written = ask_tokens(model.readout, hidden, target, outputs, 0 if outputs else self.smoothing)
        asked = target.columns["asked"].bool()
        asked = asked if target.real is None else asked & target.real
        samples = hidden.new_tensor(hidden.shape[0]) if inputs.real is None else inputs.real.sum()
        caption, count, samples = sums(inputs, caption, asked.sum(), samples)
        scale = self.caption_weight * samples / count.clamp(min=1)  # the mean over tokens, for each sample
        loss = self.contrast_weight * contrast + scale * caption
        if not outputs:
            return loss, {}
        if inputs.real is not None:
            written = {name: values[inputs.real] for name, values in written.items()}
        caption_loss = written.pop("loss")
        found["loss"] = self.contrast_weight * found["loss"] + scale * caption_loss
        return loss, {**found, **written, CAPTION_LOSS: caption_loss}

    def score_inputs(self, outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Outputs with the loss of the caption alone, for the perplexity."""
        return {**outputs, "loss": outputs[CAPTION_LOSS]}


def sums(inputs: ModelInputs, *numbers: Tensor) -> Tensor:
    """Sum each number over all ranks, with gradients."""
    row = torch.stack([number.to(numbers[0].dtype) for number in numbers])
    return gather_row(row).sum(0) if inputs.divided else row


def padded(view: StreamView) -> StreamView:
    """View in the padded layout."""
    if not isinstance(view.valid, Ragged):
        return view
    return replace(view, columns={name: view.pad(one) for name, one in view.columns.items()}, valid=view.valid.valid)


def with_next(stream: Stream, hides: tuple[str, ...]) -> Stream:
    """Add columns «target ...» with the next token, and a mask `asked`.

    The mask is False for the last token of a sample, because no token follows it.

    hides  columns of the token to predict; each gets a column «target ...»
    """
    total = int(stream.lengths.sum())
    following = np.minimum(np.arange(total) + 1, max(0, total - 1))
    asked = stream.position + 1 < np.repeat(stream.lengths, stream.lengths)
    return stream.with_columns(asked=asked, **{PREFIX + name: stream.columns[name][following] for name in hides})
