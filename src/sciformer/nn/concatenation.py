"""Concatenation of several token streams into one sequence per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .ragged import Ragged
from .transformer import Valid


class Concatenation:
    """Layout of several token streams as one sequence per sample.

    valid    mask (B, N) or packed layout of the sequence; None if all tokens are real
    widths   number of tokens of each stream: N_s if padded, T_s if packed
    places   index (T_s,) in the sequence of each token of a packed stream; empty for padded streams

    All streams are padded, or all are packed. Padded streams stay at fixed places, so padding may lie between real
    tokens. Packed streams lie end to end in every sample.
    """

    def __init__(self, tokens: Sequence[Tensor], valids: Sequence[Valid]) -> None:
        """Compute the layout of several streams.

        tokens  (B, N_s, D) or packed (T_s, D) tokens of each stream
        valids  mask (B, N_s) or packed layout of each stream; None if all tokens are real
        """
        packed = [valid for valid in valids if isinstance(valid, Ragged)]
        assert len(packed) in (0, len(valids)), "streams must be all padded or all packed"
        self.valid: Valid = None
        self.places: list[Tensor] = []
        self.widths = [x.shape[0] if packed else x.shape[1] for x in tokens]
        if packed:
            self._pack(packed)
        elif any(valid is not None for valid in valids):
            masks = [x.new_ones(x.shape[:2], dtype=torch.bool) if v is None else v for x, v in zip(tokens, valids)]
            self.valid = torch.cat([mask for mask in masks if isinstance(mask, Tensor)], 1)

    def _pack(self, layouts: Sequence[Ragged]) -> None:
        lengths = torch.stack([layout.lengths for layout in layouts])  # (S, B)
        whole = Ragged(lengths.sum(0), sum(self.widths), sum(layout.longest for layout in layouts))
        first = whole.ends - whole.lengths + lengths.cumsum(0) - lengths
        tail = lengths.sum()  # tokens that belong to no sample come last
        for layout, start in zip(layouts, first):
            self.places.append(torch.cat([start, tail[None]])[layout.sample] + layout.position)
            tail = tail + layout.total - layout.lengths.sum()
        self.valid = whole

    def join(self, tokens: Sequence[Tensor]) -> Tensor:
        """Concatenate the streams into (B, N, D) or packed (T, D)."""
        if not self.places:
            return torch.cat(list(tokens), 1)
        x = torch.cat(list(tokens))
        return torch.zeros_like(x).index_copy(0, torch.cat(self.places), x)

    def start(self, stream: int) -> int:
        """Index of the first token of a padded stream."""
        return sum(self.widths[:stream])

    def part(self, x: Tensor, stream: int) -> Tensor:
        """Tokens (B, N_s, D) or packed (T_s, D) of a stream, cut from the sequence x."""
        if self.places:
            return x.index_select(0, self.places[stream])
        return x[:, self.start(stream) : self.start(stream) + self.widths[stream]]
