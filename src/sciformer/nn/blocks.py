"""Transformer blocks: attention, MLP, norms and residuals; class attention blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError, one_of
from .attention.attention import Attention, AttentionArguments
from .attention.cache import Store
from .attention.masks import Sight
from .dropout import Dropout
from .norms import DropPath, make_norm
from .positions import Rotation
from .ragged import Ragged
from .watch import Watch, inner_watch

NORM_POSITIONS = ("pre", "post")
NORMFORMER = ("head_scale", "attention_norm", "hidden_norm", "residual_scale")
EXTRAS = (*NORMFORMER, "output_scale")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "swiglu": F.silu,  # activation of the gate; see MLP
}


class MLP(nn.Module):
    """MLP with one hidden layer.

        y = W_2 act(W_1 x)                     with biases if `bias`
        y = W_2 (silu(W_g x) * W_1 x)          activation `swiglu` (arXiv 2002.05202)

    `norm` is the norm between the activation and W_2 (NormFormer, arXiv 2110.09456).
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        activation: str = "gelu",
        dropout: float = 0.0,
        bias: bool = True,
        norm: str = "none",
        epsilon: float | None = None,
    ) -> None:
        super().__init__()
        one_of("the activation", activation, ACTIVATIONS)
        self.activation, self.gated = activation, activation == "swiglu"
        self.up = nn.Linear(dim, 2 * hidden if self.gated else hidden, bias=bias)
        self.norm = make_norm(norm, hidden, bias, epsilon)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(hidden, dim, bias=bias)
        self.plain = norm == "none"

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, -1)
            x = F.silu(gate) * x
        else:
            x = ACTIVATIONS[self.activation](x)
        if self.training and self.dropout.p > 0:
            x = self.dropout(x)
        return self.down(x if self.plain else self.norm(x))


class BlockArguments(AttentionArguments, total=False):
    """Keyword arguments of Block, passed on by trunks."""

    norm_position: str
    norm: str
    activation: str
    mlp_ratio: float
    dropout: float
    attention_dropout: float | None
    hidden_dropout: float | None
    extras: Sequence[str]
    residual: bool
    parallel_residual: bool


def block_norm(dim: int, options: BlockArguments, wanted: bool = True) -> nn.Module:
    """Norm with the options of a block, or the identity if not `wanted`."""
    name = options.get("norm", "layer") if wanted else "none"
    return make_norm(name, dim, options.get("bias", True), options.get("epsilon"))


