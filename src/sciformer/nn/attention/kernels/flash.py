"""FlashAttention of packed sequences (PyTorch's `varlen_attn`), on CUDA in half precision: no bias, no dropout.

For sequences that are longer than `packed_bias` takes, or have wider heads. Where both can do it, `packed_bias` is the
faster one on an H200 at all lengths tried: 512 sequences forwards and backwards in 0.08 against 0.40 ms with 30 tokens,
0.30 against 0.53 with 100 and 0.46 against 0.88 with 125 of up to 200 (8 heads of width 16; with 4 of 64 in 0.11
against 0.35, 0.36 against 0.55 and 0.51 against 0.83), by `python benchmarks/packed.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ragged import Ragged
from ..masks import Causal, Documents, Full
from .request import Request, not_packed, repeat_heads

MIN_MEAN_LENGTH = 64  # tokens of a sequence, on average, from which this kernel is taken where `packed_bias` cannot
MAX_HEAD_WIDTH = 256


def supports(request: Request) -> str | None:
    """Reason why this kernel cannot take the request, or None."""
    q, width = request.q, request.q.shape[3]
    if not q.is_cuda or q.dtype not in (torch.bfloat16, torch.float16):
        return "it runs only on CUDA, in half precision"
    if request.dropout or request.sight.bias is not None:
        return "it has neither dropout nor a bias"
    if width > MAX_HEAD_WIDTH or width % 8:
        return f"the width of its heads must be a multiple of 8 up to {MAX_HEAD_WIDTH}, not {width}"
    return not_packed(request, causal=True)


def saves(request: Request) -> bool:
    """Whether sequences are seen whole and are long enough."""
    pattern = request.sight.pattern
    assert isinstance(pattern, Documents)
    return isinstance(pattern.within, Full) and pattern.queries.total > MIN_MEAN_LENGTH * len(pattern.queries)


def run(request: Request) -> Tensor:
    """The heads (1, H, T, E)."""
    from torch.nn.attention.varlen import varlen_attn

    request = request.prepare()
    pattern, heads = request.sight.pattern, request.q.shape[1]
    assert isinstance(pattern, Documents)
    query, key, value = (repeat_heads(x, heads)[0].transpose(0, 1) for x in (request.q, request.k, request.v))
    ragged = pattern.queries
    stops = request.sight.once(("flash",), lambda: borders(ragged))
    window = (-1, 0) if isinstance(pattern.within, Causal) else (-1, -1)
    longest = max(1, ragged.longest)
    out = varlen_attn(query, key, value, stops, stops, longest, longest, scale=request.scale, window_size=window)
    assert isinstance(out, Tensor)
    return out.masked_fill(~ragged.inside[:, None, None], 0).transpose(0, 1)[None]


def borders(ragged: Ragged) -> Tensor:
    """Where sequences begin and end; the tail is cut into sequences too, for nothing is written outside of them."""
    longest = max(1, ragged.longest)
    ends = torch.cat([ragged.ends.new_zeros(1), ragged.ends])
    pieces = -(-ragged.total // longest)
    tail = ends[-1] + longest * torch.arange(1, pieces + 1, device=ends.device)
    return torch.cat([ends, tail.clamp(max=ragged.total)]).int()
