"""Every token by itself: the inner function of a deep set, with the call of every other trunk."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Layout
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
