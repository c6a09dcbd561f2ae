"""Patch embeddings, and the readout of masked patches."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ...data.batch import Valid
from ...errors import UserError
from ...nn.grids import Grid
from ...nn.ragged import Ragged
from ...nn.trunks.resnet2d import ResNet2d
from ...tokens.base import Columns
from ...tokens.protocols import Readout

MIN_STEM_CHANNELS = 24  # smallest number of channels after a convolution
MIN_RESIDUAL_CHANNELS = 16  # smallest width of a stage of a residual stem


class PatchEmbedding(nn.Module):
    """Linear patch embedding x = W p + b of the pixels p (arXiv 2010.11929)."""

    def __init__(self, pixels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(pixels, dim)

    def forward(self, columns: Columns) -> Tensor:
        """Embed patches (..., N, pixels) -> (..., N, D)."""
        return self.linear(columns["patch"])


class Pixels(nn.Module):
    """Identity embedding: the pixels of each patch."""

    def forward(self, columns: Columns) -> Tensor:
        """Return the patches (..., N, pixels)."""
        return columns["patch"]


class Stem(nn.Module):
    """Convolutional stem: 3 x 3 convolutions with stride 2 (arXiv 2106.14881).

        x <- act(norm(conv(x))), repeated until each patch is one pixel, then x <- W x + b

    The number of channels doubles with each convolution up to D / 2, and is at least `MIN_STEM_CHANNELS`. Unlike in the
    paper, LayerNorm over channels replaces BatchNorm, and activations outside an image are set to 0. The result
    therefore depends neither on padding nor on other samples of the batch.
    """

    masked = True

    def __init__(self, raster: tuple[int, int, int], places: tuple[int, int], dim: int) -> None:
        super().__init__()
        height, width, channels = raster
        if height & (height - 1) or width & (width - 1):
            message = f"tokens.embed: convolution needs patch sides that are powers of two, not {height} x {width}"
            raise UserError(message, key="tokens.patch")
        self.raster, self.places = raster, places
        halvings = [side.bit_length() - 1 for side in (height, width)]
        depth = max(1, *halvings)
        widths = [channels, *(max(MIN_STEM_CHANNELS, dim >> (depth - i)) for i in range(depth))]
        strides = [tuple(2 if i < count else 1 for count in halvings) for i in range(depth)]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride, padding=1)  # type: ignore[arg-type]
            for before, after, stride in zip(widths, widths[1:], strides)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(after) for after in widths[1:])
        self.strides = strides
        self.linear = nn.Linear(widths[-1], dim)

    def forward(self, columns: Columns, valid: Valid = None) -> Tensor:
        """Embed patches (B, N, pixels) -> (B, N, D); packed: (T, pixels) -> (T, D)."""
        if isinstance(valid, Ragged):
            named = {name: valid.pad(columns[name]) for name in ("patch", "at", "cell") if name in columns}
            return valid.flatten(self(named, valid.valid))
        patches = columns["patch"]
        if not patches.numel():
            return self.linear(patches.new_zeros(*patches.shape[:2], self.linear.in_features))
        grid = Grid.of(self.places, patches.shape[1], valid, columns.get("cell"), columns.get("at"), self.training)
        x, real = assemble_patches(grid.lay(patches), self.raster), grid.real
        size, wide = self.raster[:2]
        for conv, norm, stride in zip(self.convs, self.norms, self.strides):
            size, wide = size // stride[0], wide // stride[1]
            x = F.gelu(norm(conv(x).movedim(1, -1)))
            if real is not None:
                there = real.repeat_interleave(size, 1).repeat_interleave(wide, 2)
                x = x.masked_fill(~there[..., None], 0)
            x = x.movedim(-1, 1)
        return self.linear(grid.pick(x.movedim(1, -1)))


def assemble_patches(laid: Tensor, raster: tuple[int, int, int]) -> Tensor:
    """Assemble patches (B, rows, columns, pixels) into images (B, channels, H, W)."""
    b, rows, columns, _ = laid.shape
    height, width, channels = raster
    pieces = laid.view(b, rows, columns, height, width, channels).permute(0, 5, 1, 3, 2, 4)
    return pieces.reshape(b, channels, rows * height, columns * width)


class ResidualStem(nn.Module):
    """Residual stem: a small ResNet over the whole image.

        x <- W f(x) + b

    This is the hybrid of arXiv 2010.11929. f is a `ResNet2d` with one block in each stage; its
    output is a vector for each patch. Each stage after the first has twice the width of the stage before. Unlike
    `Stem`, it has batch norms.
    """

    masked = True

    def __init__(self, raster: tuple[int, int, int], places: tuple[int, int], dim: int, windows: bool = False) -> None:
        """Make the stem.

        raster    sides and number of channels of a patch
        places    rows and columns of the grid
        dim       width of the output
        windows   whether images may be cut, so that their patches need not fill the grid
        """
        super().__init__()
        self.full = 0 if windows else places[0] * places[1]
        depth = max(1, max(raster[:2]).bit_length() - 1)
        widths = [max(MIN_RESIDUAL_CHANNELS, dim >> (depth - 1 - i)) for i in range(depth)]
        self.trunk = ResNet2d(raster, places, [1] * depth, widths)
        self.linear = nn.Linear(self.trunk.dim, dim)

    def forward(self, columns: Columns, valid: Valid = None) -> Tensor:
        """Embed patches (B, N, pixels) -> (B, N, D); packed: (T, pixels) -> (T, D)."""
        patches, at = columns["patch"], columns.get("at")
        if patches.dim() == 3 and patches.shape[1] == self.full:  # already in the order of the grid
            at = None
        y: Tensor = self.trunk(patches, valid, at=at, cell=columns.get("cell"))
        return self.linear(y)


class PatchReadout(Readout):
    """Pixel readout p = W h + b with mean squared error (arXiv 2111.06377)."""

    def __init__(self, pixels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, pixels)

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        return ((self.linear(hidden).float() - target["patch"]) ** 2).mean(-1)

    def predict(self, hidden: Tensor) -> Columns:
        return {"patch": self.linear(hidden)}
