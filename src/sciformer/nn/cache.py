"""Keys and values of the tokens already decoded, so that each new token costs one step."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError


class Store:
    """The keys and values of one block: `extend` with new ones, get all of them back."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.memory: tuple[Tensor, Tensor] | None = None  # of cross-attention; the same at every step

    def extend(self, k: Tensor, v: Tensor, start: int | Tensor) -> tuple[Tensor, Tensor]:
        """k, v (B, G, N, E) at positions start, start + 1, ... -> all keys and values (B, G, M, E)."""
        if self.capacity is None:
            if self.keys is not None and self.values is not None:
                k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
            self.keys, self.values = k, v
            return k, v
        if torch.is_grad_enabled() and k.requires_grad:
            raise UserError("a fixed cache under torch.no_grad()", "gradients", "Take a growing cache.")
        if self.keys is None or self.values is None:
            self.keys = k.new_zeros(*k.shape[:2], self.capacity, k.shape[3])
            self.values = v.new_zeros(*v.shape[:2], self.capacity, v.shape[3])
        place = start + torch.arange(k.shape[2], device=k.device)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        return self.keys, self.values

    def reorder(self, index: Tensor) -> None:
        """Take the samples `index` (B,), as beam search wants it."""
        fixed = self.capacity is not None
        self.keys, self.values = _chosen(self.keys, index, fixed), _chosen(self.values, index, fixed)
        if self.memory is not None:
            self.memory = (self.memory[0].index_select(0, index), self.memory[1].index_select(0, index))


def _chosen(kept: Tensor | None, index: Tensor, fixed: bool) -> Tensor | None:
    """The rows `index` of what was kept; a fixed buffer keeps its place in memory, as a captured graph needs it."""
    if kept is None:
        return None
    rows = kept.index_select(0, index)
    return kept.copy_(rows) if fixed and rows.shape == kept.shape else rows


class Cache:
    """The stores of all blocks of a decoder, and what of them is valid.

    Growing (the default) or, with `capacity`, fixed: buffers are allocated at the first step and written in place,
    and the position advances on the device, so that a decoding step can be compiled or captured as a CUDA graph.
    """

    def __init__(self, depth: int, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.blocks = [Store(capacity) for _ in range(depth)]
        self.length = 0
        self.slot: Tensor | None = None
        self.valid: Tensor | None = None

    def begin(self, x: Tensor, valid: Tensor | None) -> tuple[int | Tensor, Tensor | None]:
        """For new tokens x (B, N, D): the position of the first, and the validity (B, M) of all keys."""
        batch, n, _ = x.shape
        fresh = torch.ones(batch, n, dtype=torch.bool, device=x.device) if valid is None else valid
        if self.capacity is None:
            if self.valid is not None or (valid is not None and self.length):
                before = self.valid if self.valid is not None else fresh.new_ones(batch, self.length)
                valid = torch.cat([before, fresh], 1)
            self.valid = valid
            return self.length, valid
        if not torch.compiler.is_compiling() and self.length + n > self.capacity:
            raise UserError(
                f"at most {self.capacity} tokens, the cache's capacity",
                f"{self.length + n}",
                "Make the cache larger, or let it grow: cache().",
            )
        if self.slot is None or self.valid is None:
            self.slot = torch.zeros((), dtype=torch.long, device=x.device)
            self.valid = fresh.new_zeros(batch, self.capacity)
        self.valid.index_copy_(1, self.slot + torch.arange(n, device=x.device), fresh)
        return self.slot, self.valid

    def finish(self, n: int) -> None:
        """Advance by n tokens, after all blocks have stored theirs."""
        if self.slot is not None:
            self.slot += n
        if not torch.compiler.is_compiling():
            self.length += n

    def reorder(self, index: Tensor) -> None:
        """Take the samples `index` (B,), as beam search wants it."""
        for store in self.blocks:
            store.reorder(index)
        self.valid = _chosen(self.valid, index, self.capacity is not None)
