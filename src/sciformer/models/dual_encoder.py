"""Dual encoder: an encoder and a pooling for each of two streams, to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from ..data.batch import StreamView, stream_name
from ..errors import UserError
from ..nn import Watch
from ..nn.options import PoolingOptions
from ..nn.watch import inner_watch
from ..tokens.base import Tokens
from .base import StreamOptions
from .encoder import Encoded, Encoder, EncoderNetwork


class EncoderStreamOptions(StreamOptions, PoolingOptions):
    """Model keys of the encoder of a single stream, for example `model.image.pool`."""

    choices: ClassVar[Mapping[str, str]] = Encoder.choices

    pool: str = "auto"
    """Pooling of tokens to one vector (default: the value of model.pool)."""


class DualEncoder(Encoder):
    """`kind: dual_encoder`: encoders of two streams (CLIP, arXiv 2103.00020)."""

    stream_options: ClassVar[type[StreamOptions]] = EncoderStreamOptions

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        if len(tokens) != 2:
            found = f"the recipe has {len(tokens)}: {', '.join(tokens)}"
            raise UserError(
                f"`model.kind: {self.kind}` needs two streams of tokens, but {found}",
                hint="Write two sections in tokens; for two views of one stream use model.kind: encoder.",
                key="tokens",
            )
        return DualEncoderNetwork(self, tokens, objective)


class DualEncoderNetwork(nn.Module):
    """Network: for each stream embed -> trunk -> pool -> projection."""

    separate = True
    """Whether each stream is encoded without the others."""

    def __init__(self, section: DualEncoder, tokens: Mapping[str, Tokens], objective: Any) -> None:
        super().__init__()
        encoders = {}
        for name, one in tokens.items():
            own = section.for_stream(name)
            encoders[name] = encoder = EncoderNetwork(own, *own.make_parts({name: one}, objective))
            encoder.heads = nn.ModuleDict()  # the heads of both streams are made together
        self.encoders = nn.ModuleDict(encoders)
        self.dim: int = section.dim
        dims = {name: encoder.dim for name, encoder in encoders.items()}
        self.heads = nn.ModuleDict(objective.stream_heads(dims, tokens))

    def _parts(self, name: str) -> nn.ModuleDict:
        return nn.ModuleDict({stream: getattr(one, name) for stream, one in self.encoders.items()})

    @property
    def entrance(self) -> nn.ModuleDict:
        """Embedding of each stream."""
        return self._parts("entrance")

    @property
    def trunk(self) -> nn.ModuleDict:
        """Trunk of each stream."""
        return self._parts("trunk")

    @property
    def pooling(self) -> nn.ModuleDict:
        """Pooling of each stream."""
        return self._parts("pooling")

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Encode one stream; the other stream is not read."""
        name = stream_name(self.encoders, view.name)
        encoded: Encoded = self.encoders[name].encode(view, inner_watch(watch, name))  # type: ignore[operator]
        return encoded._replace(stream=name)

    def tokens(self, encoded: Encoded) -> Tensor:
        """Tokens (B, N, D) or (T, D) of the stream, without the class token."""
        found: Tensor = self.encoders[encoded.stream].tokens(encoded)  # type: ignore[operator]
        return found

    def pool(self, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Pooled vector (B, D) of each sample."""
        pooled: Tensor = self.encoders[encoded.stream].pool(encoded, watch)  # type: ignore[operator]
        return pooled
