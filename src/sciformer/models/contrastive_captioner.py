"""Contrastive captioner (CoCa): an encoder, and a text decoder in two halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import AttentionPool, Ragged, Watch
from ..nn.positions import Position
from ..nn.transformer import TransformerOptions
from ..nn.watch import inner_watch
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable
from .base import Entrance, Model
from .encoder import Encoded
from .encoder_decoder import SOURCE, TARGET, check_source_and_target


class ContrastiveCaptioner(Model):
    """`kind: contrastive_captioner`: contrast and caption (CoCa, arXiv 2205.01917).

    The source is often an image, and the target is its caption.
    """

    multimodal_depth: int | None = Field(default=None, ge=1, le=1000)
    """Number of decoder blocks with attention to the source (default: the number of decoder blocks without this
    attention)."""
    caption_queries: int = Field(default=256, ge=1, le=1 << 16)
    """Number of queries of the attention pooling of the source for the caption (default: 256)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        check_source_and_target(tokens, self)
        if objective.asks != "caption":
            message = f"`model.kind: {self.kind}` needs `objective.kind: contrast_and_caption`, not `{objective.kind}`"
            raise UserError(message, key="objective.kind")
        for name in (SOURCE, TARGET):
            if not isinstance(own := self.for_stream(name), TransformerOptions):
                message = f"`model.kind: {self.kind}` needs transformers, not `{own.trunk}` for the stream {name}"
                raise UserError(message, key="model.trunk")
        return ContrastiveCaptionerNetwork(self, tokens, objective)


class ClassTokenAtEnd(nn.Module):
    """Class token at the end of each sequence, where a causal trunk sees all tokens."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(dim).normal_(std=0.02))

    def append(self, x: Tensor, valid: Tensor | None, at: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Append the class token, at coordinate 0, to padded tokens, mask and coordinates."""
        token = self.token.to(x.dtype).expand(x.shape[0], 1, -1)
        if at is None:
            at = torch.arange(x.shape[1], device=x.device)
        axis = 1 if at.dim() == 3 or (at.dim() == 2 and at.shape == x.shape[:2]) else 0
        shape = [1 if i == axis else size for i, size in enumerate(at.shape)]
        valid = None if valid is None else nn.functional.pad(valid, (0, 1), value=True)
        return torch.cat([x, token], 1), valid, torch.cat([at, at.new_zeros(shape)], axis)

    def forward(self, x: Tensor, valid: Any = None, *, watch: Watch | None = None) -> Tensor:
        """Class token (B, D) from the output of the trunk."""
        return x[:, -1]


class CaptionerCache(NamedTuple):
    """Keys and values of both halves of the decoder."""

    unimodal: Any
    multimodal: Any

    def reorder(self, index: Tensor) -> None:
        """Select samples by their indices, for beam search."""
        self.unimodal.reorder(index)
        self.multimodal.reorder(index)


