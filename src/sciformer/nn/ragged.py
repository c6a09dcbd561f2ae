"""Sequences of different length laid end to end: the packed layout, and the way to the padded one and back."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ..errors import UserError


class Ragged:
    """B sequences of `lengths` (B,), stored as one flat run of T tokens.

    Token t belongs to sequence `sample[t]` and is its `position[t]`-th. The run may be longer than the sum of the
    lengths (`total`), as fixed shapes on a GPU want it; the tokens at the tail then belong to the sample B, which
    nobody sees and which is dropped wherever tokens are gathered by sample.
    """

    def __init__(self, lengths: Tensor, total: int | None = None) -> None:
        if lengths.dim() != 1 or lengths.is_floating_point():
            raise UserError(
                "lengths as one integer per sequence, shape (B,)", f"{tuple(lengths.shape)} {lengths.dtype}"
            )
        self.lengths = lengths.long()
        self.ends = self.lengths.cumsum(0)
        if total is None:
            total = int(self.lengths.sum())
        elif lengths.device.type == "cpu" and int(self.lengths.sum()) > total:
            raise UserError(f"lengths that sum to at most {total}", f"a sum of {int(self.lengths.sum())}")
        self.total = total

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} sequences, {self.total} tokens)"

    @cached_property
    def sample(self) -> Tensor:
        """(T,) which sequence each token belongs to."""
        return torch.searchsorted(self.ends, torch.arange(self.total, device=self.ends.device), right=True)

    @cached_property
    def position(self) -> Tensor:
        """(T,) the place of each token in its own sequence."""
        starts = torch.cat([self.ends.new_zeros(1), self.ends])
        return torch.arange(self.total, device=self.ends.device) - starts[self.sample]

    @cached_property
    def longest(self) -> int:
        """The length N of the padded layout."""
        return int(self.lengths.max()) if len(self) else 0

    @cached_property
    def valid(self) -> Tensor:
        """(B, N) True where the padded layout holds a token."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def pad(self, flat: Tensor) -> Tensor:
        """(T, ...) -> (B, N, ...), zeros where there is no token."""
        if flat.shape[0] != self.total:
            raise UserError(f"{self.total} flat tokens, as the lengths say", f"{flat.shape[0]}")
        if self.total == 0:
            return flat.new_zeros(len(self), self.longest, *flat.shape[1:])
        starts = self.ends - self.lengths
        index = starts[:, None] + torch.arange(self.longest, device=starts.device)
        dense = flat[index.clamp(max=self.total - 1)]
        return dense.masked_fill(~self.valid.view(*self.valid.shape, *[1] * (flat.dim() - 1)), 0)

    def flatten(self, dense: Tensor) -> Tensor:
        """(B, N, ...) -> (T, ...), the inverse of `pad`."""
        inside = self.sample < len(self)
        index = torch.where(inside, self.sample * self.longest + self.position, 0)
        if dense.shape[0] * dense.shape[1] == 0:
            return dense.new_zeros(self.total, *dense.shape[2:])
        flat = dense.flatten(0, 1)[index]
        return flat.masked_fill(~inside.view(-1, *[1] * (flat.dim() - 1)), 0)
