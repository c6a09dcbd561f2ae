"""Point cloud transformer: EdgeConv blocks, then offset attention."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Layout
from ..norms import BatchNorm
from ..options import TokenForm
from ..watch import Watch, inner_watch
from .base import FlatTrunk
from .edge_conv import EdgeConv, NeighbourOptions


class OffsetAttention(nn.Module):
    """Offset attention x <- x + relu(BatchNorm(W (x - a))) (arXiv 2012.09688).

        a_j = sum_i v_i A_ij / sum_i A_ij,   A_ij = softmax over j of q_i k_j

    Queries q, keys k and values v are BatchNorm(W x); queries and keys have a quarter of the width. The weights A are
    normalised over j by the softmax, and then over i by their sum.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.widths = [max(1, dim // 4), max(1, dim // 4), dim]
        self.qkv = nn.Linear(dim, sum(self.widths), bias=False)
        self.qkv_norm = BatchNorm(sum(self.widths))
        self.out = nn.Linear(dim, dim, bias=False)
        self.out_norm = BatchNorm(dim)

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        """Output (T, D) from flat tokens x (T, D)."""
        q, k, v = layout.pad(self.qkv_norm(self.qkv(x), layout.real)).split(self.widths, -1)
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(x.dtype, torch.float32)
            logits = q.to(exact) @ k.to(exact).transpose(1, 2)
            if layout.valid is not None:
                logits = logits.masked_fill(~layout.valid[:, None], torch.finfo(exact).min)
            shared = logits.softmax(-1)
            if layout.valid is not None:
                shared = shared.masked_fill(~layout.valid[..., None], 0)
            weights = shared.transpose(1, 2)
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
        if watch is not None and watch.wants_attention:
            watch.saw_attention(weights[:, None], "reference", "attention")
        a = layout.unpad(weights.to(v.dtype) @ v)
        return x + F.relu(self.out_norm(self.out(x - a), layout.real))


class PointCloudTransformer(FlatTrunk):
    """Point cloud transformer: EdgeConv blocks, then `depth` offset attentions.

    `widths` are the widths of the EdgeConv blocks. The input and all outputs of the attention layers are concatenated
    and projected to `dim` (arXiv 2102.05073). The first EdgeConv block finds neighbours by the coordinates `at`, or by
    the input features if there are no coordinates. A token is a neighbour of itself.
    """

    def __init__(self, inputs: int, dim: int, depth: int = 3, widths: Sequence[int] = (128, 64), neighbours: int = 20):
        super().__init__()
        self.inputs, self.dim = inputs, dim
        edges = [
            EdgeConv(*pair, neighbours, layers=2, shortcut=False, itself=True, bias=True)
            for pair in pairwise([inputs, *widths])
        ]
        width = [inputs, *widths][-1]
        self.blocks = nn.ModuleList([*edges, *(OffsetAttention(width) for _ in range(depth))])
        self.fuse, self.fuse_norm = nn.Linear((depth + 1) * width, dim), BatchNorm(dim)

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        place = y if at is None else at
        made: list[Tensor] = []
        layout.show(y, "input", watch)
        for i, block in enumerate(self.blocks):
            if isinstance(block, EdgeConv):
                place = y = block(y, place, layout)
            else:
                made = made or [y]
                y = block(y, layout, inner_watch(watch, f"blocks.{i}"))
                made.append(y)
            layout.show(y, f"blocks.{i}", watch)
        y = self.fuse(torch.cat(made or [y], -1))
        return F.relu(self.fuse_norm(y, layout.real))


class PointCloudTransformerOptions(NeighbourOptions):
    """`trunk: point_cloud_transformer`: EdgeConv blocks, then offset attention.

    `widths` are the widths of the EdgeConv blocks (default: two blocks of width dim / 2).
    """

    def build_trunk(
        self, form: TokenForm, causal: bool = False, memory_dim: int | None = None
    ) -> PointCloudTransformer:
        widths = self.widths or [-(-self.dim // 2)] * 2
        return PointCloudTransformer(form.width, self.dim, self.depth, widths, self.neighbours)
