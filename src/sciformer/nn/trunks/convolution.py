"""Residual ConvNet over tokens on a line or a grid."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...errors import UserError
from ..grids import Grid
from ..options import DepthOptions, PositionOptions, TokenForm
from ..positions import Position, grid
from ..ragged import zero_padding
from ..watch import Watch
from .base import PaddedTrunk


class ConvBlock(nn.Module):
    """Residual block with LayerNorm: x <- x + conv(gelu(norm(conv(gelu(norm(x)))))).

    Pre-activation residual block of arXiv 1603.05027.
    """

    def __init__(self, dim: int, kernel: int, line: bool, dilation: int, dropout: float) -> None:
        super().__init__()
        conv, padding = nn.Conv1d if line else nn.Conv2d, dilation * (kernel // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.convs = nn.ModuleList(conv(dim, dim, kernel, padding=padding, dilation=dilation) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Output (B, D, ...) from x (B, D, ...); `real` (B, 1, ...) is the mask of x."""
        y = x
        for norm, conv in zip(self.norms, self.convs):
            y = F.gelu(norm(y.movedim(1, -1))).movedim(-1, 1)
            y = conv(y if real is None else y.masked_fill(~real, 0))  # zero at padding, and beyond the edge
        return x + self.dropout(y)


MAX_DILATION = 1 << 20


class ConvNet(PaddedTrunk):
    """Residual ConvNet of `depth` blocks, on a line or on a grid of this `shape`.

    Block i has the dilation d_i = `dilation_growth`^i (i = 0, 1, ...) and extends the receptive field on each side by
    2 (kernel // 2) d_i tokens. Norms act on each token alone, so the output depends neither on padding nor on other
    samples.
    """

    columns = ("cell",)

    def __init__(
        self,
        dim: int,
        depth: int,
        kernel: int = 3,
        *,
        shape: tuple[int, int] | None = None,
        dilation_growth: int = 1,
        dropout: float = 0.0,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise UserError(f"the kernel size must be odd, not {kernel}")
        if (widest := dilation_growth ** max(0, depth - 1)) > MAX_DILATION:
            message = f"the last of {depth} blocks would have a dilation of {widest:,} tokens, above {MAX_DILATION:,}"
            raise UserError(message, hint="Lower model.dilation_growth or model.depth.", key="model.dilation_growth")
        self.inputs, self.dim, self.shape = dim, dim, shape
        self.position = Position() if position is None else position
        self.position.fits_without_attention(dim, self)
        growth, line = dilation_growth, shape is None
        self.blocks = nn.ModuleList(ConvBlock(dim, kernel, line, growth**i, dropout) for i in range(depth))
        self.norm = nn.LayerNorm(dim)

    def run(
        self,
        x: Tensor,
        valid: Tensor | None,
        at: Tensor | None,
        watch: Watch | None,
        cell: Tensor | None = None,
        shape: tuple[int, int] | None = None,
    ) -> Tensor:
        """Run the blocks over tokens (B, N, D), on a line or a grid.

        cell   row and column of each token, for samples smaller than the grid
        shape  shape of the grid (default: the shape given to the trunk)
        """
        shape = shape or self.shape
        if line := shape is None:
            laid = Grid((1, x.shape[1]), x.shape[1], valid)
        else:
            laid = Grid.of(shape, x.shape[1], valid, cell, at, self.training)
            if at is None and self.position.axes == 2:
                at = grid(shape).to(x.device)
        x = zero_padding(self.position.embed(x, self.position.locate(x, at, valid)), valid)
        if watch is not None:
            watch.saw_hidden(x, "input")
        y, real = laid.lay(x).movedim(-1, 1), None if laid.real is None else laid.real[:, None]
        if line:
            y, real = y[:, :, 0], None if real is None else real[:, :, 0]
        for i, block in enumerate(self.blocks):
            y = block(y, real)
            if watch is not None:
                watch.saw_hidden(laid.pick(_cells(y, line)), f"blocks.{i}")
        return zero_padding(self.norm(laid.pick(_cells(y, line))), valid)


def _cells(y: Tensor, line: bool) -> Tensor:
    """Move channels last: (B, rows, columns, D). A line (B, D, N) becomes one row."""
    return (y[:, :, None] if line else y).movedim(1, -1)


class ConvNetOptions(DepthOptions, PositionOptions):
    """`trunk: convolution`: a residual ConvNet over a line or a grid."""

    choices: ClassVar[dict[str, str]] = {"position": "position"}

    kernel: int = Field(default=3, ge=1)
    """Width of the convolutions in tokens (default: 3)."""
    dilation_growth: int = Field(default=1, ge=1, le=1024)
    """Factor by which the dilation grows from block to block (default: 1)."""
    position: str = "auto"
    """Positional encoding (default: auto). auto: no encoding, because convolutions use the order of the tokens."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> ConvNet:
        shape = form.grid_shape if isinstance(form.grid_shape, tuple) and len(form.grid_shape) == 2 else None
        return ConvNet(
            self.dim,
            self.depth,
            self.kernel,
            shape=shape,
            dilation_growth=self.dilation_growth,
            dropout=self.dropout,
            position=self.build_position(form, self.dim, None),
        )
