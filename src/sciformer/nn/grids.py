"""Token grids: put tokens into rows and columns, and back into a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError
from .ragged import zero_padding

Shape = tuple[int, int]


class Grid:
    """Grid of `shape` (rows, columns) for the tokens of a padded batch.

    Complete samples in row order are only reshaped. In other samples each token goes to its row and column in `cell`,
    and empty cells are 0.

    real   (B, rows, columns) True where there is a token; None if every cell has a token
    """

    def __init__(self, shape: Shape, n: int, valid: Tensor | None = None, cell: Tensor | None = None) -> None:
        """Find the index of each of n tokens on the grid.

        valid  (B, N) mask of real tokens
        cell   (B or 1, N, 2) or (N, 2) row and column of each token
        """
        self.shape = shape
        self.index: Tensor | None = None
        self.real: Tensor | None = None
        self.valid = valid
        count = shape[0] * shape[1]
        if valid is None and n == count:  # the grid is complete
            return
        if cell is None:
            if n != count:
                raise UserError(f"a grid of {shape[0]} x {shape[1]} needs {count} tokens, but there are {n}")
            assert valid is not None
            self.real = valid.unflatten(1, shape)
            return
        cell = cell if cell.dim() == 3 else cell[None]
        index = cell[..., 0].long() * shape[1] + cell[..., 1].long()
        if valid is not None:
            index = index.expand(valid.shape).masked_fill(~valid, count)  # an extra cell for padding
        self.index = index
        self.real = torch.zeros(len(index), count + 1, dtype=torch.bool, device=index.device)
        self.real = self.real.scatter(1, index, True)[:, :-1].unflatten(1, shape)

    @classmethod
    def of(
        cls, places: Shape, n: int, valid: Tensor | None, cell: Tensor | None, at: Tensor | None, training: bool
    ) -> Grid:
        """Grid with the tokens at the cells `cell` (default: at their integer positions).

        With `cell`, samples may have different numbers of rows and columns. In training, the grid always has the
        maximum size `places`, because finding a smaller size would need a device sync.
        """
        if cell is None:
            whole = at is not None and not at.is_floating_point()
            return cls(places, n, valid, at if whole else None)
        if training or torch.compiler.is_compiling() or not cell.numel():
            return cls(places, n, valid, cell)
        rows, columns = (cell.reshape(-1, 2).amax(0) + 1).tolist()
        return cls((int(rows), int(columns)), n, valid, cell)

    def lay(self, x: Tensor) -> Tensor:
        """Put tokens (B, N, D) into the grid (B, rows, columns, D)."""
        x = zero_padding(x, self.valid)  # padded tokens share one extra cell
        if self.index is None:
            return x.unflatten(1, self.shape)
        laid = x.new_zeros(len(x), self.shape[0] * self.shape[1] + 1, x.shape[-1])
        index = self.index[..., None].expand_as(x)
        return laid.scatter(1, index, x)[:, :-1].unflatten(1, self.shape)

    def pick(self, laid: Tensor) -> Tensor:
        """Gather tokens (B, N, D) from the grid (B, rows, columns, D); 0 at padding."""
        x = laid.flatten(1, 2)
        if self.index is not None:
            index = self.index.clamp(max=x.shape[1] - 1)[..., None].expand(len(x), -1, x.shape[-1])
            x = x.gather(1, index)
        return zero_padding(x, self.valid)
