"""Masked autoencoder (arXiv 2111.06377): encode visible tokens, decode all tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import ClassToken, Ragged, Watch
from ..nn.pooling import dropped, prepended
from ..nn.transformer import TransformerOptions
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, overrides
from .encoder import Encoded, Encoder, EncoderNetwork


class MaskedAutoencoder(Encoder):
    """`kind: masked_autoencoder`: encoder of visible tokens, decoder of all tokens.

    Hidden tokens do not enter the trunk. If three of four tokens are hidden, the trunk therefore costs a quarter. The
    decoder gets the encoded visible tokens and, for each hidden token, a learned vector with the position of the token.
    If nothing is hidden, the model is an encoder. Embedding and trunk have the same weight names as in `kind: encoder`,
    so they can initialize an encoder (`sciformer finetune --from`).
    """

    decoder_dim: int | None = Field(default=None, ge=1, le=1 << 16)
    """Width of the decoder (default: dim)."""
    decoder_depth: int = Field(default=8, ge=0, le=1000)
    """Number of blocks of the decoder (default: 8)."""
    decoder_heads: int | None = Field(default=None, ge=1)
    """Number of attention heads of the decoder (default: the value of heads)."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """Build the network, without a decoder if the objective hides no tokens."""
        if not isinstance(self, TransformerOptions):
            message = f"`model.kind: {self.kind}` needs `model.trunk: transformer`, not {self.trunk}"
            raise UserError(message, key="model.trunk")
        hides = objective.hides and objective.reads_out
        network = MaskedAutoencoderNetwork if hides else EncoderNetwork
        return network(self, *self.make_parts(tokens, objective))


class Seen(NamedTuple):
    """Visible tokens of a batch, for a masked autoencoder.

    view      the visible tokens
    whole     all tokens
    visible   (B, N) or (T,) mask over all tokens, True for a visible token
    rank      (B, N) or (T,) index of each token among the visible tokens
    """

    view: StreamView
    whole: StreamView
    visible: Tensor
    rank: Tensor


class MaskDecoder(nn.Module):
    """Decoder of a masked autoencoder.

    The input of the decoder is W x + b for an encoded visible token x, and a learned vector for a hidden token. All
    tokens get their positions. A class token is at position 0, and a learned vector is added to it.
    """

    def __init__(self, section: MaskedAutoencoder, tokens: Tokens, dim: int) -> None:
        super().__init__()
        wide = section.decoder_dim or section.dim
        heads = section.decoder_heads or section.heads  # type: ignore[attr-defined]
        form = {"dim": wide, "depth": section.decoder_depth, "heads": heads}
        small = section.model_copy(
            update={**form, "kv_heads": None, "head_dim": None, "drop_path": 0.0, "compress": None}
        )
        self.adapt = nn.Linear(dim, wide)
        nn.init.xavier_uniform_(self.adapt.weight)
        nn.init.zeros_(self.adapt.bias)
        self.hidden = nn.Parameter(torch.empty(wide).normal_(std=0.02))
        self.trace = tokens.visible_part(wide) if isinstance(tokens, Maskable) else None
        self.first = nn.Parameter(torch.zeros(wide)) if section.pool == "class_token" else None
        self.trunk = small.make_trunk(tokens)

    def forward(self, x: Tensor, first: Tensor | None, seen: Seen) -> Tensor:
        """Decode all tokens as (B, N, C) or (T, C), where C is the width of the decoder.

        x      encoded visible tokens
        first  class token, or None
        seen   positions of the visible and hidden tokens
        """
        valid, at = seen.whole.valid, seen.whole.columns["at"]
        y = self.adapt(x)
        if not y.numel():
            y = y.new_zeros(*y.shape[:-2], 1, y.shape[-1])
        if isinstance(valid, Ragged):
            y = y.index_select(0, seen.rank)
        else:
            y = y.gather(1, seen.rank[..., None].expand(-1, -1, y.shape[-1]))
        hidden = self.hidden if self.trace is None else self.hidden + self.trace(seen.whole.columns)
        y = torch.where(seen.visible[..., None], y, hidden.to(y.dtype))
        if self.first is None or first is None:
            return self.trunk(y, valid, at=at)
        y, longer, place = prepended(self.adapt(first) + self.first, y, valid, at)
        return dropped(self.trunk(y, longer, at=place), longer)


class MaskedAutoencoderNetwork(EncoderNetwork):
    """Network: embed -> trunk (visible tokens) -> decoder (all tokens) -> readout."""

    def __init__(
        self, section: MaskedAutoencoder, tokens: Tokens, objective: Any, trunk: nn.Module, pool: nn.Module
    ) -> None:
        wide = section.decoder_dim or section.dim
        super().__init__(section, tokens, objective, trunk, pool, read_dim=wide)
        tied = {id(weight) for weight in self.entrance.embedding.parameters()}
        if wide != self.dim and any(id(weight) in tied for weight in self.readout.parameters()):
            raise UserError(
                f"model.decoder_dim is {wide}, but must be {self.dim}, because the readout shares the weights of the "
                "embedding",
                key="model.decoder_dim",
            )
        self.mask_decoder = MaskDecoder(section, tokens, self.dim)
        always = not overrides(tokens, Maskable.maskable)
        mixed = any(getattr(objective, key, None) for key in ("random", "coarse", "same", "whole_words", "mask"))
        ratio = getattr(objective, "mask_ratio", None)
        self.mask_ratio: float | None = ratio if always and not mixed and isinstance(ratio, float) else None
        """Share of hidden tokens if this share is the same for every sample, else None."""

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Run the embedding and the trunk over the visible tokens only."""
        if "hidden" not in view.columns:
            return super().encode(view, watch)
        seen = self.select_visible(view)
        inner = None if watch is None else Watch(watch.wants_attention, watch.wants_hidden)
        found = super().encode(seen.view, inner)
        if watch is not None and inner is not None:
            self._show(inner, watch, seen)
        return found._replace(seen=seen)

    def tokens(self, encoded: Encoded) -> Tensor:
        """Decoder output for all tokens; without hidden tokens, the encoder output."""
        if encoded.seen is None:
            return super().tokens(encoded)
        first = self.pooling(encoded.x, encoded.valid) if isinstance(self.pooling, ClassToken) else None
        return self.mask_decoder(super().tokens(encoded), first, encoded.seen)

    def select_visible(self, view: StreamView) -> Seen:
        """Select the visible tokens, with their original coordinates."""
        columns = {name: column for name, column in view.columns.items() if not name.startswith("target ")}
        hidden, valid = columns.pop("hidden").bool(), view.valid
        columns.pop("asked", None)
        if "at" not in columns:
            place = valid.position if isinstance(valid, Ragged) else torch.arange(hidden.shape[1], device=hidden.device)
            columns["at"] = place.expand(hidden.shape)
        elif columns["at"].shape[: hidden.dim()] != hidden.shape:  # the same coordinates for all samples
            columns["at"] = columns["at"].expand(len(hidden), -1, -1)
        whole = StreamView({**view.columns, "at": columns["at"]}, valid)
        if isinstance(valid, Ragged):
            return self._select_packed(columns, ~hidden & valid.inside, valid, whole)
        visible = ~hidden if valid is None else ~hidden & valid
        count, n = visible.sum(1), hidden.shape[1]
        even = False
        if not torch.compiler.is_compiling():
            room = int(count.max()) if count.numel() else 0
            even = valid is None and bool((count == room).all())
        else:
            room = n if self.mask_ratio is None else n - max(1, round(self.mask_ratio * n))
            even = valid is None and self.mask_ratio is not None
        order = torch.argsort((~visible).to(torch.uint8), dim=1, stable=True)[:, :room]
        row = torch.arange(len(order), device=order.device)[:, None]
        kept = {name: column[row, order] for name, column in columns.items()}
        real = None if even else torch.arange(room, device=order.device) < count[:, None]
        rank = (visible.long().cumsum(1) - 1).clamp(min=0, max=max(0, room - 1))
        return Seen(StreamView(kept, real), whole, visible, rank)

    def _select_packed(self, columns: dict[str, Tensor], visible: Tensor, ragged: Ragged, whole: StreamView) -> Seen:
        total, count = ragged.total, len(ragged)
        if not torch.compiler.is_compiling():
            room = int(visible.sum())
        else:  # shapes must not depend on values: use an upper bound, rounded up in every sample
            room = (
                total if self.mask_ratio is None else min(total, math.ceil((1 - self.mask_ratio) * total + count / 2))
            )
        ends = torch.cat([visible.new_zeros(1, dtype=torch.long), visible.long().cumsum(0)])
        lengths = ends[ragged.ends] - ends[ragged.ends - ragged.lengths]
        slot = torch.where(visible, ends[1:] - 1, room)
        place = torch.arange(total, device=visible.device)
        order = place.new_zeros(room + 1).index_copy(0, slot, place)[:room]
        kept = {name: column.index_select(0, order) for name, column in columns.items()}
        short = Ragged(lengths, total=room, longest=ragged.longest, pairs=ragged.pairs)
        return Seen(StreamView(kept, short), whole, visible, (ends[1:] - 1).clamp(min=0, max=max(0, room - 1)))

    def _show(self, inner: Watch, watch: Watch, seen: Seen) -> None:
        """Store attention and states of the visible tokens in `watch`; 0 at hidden tokens."""
        front = int(isinstance(self.pooling, ClassToken))
        packed = isinstance(seen.whole.valid, Ragged)
        rank = nn.functional.pad(seen.rank + front, (front, 0))
        there = nn.functional.pad(seen.visible, (front, 0), value=True)
        row = None if packed else torch.arange(len(rank), device=rank.device)[:, None]
        for name, weights in inner.attention.items():
            if row is not None:
                wide = weights.permute(0, 2, 3, 1)[row[..., None], rank[:, :, None], rank[:, None]].permute(0, 3, 1, 2)
                weights = wide.masked_fill(~(there[:, None, :, None] & there[:, None, None]), 0)
            watch.saw_attention(weights, inner.kernels[name], name)
        for name, state in inner.hidden.items():
            watch.saw_hidden(state if row is None else state[row, rank].masked_fill(~there[..., None], 0), name)
