"""Attention within many small packed sequences on CUDA, with or without pair bias.

The other kernels pad. For each sequence they read and write a square of the maximum length, also for the gradient of
the bias. These Triton kernels read queries, keys and values from the projection itself, and only the triangle of the
bias:

    out_i = sum_j d_ij softmax_j(scale q_i k_j + b_ij) v_j,   d_ij = 0 or 1 / (1 - p): dropout
    g_ij  = dL / d(score_ij),   db_ij = g_ij + g_ji  for j < i,   db_ii = g_ii

The dropout mask is a hash of random bits of each query, drawn by PyTorch on the device, and of the index of the key.
Forward and backward pass compute the same mask from these bits, so no mask is stored. A captured CUDA graph draws new
bits at every replay.

Memory traffic of one layer, for T tokens of width D and S pairs of H heads at 2 bytes per number: 2 (4 T D + S H) bytes
forward, 2 (8 T D + 2 S H) bytes backward. For 512 sets of 45 tokens on average (T = 23,000, S = 589,000, D = 128,
H = 8) this is 33 MB forward and 66 MB backward, or 8 and 16 microseconds at 4.2 TB/s.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..masks import Documents
from ..pair_bias import PairBias
from .request import Request, no_triton, not_packed, repeat_heads

MAX_LENGTH = 256
MAX_HEAD_WIDTH = 64


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    pattern, width = request.sight.pattern, request.q.shape[3]
    if (why := no_triton(request.q) or not_packed(request, cross=True)) is not None:
        return why
    if width > MAX_HEAD_WIDTH:
        return f"the width of its heads must be at most {MAX_HEAD_WIDTH}, not {width}"
    assert isinstance(pattern, Documents)
    longest = max(pattern.queries.longest, pattern.memory.longest)
    return f"a sequence is longer than {MAX_LENGTH} tokens" if longest > MAX_LENGTH else None


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (1, H, T, E); E is the head width."""
    request = request.prepare()
    sight, pattern, heads, dropout = request.sight, request.sight.pattern, request.q.shape[1], request.dropout
    assert isinstance(pattern, Documents)
    queries, keys = pattern.queries, pattern.memory
    if pattern.keys is None:
        x, memory = request.join()[0], None
    else:
        x, *both = (repeat_heads(one, heads)[0].transpose(0, 1).flatten(1) for one in (request.q, request.k, request.v))
        memory = torch.cat(both, 1)
    bias = starts = bits = None
    if isinstance(sight.bias, PairBias):
        given, starts = sight.bias, sight.bias.starts
        # Heads first, so that each program reads contiguous memory; transposed once for all blocks of a stack.
        bias = sight.once(("packed_bias", x.dtype), lambda: given.values.to(x.dtype).t().contiguous())
    if dropout:
        bits = torch.randint(2**31 - 1, (heads, len(x)), dtype=torch.int32, device=x.device)
    x = x if x.stride(-1) == 1 else x.contiguous()
    layout = queries.ends, queries.lengths, keys.ends, keys.lengths
    longest = max(queries.longest, keys.longest)
    out, _ = attend_packed(x, memory, *layout, bias, starts, bits, heads, request.scale, dropout, longest)
    return out.unflatten(1, (heads, -1)).transpose(0, 1)[None]


LAYOUT = "Tensor ends, Tensor lengths, Tensor memory_ends, Tensor memory_lengths"
PAIRS = "Tensor? bias, Tensor? starts, Tensor? bits"
OPTIONS = "SymInt heads, float scale, float dropout, SymInt longest"


@torch.library.custom_op(
    "sciformer::attend_packed",
    mutates_args=(),
    schema=f"(Tensor x, Tensor? memory, {LAYOUT}, {PAIRS}, {OPTIONS}) -> (Tensor, Tensor)",
)
def attend_packed(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Heads (T, H E), and the logsumexp (H, T) of their scores.

    x        (T, 3 H E) queries, keys and values; if there is a memory, only (T, H E) queries
    memory   (M, 2 H E) keys and values of cross-attention
    bias     (H, S) bias of the pairs; `starts` (B,) has the index of the first pair of each set
    bits     (H, T) random integers, for dropout
    longest  upper bound of the lengths
    """
    from .packed_bias_triton import forward

    return forward(*inputs)


@attend_packed.register_fake
def _(x: Tensor, memory: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    heads, width = rest[-4], x.shape[1] // 3 if memory is None else x.shape[1]
    return x.new_empty(x.shape[0], width), x.new_empty(heads, x.shape[0], dtype=torch.float32)


@torch.library.custom_op(
    "sciformer::attend_packed_backward",
    mutates_args=(),
    schema=f"(Tensor up, Tensor x, Tensor? memory, {LAYOUT}, {PAIRS}, Tensor out, Tensor lse, {OPTIONS})"
    " -> (Tensor, Tensor, Tensor)",
)
def attend_packed_backward(up: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, memory and bias from the gradient `up` of the heads.

    The gradient of a missing tensor is empty.
    """
    from .packed_bias_triton import backward

    return backward(up.to(x.dtype).contiguous(), x, *rest)


@attend_packed_backward.register_fake
def _(up: Tensor, x: Tensor, memory: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(0) if one is None else one.new_empty(one.shape) for one in (x, memory, rest[4]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, heads, scale, dropout, longest = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.options = heads, scale, dropout, longest


def _backward(ctx: Any, up: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    x, memory, *rest = ctx.saved_tensors
    dx, dmemory, dbias = attend_packed_backward(up, x, memory, *rest, *ctx.options)
    given = (None if memory is None else dmemory, None if rest[4] is None else dbias)
    return dx, given[0], None, None, None, None, given[1], *[None] * 6


attend_packed.register_autograd(_backward, setup_context=_setup)
