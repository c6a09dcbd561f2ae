"""Encoder model: full attention, and predictions for samples or tokens."""

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
from ..nn.watch import inner_watch
from ..tokens.base import Tokens
from .base import Model, Network, single


class Encoder(Model, PoolingOptions):
    """`kind: encoder`: predictions for samples or tokens (BERT, ViT, ASTROMER)."""

    choices: ClassVar[Mapping[str, str]] = {**Model.choices, "pool": "pooling"}

    pool: str = "auto"
    """Pooling of tokens to one vector (default: auto). auto: the mean, or the last token for recurrent trunks; first:
    the first token, usually a special token; blocks: a weighted mean of the input and the output of every block, with
    learned weights (ASTROMER 2); lstm, gru: the last state of a recurrent network over the tokens (ASTROMER 1)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        return EncoderNetwork(self, *self.make_parts(tokens, objective))

    def make_parts(self, tokens: Mapping[str, Tokens], objective: Any) -> tuple[Tokens, Any, nn.Module, nn.Module]:
        """Arguments of the network: tokens, objective, trunk and pooling.

        If the objective does not train the pooling, a pooling without weights replaces it.
        """
        only = single(tokens, self)
        trunk = self.make_trunk(only, leading=self.leading)
        return only, objective, trunk, self.make_pool(trunk, objective)

    @property
    def leading(self) -> int:
        """Number of extra tokens before each sample: 1 with a class token, else 0."""
        return int(issubclass(type(self), ClassTokenOptions))

    def make_pool(self, trunk: nn.Module, objective: Any) -> nn.Module:
        """Pooling of the network, without weights if the objective does not train it."""
        asked = not objective.reads_out or not self.has_weights
        pooling: PoolingOptions = self if asked else AutoPoolingOptions()
        return pooling.build_pool(trunk.dim, self)  # type: ignore[arg-type]


class Encoded(NamedTuple):
    """Output of an encoder.

    x         tokens (B, N, D) or packed (T, D); a class token, if any, is the first token of each sample
    valid     mask or packed layout of these tokens
    states    input of the first block and outputs of all blocks, if the pooling needs them
    seen      visible tokens (`Seen`), if only the visible tokens entered the encoder
    stream    name of the stream, if each stream has an encoder
    joint     layout of the streams (`Joint`), if x has the tokens of several streams in one sequence
    """

    x: Tensor
    valid: Valid
    states: tuple[Tensor, ...] = ()
    seen: Any = None
    stream: str = ""
    joint: Any = None


class EncoderNetwork(Network):
    """Encoder network: embed -> trunk -> pool -> heads, or embed -> trunk -> readout."""

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
        """Embed the tokens and run the trunk."""
        return self.encode_embedded(self.embed(view), view, watch)

    def encode_embedded(self, x: Tensor, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Run the trunk over embedded tokens, after a class token if the pooling has one."""
        if isinstance(self.pooling, BlockPool):
            return self._with_states(x, view, watch)
        if not isinstance(self.pooling, ClassToken):
            return Encoded(self.run(x, view, watch), view.valid)
        at = view.columns.get("at")
        if at is None:
            at = self._places(x, view.valid)
        x, valid, at = self.pooling.prepend(x, view.valid, at)
        bias = self.pair_bias(view)
        if bias is not None:
            bias = bias.after() if isinstance(bias, PairBias) else nn.functional.pad(bias, (1, 0, 1, 0))
        more = {} if bias is None else {"bias": bias}
        return Encoded(self.trunk(x, valid, at=at, watch=watch, **more), valid)

    def _with_states(self, x: Tensor, view: StreamView, watch: Watch | None) -> Encoded:
        """Run the trunk; return the output and the states of all blocks."""
        seen = Watch(attention=watch is not None and watch.wants_attention)
        if watch is not None:
            seen.attention, seen.kernels, seen.prefix = watch.attention, watch.kernels, watch.prefix
        y = self.run(x, view, seen)
        if watch is not None and watch.wants_hidden:
            watch.hidden.update(seen.hidden)
        before = [_to_layout(state, view.valid) for state in list(seen.hidden.values())[:-1]]
        if not y.numel():  # without tokens, the blocks store no states
            before = [y] * (len(self.pooling.weight) - 1)  # type: ignore[arg-type]
        return Encoded(y, view.valid, (*before, y))

    def _places(self, x: Tensor, valid: Valid) -> Tensor:
        """Default positions of the tokens, except the class token."""
        if isinstance(valid, Ragged):
            return valid.position
        shape = getattr(self.trunk.position, "shape", None) if isinstance(self.trunk.position, Learned) else None
        if shape is not None and len(shape) > 1:
            return grid(shape).to(x.device)
        return torch.arange(x.shape[1], device=x.device)

    def tokens(self, encoded: Encoded) -> Tensor:
        """Tokens (B, N, D) or (T, D) without the class token."""
        return dropped(encoded.x, encoded.valid) if isinstance(self.pooling, ClassToken) else encoded.x

    def pool(self, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Pooled vector (B, D) of each sample."""
        if isinstance(self.pooling, BlockPool):
            return self.pooling(encoded.states, encoded.valid)
        return self.pooling(encoded.x, encoded.valid, watch=inner_watch(watch, "pool"))


def _to_layout(state: Tensor, valid: Valid) -> Tensor:
    """Convert a hidden state from a Watch to the layout of `valid`.

    state   padded (B, N, D) or packed (1, T, D)
    """
    if not isinstance(valid, Ragged):
        return state
    return state[0] if state.shape[:2] == (1, valid.total) else valid.flatten(state)
