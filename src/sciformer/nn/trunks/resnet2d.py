"""The residual network of images, with the call of every other trunk: tokens are patches of pixels, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...errors import UserError
from ..grids import Grid
from ..norms import BatchNorm
from ..options import TokenForm, TrunkOptions, Width
from ..ragged import zero_padding
from ..watch import Watch
from .base import PaddedTrunk

Pair = tuple[int, int]
BOTTLENECK_EXPANSION = 4  # what leaves a block with a bottleneck, over its inner width


class ConvNorm(nn.Module):
    """relu(BatchNorm(conv(x))), or without relu; nothing outside of the image, where zeros stand."""

    def __init__(self, inputs: int, dim: int, kernel: int, stride: Pair = (1, 1), active: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, dim, kernel, stride, padding=kernel // 2, bias=False)
        self.norm, self.active = BatchNorm(dim), active
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (B, D, height, width) -> (B, D', ...); `real` (B, 1, ...) is True inside of the images after the stride."""
        y = self.conv(x)
        if real is None and (y.numel() > y.shape[1] or not self.training):
            y = self.norm.plain(y)
        else:
            inside = None if real is None else real.expand(len(y), -1, -1, -1)[:, 0]
            y = self.norm(y.movedim(1, -1), inside).movedim(-1, 1)
        y = F.relu(y) if self.active else y
        return y if real is None else y.masked_fill(~real, 0)


class ResidualBlock(nn.Module):
    """x <- relu(s(x) + f(x)), f two convolutions of 3 x 3, or 1 x 1, 3 x 3, 1 x 1 with a `bottleneck`.

    s(x) is x, or a convolution of 1 x 1 where width or size change (arXiv 1512.03385); the stride is that of the 3 x 3.
    """

    def __init__(self, inputs: int, dim: int, stride: Pair, bottleneck: bool) -> None:
        super().__init__()
        self.stride, self.dim = stride, dim * BOTTLENECK_EXPANSION if bottleneck else dim
        layers = [ConvNorm(inputs, dim, 3, stride), ConvNorm(dim, dim, 3, active=False)]
        if bottleneck:
            wide = ConvNorm(dim, self.dim, 1, active=False)
            layers = [ConvNorm(inputs, dim, 1), ConvNorm(dim, dim, 3, stride), wide]
        self.layers = nn.ModuleList(layers)
        same = inputs == self.dim and stride == (1, 1)
        self.change = None if same else ConvNorm(inputs, self.dim, 1, stride, active=False)

    def forward(self, x: Tensor, before: Tensor | None, real: Tensor | None) -> Tensor:
        """x (B, D, height, width) -> (B, D', ...); `before` and `real` tell what is inside before and after."""
        y, inside = x, before
        for layer in self.layers:
            inside = inside if layer.conv.stride == (1, 1) else real
            y = layer(y, inside)
        return F.relu(y + (x if self.change is None else self.change(x, real)))


