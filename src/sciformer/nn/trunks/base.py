"""Base classes of trunks without attention blocks: checks, layouts, empty batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...errors import UserError
from ..layout import Layout, coordinates
from ..ragged import Ragged
from ..transformer import Valid, check_layout
from ..watch import Watch


class Trunk(nn.Module):
    """Abstract trunk: maps tokens of width `inputs` to tokens of width `dim`."""

    columns: tuple[str, ...] = ()
    """Token columns that `forward` takes as keyword arguments."""
    inputs: int
    dim: int

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        at: Tensor | None = None,
        bias: Tensor | None = None,
        watch: Watch | None = None,
        **more: Any,
    ) -> Tensor:
        """Run the trunk over tokens (B, N, D) or packed (T, D); `more` is passed to `run`."""
        check_layout(x, valid, self.inputs)
        if bias is not None:
            found = f"`bias` has been passed with the shape {tuple(bias.shape)}"
            raise UserError(f"{type(self).__name__} does not support a pair bias, but {found}")
        return self.lay(x, valid, at, watch, **more)

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        """Run the blocks in the token layout of this trunk (flat or padded)."""
        raise NotImplementedError


class FlatTrunk(Trunk):
    """Abstract trunk over flat tokens (T, D): blocks act on tokens or neighbours."""

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        layout = Layout(x, valid)
        y = layout.flat(x)
        if layout.total == 0:
            return layout.back(y.new_zeros(0, self.dim))
        place = None if at is None else coordinates(at, x, layout)
        return layout.back(self.run(y, place, layout, watch, **more))

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        """Run the blocks over tokens y (T, D) at coordinates `at` (T, A).

        Implementations call `layout.show` to store the hidden states in `watch`.
        """
        raise NotImplementedError


class PaddedTrunk(Trunk):
    """Abstract trunk over padded tokens (B, N, D): blocks act on sequences or grids."""

    run: Callable[..., Tensor]
    """Method run(x, valid, at, watch, ...) that runs the blocks over x (B, N, D). The last arguments are the keyword
    arguments `more` of `forward`."""

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        if isinstance(valid, Ragged):
            at = None if at is None else valid.pad(at)
            more = {name: valid.pad(value) if isinstance(value, Tensor) else value for name, value in more.items()}
            return valid.flatten(self.lay(valid.pad(x), valid.valid, at, watch, **more))
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:2], self.dim)
        return self.run(x, valid, at, watch, **more)
