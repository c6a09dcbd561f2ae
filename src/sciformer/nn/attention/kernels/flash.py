"""FlashAttention of packed sequences (PyTorch's `varlen_attn`), on CUDA in half precision: no bias, no dropout.

For sequences that are longer than `sets` takes, or have wider heads. Where both can do it, `sets` is the faster one
on an H200 at all lengths tried: 512 sequences forwards and backwards in 0.08 against 0.40 ms with 30 tokens, 0.30
against 0.53 with 100 and 0.46 against 0.88 with 125 of up to 200 (8 heads of width 16; with 4 of 64 in 0.11 against
0.35, 0.36 against 0.55 and 0.51 against 0.83), by `python benchmarks/packed.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ragged import Ragged
from ..masks import Causal, Documents, Full, Sight
from ..scores import Score
from .reference import repeat_heads

MIN_MEAN_LENGTH = 64  # tokens of a sequence, on average, from which this kernel is taken where `sets` cannot
MAX_HEAD_WIDTH = 256


def refuse(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
    """Why this kernel cannot do it, or None."""
    if not score.fused:
        return f"the {type(score).__name__} score is not a product of query and key"
    return unsuited(q, q.shape[3], sight, dropout)


def unsuited(x: Tensor, width: int, sight: Sight, dropout: float) -> str | None:
    """Why x (queries, or all that a projection made) with heads so wide is not for this kernel, or None."""
    pattern = sight.pattern
    if not x.is_cuda or x.dtype not in (torch.bfloat16, torch.float16):
        return "it runs only on CUDA, in half precision"
    if dropout or sight.bias is not None:
        return "it has neither dropout nor a bias"
    if width > MAX_HEAD_WIDTH or width % 8:
        return f"the width of its heads must be a multiple of 8 up to {MAX_HEAD_WIDTH}, not {width}"
    if not isinstance(pattern, Documents) or not isinstance(pattern.within, (Full, Causal)) or pattern.keys is not None:
        return f"{pattern} does not let every token see all or the past of its packed sequence"
    if sight.valid is not None or not isinstance(sight.start, int) or sight.start:
        return "some keys are hidden (`valid`) or come from a cache"
    return None


def better(x: Tensor, width: int, sight: Sight, dropout: float) -> bool:
    """Whether this kernel can do it, and faster than those that are for all patterns."""
    pattern = sight.pattern
    if not isinstance(pattern, Documents) or not isinstance(pattern.within, Full):
        return False
    long = pattern.queries.total > MIN_MEAN_LENGTH * len(pattern.queries)
    return long and unsuited(x, width, sight, dropout) is None


def fused(qkv: Tensor, heads: int, sight: Sight, scale: float, dropout: float) -> Tensor:
    """(1, H, T, E) of self-attention from queries, keys and values side by side (1, T, 3 H E), as they are."""
    query, key, value = qkv[0].unflatten(1, (3, heads, -1)).unbind(1)
    return _attend(query, key, value, sight, scale)


def run(q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
    """(1, H, T, E) from prepared queries (1, H, T, E), keys and values (1, G, T, E)."""
    query, key, value = (repeat_heads(x, q.shape[1])[0].transpose(0, 1) for x in (q, k, v))
    return _attend(query, key, value, sight, score.scale(q.shape[3]))


def _attend(query: Tensor, key: Tensor, value: Tensor, sight: Sight, scale: float) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    pattern = sight.pattern
    assert isinstance(pattern, Documents)
    ragged = pattern.queries
    stops = sight.once(("flash",), lambda: borders(ragged))
    window = (-1, 0) if isinstance(pattern.within, Causal) else (-1, -1)
    longest = max(1, ragged.longest)
    out = varlen_attn(query, key, value, stops, stops, longest, longest, scale=scale, window_size=window)
    assert isinstance(out, Tensor)
    return out.masked_fill(~ragged.inside[:, None, None], 0).transpose(0, 1)[None]


def borders(ragged: Ragged) -> Tensor:
    """Where sequences begin and end; the tail is cut into sequences too, for nothing is written outside of them."""
    longest = max(1, ragged.longest)
    ends = torch.cat([ragged.ends.new_zeros(1), ragged.ends])
    pieces = -(-ragged.total // longest)
    tail = ends[-1] + longest * torch.arange(1, pieces + 1, device=ends.device)
    return torch.cat([ends, tail.clamp(max=ragged.total)]).int()
