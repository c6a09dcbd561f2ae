"""Key-value cache: a decoding step reuses keys and values of earlier tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UserError


class Store:
    """Key-value cache of one block: `extend` adds keys and values of new tokens."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of cross-attention, equal at every step

    def size(self, n: int, start: int | Tensor) -> int:
        """Number of keys after n new tokens at positions start, start + 1, ...

        A fixed cache always has `capacity` keys.
        """
        if self.capacity is not None:
            return self.capacity
        assert isinstance(start, int)
        return start + n

    def extend(self, k: Tensor, v: Tensor, start: int | Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values from index `start`; return all keys and values.

        Shapes: new keys k and values v (B, G, N, E), all keys and values (B, G, M, E), with G key-value heads of
        width E.
        """
        if self.capacity is None:
            assert isinstance(start, int)
            if self.keys is not None and self.values is not None:
                # Drop keys at `start` and later: a failed earlier pass may have left keys there.
                whole = start + k.shape[2]
                self.keys, self.values = _append(self.keys, k, start), _append(self.values, v, start)
                return self.keys[:, :, :whole], self.values[:, :, :whole]
            self.keys, self.values = k, v
            return k, v
        keys, values = self.fixed(k, v)
        place = start + torch.arange(k.shape[2], device=k.device)
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)
        return keys, values

    def fixed(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Buffers (B, G, capacity, E) of a fixed cache; the first call allocates them."""
        assert self.capacity is not None
        if torch.is_grad_enabled() and k.requires_grad:
            message = "a cache of fixed capacity cannot be used with gradients"
            raise UserError(message, hint="Use it under torch.no_grad(), or use a cache that grows: cache().")
        if self.keys is None or self.values is None:
            with torch.inference_mode(False):
                self.keys = k.new_zeros(*k.shape[:2], self.capacity, k.shape[3])
                self.values = v.new_zeros(*v.shape[:2], self.capacity, v.shape[3])
        return self.keys, self.values

    def reorder(self, index: Tensor) -> None:
        """Select samples by their indices `index` (B,), for beam search."""
        fixed = self.capacity is not None
        self.keys, self.values = _select(self.keys, index, fixed), _select(self.values, index, fixed)
        if self.memory is not None:
            self.memory = (self.memory[0].index_select(0, index), self.memory[1].index_select(0, index))


def _append(kept: Tensor, new: Tensor, start: int) -> Tensor:
    """Append new keys or values (B, G, N, E) after the first `start` stored tokens.

    In a long text, copying all stored keys for every new token would cost more than the token itself. Without
    gradients, the returned tensor therefore has free space at its end for later tokens.
    """
    whole = start + new.shape[2]
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.cat([kept[:, :, :start], new], 2)
    if kept.shape[2] < whole or (kept.is_inference() and not torch.is_inference_mode_enabled()):
        with torch.inference_mode(False):
            room = new.new_empty(*new.shape[:2], whole + max(64, whole // 2), new.shape[3])
        room[:, :, :start] = kept[:, :, :start]
        kept = room
    kept[:, :, start:whole] = new
    return kept


def _select(kept: Tensor | None, index: Tensor, fixed: bool) -> Tensor | None:
    """Rows `index` of a stored tensor; a fixed buffer is changed in place."""
    if kept is None:
        return None
    rows = kept.index_select(0, index)
    return kept.copy_(rows) if fixed and rows.shape == kept.shape else rows


def _valid_or_all(x: Tensor, valid: Tensor | None) -> Tensor:
    """Mask (B, N) of new tokens x (B, N, D): `valid`, or all True."""
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if valid is None else valid


class Cache:
    """Key-value caches of all blocks of a decoder, and the mask of valid keys.

    By default the cache grows. With `capacity` it is fixed: buffers are allocated at the first step and written in
    place, and the position advances on the device. A decoding step can then be compiled or captured as a CUDA graph.
    `length` is counted on the host, so the steps of a CUDA graph or of a compiled call are not counted.
    """

    def __init__(self, depth: int, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.blocks = [Store(capacity) for _ in range(depth)]
        self.length = 0
        self.slot: Tensor | None = None
        self.valid: Tensor | None = None
        self.at: Tensor | None = None
        self.memory_valid: Tensor | None = None
        self.pending: tuple[Tensor | None, Tensor | None] = (None, None)

    @property
    def has_memory(self) -> bool:
        """Whether keys and values of the encoder's output are already stored."""
        return bool(self.blocks) and self.blocks[0].memory is not None

    def begin(self, x: Tensor, valid: Tensor | None) -> tuple[int | Tensor, Tensor | None]:
        """Position of the first new token, and mask (B, M) of all keys (None: all real).

        x      (B, N, D) new tokens
        valid  (B, N) mask of the new tokens; None means that all are real
        """
        batch, n, _ = x.shape
        kept = self.blocks[0].keys if self.blocks else None
        if kept is not None and len(kept) != batch:
            message = f"the batch must have {len(kept)} samples, like the cache, not {batch}"
            raise UserError(message, hint="Select the samples of the cache with cache.reorder.")
        if self.capacity is None:
            if self.valid is not None or (valid is not None and self.length):
                fresh = _valid_or_all(x, valid)
                before = self.valid if self.valid is not None else fresh.new_ones(batch, self.length)
                valid = torch.cat([before, fresh], 1)
            self.pending = (valid, self.at)
            return self.length, valid
        if not torch.compiler.is_compiling() and self.length + n > self.capacity:
            message = f"the cache has room for at most {self.capacity} tokens, not {self.length + n}"
            raise UserError(message, hint="Use a larger capacity, or a cache that grows: cache().")
        if self.slot is None or self.valid is None:
            with torch.inference_mode(False):
                self.slot = torch.zeros((), dtype=torch.long, device=x.device)
                self.valid = torch.zeros(batch, self.capacity, dtype=torch.bool, device=x.device)
        self.valid.index_copy_(1, self.slot + torch.arange(n, device=x.device), _valid_or_all(x, valid))
        return self.slot, self.valid

    def place(self, at: Tensor, batch: int) -> Tensor:
        """Append coordinates `at` of new tokens; return the coordinates of all tokens.

        Shapes: `at` (B or 1, N, A), result (B, M, A), for coordinates on A axes.
        """
        at = at.expand(batch, -1, -1)
        if self.capacity is None:
            at = at if self.at is None else torch.cat([self.at, at], 1)
            self.pending = (self.pending[0], at)
            return at
        assert self.slot is not None
        if self.at is None:
            with torch.inference_mode(False):
                self.at = torch.zeros(batch, self.capacity, at.shape[2], dtype=at.dtype, device=at.device)
        self.at.index_copy_(1, self.slot + torch.arange(at.shape[1], device=at.device), at)
        return self.at

    def finish(self, n: int) -> None:
        """Advance the position by n tokens, after all blocks have stored their keys."""
        if self.capacity is None:
            self.valid, self.at = self.pending
            self.length += n
            return
        assert self.slot is not None
        self.slot += n
        if not torch.compiler.is_compiling():
            self.length += n

    def reset(self) -> None:
        """Empty a cache of fixed capacity in place.

        A growing cache cannot be emptied; make a new cache instead.
        """
        assert self.capacity is not None
        self.length = 0
        for kept in (self.slot, self.valid):
            if kept is not None:
                kept.zero_()

    def reorder(self, index: Tensor) -> None:
        """Select samples by their indices `index` (B,), for beam search."""
        fixed = self.capacity is not None
        for store in self.blocks:
            store.reorder(index)
        self.valid, self.at = _select(self.valid, index, fixed), _select(self.at, index, fixed)
        self.memory_valid = _select(self.memory_valid, index, False)
