"""Packed layout of sequences of different lengths, and conversion to padding."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError


class Ragged:
    """Layout of B packed sequences of `lengths` (B,) in T tokens.

    sample    (T,) index of the sequence of each token
    position  (T,) position of the token in its sequence
    inside    (T,) True where the token belongs to a sequence

    T (`total`) may be larger than the sum of the lengths, because GPUs work best with fixed shapes. The tokens after
    the last sequence get the sample index B; they are masked and dropped.

    To avoid device syncs on a GPU, pass `total`, the `longest` length and, for models with pair biases, the number of
    `pairs` (i, j), j <= i. Upper bounds are enough. With `lay=False` only the lengths are stored, because the full
    layout will be made on another device.
    """

    def __init__(
        self,
        lengths: Tensor | list[int],
        total: int | None = None,
        longest: int | None = None,
        pairs: int | None = None,
        lay: bool = True,
    ) -> None:
        if not isinstance(lengths, Tensor):
            lengths = torch.as_tensor(lengths, dtype=None if len(lengths) else torch.long)
        if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
            found = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            raise UserError(f"lengths must be integers of shape (B,), one for each sequence, not {found}")
        at_hand = lengths.device.type == "cpu" and not torch.compiler.is_compiling()
        if at_hand and (lengths < 0).any():
            raise UserError(f"lengths must be 0 or more, not {int(lengths.min())}")
        self.lengths = lengths.long()
        self.ends = self.lengths.cumsum(0)
        if total is None:
            total = int(self.lengths.sum())
        elif at_hand and int(self.lengths.sum()) > total:
            raise UserError(f"lengths must sum to at most {total}, not {int(self.lengths.sum())}")
        self.total, self._longest, self._pairs = total, longest, pairs
        if not lay:
            return
        place = torch.arange(total, device=self.ends.device)
        self.sample = torch.searchsorted(self.ends, place, right=True)
        self.position = place - torch.cat([self.ends.new_zeros(1), self.ends])[self.sample]
        self.inside = self.sample < len(self)

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} sequences, {self.total} tokens)"

    @property
    def longest(self) -> int:
        """Length N of the padded layout: maximum length of a sequence, or an upper bound."""
        if self._longest is None:
            self._longest = int(self.lengths.max()) if len(self) else 0
        return self._longest

    @property
    def pairs(self) -> int:
        """Number of token pairs (i, j), j <= i, within the sequences."""
        if self._pairs is None:
            self._pairs = int((self.lengths * (self.lengths + 1) // 2).sum())
        return self._pairs

    @property
    def valid(self) -> Tensor:
        """Mask (B, N) of the real tokens in the padded layout."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def longer(self, count: int = 1) -> Ragged:
        """Layout of the same sequences, each with `count` more tokens."""
        longest = None if self._longest is None else self._longest + count
        return Ragged(self.lengths + count, self.total + count * len(self), longest)

    def pad(self, flat: Tensor) -> Tensor:
        """Convert packed tokens (T, ...) to padded tokens (B, N, ...), 0 at padding."""
        if flat.shape[0] != self.total:
            raise UserError(f"there are {flat.shape[0]} packed tokens, but the layout (Ragged) has {self.total}")
        if self.total == 0:
            return flat.new_zeros(len(self), self.longest, *flat.shape[1:])
        starts = self.ends - self.lengths
        index = starts[:, None] + torch.arange(self.longest, device=starts.device)
        return zero_padding(flat[index.clamp(max=self.total - 1)], self.valid)

    def flatten(self, dense: Tensor) -> Tensor:
        """Convert padded tokens (B, N, ...) to packed tokens (T, ...); inverse of `pad`."""
        index = torch.where(self.inside, self.sample * self.longest + self.position, 0)
        if dense.shape[0] * dense.shape[1] == 0:
            return dense.new_zeros(self.total, *dense.shape[2:])
        return zero_padding(dense.flatten(0, 1)[index], self.inside)

    def pad_heads(self, flat: Tensor) -> Tensor:
        """Convert packed heads (1, H, T, E) to padded heads (B, H, N, E)."""
        return self.pad(flat[0].transpose(0, 1)).transpose(1, 2)

    def flatten_heads(self, dense: Tensor) -> Tensor:
        """Convert padded heads (B, H, N, E) to packed heads (1, H, T, E)."""
        return self.flatten(dense.transpose(1, 2)).transpose(0, 1)[None]


def zero_padding(x: Tensor, valid: Tensor | None) -> Tensor:
    """Set x (B, N, ...) to 0 at padding, even where x is NaN.

    valid  (B, N) mask, False at padding
    """
    return x if valid is None else x.masked_fill(~valid[(..., *[None] * (x.dim() - valid.dim()))], 0)
