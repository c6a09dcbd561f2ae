"""Attention in linear time, for windows and for packed sequences.

For a window of `left` and `right` tokens, the queries are cut into blocks of b tokens. Block c sees the
b + left + right keys around it, so N tokens cost N (b + left + right) instead of N^2, forward and backward:

    queries          [ c b ............ c b + b )
    keys    [ c b - left ...................... c b + b + right )

The first `count` tokens of a `Global` pattern are keys of every block. As queries they see all keys.

Packed sequences are padded, and the attention of the padded sequences is computed by the fastest kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import Documents, Either, Global, Pattern, Sight
from ..pair_bias import PairBias
from . import sdpa
from .request import Request, no_product


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    sight = request.sight
    if not isinstance(sight.pattern, Documents):
        local, _ = split(sight.pattern)
        if max(local.reach()) == float("inf"):
            return "it supports only patterns with a limited attention distance"
        if request.q.shape[2] != request.keys or not isinstance(sight.start, int) or sight.start:
            return "it supports only self-attention without a cache"
    return no_product(request)


def saves(request: Request) -> bool:
    """Whether this kernel saves time: for packed sequences, and narrow windows on CPU."""
    pattern = request.sight.pattern
    if isinstance(pattern, Documents) or request.q.is_cuda:
        return isinstance(pattern, Documents)
    local, count = split(pattern)
    left, right = local.reach()
    return block_size(left, right) + left + right + 2 * count < 0.7 * request.q.shape[2]


def split(pattern: Pattern) -> tuple[Pattern, int]:
    """Split a pattern into a local rule and the number of global tokens."""
    if isinstance(pattern, Either):
        if isinstance(pattern.second, Global):
            return pattern.first, pattern.second.count
        if isinstance(pattern.first, Global):
            return pattern.second, pattern.first.count
    return pattern, 0


def block_size(left: float, right: float) -> int:
    """Queries per block: a power of two near (left + right) / 2, from 32 to 512."""
    half = int(left + right) // 2
    return min(512, max(32, 1 << (half - 1).bit_length()))


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (B, H, N, E); E is the head width."""
    request = request.prepare()
    q, k, v, sight, dropout = request.q, request.k, request.v, request.sight, request.dropout
    if isinstance(sight.pattern, Documents):
        return _documents(request, sight.pattern)
    n = q.shape[2]
    cut = Cut(sight.pattern, n)
    mask = sight.once(("chunked", q.shape[0], n, q.dtype), lambda: sdpa.opened(cut.mask(sight, q)))
    out = cut.join(sdpa.masked(cut.queries(q), cut.keys(k), cut.keys(v), mask, request.scale, dropout), q.shape[0])
    if cut.count:  # global tokens see all keys
        bias = None if sight.dense_bias is None else sight.dense_bias[:, :, : cut.count]
        seen = Sight(None, sight.valid, bias)
        whole = sdpa.run(Request(q[:, :, : cut.count], k, v, seen, request.score, dropout))
        out = torch.cat([whole, out[:, :, cut.count :]], 2)
    return out


