"""Decoder model: causal attention, and a prediction of the next token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..data.batch import StreamView
from ..nn import Watch
from ..tokens.base import Tokens
from .base import Model, Network, single


class Decoder(Model):
    """`kind: decoder`: prediction of the next token with causal attention (GPT)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        only = single(tokens, self)
        return DecoderNetwork(self, only, objective, self.make_trunk(only, causal=True))


class DecoderNetwork(Network):
    """Decoder network: embed -> causal trunk -> readout."""

    def decode(self, view: StreamView, watch: Watch | None = None, cache: Any = None) -> Tensor:
        """Hidden states (B, N, D) of the tokens in the view.

        With a cache, the view has only the new tokens.
        """
        more = {} if cache is None else {"cache": cache}
        return self.run(self.embed(view), view, watch, **more)
