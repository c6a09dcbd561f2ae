"""Residual network of 1D convolutions over a sequence of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Layout
from ..norms import BatchNorm
from ..options import TokenForm
from ..watch import Watch
from .base import FlatTrunk
from .deep_sets import WidthOptions


class ResidualUnit(nn.Module):
    """Residual unit x <- s(x) + f(f(x)), f = relu(BatchNorm(conv)), kernel size 3.

    s(x) is x, or a convolution of kernel size 1 if the width or the stride changes. The inner f and s have the
    `stride`.
    """

    def __init__(self, inputs: int, dim: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.convs = nn.ModuleList([nn.Conv1d(inputs, dim, 3, stride, padding=1), nn.Conv1d(dim, dim, 3, padding=1)])
        self.norms = nn.ModuleList(BatchNorm(dim) for _ in range(2))
        same = inputs == dim and stride == 1
        self.change: nn.Module = nn.Identity() if same else nn.Conv1d(inputs, dim, 1, stride, bias=False)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Output (B, C, L) from x (B, D, N), with C output channels and L positions.

        real  (B, L) mask of the output
        """
        y = x
        for conv, norm in zip(self.convs, self.norms):
            y = convolved(conv, norm, y, real)
        return self.change(x) + y


def convolved(conv: nn.Module, norm: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply convolution, batch norm and relu: relu(BatchNorm(conv(x))), 0 at padding."""
    y = F.relu(norm(conv(x).transpose(1, 2), real), inplace=True).transpose(1, 2)
    return y if real is None else y.masked_fill(~real[:, None], 0)


class ResNet(FlatTrunk):
    """1D ResNet: BatchNorm, a convolution, then stages of two residual units.

    This is the P-CNN of arXiv 1902.08570. `widths` are the widths of the convolution and of each stage. Each stage
    after the first has stride 2, so a group of tokens shares one output. With three stages, the groups are tokens 0-3,
    4-7, 8-11, ...
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, widths[-1]
        self.input_norm = BatchNorm(inputs)
        self.stem, self.stem_norm = nn.Conv1d(inputs, widths[0], 3, padding=1), BatchNorm(widths[0])
        self.blocks = nn.ModuleList()
        for i, (before, width) in enumerate(pairwise(widths)):
            self.blocks += [ResidualUnit(before, width, 1 if i == 0 else 2), ResidualUnit(width, width, 1)]

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        y = self.input_norm(y, layout.real)
        layout.show(y, "input", watch)
        y, real = layout.pad(y).transpose(1, 2), layout.valid
        place, size = torch.arange(y.shape[2], device=y.device), 1

        def spread(y: Tensor) -> Tensor:
            """Repeat the output of each group for every token of the group."""
            return layout.unpad(y.transpose(1, 2)[:, place // size])

        y = convolved(self.stem, self.stem_norm, y, real)
        for i, block in enumerate(self.blocks):
            size *= block.stride  # type: ignore[assignment, operator]
            real = None if layout.valid is None else layout.valid[:, ::size]
            y = block(y, real)
            if watch is not None:
                layout.show(spread(y), f"blocks.{i}", watch)
        return spread(y)


class ResNetOptions(WidthOptions):
    """`trunk: resnet`: 1D ResNet (`widths`: first convolution, then each stage)."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> ResNet:
        return ResNet(form.width, self.all_widths())
