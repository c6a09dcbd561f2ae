"""Encoder-decoder model: the decoder of the target attends to the encoded source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import LastPool, RecurrentDecoder, Watch
from ..nn.trunks.recurrent import RecurrentOptions
from ..nn.trunks.recurrent_decoder import RecurrentDecoderOptions
from ..nn.watch import inner_watch
from ..recipe.registry import Options
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, Textual, Windowed
from .base import Entrance, Model
from .encoder import Encoded

SOURCE, TARGET = "source", "target"  # the names of the two streams


def check_source_and_target(tokens: Mapping[str, Tokens], section: Model) -> None:
    """Refuse streams other than source and target."""
    if set(tokens) != {SOURCE, TARGET}:
        found = f"the streams {', '.join(tokens)}" if len(tokens) > 1 else "only one stream"
        raise UserError(
            f"`model.kind: {section.kind}` needs two token streams, {SOURCE} and {TARGET}, but the recipe has {found}",
            hint=f"Write the keys of the two streams in tokens.{SOURCE} and tokens.{TARGET}.",
            key="tokens",
        )


class EncoderDecoder(Model):
    """`kind: encoder_decoder`: transformer or recurrent network for translation."""

    share: bool = False
    """Share one embedding between source and target (default: false). Source and target need the same vocabulary, see
    tokens.*.learn."""

    @classmethod
    def options_beside(cls, chosen: type[Options]) -> tuple[type[Options], ...]:
        """Options of the recurrent decoder if the trunk is recurrent; else none."""
        return (RecurrentDecoderOptions,) if issubclass(chosen, RecurrentOptions) else ()

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        check_source_and_target(tokens, self)
        if objective.asks != "translate":
            raise UserError(
                f"`model.kind: {self.kind}` needs an objective with a target, for example translate, "
                f"not `objective.kind: {objective.kind}`",
                key="objective.kind",
            )
        return EncoderDecoderNetwork(self, tokens, objective)


class EncoderDecoderNetwork(nn.Module):
    """Network: source -> embed -> encoder;  target -> embed -> decoder -> readout."""

    encodes = SOURCE
    """Name of the stream that is encoded."""

    def __init__(self, section: EncoderDecoder, tokens: Mapping[str, Tokens], objective: Any) -> None:
        super().__init__()
        source, target = tokens[SOURCE], tokens[TARGET]
        reads, writes = section.for_stream(SOURCE), section.for_stream(TARGET)
        self.source = Entrance(source, reads, hides=False, pairs=False)
        self.target = Entrance(target, writes, hides=False, pairs=False)
        if section.share:
            if not isinstance(source, Textual) or not source.same_vocabulary(target):
                raise UserError(
                    "`model.share` needs one vocabulary for source and target, but their vocabularies differ",
                    hint="Set tokens.source.learn and tokens.target.learn to the same columns.",
                    key="model.share",
                )
            self.target.embedding = self.source.embedding
        self.encoder = reads.make_trunk(source)
        if not writes.can_be_causal:
            message = f"`model.kind: {section.kind}` needs a transformer or a recurrent trunk, not {writes.trunk}"
            raise UserError(message, key="model.trunk")
        places = source.window if isinstance(source, Windowed) and isinstance(source.window, int) else None
        self.decoder = writes.build_decoder(writes.token_form(target), self.encoder.dim, places)  # type: ignore[arg-type]
        self.recurrent = isinstance(self.decoder, RecurrentDecoder)
        # A recurrent decoder begins with the last state of a recurrent encoder, or with the mean of other encoders.
        self.last = LastPool(reads.reads_both_ways) if self.recurrent and reads.recurrent else None
        self.dim = writes.dim
        self.heads = nn.ModuleDict(objective.heads(self.dim, target))
        written = Maskable.require(target, f"`objective.kind: {objective.kind}`")
        self.readout = written.readout(self.dim, self.target.embedding)

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Encode the source."""
        more: dict[str, Any] = {
            name: view.columns[name] for name in getattr(self.encoder, "columns", ()) if name in view.columns
        }
        more |= {"at": view.columns.get("at"), "watch": inner_watch(watch, "encoder")}
        return Encoded(self.encoder(self.source(view), view.valid, **more), view.valid)

    def decode(self, view: StreamView, memory: Encoded | None, watch: Watch | None = None, cache: Any = None) -> Tensor:
        """Hidden states (B, N, D) of the target, from its earlier tokens and the source.

        With a cache, the view has only the new tokens, and the memory is needed only at the first step.
        """
        more: dict[str, Any] = {} if cache is None else {"cache": cache}
        if memory is not None:
            more |= {"memory": memory.x, "memory_valid": memory.valid}
            if self.last is not None:
                more["start"] = self.last(memory.x, memory.valid)
        if not self.recurrent and (at := view.columns.get("at")) is not None:
            more["at"] = at
        return self.decoder(self.target(view), view.valid, watch=inner_watch(watch, "decoder"), **more)

    def translate(self, source: StreamView, target: StreamView, watch: Watch | None = None) -> Tensor:
        """Encode the source and decode a known target (teacher forcing)."""
        return self.decode(target, self.encode(source, watch), watch)

    def cache(self) -> Any:
        return self.decoder.cache()  # type: ignore[operator]
