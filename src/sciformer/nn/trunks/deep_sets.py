"""Deep sets: the same MLP for every token; tokens do not interact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..layout import Layout
from ..options import DepthOptions, TokenForm, Width
from ..watch import Watch
from .base import FlatTrunk


class DeepSets(FlatTrunk):
    """Deep set: layers x <- relu(W x + b) of the given `widths`, for each token alone.

    With a sum over tokens and an MLP after it, a deep set can represent any function of a set (arXiv 1703.06114,
    1810.05165).
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, [inputs, *widths][-1]
        self.blocks = nn.ModuleList(nn.Linear(*pair) for pair in zip([inputs, *widths], widths))

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        layout.show(y, "input", watch)
        for i, block in enumerate(self.blocks):
            y = F.relu(block(y), inplace=True)
            layout.show(y, f"blocks.{i}", watch)
        return y


class WidthOptions(DepthOptions):
    """Base class of the options of trunks with a separate width for each block."""

    keeps_width: ClassVar[bool] = False

    widths: list[Width] = Field(default_factory=list)
    """Widths of the layers or blocks (default: width `dim` for each of `depth` layers)."""

    def all_widths(self) -> list[int]:
        """Widths of all layers."""
        return self.widths or [self.dim] * max(1, self.depth)


class DeepSetsOptions(WidthOptions):
    """`trunk: deep_sets`: the same MLP for every token."""

    tokens_interact: ClassVar[bool] = False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> DeepSets:
        return DeepSets(form.width, self.all_widths())
