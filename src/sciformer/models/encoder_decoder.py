"""Encoder and decoder: a source is read whole, a target is written token by token while looking back at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import LastPool, RecurrentDecoder, Watch
from ..nn.watch import look
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, Textual, Windowed
from .base import Entrance, Model
from .encoder import Encoded
from .trunks import RECURRENT_TRUNKS

SOURCE, TARGET = "source", "target"  # the names of the two streams


class EncoderDecoder(Model):
    """The Transformer of 2017, and the recurrent encoder-decoders before it: source in, target out."""

    score: Literal["none", "content", "additive", "location", "general", "dot", "scaled_dot"] = "additive"
    """How a recurrent decoder aligns itself with the source; none: it starts from the source's last state alone."""
    share: bool = False
    """One embedding for source and target, which then need one vocabulary (tokens.*.learn)."""
    bidirectional: bool = True
    """Whether a recurrent encoder reads both ways."""
    longest: int = Field(default=512, ge=1)
    """Longest source, for the score `location`."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """The network."""
        if set(tokens) != {SOURCE, TARGET}:
            raise UserError(
                f"`model.kind: {self.kind}` needs streams of tokens named {SOURCE} and {TARGET}, "
                f"not {', '.join(tokens)}",
                key="tokens",
            )
        if objective.asks != "translate":
            raise UserError(
                f"`model.kind: {self.kind}` needs an objective with a target, for example translate, "
                f"not `objective.kind: {objective.kind}`",
                key="objective.kind",
            )
        if self.trunk == "convolution":
            raise UserError(
                f"`model.kind: {self.kind}` needs a transformer or a recurrent trunk, not `model.trunk: convolution`",
                key="model.trunk",
            )
        if self.trunk in RECURRENT_TRUNKS:
            self._check_recurrent(tokens[SOURCE])
        return EncoderDecoderNetwork(self, tokens, objective)

    def _check_recurrent(self, source: Tokens) -> None:
        """Refuse sizes that would fail in the middle of a training."""
        if not self.depth:
            raise UserError(f"model.depth must be 1 or more for `model.trunk: {self.trunk}`, not 0", key="model.depth")
        places = source.window if isinstance(source, Windowed) and isinstance(source.window, int) else 0
        if self.score == "location" and places > self.longest:
            raise UserError(
                f"model.longest is {self.longest}, but `model.score: location` needs {places} or more, "
                "the context of the source",
                key="model.longest",
            )

    def unused(self) -> list[str]:
        """Keys that were set but do nothing with this trunk."""
        of_rivals = [
            key for key in ("score", "longest") if self.trunk == "transformer" and key in self.model_fields_set
        ]
        return super().unused() + of_rivals

    def make_decoder(self, tokens: Tokens, memory_dim: int) -> nn.Module:
        """The stack that writes."""
        if self.trunk not in RECURRENT_TRUNKS:
            return self.make_trunk(tokens, causal=True, cross=True)
        score = None if self.score == "none" else self.score
        return RecurrentDecoder(
            self.dim,
            self.depth,
            self.trunk,
            score=score,
            memory_dim=memory_dim,
            length=self.longest,
            dropout=self.dropout,
            forget_bias=self.forget_bias,
        )


class EncoderDecoderNetwork(nn.Module):
    """source -> embed -> encoder;  target -> embed -> decoder that sees its past and the encoded source -> readout."""

    def __init__(self, section: EncoderDecoder, tokens: Mapping[str, Tokens], objective: Any) -> None:
        super().__init__()
        source, target = tokens[SOURCE], tokens[TARGET]
        self.source = Entrance(source, section.dim, section.heads, section.entering, pairs=False, hides=False)
        self.target = Entrance(target, section.dim, section.heads, section.entering, pairs=False, hides=False)
        if section.share:
            if not isinstance(source, Textual) or not source.same_vocabulary(target):
                raise UserError(
                    "`model.share` needs the same vocabulary for source and target, but they have two",
                    hint="Let both learn from the same columns: tokens.source.learn and tokens.target.learn.",
                    key="model.share",
                )
            self.target.embedding = self.source.embedding
        self.encoder = section.make_trunk(source, causal=False, bidirectional=section.bidirectional)
        self.decoder = section.make_decoder(target, self.encoder.dim)  # type: ignore[arg-type]
        both_ways = section.bidirectional and section.trunk in RECURRENT_TRUNKS
        self.last = LastPool(both_ways) if isinstance(self.decoder, RecurrentDecoder) else None
        self.dim = section.dim
        self.heads = nn.ModuleDict(objective.heads(self.dim, target))
        written = Maskable.require(target, f"`objective.kind: {objective.kind}`")
        self.readout = written.readout(self.dim, self.target.embedding)

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """The source, every token informed by all others."""
        at = view.columns.get("at")
        return Encoded(self.encoder(self.source(view), view.valid, at=at, watch=look(watch, "encoder")), view.valid)

    def decode(self, view: StreamView, memory: Encoded | None, watch: Watch | None = None, cache: Any = None) -> Tensor:
        """The target (B, N, D), every token informed by those before it and by the source.

        With a cache the view holds only the new tokens, and the memory is needed at the first step alone.
        """
        more: dict[str, Any] = {} if cache is None else {"cache": cache}
        if memory is not None:
            more |= {"memory": memory.x, "memory_valid": memory.valid}
            if self.last is not None:
                more["start"] = self.last(memory.x, memory.valid)
        if self.last is None and (at := view.columns.get("at")) is not None:
            more["at"] = at
        return self.decoder(self.target(view), view.valid, watch=look(watch, "decoder"), **more)

    def translate(self, source: StreamView, target: StreamView, watch: Watch | None = None) -> Tensor:
        """Both at once, where the target is known: teacher forcing."""
        return self.decode(target, self.encode(source, watch), watch)

    def cache(self) -> Any:
        """Nothing written yet."""
        return self.decoder.cache()  # type: ignore[operator]
