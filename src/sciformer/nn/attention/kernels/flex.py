"""FlexAttention: sparse patterns on CUDA, fused, forward and backward.

One callable is compiled for each pattern. The compiled kernel skips hidden blocks of 128 x 128 pairs, so the cost of a
window grows with N and not with N^2. After too many compilations, PyTorch silently falls back to an unfused path with
all pairs in memory; this module raises an error instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ....errors import UserError
from ..masks import Documents, Full, Pattern, Sight
from ..pair_bias import PairBias
from .request import Request, no_product

BLOCK = 128
MIN_PAIRS = 1 << 18  # minimum of queries times keys for this kernel
Modify = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    q = request.q
    if request.dropout:
        return "FlexAttention has no dropout"
    if isinstance(request.sight.bias, PairBias):
        return "FlexAttention needs a dense bias, not a PairBias"
    if q.is_cuda:
        if q.dtype == torch.float64:
            return "FlexAttention has no float64 on CUDA"
        if q.shape[-1] < 16:
            return f"FlexAttention needs heads of width 16 or more on CUDA, not {q.shape[-1]}"
    elif q.requires_grad or request.k.requires_grad:
        return "FlexAttention has no backward pass on the CPU"
    return no_product(request)


def saves(request: Request) -> bool:
    """Whether this kernel saves time: on CUDA, with many query-key pairs."""
    return request.q.is_cuda and request.q.shape[2] * request.keys >= MIN_PAIRS


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (B, H, N, E); E is the head width."""
    request = request.prepare()
    q, k, v, sight = request.q, request.k, request.v, request.sight
    (_, heads, n, _), (_, kv_heads, m, _) = q.shape, k.shape
    mask = sight.once(("flex", n, m), lambda: block_mask(sight, q, k))
    dense = None if sight.dense_bias is None else _dense_bias(sight.dense_bias.expand(q.shape[0], heads, n, m))
    call: Any = flex_attention
    if q.is_cuda and not torch.compiler.is_compiling():
        call = compiled(_kind(sight.pattern), sight.valid is not None, dense is not None)
    try:
        return call(q, k, v, dense, mask, request.scale, kv_heads != heads)
    except Exception as error:
        if type(error).__name__ != "FailOnRecompileLimitHit":  # by name: torch._dynamo is slow to import
            raise
        raise UserError(
            f"FlexAttention has reached its limit of {torch._dynamo.config.recompile_limit} compilations, and queries "
            f"of shape {tuple(q.shape)} need another compilation",
            hint="Pad sequences to fewer different lengths, or raise torch._dynamo.config.recompile_limit.",
        ) from error


def _dense_bias(bias: Tensor) -> Modify:
    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[b, h, i, j]

    return modify


def _kind(pattern: Pattern) -> Any:
    """Cache key of a compiled callable: the pattern without the sequence lengths."""
    return (Documents, pattern.within) if isinstance(pattern, Documents) else pattern


@lru_cache(maxsize=128)
def compiled(kind: Any, valid: bool, bias: bool) -> Callable[..., Tensor]:
    """Compile flex_attention separately for each kind of pattern.

    PyTorch counts recompilations per code object, so each kind gets a copy of the code. With `fullgraph`, PyTorch
    raises an error at the limit of recompilations instead of using the unfused path.
    """

    def call(
        q: Tensor, k: Tensor, v: Tensor, dense: Modify | None, mask: BlockMask | None, scale: float, shared: bool
    ) -> Tensor:
        found: Any = flex_attention(q, k, v, dense, mask, scale, shared)  # its type differs between versions
        return found

    own = FunctionType(call.__code__.replace(co_name=f"flex_{abs(hash((kind, valid, bias)))}"), globals())
    return torch.compile(own, fullgraph=True)


def block_mask(sight: Sight, q: Tensor, k: Tensor) -> BlockMask | None:
    """Block mask of `sight`; None if all pairs are visible."""
    n, m = q.shape[2], k.shape[2]
    pattern = sight.simplified(n, m)
    if isinstance(pattern, Full) and sight.valid is None:
        return None
    if sight.valid is None and not isinstance(pattern, Documents) and isinstance(sight.start, int):
        return _kept(pattern, n, m, sight.start, q.device)
    return build(pattern, n, m, sight.start, sight.valid, q.device)


@lru_cache(maxsize=64)
def _kept(pattern: Pattern, n: int, m: int, start: int, device: torch.device) -> BlockMask:
    with torch.inference_mode(False):
        return build(pattern, n, m, start, None, device)


def build(
    pattern: Pattern, n: int, m: int, start: int | Tensor, valid: Tensor | None, device: torch.device
) -> BlockMask:
    """Block mask of an attention pattern and of the valid keys."""
    some, every = open_blocks(pattern, n, m, start, device)
    some, every = some[None, None], every[None, None]
    if valid is not None:
        keys, gaps = (F.pad(part, (0, -m % BLOCK)).unflatten(1, (-1, BLOCK)).any(-1) for part in (valid, ~valid))
        some, every = some & keys[:, None, None], every & ~gaps[:, None, None]
    partial, full = some & ~every, every

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = pattern.allows(i + start, j)
        return seen if valid is None else seen & valid[b, j]

    def listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(blocks.to(torch.int8), dim=-1, descending=True, stable=True)
        return blocks.sum(-1, dtype=torch.int32), order.to(torch.int32).contiguous()

    return BlockMask.from_kv_blocks(*listed(partial), *listed(full), BLOCK, mask_mod, (n, m))


def open_blocks(pattern: Pattern, n: int, m: int, start: int | Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Masks (N / 128, M / 128) of partly and of fully allowed blocks of pairs.

    The first mask is True if at least one pair of a block is allowed, and the second mask if all pairs are allowed.
    """
    rows, columns = -(-n // BLOCK), -(-m // BLOCK)
    if pattern.uniform and isinstance(start, int):
        # Only j - i matters, and a block has 2 * 128 - 1 consecutive differences: one table serves all blocks.
        low, high = -(rows * BLOCK - 1) - start, columns * BLOCK - 1 - start
        allowed = pattern.allows(
            torch.zeros((), dtype=torch.long, device=device), torch.arange(low, high + 1, device=device)
        )
        sums = torch.cat([allowed.new_zeros(1, dtype=torch.long), allowed.long().cumsum(0)])
        nearest = (torch.arange(columns, device=device) - torch.arange(rows, device=device)[:, None]) * BLOCK
        begin = nearest - (BLOCK - 1) - start - low
        counts = sums[begin + 2 * BLOCK - 1] - sums[begin]
        return counts > 0, counts == 2 * BLOCK - 1
    # Otherwise the rule is evaluated in strips of block rows: a full square would need too much memory.
    strip = max(1, (1 << 24) // (columns * BLOCK * BLOCK))
    parts = []
    j = torch.arange(columns * BLOCK, device=device)
    for row in range(0, rows, strip):
        i = torch.arange(row * BLOCK, min(row + strip, rows) * BLOCK, device=device)[:, None]
        inside = (i < n) & (j < m)
        seen = pattern.allows(i.clamp(max=n - 1) + start, j.clamp(max=m - 1))
        cut = (-1, BLOCK, columns, BLOCK)
        parts.append(((seen & inside).view(cut).any(3).any(1), (seen | ~inside).view(cut).all(3).all(1)))
    return torch.cat([some for some, _ in parts]), torch.cat([every for _, every in parts])