class Cut:
    """Blocks of `size` queries, and the keys of each block.

    The keys of a block are its own tokens, the `left` tokens before and the `right` tokens after them (`span` tokens
    together), and the first `count` tokens of the sequence (global tokens).
    """

    def __init__(self, pattern: Pattern, n: int) -> None:
        self.local, count = split(pattern)
        self.n, self.count = n, min(count, n)
        self.left, self.right = (int(min(side, n - 1)) for side in self.local.reach())
        self.size = min(block_size(self.left, self.right), n)
        self.blocks = -(-n // self.size)
        self.rest = self.blocks * self.size - n  # padding of the last block
        self.span = self.left + self.size + self.right

    def queries(self, q: Tensor) -> Tensor:
        """Cut queries (B, H, N, E) into blocks (B * blocks, H, size, E)."""
        cut = F.pad(q, (0, 0, 0, self.rest)).unflatten(2, (self.blocks, self.size))
        return cut.transpose(1, 2).flatten(0, 1)

    def keys(self, x: Tensor) -> Tensor:
        """Cut keys or values (B, G, N, E) into blocks (B * blocks, G, count + span, E)."""
        around = F.pad(x, (0, 0, self.left, self.right + self.rest)).unfold(2, self.span, self.size)
        around = around.permute(0, 2, 1, 4, 3)
        if self.count:
            first = x[:, None, :, : self.count].expand(-1, self.blocks, -1, -1, -1)
            around = torch.cat([first, around], 3)
        return around.flatten(0, 1)

    def join(self, out: Tensor, batch: int) -> Tensor:
        """Join the outputs of blocks (B * blocks, H, size, E) to (B, H, N, E)."""
        return out.unflatten(0, (batch, self.blocks)).transpose(1, 2).flatten(2, 3)[:, :, : self.n]

    def mask(self, sight: Sight, q: Tensor) -> Tensor:
        """Mask (B * blocks, H or 1, size, count + span) of the blocks.

        If there is a bias, the result is the bias with -inf at hidden pairs.
        """
        first = torch.arange(self.blocks, device=q.device)[:, None, None] * self.size
        i = first + torch.arange(self.size, device=q.device)[:, None]
        j = first - self.left + torch.arange(self.span, device=q.device)
        last = self.n - 1
        allowed = self.local.allows(i.clamp(max=last), j.clamp(0, last)) & (j >= self.count) & (j <= last)
        if self.count:
            j = torch.cat([torch.arange(self.count, device=q.device).expand(self.blocks, 1, -1), j], 2)
            allowed = torch.cat([allowed.new_ones(self.blocks, self.size, self.count), allowed], 2)
        mask = allowed[None, :, None]  # (1, blocks, 1, size, keys)
        if sight.valid is not None:
            mask = mask & sight.valid[:, j.clamp(0, last)][:, :, None]
        if sight.dense_bias is not None:
            mask = self.band(sight.dense_bias).to(q.dtype).masked_fill(~mask, -torch.inf)
        return mask.expand(q.shape[0], -1, -1, -1, -1).flatten(0, 1)

    def band(self, bias: Tensor) -> Tensor:
        """Cut the bias (B, H, N, N) into blocks (B, blocks, H, size, count + span)."""
        wide = F.pad(bias, (self.left, self.right + self.rest, 0, self.rest))
        wide = wide.unflatten(2, (self.blocks, self.size))
        band = wide.unfold(4, self.span, self.size).diagonal(dim1=2, dim2=4).permute(0, 4, 1, 2, 3)
        if self.count:
            first = wide[..., self.left : self.left + self.count].transpose(1, 2)
            band = torch.cat([first, band], 4)
        return band


def _documents(request: Request, pattern: Documents) -> Tensor:
    """Attention of packed sequences: pad them and apply the pattern `pattern.within`."""
    from . import compute

    q, k, v, sight = request.q, request.k, request.v, request.sight
    queries, keys = pattern.queries, pattern.memory
    if queries.longest == 0 or keys.longest == 0:
        return v.sum(2, keepdim=True)[:, :1].expand(1, q.shape[1], q.shape[2], -1) * 0

    def inner() -> Sight:
        # Padding lies to the right: a causal rule cannot see it, so the fast causal path can be used without a mask.
        padded = not (keys is queries and pattern.within.reach()[1] == 0)
        valid = keys.valid if padded else None
        if sight.valid is not None:
            valid = keys.pad(sight.valid[0])
        bias = sight.bias
        if isinstance(bias, PairBias):
            bias = bias.dense()
        elif bias is not None:
            by_query = queries.pad(bias[0].transpose(0, 1))  # (B, N, H, T)
            index = (keys.ends - keys.lengths)[:, None] + torch.arange(keys.longest, device=q.device)
            index = index.clamp(max=keys.total - 1)[:, None, None].expand(-1, *by_query.shape[1:3], -1)
            bias = by_query.gather(3, index).transpose(1, 2)
        return Sight(pattern.within, valid, bias)

    within = sight.once("documents", inner)
    padded = queries.pad_heads(q), keys.pad_heads(k), keys.pad_heads(v)
    return queries.flatten_heads(compute(Request(*padded, within, request.score, request.dropout)))
