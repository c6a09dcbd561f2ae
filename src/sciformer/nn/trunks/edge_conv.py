"""EdgeConv: graph convolution over nearest neighbours."""

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

MAX_EXACT_AXES = 4  # up to this number of axes, distances are computed from differences, which is exact for near points


def nearest(at: Tensor, valid: Tensor | None, count: int, itself: bool = False) -> tuple[Tensor, Tensor]:
    """Indices (B, N, count) of the nearest neighbours, nearest first, and their mask.

    The mask is False where a sample has fewer tokens than `count`.

    at      (B, N, A) coordinates of the tokens; padding is ignored
    itself  whether a token counts as its own nearest neighbour
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
        if torch.compiler.is_compiling() or at.shape[1] < count:  # a compiler possibly does not know the token count
            apart = F.pad(apart, (0, count), value=torch.inf)
        distance, place = apart.topk(count, largest=False)
        there = distance < torch.inf
        return place.masked_fill(~there, 0), there


class EdgeConv(nn.Module):
    """EdgeConv: graph convolution over nearest neighbours (arXiv 1801.07829).

        y_i = relu(s(x_i) + mean over neighbours j of f(x_i, x_j - x_i))

    f consists of `layers` layers [linear, BatchNorm, relu]. The shortcut s(x) is x, or [linear, BatchNorm] of x if the
    width changes. Without a shortcut, y_i is only the mean. Missing neighbours (in small samples) count as x_j = 0.

    The first layer is W (x_i, x_j - x_i) = (W_1 - W_2) x_i + W_2 x_j. Its products are computed once per token, and not
    once per edge.
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
        """Output (T, C) of width C = `dim` from flat tokens x (T, D) at `at` (T, A)."""
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
    """ParticleNet (arXiv 1902.08570): BatchNorm, then EdgeConv blocks of `widths`.

    The first block finds neighbours by the coordinates `at`, or by the input features if there are no coordinates. Each
    later block finds neighbours by the output of the previous block.
    """

    def __init__(self, inputs: int, widths: Sequence[int], neighbours: int = 16) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, [inputs, *widths][-1]
        self.input_norm = BatchNorm(inputs)
        self.blocks = nn.ModuleList(EdgeConv(*pair, neighbours) for pair in pairwise([inputs, *widths]))

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        y = self.input_norm(y, layout.real)
        place = y if at is None else at
        layout.show(y, "input", watch)
        for i, block in enumerate(self.blocks):
            place = y = block(y, place, layout)
            layout.show(y, f"blocks.{i}", watch)
        return y


class NeighbourOptions(WidthOptions):
    """Base class of the options of trunks with nearest neighbours."""

    neighbours: int = Field(default=16, ge=1)
    """Number of nearest neighbours of each token (default: 16)."""


class EdgeConvOptions(NeighbourOptions):
    """`trunk: edge_conv`: graph convolutions over nearest neighbours (ParticleNet)."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> EdgeConvNet:
        return EdgeConvNet(form.width, self.all_widths(), self.neighbours)
