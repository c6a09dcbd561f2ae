"""A small residual ConvNet over tokens on a line or a grid, with the call of every other trunk."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .positions import Position, grid
from .ragged import Ragged
from .recurrent import no_bias
from .transformer import Valid, check_layout
from .watch import Watch

CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}


class ConvBlock(nn.Module):
    """x <- x + conv(act(norm(conv(act(norm(x))))))  (arXiv 1603.05027), norms over the channels of each token."""

    def __init__(self, dim: int, kernel: int, axes: int, dilation: int, dropout: float) -> None:
        super().__init__()
        conv, padding = CONVOLUTIONS[axes], dilation * (kernel // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.convs = nn.ModuleList(conv(dim, dim, kernel, padding=padding, dilation=dilation) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (B, D, ...) on its line or grid; `real` (B, 1, ...) is True where there is a token."""
        y = x
        for norm, conv in zip(self.norms, self.convs):
            y = F.gelu(norm(y.movedim(1, -1))).movedim(-1, 1)
            y = conv(y if real is None else y.masked_fill(~real, 0))  # padding looks like the edge
        return x + self.dropout(y)


class ConvNet(nn.Module):
    """`depth` residual blocks of two convolutions, on a line, or on a grid of `shape` (height, width).

    Each token sees a neighbourhood that grows by 2 (kernel // 2) dilation tokens a block; block i has the dilation
    `growth`^i. Norms act on each token alone, so that padding and the other samples of a batch change nothing.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        kernel: int = 3,
        *,
        shape: tuple[int, int] | None = None,
        growth: int = 1,
        dropout: float = 0.0,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise UserError("an odd kernel, so that a token stays in the middle", f"{kernel}")
        self.dim, self.shape = dim, shape
        self.position = Position() if position is None else position
        self.position.fits_without_attention(dim, self)
        axes = 1 if shape is None else 2
        self.blocks = nn.ModuleList(ConvBlock(dim, kernel, axes, growth**i, dropout) for i in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        at: Tensor | None = None,
        bias: Tensor | None = None,
        shape: tuple[int, int] | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """(B, N, D) or packed (T, D) -> the same; on a grid N is height times width, of `shape` if given here."""
        check_layout(x, valid, self.dim)
        no_bias(bias, self)
        if isinstance(valid, Ragged):
            at = None if at is None else valid.pad(at)
            return valid.flatten(self(valid.pad(x), valid.valid, at=at, shape=shape, watch=watch))
        if x.numel() == 0:
            return x
        shape = shape or self.shape
        if shape is not None and math.prod(shape) != x.shape[1]:
            raise UserError(f"{math.prod(shape)} tokens on a grid of {shape}", f"{x.shape[1]}")
        place = shape or (x.shape[1],)
        if at is None and shape is not None and self.position.axes == 2:
            at = grid(shape).to(x.device)
        x = self.position.embed(x, self.position.locate(x, at, valid))
        if valid is not None:
            x = x.masked_fill(~valid[..., None], 0)
        real = None if valid is None else valid.unflatten(1, place)[:, None]
        if watch is not None:
            watch.saw_hidden(x, "input")
        y = x.unflatten(1, place).movedim(-1, 1)
        for i, block in enumerate(self.blocks):
            y = block(y, real)
            if watch is not None:
                watch.saw_hidden(y.movedim(1, -1).flatten(1, -2), f"blocks.{i}")
        x = self.norm(y.movedim(1, -1).flatten(1, -2))
        return x if valid is None else torch.where(valid[..., None], x, 0)
