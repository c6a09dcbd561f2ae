"""Tokens on their grid: from a list of tokens to rows and columns, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError
from .ragged import zero_padding

Shape = tuple[int, int]


class Grid:
    """Where the tokens of a padded batch stand on a grid of `shape` (rows, columns).

    Tokens that are all there and lie row by row are only reshaped. Others are put where `cell` says: whatever is not
    there is 0, and `real` tells.

    real   (B, rows, columns) True where there is a token; None: everywhere
    """

    def __init__(self, shape: Shape, n: int, valid: Tensor | None = None, cell: Tensor | None = None) -> None:
        """valid (B, N) which tokens are real; cell (B or 1, N, 2) or (N, 2), row and column of each."""
        self.shape = shape
        self.index: Tensor | None = None
        self.real: Tensor | None = None
        self.valid = valid
        count = shape[0] * shape[1]
        if valid is None and n == count:  # nothing can be missing
            return
        if cell is None:
            if n != count:
                raise UserError(f"a grid of {shape[0]} x {shape[1]} needs {count} tokens, not {n}")
            assert valid is not None
            self.real = valid.unflatten(1, shape)
            return
        cell = cell if cell.dim() == 3 else cell[None]
        index = cell[..., 0].long() * shape[1] + cell[..., 1].long()
        if valid is not None:
            index = index.expand(valid.shape).masked_fill(~valid, count)  # beside the grid
        self.index = index
        self.real = torch.zeros(len(index), count + 1, dtype=torch.bool, device=index.device)
        self.real = self.real.scatter(1, index, True)[:, :-1].unflatten(1, shape)

    @classmethod
    def of(
        cls, places: Shape, n: int, valid: Tensor | None, cell: Tensor | None, at: Tensor | None, training: bool
    ) -> Grid:
        """The grid of tokens whose shapes vary, if there is a `cell`; else of those that stand `at` their places.

        In training no image is larger than `places`, and nobody waits for the device to know how large they are.
        """
        if cell is None:
            whole = at is not None and not at.is_floating_point()
            return cls(places, n, valid, at if whole else None)
        if training or torch.compiler.is_compiling() or not cell.numel():
            return cls(places, n, valid, cell)
        rows, columns = (cell.reshape(-1, 2).amax(0) + 1).tolist()
        return cls((int(rows), int(columns)), n, valid, cell)

    def lay(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, rows, columns, D)."""
        x = zero_padding(x, self.valid)  # several may stand beside the grid
        if self.index is None:
            return x.unflatten(1, self.shape)
        laid = x.new_zeros(len(x), self.shape[0] * self.shape[1] + 1, x.shape[-1])
        index = self.index[..., None].expand_as(x)
        return laid.scatter(1, index, x)[:, :-1].unflatten(1, self.shape)

    def pick(self, laid: Tensor) -> Tensor:
        """(B, rows, columns, D) -> (B, N, D), the way back; 0 where there is no token."""
        x = laid.flatten(1, 2)
        if self.index is not None:
            index = self.index.clamp(max=x.shape[1] - 1)[..., None].expand(len(x), -1, x.shape[-1])
            x = x.gather(1, index)
        return zero_padding(x, self.valid)
