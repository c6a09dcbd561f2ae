"""Multistream model: one trunk over the tokens of several streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError, one_of
from ..nn import ClassToken, Ragged, Watch
from ..nn.concatenation import Concatenation
from ..nn.options import HeadForm, TokenForm
from ..nn.positions import Position, add_positions
from ..nn.transformer import TransformerOptions
from ..recipe.registry import find
from ..tokens.base import Tokens
from ..tokens.protocols import Pairwise
from .encoder import Encoded, Encoder, EncoderNetwork
from .network import Entrance, make_readout

OWN_KEYS = ("position", "embedding_dropout")  # keys that a stream may override, besides those of its position


class Multistream(Encoder):
    """`kind: multistream`: one transformer over the tokens of several streams.

        x = [e_1 + p_1 + c_1; ...; e_S + p_S + c_S]

    e_s embedded tokens of stream s, p_s encoding of their own coordinates, c_s learned code of the stream. Streams are
    concatenated in the order of the recipe. Each stream has its own positional encoding, which is added to its tokens:
    coordinates of different streams (a row and a column, a time, none) are never compared. An encoding that acts inside
    attention (rotary, relative) would compare them, and is refused.

    Any stream may have no tokens in a sample. A sample without any token gets a learned vector.
    """

    joins_streams: ClassVar[bool] = True

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        self._check(tokens)
        positions = {name: self._make_position(name, one) for name, one in tokens.items()}
        form = TokenForm(", ".join(one.kind for one in tokens.values()), self.dim, leading=self.leading)
        trunk = self._without_position().build_trunk(form)
        return MultistreamNetwork(self, tokens, objective, positions, trunk, self.make_pool(trunk, objective))

    def _check(self, tokens: Mapping[str, Tokens]) -> None:
        who = f"`model.kind: {self.kind}`"
        if len(tokens) < 2:
            hint = "Use model.kind: encoder for one stream, or name the streams: tokens.NAME."
            raise UserError(f"{who} needs several streams of tokens, but the recipe has one", hint=hint, key="tokens")
        if not isinstance(self, TransformerOptions):
            raise UserError(f"{who} needs `model.trunk: transformer`, not {self.trunk}", key="model.trunk")
        if self.window is not None:
            message = f"{who} cannot use model.window: the order of tokens of different streams has no meaning"
            raise UserError(message, key="model.window")
        for name in self.streams:
            one_of("a stream with its own keys in the model", name, tokens, key=f"model.{name}")
            own = self.for_stream(name)
            known = {*OWN_KEYS, *find("position", own.position).model_fields}
            if strange := sorted(set(getattr(self, name).given()) - known):
                message = f"model.{name}.{strange[0]} cannot differ between streams, because they share one trunk"
                hint = f"Set model.{strange[0]}. A stream may have its own {', '.join(OWN_KEYS)}."
                raise UserError(message, hint=hint, key=f"model.{name}.{strange[0]}")
        for name, one in tokens.items():
            if isinstance(one, Pairwise) and one.pairs(self.heads) is not None:
                why = "pairs with tokens of other streams have no features"
                message = f"{who} cannot use the pair features of `tokens.{name}`: {why}"
                raise UserError(message, hint="Switch the pair features off.", key=f"tokens.{name}")

    def _make_position(self, name: str, tokens: Tokens) -> Position | None:
        own: Any = self.for_stream(name)
        heads = HeadForm(own.heads, own.kv_heads, own.head_dim or own.dim // own.heads)
        made: Position | None = own.build_position(own.token_form(tokens), self.dim, heads)
        if made is not None and made.inside:
            message = f"`model.position: {own.position}` compares coordinates of all tokens inside attention, but "
            raise UserError(
                message + f"the coordinates of the {len(self.streams) or 'several'} streams have different meanings",
                hint="Use a positional encoding that is added to the tokens: learned, sinusoidal or fourier.",
                key=f"model.{name}.position" if name in self.streams else "model.position",
            )
        return made

    def _without_position(self) -> Any:
        """Section of the shared trunk: no positional encoding, no keys of single streams."""
        plain: type[Any] = type(self).plain or type(self)
        given = {key: getattr(self, key) for key in self.model_fields_set if key not in self.streams}
        given["position"] = "none"
        known = plain.with_choices(given).model_fields
        return plain(**{key: value for key, value in given.items() if key in known})


class StreamEntrance(Entrance):
    """Embedding of one stream, with its positional encoding and its learned code."""

    def __init__(self, tokens: Tokens, section: Any, hides: bool, position: Position | None) -> None:
        super().__init__(tokens, section, hides, pairs=False)
        self.position = Position() if position is None else position
        self.code = nn.Parameter(torch.empty(tokens.width(section.dim)).normal_(std=tokens.initial_std))

    def forward(self, view: StreamView) -> Tensor:
        """Embed tokens (B, N, D) or packed (T, D); add position and code of the stream."""
        x = super().forward(view)
        return add_positions(self.position, x, view.valid, view.columns.get("at")) + self.code.to(x.dtype)


class Joint(NamedTuple):
    """Layout of the streams in one sequence, and the name of the selected stream."""

    layout: Concatenation
    stream: str


class MultistreamNetwork(EncoderNetwork):
    """Network: embed each stream -> concatenate -> trunk -> pool -> heads, or readout."""

    def __init__(
        self,
        section: Multistream,
        tokens: Mapping[str, Tokens],
        objective: Any,
        positions: Mapping[str, Position | None],
        trunk: nn.Module,
        pool: nn.Module,
    ) -> None:
        asked, who = objective.asked_stream(tokens), f"`objective.kind: {objective.kind}`"
        super().__init__(section, tokens[asked], objective, trunk, pool)
        predicted = objective.predicted_streams(tokens)
        hides = {name: objective.hides and name in predicted for name in tokens}
        self.entrance = nn.ModuleDict(
            {
                name: StreamEntrance(one, section.for_stream(name), hides[name], positions[name])
                for name, one in tokens.items()
            }
        )
        if objective.reads_out:
            self.readout = nn.ModuleDict(
                {
                    name: make_readout(section, tokens[name], who, self.dim, self.entrance[name].embedding)
                    for name in predicted
                }
            )
        pooled = objective.unit == "samples" and not isinstance(pool, ClassToken)
        self.nothing = nn.Parameter(torch.empty(self.dim).normal_(std=0.02)) if pooled else None
        """Pooled vector of a sample without tokens; a class token needs none."""

    def pair_bias(self, view: StreamView) -> None:
        return None

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Embed all streams and run the trunk over their tokens."""
        if watch is not None and isinstance(view.valid, Ragged):  # maps of packed tokens have no fixed places
            self.encode(pad_streams(view), watch)
            watch = None
        streams = [view.streams[name] for name in self.entrance]
        parts = [entrance(one) for entrance, one in zip(self.entrance.values(), streams)]
        layout = Concatenation(parts, [one.valid for one in streams])
        inner = None if watch is None else Watch(watch.wants_attention, watch.wants_hidden)
        found = self.encode_embedded(layout.join(parts), StreamView({}, layout.valid), inner)
        if watch is not None and inner is not None:
            watch.hidden.update({f"{watch.prefix}{name}": state for name, state in inner.hidden.items()})
            for name, weights in inner.attention.items():
                self._show(weights, inner.kernels[name], name, layout, watch)
        return found._replace(joint=Joint(layout, view.name))

    def _show(self, weights: Tensor, kernel: str, name: str, layout: Concatenation, watch: Watch) -> None:
        """Store attention weights (B, H, N, N) as maps within and between streams.

        A class token is the first query of every map, and the first key of the maps within a stream.
        """
        first = weights.shape[2] - sum(layout.widths)
        front = slice(0, first)
        places = {
            key: slice(first + layout.start(i), first + layout.start(i + 1)) for i, key in enumerate(self.entrance)
        }
        for query, own in places.items():
            rows = torch.cat([weights[:, :, front], weights[:, :, own]], 2)
            for key, there in places.items():
                seen = rows[..., there]
                seen = torch.cat([rows[..., front], seen], 3) if key == query else seen
                whose = query if key == query else f"{query} to {key}"
                watch.at(whose).saw_attention(seen, kernel, name)

    def tokens(self, encoded: Encoded) -> Tensor:
        """Tokens of the selected stream, in its layout."""
        return self.stream_tokens(encoded, encoded.joint.stream)

    def stream_tokens(self, encoded: Encoded, stream: str) -> Tensor:
        """Tokens (B, N_s, D) or packed (T_s, D) of a stream."""
        return encoded.joint.layout.part(super().tokens(encoded), list(self.entrance).index(stream))

    def pool(self, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Pooled vector (B, D) of each sample; a learned vector if there are no tokens.

        A `watch` records the attention to each stream, if the tokens are padded.
        """
        valid, layout = encoded.valid, encoded.joint.layout
        inner = None if watch is None or layout.places else Watch(watch.wants_attention, watch.wants_hidden)
        pooled = super().pool(encoded, inner)
        if watch is not None and inner is not None:
            for name, weights in inner.attention.items():
                first = weights.shape[3] - sum(layout.widths)
                for i, stream in enumerate(self.entrance):
                    own = weights[..., first + layout.start(i) : first + layout.start(i + 1)]
                    watch.at(stream).saw_attention(own, inner.kernels[name], name)
        if self.nothing is None or (valid is None and encoded.x.shape[1]):
            return pooled
        if valid is None:
            return self.nothing.to(pooled.dtype).expand(len(pooled), -1)
        some = valid.lengths > 0 if isinstance(valid, Ragged) else valid.any(1)
        return torch.where(some[:, None], pooled, self.nothing.to(pooled.dtype))


def pad_streams(view: StreamView) -> StreamView:
    """Convert all streams of a view from packed to padded columns."""
    streams = {}
    for name, one in view.streams.items():
        columns = {key: one.pad(column) for key, column in one.columns.items()}
        streams[name] = StreamView(columns, one.valid.valid if isinstance(one.valid, Ragged) else one.valid)
    return StreamView(streams[view.name].columns, streams[view.name].valid, view.name, streams)
