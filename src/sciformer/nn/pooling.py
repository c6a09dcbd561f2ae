"""Poolings: from the tokens of a sample to one vector.

Every pooling takes padded (B, N, D) or packed (T, D) tokens and returns (B, D). The result is finite, even for samples
without tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..errors import UserError
from .attention.attention import Attention
from .attention.masks import FULL, Documents, Sight
from .blocks import BlockArguments, ClassBlock, block_norm
from .norms import make_norm
from .options import PoolingOptions, TrunkOptions
from .ragged import Ragged, zero_padding
from .transformer import TransformerOptions, Valid, check_layout, redraw
from .trunks.recurrent import Recurrent
from .watch import Watch, inner_watch


class MeanPool(nn.Module):
    """Mean pooling: y = mean of x_i over real tokens; 0 without tokens."""

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        sums = _sum(x, valid)
        if valid is None:
            return (sums / max(1, x.shape[1])).to(x.dtype)
        count = valid.lengths[:, None] if isinstance(valid, Ragged) else valid.sum(1, keepdim=True)
        return (sums / count.clamp(min=1)).to(x.dtype)


class SumPool(nn.Module):
    """Sum pooling: y = sum of x_i over real tokens (arXiv 1703.06114)."""

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        return _sum(x, valid)


def _sum(x: Tensor, valid: Valid) -> Tensor:
    check_layout(x, valid)
    y = x.to(torch.promote_types(x.dtype, torch.float32))  # long sums overflow in half precision
    if isinstance(valid, Ragged):
        return y.new_zeros(len(valid) + 1, x.shape[1]).index_add(0, valid.sample, y)[:-1]
    return zero_padding(y, valid).sum(1)


class MaxPool(nn.Module):
    """Max pooling: y_d = max of x_id over real tokens i (arXiv 1408.5882).

    The result is 0 for samples without tokens.
    """

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        x, mask = _padded(x, valid)
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], x.shape[2])
        if mask is None:
            return x.amax(1)
        return x.masked_fill(~mask[..., None], -torch.inf).amax(1).masked_fill(~mask.any(1, keepdim=True), 0)


class FirstPool(nn.Module):
    """Pooling by the first real token, for example a special token; 0 without tokens."""

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        return _ends(x, valid)[0]


class LastPool(nn.Module):
    """Pooling by the last real token, for recurrent trunks; 0 without tokens.

    With `bidirectional` the second half of the width comes from the first real token, where the reverse direction ends.
    """

    def __init__(self, bidirectional: bool = False) -> None:
        super().__init__()
        self.bidirectional = bidirectional

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        first, last = _ends(x, valid)
        half = x.shape[-1] // 2
        return torch.cat([last[:, :half], first[:, half:]], 1) if self.bidirectional else last


def _ends(x: Tensor, valid: Valid) -> tuple[Tensor, Tensor]:
    """First and last real token of each sample, both (B, D); 0 without tokens."""
    x, mask = _padded(x, valid)
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], x.shape[2]), x.new_zeros(x.shape[0], x.shape[2])
    if mask is None:
        return x[:, 0], x[:, -1]
    row, place = (torch.arange(size, device=x.device) for size in x.shape[:2])
    return x[row, mask.long().argmax(1)], x[row, (mask * place).amax(1)]  # padding is zeros


class ClassToken(nn.Module):
    """Class token: a learned token before each sequence (BERT).

    The pooled vector is the output of the trunk for this token:
    x, valid, at = token.prepend(x, valid, at)
    y = token(trunk(x, valid, at=at), valid)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(dim).normal_(std=0.02))

    def prepend(self, x: Tensor, valid: Valid = None, at: Tensor | None = None) -> tuple[Tensor, Valid, Tensor | None]:
        """Put the class token in front of tokens, mask and coordinates; see `prepended`."""
        return prepended(self.token, x, valid, at)

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        """Class token (B, D), taken from the output of the trunk."""
        check_layout(x, valid)
        if isinstance(valid, Ragged):
            return x[valid.ends - valid.lengths]
        return x[:, 0]


