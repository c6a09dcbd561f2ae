"""The call of every trunk without attention: checks, layouts and empty batches here, the blocks in each trunk."""

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
    """A trunk that takes tokens of width `inputs` and gives as many of width `dim`; `blocks` or layers are its own."""

    columns: tuple[str, ...] = ()
    """Columns of tokens that the call takes by name, where there are any."""
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
        """(B, N, D) or packed (T, D) -> the same tokens with the width of this trunk; `more` is what `run` takes."""
        check_layout(x, valid, self.inputs)
        if bias is not None:
            raise UserError(
                f"{type(self).__name__} has no attention, so it cannot use a pair bias (of shape {tuple(bias.shape)})"
            )
        return self.lay(x, valid, at, watch, **more)

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        """The blocks over tokens in the one layout that they know."""
        raise NotImplementedError


class FlatTrunk(Trunk):
    """A trunk over one flat run of tokens (T, D), for blocks that look at each token, at neighbours or at pairs."""

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        layout = Layout(x, valid)
        y = layout.flat(x)
        if layout.total == 0:
            return layout.back(y.new_zeros(0, self.dim))
        place = None if at is None else coordinates(at, x, layout)
        return layout.back(self.run(y, place, layout, watch, **more))

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        """The blocks over a run (T, D) with coordinates (T, A): a run (T, D'). `layout.show` records each state."""
        raise NotImplementedError


class PaddedTrunk(Trunk):
    """A trunk over padded tokens (B, N, D), for blocks that follow an order or fill a grid."""

    run: Callable[..., Tensor]
    """The blocks over x (B, N, D), valid (B, N), at and watch, and what else the call of this trunk takes by name."""

    def lay(self, x: Tensor, valid: Valid, at: Tensor | None, watch: Watch | None, **more: Any) -> Tensor:
        if isinstance(valid, Ragged):
            at = None if at is None else valid.pad(at)
            more = {name: valid.pad(value) if isinstance(value, Tensor) else value for name, value in more.items()}
            return valid.flatten(self.lay(valid.pad(x), valid.valid, at, watch, **more))
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:2], self.dim)
        return self.run(x, valid, at, watch, **more)
