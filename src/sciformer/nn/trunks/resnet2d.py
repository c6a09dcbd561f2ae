"""ResNet over images, assembled from patches of pixels."""

from __future__ import annotations

import math
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
BOTTLENECK_EXPANSION = 4  # output width of a bottleneck block divided by its inner width


class ConvNorm(nn.Module):
    """Convolution, batch norm, and relu if `active`; 0 outside the image."""

    def __init__(self, inputs: int, dim: int, kernel: int, stride: Pair = (1, 1), active: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, dim, kernel, stride, padding=kernel // 2, bias=False)
        self.norm, self.active = BatchNorm(dim), active
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Output (B, C, ...) from x (B, D, ...), with C output channels.

        real  (B, 1, ...) mask of the output
        """
        y = self.conv(x)
        if real is None and (y.numel() > y.shape[1] or not self.training):
            y = self.norm.plain(y)
        else:
            inside = None if real is None else real.expand(len(y), -1, -1, -1)[:, 0]
            y = self.norm(y.movedim(1, -1), inside).movedim(-1, 1)
        y = F.relu(y) if self.active else y
        return y if real is None else y.masked_fill(~real, 0)


class ResidualBlock(nn.Module):
    """Residual block x <- relu(s(x) + f(x)) (arXiv 1512.03385).

    f has two 3 x 3 convolutions. With `bottleneck` it has three: 1 x 1, 3 x 3 and 1 x 1. s(x) is x, or a 1 x 1
    convolution if width or size change. The first 3 x 3 convolution has the stride.
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
        """Output (B, C, ...) from x (B, D, ...), with C output channels.

        before  (B, 1, ...) mask of the input
        real    (B, 1, ...) mask of the output
        """
        y, inside = x, before
        for layer in self.layers:
            inside = inside if layer.conv.stride == (1, 1) else real
            y = layer(y, inside)
        return F.relu(y + (x if self.change is None else self.change(x, real)))


class ResNet2d(PaddedTrunk):
    """ResNet (arXiv 1512.03385): a stem, then stages of residual blocks.

    raster      height, width and channels of the input patches; pixels row by row, channels last
    places      number of rows and columns of patches in an image
    stages      number of blocks of each stage
    widths      inner width of each stage
    bottleneck  whether blocks have three convolutions, with an output of four times the inner width

    There is one output vector per patch, so the product of all strides is the side of a patch. For patches of 32 x 32
    pixels and four stages, the strides are as in the paper: 2 in the stem of 7 x 7, in the max pooling, and in every
    stage except the first. For smaller patches, strides become 1 in this order: max pooling, stem (which becomes
    3 x 3), last stages.
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
            raise UserError(f"each stage needs one width, but there are {len(widths)} widths for {len(stages)} stages")
        self.raster, self.places, self.inputs = raster, places, math.prod(raster)
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
        """Run stem and stages over patches (B, N, pixels).

        cell   row and column of each patch, for images with fewer patches than the shape `places` (default: `at`, if
               `at` has integers)
        """
        grid = Grid.of(self.places, x.shape[1], valid, cell, at, self.training)
        inside = Inside(grid.real, self.raster)
        y = self._image(grid.lay(x))
        if watch is not None:
            watch.saw_hidden(zero_padding(x, valid), "input")
        y = self.stem(y, inside.shrunk(self.down))
        if 2 in self.pool:  # zeros at padding do not change a maximum after relu
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
        """Images (B, channels, height, width) from patches (B, rows, columns, pixels)."""
        high, wide, channels = self.raster
        pixels = laid.unflatten(-1, (high, wide, channels)).transpose(2, 3)
        return pixels.flatten(3, 4).flatten(1, 2).movedim(-1, 1)


class Inside:
    """Mask of the pixels inside the images, at the current resolution.

    real   (B, 1, height, width), or None if all pixels are inside
    left   height and width of a patch at this resolution, in pixels
    """

    def __init__(self, cells: Tensor | None, raster: tuple[int, int, int]) -> None:
        self.cells, self.left = cells, raster[:2]
        self.real = self._grown()

    def shrunk(self, stride: Pair) -> Tensor | None:
        """Mask of the pixels inside the images after a layer with stride `stride`."""
        if stride != (1, 1):
            self.left = self.left[0] // stride[0], self.left[1] // stride[1]
            self.real = self._grown()
        return self.real

    def _grown(self) -> Tensor | None:
        if self.cells is None:
            return None
        return self.cells.repeat_interleave(self.left[0], 1).repeat_interleave(self.left[1], 2)[:, None]


def _strides(side: int, stages: int) -> list[int]:
    """Strides of stem, pooling and later stages; the product is `side`."""
    power = side.bit_length() - 1
    if side != 1 << power or power > stages + 1:
        most = 1 << (stages + 1)
        wanted = f"a power of two up to {most}"
        raise UserError(f"with {stages} stages, each side of a patch must be {wanted} pixels, not {side}")
    later = min(power, stages - 1)
    strides = [2] * later + [1] * (stages - 1 - later)
    return [2 if power > stages - 1 else 1, 2 if power > stages else 1, *strides]


class ResNet2dOptions(TrunkOptions):
    """`trunk: resnet2d`: ResNet over whole images (needs tokens.embed: none)."""

    keeps_width: ClassVar[bool] = False

    widths: list[Width] = Field(default_factory=list)
    """Inner widths of the stages (default: dim, doubled from stage to stage)."""
    stages: list[Width] = Field(default=[2, 2, 2, 2], min_length=1)
    """Number of blocks in each stage (default: [2, 2, 2, 2])."""
    bottleneck: bool = False
    """Use blocks of three convolutions, as in ResNet-50 (default: false). The output of a block then has four times its
    inner width."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> ResNet2d:
        raster, grid = form.raster(), form.grid_shape
        if len(raster) != 3 or not isinstance(grid, tuple) or len(grid) != 2:
            message = f"`model.trunk: resnet2d` needs image patches as tokens, not `tokens.kind: {form.kind}`"
            raise UserError(message, key="model.trunk")
        if form.width != (pixels := math.prod(raster)):
            found = f"not embedded patches of width {form.width}"
            message = f"`model.trunk: resnet2d` needs the {pixels} pixel values of each patch, {found}"
            raise UserError(message, hint="Set tokens.embed: none.", key="tokens.embed")
        widths = self.widths or [self.dim << i for i in range(len(self.stages))]
        return ResNet2d(raster, grid, self.stages, widths, self.bottleneck)