def prepended(
    token: Tensor, x: Tensor, valid: Valid = None, at: Tensor | None = None
) -> tuple[Tensor, Valid, Tensor | None]:
    """Prepend a token (D,) or (B, D) at coordinate 0 to tokens, mask and coordinates.

    If N = B and A = N, coordinates (N, A) would be taken for (B, N). Pass them as (B, N, A) in this case.
    """
    check_layout(x, valid)
    if isinstance(valid, Ragged):
        longer = valid.longer()
        first = (longer.position == 0) & longer.inside
        source = torch.arange(longer.total, device=x.device) - longer.sample - 1
        source = source.clamp(min=0, max=max(0, valid.total - 1))
        if valid.total == 0:
            x, at = x.new_zeros(1, x.shape[1]), None if at is None else at.new_zeros(1, *at.shape[1:])
        own = token if token.dim() == 1 else token[longer.sample.clamp(max=max(0, len(valid) - 1))]
        wide = torch.where(first[:, None], own.to(x.dtype), x[source])
        if at is not None:
            at = zero_padding(at[source], ~first)
        return wide, longer, at
    own = token.to(x.dtype).expand(x.shape[0], -1)[:, None]
    if at is not None:
        axis = 1 if at.dim() == 3 or (at.dim() == 2 and at.shape == x.shape[:2]) else 0
        shape = [1 if i == axis else size for i, size in enumerate(at.shape)]
        at = torch.cat([at.new_zeros(shape), at], axis)
    return torch.cat([own, x], 1), None if valid is None else F.pad(valid, (1, 0), value=True), at


def dropped(x: Tensor, valid: Valid = None) -> Tensor:
    """Remove the first token of each sequence; the inverse of `prepended`."""
    if not isinstance(valid, Ragged):
        return x[:, 1:]
    own = valid.longer(-1)
    return x.index_select(0, torch.arange(own.total, device=x.device) + (own.sample + 1).clamp(max=len(valid)))


class ClassAttention(nn.Module):
    """Pooling by class attention: a class token after `depth` class-attention blocks.

    arXiv 2103.17239 (CaiT), 2202.03772 (Particle Transformer).
    """

    def __init__(
        self, dim: int, heads: int, depth: int = 2, *, raw_query: bool = False, **options: Unpack[BlockArguments]
    ) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        nn.init.normal_(self.token, std=0.02)  # published: trunc_normal_ at 100 std, different in each PyTorch version
        self.blocks = nn.ModuleList(ClassBlock(dim, heads, raw_query=raw_query, **options) for _ in range(depth))
        self.norm = block_norm(dim, options, options.get("norm_position", "pre") == "pre")

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        if isinstance(valid, Ragged) and watch is None and valid.total:
            return self._packed(x, valid)
        x, mask = _padded(x, valid)
        token = self.token.to(x.dtype).expand(x.shape[0], -1, -1)
        for i, block in enumerate(self.blocks):
            token = block(token, x, mask, watch=inner_watch(watch, f"blocks.{i}"))
        return self.norm(token[:, 0])

    def _packed(self, x: Tensor, ragged: Ragged) -> Tensor:
        """Class attention of packed sequences, with a class token before each sequence."""
        check_layout(x, ragged)
        count = len(ragged)
        longer = ragged.longer()
        sight = Sight(Documents(Ragged(torch.ones_like(ragged.lengths), count, 1), FULL, longer))
        place = torch.arange(ragged.total, device=x.device) + (ragged.sample + 1).clamp(max=count)
        wide = x.new_zeros(longer.total, x.shape[1]).index_copy(0, place, x)
        first, token = longer.ends - longer.lengths, self.token.to(x.dtype).expand(-1, count, -1)
        for block in self.blocks:
            token = block(token, wide, first=first, sight=sight)
        return self.norm(token[0])


class AttentionPool(nn.Module):
    """Attention pooling with learned queries s (arXiv 1810.00825).

        y = norm(s + attention(query = s, keys and values = x))

    The result is (B, D) for one query, and (B, seeds, D) for several queries.
    """

    def __init__(self, dim: int, heads: int, seeds: int = 1, norm: str = "layer") -> None:
        super().__init__()
        if seeds < 1:
            raise UserError(f"seeds must be 1 or more, not {seeds}")
        self.seeds = nn.Parameter(torch.empty(1, seeds, dim).normal_(std=0.02))
        self.attention = Attention(dim, heads)
        self.norm = make_norm(norm, dim)

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        x, mask = _padded(x, valid)
        seeds = self.seeds.to(x.dtype).expand(x.shape[0], -1, -1)
        y = self.norm(seeds + self.attention(seeds, x, Sight(valid=mask), watch=inner_watch(watch, "attention")))
        return y[:, 0] if y.shape[1] == 1 else y


