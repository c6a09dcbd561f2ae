"""Attention piece by piece, in linear time: windows in blocks with a halo, packed sequences one beside the other.

A pattern that reaches `left` and `right` tokens is cut into blocks of b queries. Block c sees the b + left + right keys
around it, so N tokens cost N (b + left + right) instead of N^2, forward and backward:

    queries          [ c b ............ c b + b )
    keys    [ c b - left ...................... c b + b + right )

The first `count` tokens of a `Global` pattern are added to the keys of every block, and their own rows are computed
in full.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..patterns import Documents, Either, Global, Pattern, Sight
from ..ragged import Ragged
from ..scores import Score
from . import sdpa


def refuse(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
    """Why this kernel cannot do it, or None."""
    if not score.fused:
        return sdpa.refuse(q, k, sight, score, dropout)
    if isinstance(sight.pattern, Documents):
        return None
    local, _ = split(sight.pattern)
    if max(local.reach()) == float("inf"):
        return f"{sight.pattern} has no bounded reach"
    if q.shape[2] != k.shape[2] or not isinstance(sight.start, int) or sight.start:
        return "queries and keys are not the same tokens"
    return None


def saves(n: int, sight: Sight) -> bool:
    """Whether blocks are less work than the whole square."""
    if isinstance(sight.pattern, Documents):
        return True
    local, count = split(sight.pattern)
    left, right = local.reach()
    return block_size(left, right) + left + right + 2 * count < 0.7 * n


def split(pattern: Pattern) -> tuple[Pattern, int]:
    """A pattern as (what is local, how many global tokens)."""
    if isinstance(pattern, Either):
        if isinstance(pattern.second, Global):
            return pattern.first, pattern.second.count
        if isinstance(pattern.first, Global):
            return pattern.second, pattern.first.count
    return pattern, 0


def block_size(left: float, right: float) -> int:
    """Queries a block: about half of what they see beyond it, a power of two from 32 to 512."""
    half = int(left + right) // 2
    return min(512, max(32, 1 << (half - 1).bit_length()))


def run(q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
    """(B, H, N, E) from prepared queries, keys and values."""
    if isinstance(sight.pattern, Documents):
        return _documents(q, k, v, sight, sight.pattern, score, dropout)
    local, count = split(sight.pattern)
    count = min(count, q.shape[2])
    out = _blocks(q, k, v, sight, local, count, score, dropout)
    if count:
        bias = None if sight.bias is None else sight.bias[:, :, :count]
        whole = Sight(valid=sight.valid, bias=bias)
        out = torch.cat([sdpa.run(q[:, :, :count], k, v, whole, score, dropout), out[:, :, count:]], 2)
    return out


def _blocks(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, local: Pattern, count: int, score: Score, dropout: float
) -> Tensor:
    batch, heads, n, width = q.shape
    if q.numel() == 0:
        return q.new_zeros(batch, heads, n, v.shape[-1])
    left, right = (int(side) for side in local.reach())
    size = min(block_size(left, right), n)
    blocks = -(-n // size)
    rest = blocks * size - n

    def halo(x: Tensor) -> Tensor:  # (B, G, N, E) -> (B * blocks, G, size + left + right, E)
        around = F.pad(x, (0, 0, left, right + rest)).unfold(2, left + size + right, size)
        around = around.permute(0, 2, 1, 4, 3)
        if count:
            around = torch.cat([x[:, None, :, :count].expand(-1, blocks, -1, -1, -1), around], 3)
        return around.flatten(0, 1)

    queries = F.pad(q, (0, 0, 0, rest)).view(batch, heads, blocks, size, width).transpose(1, 2).flatten(0, 1)
    mask = sight.once(("chunked", n, q.dtype), lambda: _mask(sight, local, count, q, left, right, size, blocks, rest))
    keys, values = halo(k), halo(v)
    out = F.scaled_dot_product_attention(
        queries, keys, values, mask, dropout, scale=score.scale(width), enable_gqa=k.shape[1] != heads
    )
    out = out.unflatten(0, (batch, blocks)).transpose(1, 2).flatten(2, 3)
    return out[:, :, :n]


def _mask(
    sight: Sight,
    local: Pattern,
    count: int,
    q: Tensor,
    left: int,
    right: int,
    size: int,
    blocks: int,
    rest: int,
) -> Tensor:
    """(B * blocks or blocks, H or 1, size, keys) what each block may see, with the bias where there is one."""
    n, span = q.shape[2], left + size + right
    first = torch.arange(blocks, device=q.device)[:, None, None] * size
    i = first + torch.arange(size, device=q.device)[:, None]
    j = first - left + torch.arange(span, device=q.device)
    allowed = local.allows(i, j) & (j >= count) & (j < n)
    if count:
        j = torch.cat([torch.arange(count, device=q.device).expand(blocks, 1, count), j], 2)
        allowed = torch.cat([allowed.new_ones(blocks, size, count), allowed], 2)
    mask = allowed[None, :, None]  # (1, blocks, 1, size, keys)
    if sight.valid is not None:
        mask = mask & sight.valid[:, j.clamp(0, n - 1)][:, :, None]
    if sight.bias is not None:
        wide = F.pad(sight.bias, (left, right + rest, 0, rest)).unflatten(2, (blocks, size))
        band = wide.unfold(4, span, size).diagonal(dim1=2, dim2=4)  # (B, H, size, span, blocks)
        band = band.permute(0, 4, 1, 2, 3)
        if count:
            first_columns = wide[..., left : left + count].transpose(1, 2)
            band = torch.cat([first_columns, band], 4)
        mask = band.to(q.dtype).masked_fill(~mask, -torch.inf)
    return mask.expand(q.shape[0], *mask.shape[1:]).flatten(0, 1)


def _documents(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, pattern: Documents, score: Score, dropout: float
) -> Tensor:
    """Unpack to the padded layout, attend there by the rule within each sequence, and pack again."""
    from . import compute

    queries, keys = pattern.queries, pattern.memory
    if queries.longest == 0 or keys.longest == 0:
        return v.sum(2, keepdim=True)[:, :1].expand(1, q.shape[1], q.shape[2], -1) * 0

    def inner() -> Sight:
        # Padding lies to the right: a rule that never looks right cannot see it, and the fast causal path stays open.
        padded = not (keys is queries and pattern.within.reach()[1] == 0)
        valid = keys.valid if padded else None
        if sight.valid is not None:
            valid = keys.pad(sight.valid[0])
        bias = None
        if sight.bias is not None:
            by_query = queries.pad(sight.bias[0].transpose(0, 1))  # (B, N, H, T)
            index = (keys.ends - keys.lengths)[:, None] + torch.arange(keys.longest, device=q.device)
            index = index.clamp(max=keys.total - 1)[:, None, None].expand(-1, *by_query.shape[1:3], -1)
            bias = by_query.gather(3, index).transpose(1, 2)
        return Sight(pattern.within, valid, bias)

    def unpack(x: Tensor, ragged: Ragged) -> Tensor:  # (1, G, T, E) -> (B, G, N, E)
        return ragged.pad(x[0].transpose(0, 1)).transpose(1, 2)

    within = sight.once("documents", inner)
    out = compute(unpack(q, queries), unpack(k, keys), unpack(v, keys), within, score, dropout)
    return queries.flatten(out.transpose(1, 2)).transpose(0, 1)[None]
