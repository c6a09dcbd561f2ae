"""Sequences of different length laid end to end: the packed layout, and the way to the padded one and back."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError


class Ragged:
    """B sequences of `lengths` (B,), stored as one flat run of T tokens.

    sample    (T,) which sequence each token belongs to
    position  (T,) its place in that sequence
    inside    (T,) True where the token belongs to a sequence at all

    The run may be longer than the sum of the lengths (`total`), as fixed shapes on a GPU want it; the tokens at the
    tail then belong to the sample B, which nobody sees and which is dropped wherever tokens are gathered by sample. On
    a GPU, give `total` and the `longest` length (or a bound on it), and the host never waits for the device; so too
    `pairs`, the pairs of tokens with themselves and those before (or a bound), where somebody looks at pairs. Without
    `lay`, only the lengths are there: enough for one that is made again on another device.
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
            raise UserError(
                "lengths must be integers of shape (B,), one for each sequence, "
                f"not {lengths.dtype} of shape {tuple(lengths.shape)}"
            )
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
        """The length N of the padded layout."""
        if self._longest is None:
            self._longest = int(self.lengths.max()) if len(self) else 0
        return self._longest

    @property
    def known_longest(self) -> int | None:
        """The same where it is known without waiting for a device."""
        return self._longest

    @property
    def pairs(self) -> int:
        """How many pairs of tokens (i, j), j <= i, the sequences have, each for itself."""
        if self._pairs is None:
            self._pairs = int((self.lengths * (self.lengths + 1) // 2).sum())
        return self._pairs

    @property
    def valid(self) -> Tensor:
        """(B, N) True where the padded layout holds a token."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def pad(self, flat: Tensor) -> Tensor:
        """(T, ...) -> (B, N, ...), zeros where there is no token."""
        if flat.shape[0] != self.total:
            raise UserError(f"there are {flat.shape[0]} flat tokens, but {self.total} according to the lengths")
        if self.total == 0:
            return flat.new_zeros(len(self), self.longest, *flat.shape[1:])
        starts = self.ends - self.lengths
        index = starts[:, None] + torch.arange(self.longest, device=starts.device)
        dense, valid = flat[index.clamp(max=self.total - 1)], self.valid
        return dense.masked_fill(~valid.view(*valid.shape, *[1] * (flat.dim() - 1)), 0)

    def flatten(self, dense: Tensor) -> Tensor:
        """(B, N, ...) -> (T, ...), the inverse of `pad`."""
        inside = self.inside
        index = torch.where(inside, self.sample * self.longest + self.position, 0)
        if dense.shape[0] * dense.shape[1] == 0:
            return dense.new_zeros(self.total, *dense.shape[2:])
        flat = dense.flatten(0, 1)[index]
        return flat.masked_fill(~inside.view(-1, *[1] * (flat.dim() - 1)), 0)

    def pad_heads(self, flat: Tensor) -> Tensor:
        """(1, H, T, E) -> (B, H, N, E)."""
        return self.pad(flat[0].transpose(0, 1)).transpose(1, 2)

    def flatten_heads(self, dense: Tensor) -> Tensor:
        """(B, H, N, E) -> (1, H, T, E), the inverse of `pad_heads`."""
        return self.flatten(dense.transpose(1, 2)).transpose(0, 1)[None]


def zero_padding(x: Tensor, valid: Tensor | None) -> Tensor:
    """x (B, N, D) with zeros where `valid` (B, N) is False: whatever stands at padding, even NaN, stays out."""
    return x if valid is None else x.masked_fill(~valid[..., None], 0)
