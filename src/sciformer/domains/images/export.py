"""Preprocessing of images as a PyTorch module, for an exported graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ...tokens.base import Columns
from ...tokens.protocols import Preprocessing

if TYPE_CHECKING:
    from .tokens import Patches

STRETCH_MODULES = {
    "none": lambda x, s: x,
    "asinh": lambda x, s: torch.asinh(x / s),
    "log": lambda x, s: x.sign() * (x.abs() / s).log1p(),
    "sqrt": lambda x, s: x.sign() * x.abs().sqrt(),
}


class ImagePreprocessing(Preprocessing):
    """Preprocessing of images of one size into normalised patches, in PyTorch.

    The result is the same as with `Patches.tokenize` and `Patches.normalise`.
    """

    source = "image"
    axes = ("height", "width")
    mean: Tensor
    deviation: Tensor

    def __init__(self, tokens: Patches) -> None:
        super().__init__()
        self.sides, self.places, self.scale = tokens.cutting.sides, tokens.grid_shape, tokens.scale
        self.stretch, self.softening = tokens.stretch, tokens.softening
        height, width, _ = tokens.shape
        self.sizes = [(height, width), (width + 1, height + 3), (2 * height - 1, width)]
        deviation = torch.tensor(tokens.state["deviation"])
        self.register_buffer("mean", torch.tensor(tokens.state["mean"]))
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1))

    def example(self, samples: int, sizes: tuple[int, ...]) -> Tensor:
        """Random images (samples, height, width, channels) scaled like the training data."""
        noise = torch.randn(samples, *sizes, len(self.mean), generator=torch.Generator().manual_seed(sum(sizes)))
        return noise * self.deviation + self.mean

    def forward(self, image: Tensor) -> Columns:
        """Token columns and `valid` mask of images (batch, height, width, channels)."""
        batch, height, width, channels = image.shape
        (high, wide), (down, aside) = self.sides, self.places
        rows, columns = (height + high - 1) // high, (width + wide - 1) // wide
        x = STRETCH_MODULES[self.stretch](image, self.softening) - self.mean
        x = x if self.scale == "none" else x / self.deviation
        if self.scale == "image":
            deviation = x.std((1, 2, 3), correction=0, keepdim=True)
            x = (x - x.mean((1, 2, 3), keepdim=True)) / torch.where(deviation > 0, deviation, 1)
        x = F.pad(x, (0, 0, 0, columns * wide - width, 0, rows * high - height))
        x = x + self.mean if self.scale == "none" else x
        x = x.reshape(batch, rows, high, columns, wide, channels).transpose(2, 3)
        row = (torch.arange(rows) + 0.5) * (down / rows) - 0.5
        column = (torch.arange(columns) + 0.5) * (aside / columns) - 0.5
        at = torch.stack([row[:, None].expand(rows, columns), column.expand(rows, columns)], -1)
        count = rows * columns
        return {
            "patch": x.reshape(batch, count, high * wide * channels),
            "at": at.reshape(1, count, 2).expand(batch, count, 2).float(),
            "valid": torch.ones(batch, count, dtype=torch.bool),
        }
