"""Transformer with adaptive norms, as in diffusion transformers."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ..attention.cache import Store
from ..attention.masks import Sight
from ..blocks import Block
from ..positions import Rotation
from ..transformer import Encoder
from ..watch import Watch, inner_watch


class AdaptiveBlock(Block):
    """Transformer block with adaptive norms (adaLN-Zero, arXiv 2212.09748).

        (b_i, s_i, g_i) = W silu(c) + v                           three vectors of width D for each branch
        x <- x + g_1 attention((1 + s_1) norm(x) + b_1)
        x <- x + g_2 cross((1 + s_2) norm(x) + b_2, memory)       if `cross`
        x <- x + g_3 mlp((1 + s_3) norm(x) + b_3)

    c (B, D) is the condition of a sample. W and v are zero before training, so that each block is the identity.
    """

    def __init__(self, dim: int, heads: int, *, cross: bool = False, **options: Any) -> None:
        super().__init__(dim, heads, cross=cross, **options)
        if not (self.pre and self.residual) or self.parallel_residual or self.residual_scale is not None:
            message = "adaptive norms need blocks with norm_position pre and plain residual connections"
            raise UserError(message, key="model.norm_position")
        self.modulation = nn.Linear(dim, (9 if cross else 6) * dim)
        self.reset_modulation()

    def reset_modulation(self) -> None:
        """Set the modulation to zero, so that the block is the identity."""
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        sight: Sight | None = None,
        memory: Tensor | None = None,
        memory_sight: Sight | None = None,
        *,
        condition: Tensor,
        rotation: Rotation | None = None,
        store: Store | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Map tokens x (B, N, D) to (B, N, D).

        sight, memory_sight  tokens that each token sees, in x and in the memory
        memory               (B, M, D), or None without cross-attention
        condition            (B, D)
        """
        parts = self.modulation(F.silu(condition))[:, None].chunk(9 if self.cross is not None else 6, -1)
        shift, scale, gate = parts[:3]
        y = self.attention(
            self.attention_norm(x) * (1 + scale) + shift,
            sight=sight,
            rotation=rotation,
            store=store,
            watch=inner_watch(watch, "attention"),
        )
        x = self.join(x, gate * self.settle(y), self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            shift, scale, gate = parts[3:6]
            y = self.cross(
                self.cross_norm(x) * (1 + scale) + shift,
                memory,
                memory_sight,
                store=store,
                watch=inner_watch(watch, "cross"),
            )
            x = self.join(x, gate * y, self.cross_norm)
        shift, scale, gate = parts[-3:]
        return self.join(x, gate * self.mlp(self.mlp_norm(x) * (1 + scale) + shift), self.mlp_norm)


class AdaptiveTransformer(Encoder):
    """Transformer of adaptive blocks, for padded tokens.

    `forward` also takes the condition (B, D).
    """

    block: ClassVar[type[Block]] = AdaptiveBlock

    def reset(self, init: str = "normal") -> None:
        super().reset(init)
        for block in self.blocks:
            assert isinstance(block, AdaptiveBlock)
            block.reset_modulation()


class LevelEmbedding(nn.Module):
    """Embedding of a number t in [0, 1], such as a noise level.

        f = [cos(w_i t), sin(w_i t)],   y = W_2 silu(W_1 f + b_1) + b_2

    The frequencies w_i go from 1 to 1000, evenly spaced in the logarithm.

    features   number of frequencies
    """

    frequencies: Tensor

    def __init__(self, dim: int, features: int = 64) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(0, 3, features), persistent=False)
        self.first, self.second = nn.Linear(2 * features, dim), nn.Linear(dim, dim)
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, t: Tensor) -> Tensor:
        """Map numbers (B,) to vectors (B, D)."""
        angle = t.float()[:, None] * self.frequencies
        features = torch.cat([angle.cos(), angle.sin()], -1).to(self.first.weight.dtype)
        return self.second(F.silu(self.first(features)))
