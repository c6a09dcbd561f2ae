"""Decoder: every token informed by those before it, and asked for the one that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..data.batch import StreamView
from ..nn import Watch
from ..tokens.base import Tokens
from .base import Model, Network, single


class Decoder(Model):
    """GPT: tokens in, the next token out."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        only = single(tokens, self)
        return DecoderNetwork(self, only, objective, self.make_trunk(only, causal=True))


class DecoderNetwork(Network):
    """embed -> trunk that sees the past alone -> readout."""

    def decode(self, view: StreamView, watch: Watch | None = None, cache: Any = None) -> Tensor:
        """Every token (B, N, D) informed by those before it; with a cache, the view holds only the new ones."""
        more = {} if cache is None else {"cache": cache}
        return self.run(self.embed(view), view, watch, **more)
