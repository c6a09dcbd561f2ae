"""Conformer: attention and convolutions in every block, for evenly spaced series."""

from __future__ import annotations

from typing import Any, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...errors import UserError, one_of
from ..attention.attention import Attention, AttentionArguments
from ..attention.cache import Store
from ..attention.masks import FULL, Pattern, Sight
from ..blocks import NORM_POSITIONS
from ..dropout import Dropout
from ..norms import BatchNorm, make_norm
from ..options import TokenForm
from ..positions import Position, Rotation
from ..ragged import Ragged, zero_padding
from ..transformer import AttentionTrunkOptions, Encoder
from ..watch import Watch, inner_watch


class LineConv(nn.Module):
    """1D convolution, batch norm and SiLU over the tokens of a sequence.

        y_i = silu(BatchNorm(sum_k W_k x_(i+k))),   |k| <= kernel // 2

    Beyond the ends of a sequence, and at padding, x counts as zero. In packed sequences, neighbours from another
    sequence also count as zero.
    """

    def __init__(self, dim: int, kernel: int = 3) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise UserError(f"the kernel size must be odd, not {kernel}")
        self.kernel = kernel
        self.linear = nn.Linear(kernel * dim, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor, valid: Tensor | None = None, ragged: Ragged | None = None) -> Tensor:
        """Convolve x (B, N, D), or packed x (1, T, D) with its layout `ragged`."""
        real = valid if ragged is None else ragged.inside[None]
        reach, n = self.kernel // 2, x.shape[1]
        wide = F.pad(zero_padding(x, real), (0, 0, reach, reach))
        seen = [wide[:, k : k + n] for k in range(self.kernel)]
        if ragged is not None:
            owner = F.pad(ragged.sample, (reach, reach), value=-1)
            strange = [(owner[k : k + n] != ragged.sample)[None, :, None] for k in range(self.kernel)]
            seen = [part.masked_fill(away, 0) for part, away in zip(seen, strange)]
        return F.silu(self.norm(self.linear(torch.cat(seen, -1)), real))


class ConformerArguments(AttentionArguments, total=False):
    """Keyword arguments of ConformerBlock, passed on by the trunk."""

    norm_position: str
    norm: str
    dropout: float
    attention_dropout: float | None


class ConformerBlock(nn.Module):
    """Astroconformer block (arXiv 2309.16316): attention, then convolutions f.

        post:  x <- norm(x + attention(x));   x <- norm(x + f(x)) for each convolution
        pre:   x <- x + attention(norm(x));   x <- x + f(norm(x)) for each convolution

    width         width of each convolution f (LineConv), in tokens
    convolutions  number of convolutions
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        width: int = 3,
        convolutions: int = 2,
        norm_position: str = "post",
        norm: str = "layer",
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        **options: Unpack[AttentionArguments],
    ) -> None:
        super().__init__()
        one_of("norm_position", norm_position, NORM_POSITIONS)
        self.pre = norm_position == "pre"
        bias, epsilon = options.get("bias", True), options.get("epsilon")
        seldom = dropout if attention_dropout is None else attention_dropout
        self.attention = Attention(dim, heads, dropout=seldom, **options)
        self.attention_norm = make_norm(norm, dim, bias, epsilon)
        self.convs = nn.ModuleList(LineConv(dim, width) for _ in range(convolutions))
        self.conv_norms = nn.ModuleList(make_norm(norm, dim, bias, epsilon) for _ in range(convolutions))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        sight: Sight | None = None,
        memory: Tensor | None = None,
        memory_sight: Sight | None = None,
        *,
        rotation: Rotation | None = None,
        store: Store | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Output (B, N, D) from x (B, N, D).

        The arguments are the same as of Block, but `memory` and `store` must be None.
        """
        assert memory is None
        assert store is None
        valid, ragged = (None, None) if sight is None else (sight.valid, sight.packed)
        y = self.attention_norm(x) if self.pre else x
        y = self.attention(y, sight=sight, rotation=rotation, watch=inner_watch(watch, "attention"))
        x = self._join(x, y, self.attention_norm)
        for conv, norm in zip(self.convs, self.conv_norms):
            x = self._join(x, conv(norm(x) if self.pre else x, valid, ragged), norm)
        return x

    def _join(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(y)
        return x if self.pre else norm(x)


class Conformer(Encoder):
    """Encoder with `depth` blocks of attention and convolutions over `width` tokens.

    Convolutions act on neighbours in the order of the tokens, which should be evenly spaced. Batch norms of the
    convolutions are over all real tokens of a batch.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        *,
        width: int = 3,
        convolutions: int = 2,
        position: Position | None = None,
        pattern: Pattern = FULL,
        embedding_norm: bool = False,
        last_norm: bool = True,
        **options: Unpack[ConformerArguments],
    ) -> None:
        options.setdefault("norm_position", "post")
        norms: dict[str, Any] = {"embedding_norm": embedding_norm, "last_norm": last_norm}
        super().__init__(dim, 0, heads, position=position, pattern=pattern, **norms, **options)
        self.depth = depth
        self.blocks = nn.ModuleList(
            ConformerBlock(dim, heads, width=width, convolutions=convolutions, **options) for _ in range(depth)
        )
        self.reset()


class ConformerOptions(AttentionTrunkOptions):
    """`trunk: conformer`: attention and convolutions, for evenly spaced tokens."""

    kernel: int = Field(default=3, ge=1)
    """Width of the convolutions in tokens (default: 3)."""

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> Conformer:
        made = Conformer(self.dim, self.depth, self.heads, width=self.kernel, **self.attention_options(form))
        if self.init != "normal":
            made.reset(self.init)
        return made
