"""Tokens that look at their nearest neighbours: EdgeConv, with the call of every other trunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..layout import Layout, take
from ..norms import BatchNorm
from ..options import TokenForm
from ..watch import Watch
from .base import FlatTrunk
from .deep_sets import WidthOptions

MAX_EXACT_AXES = 4  # axes up to which a distance is a sum of squared differences: close points lose no digits


def nearest(at: Tensor, valid: Tensor | None, count: int, itself: bool = False) -> tuple[Tensor, Tensor]:
    """The places (B, N, count) of the nearest tokens of each, nearest first, and whether there is one.

    at      (B, N, A) where tokens are; what stands at padding is not looked at
    itself  whether a token is its own nearest
    """
    with torch.no_grad(), torch.autocast(at.device.type, enabled=False):
        at = at.to(torch.promote_types(at.dtype, torch.float32))
        if valid is not None:
            at = at.masked_fill(~valid[..., None], 0)
        if at.shape[-1] <= MAX_EXACT_AXES:
            apart = (at[:, :, None] - at[:, None]).square().sum(-1)
        else:
            squares = at.square().sum(-1)
            apart = (squares[:, :, None] + squares[:, None] - 2 * at @ at.transpose(1, 2)).clamp(min=0)
        own = torch.eye(at.shape[1], dtype=torch.bool, device=at.device)
        apart = apart.masked_fill(own, -1 if itself else torch.inf)
        if valid is not None:
            apart = apart.masked_fill(~valid[:, None], torch.inf)
        if torch.compiler.is_compiling() or at.shape[1] < count:  # compiled, the number of tokens may not be known
            apart = F.pad(apart, (0, count), value=torch.inf)
        distance, place = apart.topk(count, largest=False)
        there = distance < torch.inf
        return place.masked_fill(~there, 0), there


class EdgeConv(nn.Module):
    """y_i = relu(s(x_i) + mean over neighbours j of f(x_i, x_j - x_i))  (arXiv 1801.07829, 1902.08570).

    f is `layers` times [W, BatchNorm, relu]; s is the shortcut: x, or [W, BatchNorm] where the width changes; without
    it y_i is the mean alone. A neighbour that is not there (fewer tokens than `neighbours`) counts as x_j = 0.

    The first layer is W (x_i, x_j - x_i) = (W_1 - W_2) x_i + W_2 x_j: products for tokens, not for edges.
    """

    def __init__(
        self,
        inputs: int,
        dim: int,
        neighbours: int,
        *,
        layers: int = 3,
        shortcut: bool = True,
        itself: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.inputs, self.dim, self.neighbours, self.itself = inputs, dim, neighbours, itself
        widths = [2 * inputs, *[dim] * layers]
        self.layers = nn.ModuleList(nn.Linear(*pair, bias=bias) for pair in pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(dim) for _ in range(layers))
        self.shortcut = shortcut
        self.change = nn.Linear(inputs, dim, bias=False) if shortcut and inputs != dim else None
        self.change_norm = BatchNorm(dim) if shortcut and inputs != dim else None

    def forward(self, x: Tensor, at: Tensor, layout: Layout) -> Tensor:
        """x (T, D) and at (T, A) as runs of a layout -> (T, D')."""
        place, there = nearest(layout.pad(at), layout.valid, self.neighbours, self.itself)
        rows = layout.rows.gather(1, place.flatten(1)).view_as(place)
        near = layout.unpad(torch.where(there, rows, layout.total))  # (T, K) rows of the run
        real = None if layout.real is None else layout.real[:, None].expand_as(near)
        first = self.layers[0]
        own, other = first.weight.split(self.inputs, 1)  # type: ignore[operator]
        y = F.linear(x, own - other, first.bias)[:, None] + take(F.linear(x, other), near)  # type: ignore[arg-type]
        y = F.relu(self.norms[0](y, real), inplace=True)
        for layer, norm in zip(self.layers[1:], self.norms[1:]):
            y = F.relu(norm(layer(y), real), inplace=True)
        y = y.mean(1)
        if not self.shortcut:
            return y
        if self.change is not None and self.change_norm is not None:
            x = self.change_norm(self.change(x), layout.real)
        return F.relu(x + y)


class EdgeConvNet(FlatTrunk):
    """BatchNorm, then EdgeConv blocks of `widths`: the first looks for neighbours in `at`, the others in what came out
    before (ParticleNet, arXiv 1902.08570). Without coordinates the first looks in the tokens themselves.
    """

    def __init__(self, inputs: int, widths: Sequence[int], neighbours: int = 16, layers: int = 3) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, [inputs, *widths][-1]
        self.input_norm = BatchNorm(inputs)
        self.blocks = nn.ModuleList(
            EdgeConv(before, width, neighbours, layers=layers) for before, width in zip([inputs, *widths], widths)
        )

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        y = self.input_norm(y, layout.real)
        place = y if at is None else at
        layout.show(y, "input", watch)
        for i, block in enumerate(self.blocks):
            place = y = block(y, place, layout)
            layout.show(y, f"blocks.{i}", watch)
        return y


class NeighbourOptions(WidthOptions):
    """Options of trunks that look for nearest neighbours."""

    neighbours: int = Field(default=16, ge=1)
    """Number k of nearest neighbours of each token (default: 16)."""


class EdgeConvOptions(NeighbourOptions):
    """`trunk: edge_conv`: nearest neighbours in every block (ParticleNet)."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> EdgeConvNet:
        return EdgeConvNet(form.width, self.all_widths(), self.neighbours)
