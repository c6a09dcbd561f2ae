"""Attention within many small sets, on CUDA: packed sequences whose pairs have a bias.

The other kernels unpack: they read and write squares of the longest sequence, and the gradient of the bias as well.
These (Triton) read queries, keys and values where the projection left them, and of the bias the triangle alone:

    out_i = sum_j d_ij softmax_j(scale q_i k_j + b_ij) v_j,   d_ij = 0 or 1 / (1 - p): dropout
    g_ij  = dL / d(score_ij),   db_ij = g_ij + g_ji  for j < i,   db_ii = g_ii

What is dropped follows from random bits of each query, which PyTorch draws on the device, and from the number of the
key, forwards and backwards: nothing of the size of the squares is stored, and a recorded step draws anew each time.

Bytes that must move in one layer, for T tokens of width D and S pairs of H heads at 2 bytes a number: forwards
2 (4 T D + S H), backwards 2 (8 T D + 2 S H). For 512 sets of 45 tokens on average (T = 23,000, S = 589,000, D = 128,
H = 8) that is 33 MB and 66 MB: 8 and 16 microseconds at 4.2 TB/s.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

from ...ragged import Ragged
from ..masks import Documents, Full, Sight
from ..pair_bias import PairBias
from ..scores import Score
from .reference import repeat_heads

HAS_TRITON = importlib.util.find_spec("triton") is not None  # asked once: a compiler cannot trace the question
TRITON_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MAX_LENGTH = 256
MAX_HEAD_WIDTH = 64


def refuse(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
    """Why this kernel cannot do it, or None."""
    if not score.fused:
        return f"the {type(score).__name__} score is not a product of query and key"
    if not HAS_TRITON or not (q.is_cuda or TRITON_INTERPRETED):
        return "it runs only on CUDA, with Triton"
    if q.shape[3] > MAX_HEAD_WIDTH or q.dtype == torch.float64:
        return f"its heads have a width of at most {MAX_HEAD_WIDTH} and no double precision"
    return unsuited(sight, q.shape[1])


def unsuited(sight: Sight, heads: int) -> str | None:
    """Why what is seen is not of small sets, or None."""
    pattern, bias = sight.pattern, sight.bias
    if not isinstance(pattern, Documents) or not isinstance(pattern.within, Full):
        return f"{pattern} does not let every token see all of its packed sequence"
    if max(pattern.queries.longest, pattern.memory.longest) > MAX_LENGTH:
        return f"a sequence is longer than {MAX_LENGTH}"
    if sight.valid is not None or not isinstance(sight.start, int) or sight.start:
        return "some keys are hidden (`valid`) or come from a cache"
    if bias is not None and not (isinstance(bias, PairBias) and pattern.keys is None and bias.heads == heads):
        return f"`bias` must be a PairBias of {heads} heads for the same packed tokens"
    return None


def suits(qkv: Tensor, heads: int, sight: Sight) -> bool:
    """Whether `fused` can do it for queries, keys and values side by side, of as many heads each."""
    if not HAS_TRITON or not (qkv.is_cuda or TRITON_INTERPRETED) or qkv.dtype == torch.float64:
        return False
    return qkv.shape[-1] <= 3 * heads * MAX_HEAD_WIDTH and unsuited(sight, heads) is None


def fused(qkv: Tensor, heads: int, sight: Sight, scale: float, dropout: float) -> Tensor:
    """(1, H, T, E) of self-attention from queries, keys and values side by side (1, T, 3 H E), as they are."""
    pattern = sight.pattern
    assert isinstance(pattern, Documents)
    out = _attend(qkv[0], None, pattern.queries, pattern.queries, sight, heads, scale, dropout)
    return out.unflatten(1, (heads, -1)).transpose(0, 1)[None]


def run(q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
    """(1, H, T, E) from prepared queries (1, H, T, E), keys and values (1, G, M, E)."""
    pattern, heads = sight.pattern, q.shape[1]
    assert isinstance(pattern, Documents)
    flat = [repeat_heads(x, heads)[0].transpose(0, 1).flatten(1) for x in (q, k, v)]
    scale = score.scale(q.shape[3])
    if pattern.keys is None:
        x, memory = torch.cat(flat, 1), None
    else:
        x, memory = flat[0], torch.cat(flat[1:], 1)
    out = _attend(x, memory, pattern.queries, pattern.memory, sight, heads, scale, dropout)
    return out.unflatten(1, (heads, -1)).transpose(0, 1)[None]


def _attend(
    x: Tensor, memory: Tensor | None, queries: Ragged, keys: Ragged, sight: Sight, heads: int, scale: float, p: float
) -> Tensor:
    bias = starts = bits = None
    if isinstance(sight.bias, PairBias):
        given, starts = sight.bias, sight.bias.starts
        # Head by head, so that each program reads its own in a row; once for all blocks of a stack.
        bias = sight.once(("sets", x.dtype), lambda: given.values.to(x.dtype).t().contiguous())
    if p:
        bits = torch.randint(2**31 - 1, (heads, len(x)), dtype=torch.int32, device=x.device)
    longest = max(queries.longest, keys.longest)
    x = x if x.stride(-1) == 1 else x.contiguous()
    out, _ = attend_sets(
        x, memory, queries.ends, queries.lengths, keys.ends, keys.lengths, bias, starts, bits, heads, scale, p, longest
    )
    return out


@torch.library.custom_op("sciformer::attend_sets", mutates_args=())
def attend_sets(
    x: Tensor,
    memory: Tensor | None,
    ends: Tensor,
    lengths: Tensor,
    memory_ends: Tensor,
    memory_lengths: Tensor,
    bias: Tensor | None,
    starts: Tensor | None,
    bits: Tensor | None,
    heads: int,
    scale: float,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor]:
    """The heads (T, H E) side by side, and for each the logarithm of the sum of its exponentials (H, T).

    x        (T, 3 H E) queries, keys and values side by side; or (T, H E) queries
    memory   (M, 2 H E) keys and values of other tokens
    bias     (H, S) of the pairs; `starts` (B,) where the pairs of each set begin
    bits     (H, T) random whole numbers, for dropout
    longest  a bound on the lengths
    """
    from .packed_bias_triton import forward

    return forward(
        x, memory, ends, lengths, memory_ends, memory_lengths, bias, starts, bits, heads, scale, dropout, longest
    )


@attend_sets.register_fake
def _(
    x: Tensor,
    memory: Tensor | None,
    ends: Tensor,
    lengths: Tensor,
    memory_ends: Tensor,
    memory_lengths: Tensor,
    bias: Tensor | None,
    starts: Tensor | None,
    bits: Tensor | None,
    heads: int,
    scale: float,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor]:
    width = x.shape[1] // 3 if memory is None else x.shape[1]
    return x.new_empty(x.shape[0], width), x.new_empty(heads, x.shape[0], dtype=torch.float32)


@torch.library.custom_op("sciformer::attend_sets_backward", mutates_args=())
def attend_sets_backward(
    up: Tensor,
    x: Tensor,
    memory: Tensor | None,
    ends: Tensor,
    lengths: Tensor,
    memory_ends: Tensor,
    memory_lengths: Tensor,
    bias: Tensor | None,
    starts: Tensor | None,
    bits: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
    scale: float,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of the memory and of the bias, for that of the heads (T, H E); empty where there is none."""
    from .packed_bias_triton import backward

    up = up.to(x.dtype).contiguous()
    return backward(
        up, x, memory, ends, lengths, memory_ends, memory_lengths, bias, starts, bits, out, lse, heads, scale, dropout,
        longest,
    )  # fmt: skip


@attend_sets_backward.register_fake
def _(
    up: Tensor,
    x: Tensor,
    memory: Tensor | None,
    ends: Tensor,
    lengths: Tensor,
    memory_ends: Tensor,
    memory_lengths: Tensor,
    bias: Tensor | None,
    starts: Tensor | None,
    bits: Tensor | None,
    out: Tensor,
    lse: Tensor,
    heads: int,
    scale: float,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    dx, dmemory, dbias = (x.new_empty(0) if one is None else one.new_empty(one.shape) for one in (x, memory, bias))
    return dx, dmemory, dbias


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, heads, scale, dropout, longest = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.options = heads, scale, dropout, longest


def _backward(ctx: Any, up: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    x, memory, *rest = ctx.saved_tensors
    dx, dmemory, dbias = attend_sets_backward(up, x, memory, *rest, *ctx.options)
    given = (None if memory is None else dmemory, None if rest[4] is None else dbias)
    return dx, given[0], None, None, None, None, given[1], *[None] * 6


attend_sets.register_autograd(_backward, setup_context=_setup)