class ContrastiveCaptionerNetwork(nn.Module):
    """Network of CoCa.

    source -> embed -> encoder -> attention pooling with one query -> contrast
                               -> attention pooling with n queries -> memory
    target -> embed -> causal trunk -> class token -> contrast
                                    -> causal trunk with attention to the memory -> readout
    """

    separate = True
    """Whether each stream is encoded without the other."""

    def __init__(self, section: ContrastiveCaptioner, tokens: Mapping[str, Tokens], objective: Any) -> None:
        super().__init__()
        source, target = tokens[SOURCE], tokens[TARGET]
        reads: Any = section.for_stream(SOURCE)
        writes: Any = section.for_stream(TARGET)
        into = Entrance(target, writes, hides=False, pairs=False)
        self.entrance = nn.ModuleDict({SOURCE: Entrance(source, reads, hides=False), TARGET: into})
        self.trunk = nn.ModuleDict({SOURCE: reads.make_trunk(source), TARGET: writes.make_trunk(target, causal=True)})
        width: int = self.trunk[SOURCE].dim  # type: ignore[assignment]
        self.dim: int = writes.dim
        deep = writes.model_copy(update={"depth": section.multimodal_depth or writes.depth})
        self.decoder = deep.build_trunk(deep.token_form(target), causal=True, memory_dim=width)
        if not self.decoder.position.inside:
            self.decoder.position = Position()  # the tokens have their positions from the first half
        self.pooling = nn.ModuleDict(
            {SOURCE: AttentionPool(width, reads.heads, norm=reads.norm), TARGET: ClassTokenAtEnd(self.dim)}
        )
        self.memory_pool = AttentionPool(width, reads.heads, section.caption_queries, reads.norm)
        dims = {SOURCE: width, TARGET: self.dim}
        self.heads = nn.ModuleDict(objective.stream_heads(dims, tokens))
        who = f"`objective.kind: {objective.kind}`"
        self.readout = Maskable.require(target, who).readout(self.dim, into.embedding)

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Encode the source, or the target with a class token after its tokens."""
        return self._read(view, watch)[0] if view.name == TARGET else self._encode_source(view, watch)

    def _encode_source(self, view: StreamView, watch: Watch | None) -> Encoded:
        entrance: Any = self.entrance[SOURCE]
        more = {} if (bias := entrance.pair_bias(view)) is None else {"bias": bias}
        at = view.columns.get("at")
        x = self.trunk[SOURCE](entrance(view), view.valid, at=at, watch=inner_watch(watch, SOURCE), **more)
        return Encoded(x, view.valid, stream=SOURCE)

    def _read(self, view: StreamView, watch: Watch | None) -> tuple[Encoded, Tensor]:
        """First half of the decoder.

        Returns its output with the class token, and its output (B, N, D) without the class token.
        """
        valid, at, x = view.valid, view.columns.get("at"), self.entrance[TARGET](view)
        if isinstance(valid, Ragged):
            x, at, valid = valid.pad(x), None if at is None else valid.pad(at), valid.valid
        x, wide, at = self.pooling[TARGET].append(x, valid, at)  # type: ignore[operator]
        record = None if watch is None else Watch(attention=watch.wants_attention, hidden=watch.wants_hidden)
        y = self.trunk[TARGET](x, wide, at=at, watch=record)
        if watch is not None and record is not None:
            self._copy(record, watch)
        return Encoded(y, wide, stream=TARGET), y[:, :-1]

    @staticmethod
    def _copy(record: Watch, watch: Watch) -> None:
        """Copy the recorded attention and states to `watch`, without the class token.

        No other token attends to the class token.
        """
        inner = inner_watch(watch, TARGET)
        assert inner is not None
        for name, weights in record.attention.items():
            inner.saw_attention(weights[..., :-1, :-1], record.kernels[name], name)
        for name, x in record.hidden.items():
            inner.saw_hidden(x[:, :-1], name)

    def tokens(self, encoded: Encoded) -> Tensor:
        """Tokens (B, N, D) or (T, D) of the stream, without the class token."""
        return encoded.x[:, :-1] if encoded.stream == TARGET else encoded.x

    def pool(self, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Pooled vector (B, D) of each sample, for the contrast."""
        pooled: Tensor = self.pooling[encoded.stream](encoded.x, encoded.valid, watch=inner_watch(watch, "pool"))
        return pooled

    def caption(
        self, source: StreamView, target: StreamView, watch: Watch | None = None
    ) -> tuple[Encoded, Encoded, Tensor]:
        """Encoded source and target, and captioning states (B, N, D) of the target."""
        memory = self._encode_source(source, watch)
        read, x = self._read(target, watch)
        valid = target.valid.valid if isinstance(target.valid, Ragged) else target.valid
        return memory, read, self._write(x, valid, memory, watch, {})

    def _write(
        self, x: Tensor, valid: Tensor | None, memory: Encoded | None, watch: Watch | None, more: dict[str, Any]
    ) -> Tensor:
        """Second half of the decoder."""
        record = Watch(hidden=False)
        if memory is not None:
            pooled = self.memory_pool(memory.x, memory.valid, watch=None if watch is None else record)
            more = {**more, "memory": pooled if pooled.dim() == 3 else pooled[:, None]}
        hidden: Tensor = self.decoder(x, valid, watch=inner_watch(watch, "decoder"), **more)
        if watch is not None and record.attention:
            # Attention to the queries of the pooling becomes attention to the source, through their own attention.
            (pooling,) = record.attention.values()
            for name in [name for name in watch.attention if name.startswith("decoder") and name.endswith("cross")]:
                watch.attention[name] = watch.attention[name] @ pooling.mean(1, keepdim=True)
        return hidden

    def decode(self, view: StreamView, memory: Encoded | None, watch: Watch | None = None, cache: Any = None) -> Tensor:
        """Hidden states (B, N, D) of the target, from its earlier tokens and the source.

        With a cache, the view has only the new tokens, and the memory is needed only at the first step.
        """
        valid, at, x = view.valid, view.columns.get("at"), self.entrance[TARGET](view)
        if isinstance(valid, Ragged):
            x, at, valid = valid.pad(x), None if at is None else valid.pad(at), valid.valid
        halves = ({}, {}) if cache is None else ({"cache": cache.unimodal}, {"cache": cache.multimodal})
        place = {} if at is None else {"at": at}
        x = self.trunk[TARGET](x, valid, watch=inner_watch(watch, TARGET), **place, **halves[0])
        return self._write(x, valid, memory, watch, {**place, **halves[1]})

    def translate(self, source: StreamView, target: StreamView, watch: Watch | None = None) -> Tensor:
        """Encode the source and decode a known target (teacher forcing)."""
        return self.decode(target, self._encode_source(source, watch), watch)

    def cache(self) -> CaptionerCache:
        """Empty cache of both halves of the decoder."""
        return CaptionerCache(self.trunk[TARGET].cache(), self.decoder.cache())  # type: ignore[operator]
