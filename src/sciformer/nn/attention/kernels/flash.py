"""FlashAttention of packed sequences on CUDA (`varlen_attn`), in half precision.

This kernel supports neither bias nor dropout. It is used if sequences are too long, or heads too wide, for
`packed_bias`. On an H200, `packed_bias` was faster at all tested lengths. These are times of a forward and backward
pass for 512 sequences, with a mean length of 30, 100 and 125 tokens (maximum 200), by `python benchmarks/packed.py`:

    8 heads of width 16   packed_bias 0.08, 0.30, 0.46 ms   flash 0.40, 0.53, 0.88 ms
    4 heads of width 64   packed_bias 0.11, 0.36, 0.51 ms   flash 0.35, 0.55, 0.83 ms
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ragged import Ragged
from ..masks import Causal, Documents, Full
from .request import Request, not_packed, repeat_heads

MIN_MEAN_LENGTH = 64  # minimum mean tokens per sequence for this kernel
MAX_HEAD_WIDTH = 256


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    q, width = request.q, request.q.shape[3]
    if not q.is_cuda or q.dtype not in (torch.bfloat16, torch.float16):
        return "it runs only on CUDA, in half precision"
    if request.dropout or request.sight.bias is not None:
        return "it supports neither dropout nor a bias"
    if width > MAX_HEAD_WIDTH or width % 8:
        return f"the width of its heads must be a multiple of 8 up to {MAX_HEAD_WIDTH}, not {width}"
    return not_packed(request, causal=True)


def saves(request: Request) -> bool:
    """Whether this kernel saves time: only for full attention within long sequences."""
    pattern = request.sight.pattern
    assert isinstance(pattern, Documents)
    return isinstance(pattern.within, Full) and pattern.queries.total > MIN_MEAN_LENGTH * len(pattern.queries)


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (1, H, T, E); E is the head width."""
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
    """Cumulative sequence lengths; padding at the end counts as further sequences.

    Without these further sequences, the kernel would not write the padding rows of its output.
    """
    longest = max(1, ragged.longest)
    ends = torch.cat([ragged.ends.new_zeros(1), ragged.ends])
    pieces = -(-ragged.total // longest)
    tail = ends[-1] + longest * torch.arange(1, pieces + 1, device=ends.device)
    return torch.cat([ends, tail.clamp(max=ragged.total)]).int()
