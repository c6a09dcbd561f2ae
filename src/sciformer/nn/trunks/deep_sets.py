"""Every token by itself: the inner function of a deep set, with the call of every other trunk."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import entered
from ..transformer import Valid
from ..watch import Watch


class DeepSets(nn.Module):
    """x <- relu(W x + b) for each token, `widths` one after the other (arXiv 1703.06114, 1810.05165).

    With a sum over tokens behind it and an MLP behind that, any function of a set can be written so.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, [inputs, *widths][-1]
        self.blocks = nn.ModuleList(nn.Linear(*pair) for pair in zip([inputs, *widths], widths))

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        at: Tensor | None = None,
        bias: Tensor | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """(B, N, D) or packed (T, D) -> the same tokens with the width of this trunk."""
        layout, y = entered(self, x, valid, bias)
        if watch is not None:
            watch.saw_hidden(layout.back(y), "input")
        for i, block in enumerate(self.blocks):
            y = F.relu(block(y), inplace=True)
            if watch is not None:
                watch.saw_hidden(layout.back(y), f"blocks.{i}")
        return layout.back(y)
