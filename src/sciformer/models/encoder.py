"""Encoder: every token informed by all others; one answer for the sample or one for each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..data.batch import StreamView, Valid
from ..nn import BlockPool, ClassToken, Ragged, Watch
from ..nn.attention.pair_bias import PairBias
from ..nn.options import PoolingOptions
from ..nn.pooling import AutoPoolingOptions, ClassTokenOptions, dropped
from ..nn.positions import Learned, grid
from ..nn.transformer import AttentionTrunkOptions, redraw
from ..nn.watch import look
from ..tokens.base import Tokens
from .base import Model, Network, single


class Encoder(Model, PoolingOptions):
    """BERT, ViT, Particle Transformer, ASTROMER: tokens in, one vector out."""

    choices: ClassVar[Mapping[str, str]] = {**Model.choices, "pool": "pooling"}

    pool: str = "auto"
    """Pooling of the tokens to one vector (default: auto, the mean, or the last token of recurrent trunks). first: a
    special token before each sample; blocks: mean of the tokens before and after every block, with learned weights
    (ASTROMER 2); lstm, gru: last state of a recurrent network over the tokens (ASTROMER 1)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        return EncoderNetwork(self, *self.make_parts(tokens, objective))

    def make_parts(self, tokens: Mapping[str, Tokens], objective: Any) -> tuple[Tokens, Any, nn.Module, nn.Module]:
        """Tokens, objective, trunk and pooling. Without an objective that asks for it, a pooling has no weights, as
        none may stay untrained."""
        only = single(tokens, self)
        trunk = self.make_trunk(only, leading=int(issubclass(type(self), ClassTokenOptions)))
        asked = not objective.reads_out or not self.has_weights
        pooling: PoolingOptions = self if asked else AutoPoolingOptions()
        return only, objective, trunk, pooling.build_pool(trunk.dim, self)  # type: ignore[arg-type]


class Encoded(NamedTuple):
    """What an encoder made of tokens; with a class token in front, if there is one.

    states    what entered its first block and what left each, where a pooling asks for them
    seen      which tokens these are, where hidden ones were left out
    """

    x: Tensor
    valid: Valid
    states: tuple[Tensor, ...] = ()
    seen: Any = None


class EncoderNetwork(Network):
    """embed -> trunk -> pool -> heads, or -> readout."""

    def __init__(
        self,
        section: Encoder,
        tokens: Tokens,
        objective: Any,
        trunk: nn.Module,
        pool: nn.Module,
        read_dim: int | None = None,
    ) -> None:
        super().__init__(section, tokens, objective, trunk, read_dim)
        self.pooling = pool
        if isinstance(section, AttentionTrunkOptions) and section.init == "moco":
            redraw(self.heads, section.init)

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Every token informed by all others."""
        x = self.embed(view)
        if isinstance(self.pooling, BlockPool):
            return self._with_states(x, view, watch)
        if not isinstance(self.pooling, ClassToken):
            return Encoded(self.run(x, view, watch), view.valid)
        at = view.columns.get("at")
        if at is None:
            at = self._places(x, view.valid)
        x, valid, at = self.pooling.prepend(x, view.valid, at)
        bias = self.entrance.pair_bias(view)
        if bias is not None:
            bias = bias.after() if isinstance(bias, PairBias) else nn.functional.pad(bias, (1, 0, 1, 0))
        more = {} if bias is None else {"bias": bias}
        return Encoded(self.trunk(x, valid, at=at, watch=watch, **more), valid)

    def _with_states(self, x: Tensor, view: StreamView, watch: Watch | None) -> Encoded:
        """With what every block made of the tokens."""
        seen = Watch(attention=watch is not None and watch.wants_attention)
        if watch is not None:
            seen.attention, seen.kernels, seen.prefix = watch.attention, watch.kernels, watch.prefix
        y = self.run(x, view, seen)
        if watch is not None and watch.wants_hidden:
            watch.hidden.update(seen.hidden)
        before = [_like(state, view.valid) for state in list(seen.hidden.values())[:-1]]
        if not y.numel():  # nothing that a block could have made
            before = [y] * (len(self.pooling.weight) - 1)  # type: ignore[arg-type]
        return Encoded(y, view.valid, (*before, y))

    def _places(self, x: Tensor, valid: Valid) -> Tensor:
        """The places 0, 1, 2, ... of tokens, before a class token comes in front."""
        if isinstance(valid, Ragged):
            return valid.position
        shape = getattr(self.trunk.position, "shape", None) if isinstance(self.trunk.position, Learned) else None
        if shape is not None and len(shape) > 1:
            return grid(shape).to(x.device)
        return torch.arange(x.shape[1], device=x.device)

    def tokens(self, encoded: Encoded) -> Tensor:
        """The tokens alone, (B, N, D) or (T, D)."""
        return dropped(encoded.x, encoded.valid) if isinstance(self.pooling, ClassToken) else encoded.x

    def pool(self, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """One vector (B, D) for each sample."""
        if isinstance(self.pooling, BlockPool):
            return self.pooling(encoded.states, encoded.valid)
        return self.pooling(encoded.x, encoded.valid, watch=look(watch, "pool"))


def _like(state: Tensor, valid: Valid) -> Tensor:
    """A hidden state in the layout of its tokens: trunks show them packed (1, T, D), or padded where they had to."""
    if not isinstance(valid, Ragged):
        return state
    return state[0] if state.shape[:2] == (1, valid.total) else valid.flatten(state)