class ResNet2d(PaddedTrunk):
    """A stem, then `stages` of residual blocks, each stage wider and smaller than the one before (arXiv 1512.03385).

    raster      height, width and channels of the patches that enter, pixels row by row, channels last
    places      rows and columns of patches of the images that it is made for
    stages      blocks of each stage
    widths      inner width of each stage
    bottleneck  blocks of three convolutions, which leave with four times that width

    As many vectors leave as patches enter, so the strides of all layers together are the sides of a patch. At 32 pixels
    these are those of the paper: a stem of 7 x 7, a pooling, and all stages but the first, by 2 each. Smaller patches
    go without the pooling, then with a stem of 3 x 3 and no stride, then without the strides of the last stages.
    """

    columns = ("cell",)

    def __init__(
        self,
        raster: tuple[int, int, int],
        places: Pair,
        stages: Sequence[int] = (2, 2, 2, 2),
        widths: Sequence[int] = (64, 128, 256, 512),
        bottleneck: bool = False,
    ) -> None:
        super().__init__()
        if len(widths) != len(stages) or not stages:
            raise UserError(
                f"there must be as many widths as stages, 1 or more, not {len(widths)} widths and {len(stages)} stages"
            )
        self.raster, self.places, self.inputs = raster, places, raster[0] * raster[1] * raster[2]
        down = [_strides(side, len(stages)) for side in raster[:2]]
        first, pool, *rest = zip(*down)
        self.stem = ConvNorm(raster[2], widths[0], 7 if 2 in first else 3, first)
        self.down, self.pool = first, pool
        self.blocks = nn.ModuleList()
        inputs = widths[0]
        for count, width, stride in zip(stages, widths, [(1, 1), *rest]):
            for i in range(count):
                block = ResidualBlock(inputs, width, stride if i == 0 else (1, 1), bottleneck)
                self.blocks.append(block)
                inputs = block.dim
        self.dim = inputs

    def run(
        self, x: Tensor, valid: Tensor | None, at: Tensor | None, watch: Watch | None, cell: Tensor | None = None
    ) -> Tensor:
        """The stages over patches (B, N, pixels).

        cell   row and column of each patch, where images have other shapes than `places`; else `at` may have them
        """
        grid = Grid.of(self.places, x.shape[1], valid, cell, at, self.training)
        inside = Inside(grid.real, self.raster)
        y = self._image(grid.lay(x))
        if watch is not None:
            watch.saw_hidden(zero_padding(x, valid), "input")
        y = self.stem(y, inside.shrunk(self.down))
        if 2 in self.pool:  # after relu zeros change no maximum
            y = F.max_pool2d(y, 3, self.pool, padding=1)
            real = inside.shrunk(self.pool)
            y = y if real is None else y.masked_fill(~real, 0)
        for i, block in enumerate(self.blocks):
            before, real = inside.real, inside.shrunk(block.stride)  # type: ignore[arg-type]
            y = block(y, before, real)
            if watch is not None:
                cells = F.avg_pool2d(y, inside.left) if max(inside.left) > 1 else y
                watch.saw_hidden(grid.pick(cells.movedim(1, -1)), f"blocks.{i}")
        return grid.pick(y.movedim(1, -1))

    def _image(self, laid: Tensor) -> Tensor:
        """(B, rows, columns, pixels) -> (B, channels, height, width)."""
        high, wide, channels = self.raster
        pixels = laid.unflatten(-1, (high, wide, channels)).transpose(2, 3)
        return pixels.flatten(3, 4).flatten(1, 2).movedim(-1, 1)


class Inside:
    """What of a batch of images is inside of them, at the size that strides have left.

    real   (B, 1, height, width), or None: everything
    left   pixels on the sides of a patch at this size
    """

    def __init__(self, cells: Tensor | None, raster: tuple[int, int, int]) -> None:
        self.cells, self.left = cells, raster[:2]
        self.real = self._grown()

    def shrunk(self, stride: Pair) -> Tensor | None:
        """What is inside after a layer of this stride."""
        if stride != (1, 1):
            self.left = self.left[0] // stride[0], self.left[1] // stride[1]
            self.real = self._grown()
        return self.real

    def _grown(self) -> Tensor | None:
        if self.cells is None:
            return None
        return self.cells.repeat_interleave(self.left[0], 1).repeat_interleave(self.left[1], 2)[:, None]


def _strides(side: int, stages: int) -> list[int]:
    """Strides of stem, pooling and the stages after the first on one axis; their product is the side of a patch."""
    power = side.bit_length() - 1
    if side != 1 << power or power > stages + 1:
        most = 1 << (stages + 1)
        raise UserError(f"the sides of a patch must be powers of two up to {most} for {stages} stages, not {side}")
    later = min(power, stages - 1)
    strides = [2] * later + [1] * (stages - 1 - later)
    return [2 if power > stages - 1 else 1, 2 if power > stages else 1, *strides]


class ResNet2dOptions(TrunkOptions):
    """`trunk: resnet2d`: over the image that the tokens make (tokens.embed: none)."""

    keeps_width: ClassVar[bool] = False

    widths: list[Width] = Field(default_factory=list)
    """Widths of the stages (default: dim, doubled from stage to stage)."""
    stages: list[Width] = Field(default=[2, 2, 2, 2], min_length=1)
    """Number of blocks in each stage (default: [2, 2, 2, 2])."""
    bottleneck: bool = False
    """Whether blocks are bottlenecks of three convolutions with four times their inner width as output, as in ResNet-50
    (default: false)."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> ResNet2d:
        raster, grid = form.raster(), form.grid_shape
        if len(raster) != 3 or not isinstance(grid, tuple) or len(grid) != 2:
            raise UserError(
                f"`model.trunk: resnet2d` needs tokens that are parts of an image, not `tokens.kind: {form.kind}`",
                key="model.trunk",
            )
        if form.width != raster[0] * raster[1] * raster[2]:
            raise UserError(
                f"`model.trunk: resnet2d` needs the pixels as they are, not vectors of width {form.width} made from "
                "them",
                hint="Set tokens.embed: none.",
                key="tokens.embed",
            )
        widths = self.widths or [self.dim << i for i in range(len(self.stages))]
        return ResNet2d(raster, grid, self.stages, widths, self.bottleneck)
