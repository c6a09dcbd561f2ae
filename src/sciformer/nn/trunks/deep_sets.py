"""Every token by itself: the inner function of a deep set, with the call of every other trunk."""

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
    """x <- relu(W x + b) for each token, `widths` one after the other (arXiv 1703.06114, 1810.05165).

    With a sum over tokens behind it and an MLP behind that, any function of a set can be written so.
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
    """Options of trunks whose blocks have widths of their own; tokens may enter with any width."""

    keeps_width: ClassVar[bool] = False

    widths: list[Width] = Field(default_factory=list)
    """Widths of the layers or blocks (default: `depth` times `dim`)."""

    def all_widths(self) -> list[int]:
        """The widths, or `depth` times `dim`."""
        return self.widths or [self.dim] * max(1, self.depth)


class DeepSetsOptions(WidthOptions):
    """`trunk: deep_sets`: each token by itself."""

    tokens_interact: ClassVar[bool] = False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> DeepSets:
        return DeepSets(form.width, self.all_widths())
