"""Next-token prediction, as in GPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Batch, ModelInputs, Stream, StreamView
from ..data.random import SampleRandom
from ..errors import UserError
from ..tokens.base import Columns, Tokens, stream_part
from ..tokens.protocols import Maskable, Readout
from .base import PREFIX, Objective, Outputs


class NextToken(Objective):
    """Language modelling: -sum_i ln p(token i + 1 | tokens up to i) over each window."""

    unit: ClassVar[str] = "tokens"
    reads_out: ClassVar[bool] = True
    asks: ClassVar[str] = "decode"
    lookahead: ClassVar[int] = 1
    standard: ClassVar[tuple[str, ...]] = ("perplexity", "token_accuracy")

    @property
    def usage(self) -> str:
        return 'sciformer generate RUN --prompt "..."'

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Shift the tokens by one: the target of a token is the next token."""
        name = self.asked_stream(batch.streams)
        hides = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`").hides
        return batch.with_columns(shifted(batch.streams[name], hides), name)

    def count(self, batch: Batch) -> float:
        return float(batch.streams[self.asked_stream(batch.streams)].lengths.sum())

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Summed loss of the next tokens, and outputs (see `ask_tokens`)."""
        view = inputs.view(self.stream)
        return ask_tokens(stream_part(model.readout, view.name), model.decode(view), view, outputs)


def ask_tokens(
    readout: Readout, hidden: Tensor, view: StreamView, outputs: bool, smoothing: float = 0.0
) -> tuple[Tensor, Outputs]:
    """Summed loss of the targets, and outputs per sample if `outputs` is true.

    The outputs are the loss, the number of tokens and the number of correct tokens. The targets are the columns of the
    view with names «target ...». If the view has a column `asked`, only tokens with `asked` True count. Label smoothing
    is applied only if `outputs` is false.
    """
    flat, target = hidden.flatten(0, -2), flat_targets(view, hidden)
    wanted = view.real
    if "asked" in view.columns:
        asked = view.columns["asked"].bool()
        wanted = asked if wanted is None else wanted & asked
    wanted = None if wanted is None else wanted.flatten()
    if not outputs:
        return readout.total(flat, target, wanted, smoothing) if smoothing else readout.total(flat, target, wanted), {}
    real = torch.ones(flat.shape[0], dtype=torch.bool, device=flat.device) if wanted is None else wanted
    loss = readout.loss(flat, target).masked_fill(~real, 0)
    found = {"loss": loss, "correct": tokens_agree(readout.predict(flat), target) & real, "count": real}
    return loss.sum(), {name: view.pad(part.unflatten(0, hidden.shape[:-1])).sum(1) for name, part in found.items()}


def flat_targets(view: StreamView, hidden: Tensor) -> Columns:
    """Target columns as flat tokens (n, ...); their names lose the prefix «target »."""
    last = hidden.dim() - 2
    named = {name.removeprefix(PREFIX): column for name, column in view.columns.items() if name.startswith(PREFIX)}
    return {name: column.flatten(0, last) for name, column in named.items()}


def tokens_agree(one: Columns, target: Columns) -> Tensor:
    """Mask (n,), True for tokens with all columns equal to the target."""
    return torch.stack([(one[name] == target[name])[..., None].flatten(1).all(1) for name in target]).all(0)


def shifted(stream: Stream, hides: tuple[str, ...]) -> Stream:
    """Shift tokens by one: columns named «target ...» hold the next token.

    hides  columns of the token to predict; each gets a column «target ...»
    """
    missing = [name for name in hides if name not in stream.columns]
    if missing:
        raise UserError(f"the tokens lack the column `{missing[0]}`; they have the columns {', '.join(stream.columns)}")
    if len(stream) and (stream.lengths == stream.lengths[0]).all() and stream.lengths[0] > 0:
        return _shifted_rows(stream, hides)
    position = stream.position
    last = position == np.repeat(stream.lengths, stream.lengths) - 1
    following = {PREFIX + column: stream.columns[column][position > 0] for column in hides}
    return stream.keep(~last).with_columns(**following)


def _shifted_rows(stream: Stream, hides: tuple[str, ...]) -> Stream:
    """Fast path of `shifted` for samples of equal length."""
    count, long = len(stream), int(stream.lengths[0])

    def rows(column: Any, part: slice) -> Any:
        return column.reshape(count, long, *column.shape[1:])[:, part].reshape(-1, *column.shape[1:])

    columns = {name: rows(column, slice(None, -1)) for name, column in stream.columns.items()}
    columns |= {PREFIX + name: rows(stream.columns[name], slice(1, None)) for name in hides}
    return Stream(columns, stream.lengths - 1)