class RecurrentPool(nn.Module):
    """Recurrent pooling: last state of `depth` layers (ASTROMER); 0 without tokens."""

    def __init__(self, dim: int, kind: str = "lstm", depth: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.reader, self.last = Recurrent(dim, depth, kind, dropout=dropout), LastPool()

    def forward(self, x: Tensor, valid: Valid = None, *, watch: Watch | None = None) -> Tensor:
        return self.last(self.reader(x, valid, watch=inner_watch(watch, "reader")), valid)


class BlockPool(nn.Module):
    """Weighted mean over blocks: y = sum_l w_l mean_i x_li (arXiv 2502.02717).

    x_l are the `states` of a trunk: its input, and the output of each block. The weights w are the softmax of learned
    numbers, and means are over real tokens i.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(states))
        self.mean = MeanPool()

    def forward(self, states: Sequence[Tensor], valid: Valid = None) -> Tensor:
        """Vector (B, D) from the `states` of a trunk, each (B, N, D) or packed (T, D)."""
        if len(states) != len(self.weight):
            raise UserError(f"pooling over blocks needs {len(self.weight)} hidden states, but there are {len(states)}")
        means = torch.stack([self.mean(state, valid) for state in states], -1)
        return means @ self.weight.softmax(0).to(means.dtype)


def _padded(x: Tensor, valid: Valid) -> tuple[Tensor, Tensor | None]:
    check_layout(x, valid)
    if isinstance(valid, Ragged):
        return valid.pad(x), valid.valid
    return zero_padding(x, valid), valid


# Recipe options


class AutoPoolingOptions(PoolingOptions):
    """`pool: auto`: the mean, or the last token for recurrent trunks."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return LastPool(trunk.reads_both_ways) if trunk.recurrent else MeanPool()


class MeanOptions(PoolingOptions):
    """`pool: mean`: the mean of the tokens."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return MeanPool()


class SumOptions(PoolingOptions):
    """`pool: sum`: the sum of the tokens."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return SumPool()


class MaxOptions(PoolingOptions):
    """`pool: max`: the maximum of each channel over the tokens."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return MaxPool()


class FirstOptions(PoolingOptions):
    """`pool: first`: the first token of each sample, usually a special token."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return FirstPool()


class LastOptions(PoolingOptions):
    """`pool: last`: the last token of each sample."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return LastPool(trunk.reads_both_ways)


class ClassTokenOptions(PoolingOptions):
    """`pool: class_token`: a learned token in front of each sample."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        if not trunk.takes_class_token:
            message = "this trunk cannot use `model.pool: class_token`: its first token does not see the other tokens"
            raise UserError(message, key="model.pool")
        return ClassToken(dim)


class AttentionPoolOptions(PoolingOptions):
    """`pool: attention`: attention from a learned query to the tokens."""

    has_weights: ClassVar[bool] = True

    heads: int = Field(default=4, ge=1)
    """Number of attention heads of the pooling (default: 4)."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return AttentionPool(dim, self.heads)


class BlockPoolOptions(PoolingOptions):
    """`pool: blocks`: weighted mean of the input and all block outputs (ASTROMER 2)."""

    has_weights: ClassVar[bool] = True

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        if not trunk.keeps_width:
            message = "this trunk cannot use `model.pool: blocks`: its blocks do not all have the width of its input"
            raise UserError(message, key="model.pool")
        return BlockPool(trunk.blocks + 1)


class ClassAttentionOptions(PoolingOptions):
    """`pool: class_attention`: attention blocks with a class token as query."""

    has_weights: ClassVar[bool] = True

    class_depth: int = Field(default=2, ge=1, le=1000)
    """Number of class attention blocks (default: 2)."""
    class_query: Literal["normal", "raw"] = "normal"
    """Query of class attention (default: normal). normal: the normalised class token; raw: the class token itself."""
    class_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of the class attention (default: 0)."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        form = trunk if isinstance(trunk, TransformerOptions) else TransformerOptions()
        options = {**form.block_options(), "dropout": self.class_dropout}
        made = ClassAttention(dim, form.heads, self.class_depth, raw_query=self.class_query == "raw", **options)
        if form.init != "normal":
            redraw(made.blocks, form.init)
        return made


class LSTMPoolOptions(PoolingOptions):
    """`pool: lstm`: the last state of an LSTM over the tokens (ASTROMER 1)."""

    has_weights: ClassVar[bool] = True
    reader: ClassVar[str] = "lstm"

    class_depth: int = Field(default=2, ge=1, le=1000)
    """Number of recurrent layers of the pooling (default: 2)."""
    class_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate between the recurrent layers of the pooling (default: 0)."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        return RecurrentPool(dim, self.reader, self.class_depth, self.class_dropout)


class GRUPoolOptions(LSTMPoolOptions):
    """`pool: gru`: the last state of a GRU over the tokens."""

    reader: ClassVar[str] = "gru"