class Block(nn.Module):
    """Transformer block: attention, optional cross-attention, MLP.

        pre:   x <- x + attention(norm(x));   x <- x + cross(norm(x), memory);   x <- x + mlp(norm(x))
        post:  x <- norm(x + attention(x));   x <- norm(x + cross(x, memory));   x <- norm(x + mlp(x))
        pre, with `parallel_residual`:   x <- x + attention(norm(x)) + mlp(norm(x))      (GPT-NeoX, arXiv 2204.06745)

    cross      whether the block attends to a memory, as in a decoder
    mlp_ratio  width of the hidden layer of the MLP divided by `dim`
    dropout    dropout rate of the output of each branch; also the default of `attention_dropout` (attention weights)
               and `hidden_dropout` (hidden activations of the MLP)
    drop_path  rate of stochastic depth, which drops whole branches
    residual   whether x is added to the output of each branch; without it (ASTROMER, arXiv 2205.01677) a post-norm
               block is x <- norm(attention(x)); x <- norm(mlp(x))
    extras     parts of NormFormer (arXiv 2110.09456): `head_scale`, a learned scale of each head; `attention_norm`, a
               norm after attention; `hidden_norm`, a norm inside the MLP; `residual_scale`, a learned scale of the
               residual of the MLP. The Particle Transformer (arXiv 2202.03772) replaces `head_scale` by `output_scale`,
               a learned scale of each of H equal parts of the output of W_o
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        cross: bool = False,
        norm_position: str = "pre",
        norm: str = "layer",
        activation: str = "gelu",
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        hidden_dropout: float | None = None,
        drop_path: float = 0.0,
        extras: Sequence[str] = (),
        residual: bool = True,
        parallel_residual: bool = False,
        **options: Unpack[AttentionArguments],
    ) -> None:
        super().__init__()
        one_of("norm_position", norm_position, NORM_POSITIONS)
        for option in options:
            one_of("options", option, BlockArguments.__annotations__)
        if isinstance(extras, str):
            raise UserError(f"extras must be a tuple of names, not {extras!r}", hint=f"Write extras=({extras!r},).")
        for extra in extras:
            one_of("extras", extra, EXTRAS)
        if not residual and (drop_path or "residual_scale" in extras):
            option = f"drop_path {drop_path:g}" if drop_path else "the extra residual_scale"
            raise UserError(f"{option} needs blocks with a residual connection, but residual is False")
        self.pre, self.residual, self.parallel_residual = norm_position == "pre", residual, parallel_residual
        if parallel_residual and (cross or not (self.pre and residual) or "residual_scale" in extras):
            others = {"cross": cross, "norm_position post": not self.pre, "residual False": not residual}
            found = next((name for name, here in others.items() if here), "the extra residual_scale")
            message = f"blocks with parallel_residual=True cannot be combined with {found}"
            raise UserError(message, key="model.parallel_residual")
        bias, epsilon = options.get("bias", True), options.get("epsilon")
        head_scale = "head_scale" in extras
        seldom = dropout if attention_dropout is None else attention_dropout
        self.attention = Attention(dim, heads, dropout=seldom, head_scale=head_scale, **options)
        self.attention_norm = make_norm(norm, dim, bias, epsilon)
        self.attention_out_norm = make_norm(norm if "attention_norm" in extras else "none", dim, bias, epsilon)
        self.cross = Attention(dim, heads, dropout=seldom, head_scale=head_scale, **options) if cross else None
        self.cross_norm = make_norm(norm, dim, bias, epsilon) if cross else None
        inner = norm if "hidden_norm" in extras else "none"
        within = dropout if hidden_dropout is None else hidden_dropout
        self.mlp = MLP(dim, round(mlp_ratio * dim), activation, within, bias, inner, epsilon)
        self.mlp_norm = make_norm(norm, dim, bias, epsilon)
        self.output_scale = nn.Parameter(torch.ones(heads, 1)) if "output_scale" in extras else None
        self.residual_scale = nn.Parameter(torch.ones(dim)) if "residual_scale" in extras else None
        self.dropout = Dropout(dropout)
        self.drop_path = DropPath(drop_path)
        self.drops = dropout > 0 or drop_path > 0

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
        """Output (B, N, D) of the block for tokens x (B, N, D) and a memory (B, M, D).

        sight         visible tokens and the bias of the self-attention
        memory_sight  visible tokens of the memory
        """
        ragged = None if sight is None else sight.packed
        y = self.attention(
            self.attention_norm(x) if self.pre else x,
            sight=sight,
            rotation=rotation,
            store=store,
            watch=inner_watch(watch, "attention"),
        )
        if self.parallel_residual:
            return self.join(self.feed(x, ragged), self.settle(y), self.attention_norm, ragged)
        x = self.join(x, self.settle(y), self.attention_norm, ragged)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            y = self.cross(
                self.cross_norm(x) if self.pre else x,
                memory,
                memory_sight,
                store=store,
                watch=inner_watch(watch, "cross"),
            )
            x = self.join(x, y, self.cross_norm, ragged)
        return self.feed(x, ragged)

    def settle(self, y: Tensor) -> Tensor:
        """Apply the optional scale and norm of the attention output (`extras`)."""
        if self.output_scale is not None:
            y = (y.unflatten(-1, (len(self.output_scale), -1)) * self.output_scale).flatten(-2)
        return self.attention_out_norm(y)

    def join(self, x: Tensor, y: Tensor, norm: nn.Module, ragged: Ragged | None = None) -> Tensor:
        """Residual sum x + y with a branch y; normalised if the block is post-norm.

        Without residual connections the sum is only y.
        """
        if self.training and self.drops:  # skipping calls without effect saves time in small models
            y = self.drop_path(self.dropout(y), ragged)
        x = x + y if self.residual else y
        return x if self.pre else norm(x)

    def feed(self, x: Tensor, ragged: Ragged | None = None) -> Tensor:
        """Apply the MLP with norm and residual connection."""
        y = self.mlp(self.mlp_norm(x) if self.pre else x)
        return self.join(x if self.residual_scale is None else x * self.residual_scale, y, self.mlp_norm, ragged)


class ClassBlock(nn.Module):
    """Class attention (CaiT, arXiv 2103.17239): the class token c is the only query.

        u = norm([c; x]);   c <- c + attention(query = u_0, keys and values = u);   c <- c + mlp(norm(c))

    With `raw_query` the query is c instead of u_0, as in the Particle Transformer (arXiv 2202.03772).
    """

    def __init__(self, dim: int, heads: int, *, raw_query: bool = False, **options: Unpack[BlockArguments]) -> None:
        super().__init__()
        self.raw_query = raw_query
        self.block = Block(dim, heads, **options)

    def forward(
        self,
        token: Tensor,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        first: Tensor | None = None,
        sight: Sight | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """New class token (B, 1, D) from the old class token and x (B, N, D).

        valid  (B, N) mask of real tokens, for padded tokens
        first  (B,) rows for the class tokens, for packed tokens
        sight  visible tokens, for packed tokens

        For packed tokens, x has shape (T + B, D) with free rows at `first`, and the class tokens have shape (1, B, D).
        Both layouts use the same call, because FSDP gathers the weights of a block when the block is called.
        """
        place: slice | Tensor
        if first is None:
            both, place = torch.cat([token, x], 1), slice(0, 1)
            sight = Sight(valid=None if valid is None else F.pad(valid, (1, 0), value=True))
        else:
            assert sight is not None
            both, place = x.index_copy(0, first, token[0])[None], first
        block = self.block
        keys = block.attention_norm(both) if block.pre else both
        query = token if self.raw_query else keys[:, place]
        y = block.attention(query, keys, sight, watch=inner_watch(watch, "attention"))
        return block.feed(block.join(token, block.settle(y), block.attention_norm, sight.packed), sight.packed)
