"""Encoder: every token informed by all others; one answer for the sample or one for each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import StreamView, Valid
from ..errors import UserError
from ..nn import (
    AttentionPool,
    BlockPool,
    ClassAttention,
    ClassToken,
    FirstPool,
    LastPool,
    MaxPool,
    MeanPool,
    Ragged,
    RecurrentPool,
    SumPool,
    Watch,
)
from ..nn.attention.pair_bias import PairBias
from ..nn.pooling import dropped
from ..nn.positions import Learned, grid
from ..nn.transformer import redraw
from ..nn.watch import look
from ..tokens.base import Tokens
from .base import Model, Network, single
from .trunks import CLOUD_TRUNKS, RASTER_TRUNKS, RECURRENT_TRUNKS


class Encoder(Model):
    """BERT, ViT, Particle Transformer, ASTROMER: tokens in, one vector out."""

    pool: Literal[
        "auto",
        "mean",
        "sum",
        "max",
        "first",
        "last",
        "class_token",
        "class_attention",
        "attention",
        "blocks",
        "lstm",
        "gru",
    ] = "auto"
    """From tokens to one vector; first: that of a special token before each text; blocks: the mean of tokens before and
    after every block, weighted by learned numbers (ASTROMER 2); lstm, gru: the last state of such a reader of the
    tokens (ASTROMER 1). auto: mean, or last for recurrent trunks."""
    class_depth: int = Field(default=2, ge=1)
    """Of class_attention: blocks in which a class token asks the others; their form is that of the trunk. Of lstm and
    gru: layers."""
    class_query: Literal["normal", "raw"] = "normal"
    """Of class_attention: whether the class token asks normalised as the others are, or as it is."""
    class_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Of class_attention, lstm and gru: share of numbers set to zero in training."""
    bidirectional: bool = True
    """Whether recurrent trunks read both ways."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """The network."""
        only = single(tokens, self)
        trunk = self.make_trunk(only, causal=False, bidirectional=self.bidirectional)
        pool = self.make_pool(trunk.dim, asked=not objective.reads_out)  # type: ignore[arg-type]
        return EncoderNetwork(self, only, objective, trunk, pool)

    def make_pool(self, dim: int, asked: bool = True) -> nn.Module:
        """The pooling of this name; one without weights where nobody asks for it, as none may stay untrained."""
        name = self.pool
        if name == "auto" or (name in ("class_attention", "attention", "blocks", "lstm", "gru") and not asked):
            name = "last" if self.trunk in RECURRENT_TRUNKS else "mean"
        if name == "class_token" and self.trunk != "transformer":
            raise UserError(
                "`model.pool: class_token` needs a trunk whose first token sees all others, "
                f"not `model.trunk: {self.trunk}`",
                key="model.pool",
            )
        if name == "blocks":
            if self.trunk in (*CLOUD_TRUNKS, *RASTER_TRUNKS):
                raise UserError(
                    "`model.pool: blocks` needs a trunk whose blocks have the width of its input, "
                    f"not `model.trunk: {self.trunk}`",
                    key="model.pool",
                )
            return BlockPool(self.depth + 1)
        if name in ("lstm", "gru"):
            return RecurrentPool(dim, name, self.class_depth, self.class_dropout)
        if name == "first":
            return FirstPool()
        if name == "last":
            return LastPool(self.bidirectional and self.trunk in RECURRENT_TRUNKS)
        if name == "class_token":
            return ClassToken(dim)
        if name == "class_attention":
            return self._class_attention(dim)
        if name == "attention":
            return AttentionPool(dim, self.heads)
        if name == "sum":
            return SumPool()
        return MaxPool() if name == "max" else MeanPool()

    def _class_attention(self, dim: int) -> ClassAttention:
        """Blocks like those of the trunk."""
        made = ClassAttention(
            dim,
            self.heads,
            self.class_depth,
            raw_query=self.class_query == "raw",
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            mlp_ratio=self.mlp_ratio,
            activation=self.activation,
            norm=self.norm,
            epsilon=self.norm_epsilon,
            norm_position=self.norm_position,
            residual=self.residual,
            qk_norm=self.qk_norm,
            bias=self.bias,
            extras=self.extras,
            dropout=self.class_dropout,
        )
        if self.init != "normal":
            redraw(made.blocks, self.init)
        return made


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
        if section.init == "moco":
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
