"""Attention kernels: a reference implementation, and faster equivalent kernels.

Each kernel is a module with two functions. `supports(request)` returns None, or the reason why the kernel cannot be
used; `run(request)` computes the attention. `choose` goes from top to bottom and takes the first kernel that supports
the request and is faster than the kernels below it (`SAVES`):

    decode_step   Triton: one query per sequence against a cache of fixed capacity, on CUDA
    packed_bias   Triton: many small packed sequences with a pair bias, on CUDA
    flash         FlashAttention: packed sequences without a bias, in half precision on CUDA
    grouped       packed sequences grouped by similar length, on the CPU
    flex          FlexAttention: sparse patterns on CUDA
    chunked       windows (on the CPU) and packed sequences (by padding), in linear time
    sdpa          fused kernels of PyTorch, CPU and CUDA
    reference     the definition: short and readable, for every score and every option
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ....errors import UserError, one_of
from ...watch import Watch
from ..masks import Causal, Full, Sight
from ..pair_bias import PairBias
from ..scores import Score
from . import chunked, decode_step, flash, flex, grouped, packed_bias, reference, sdpa
from .request import DEFAULT_SCORE, Request, repeat_heads

__all__ = ["KERNELS", "Kernel", "Request", "attend", "choose", "compute"]


class Kernel(Protocol):
    """Interface of a kernel: the functions `supports` and `run` of its module."""

    def supports(self, request: Request) -> str | None:
        """Reason why this kernel does not support the request, or None."""

    def run(self, request: Request) -> Tensor:
        """Attention outputs of all heads (B, H, N, E); E is the head width."""


KERNELS: dict[str, Kernel] = {  # in the order of the choice
    "decode_step": decode_step,
    "packed_bias": packed_bias,
    "flash": flash,
    "grouped": grouped,
    "flex": flex,
    "chunked": chunked,
    "sdpa": sdpa,
    "reference": reference,
}
# The kernels to try for full and causal attention, where no pair can be skipped.
DENSE_KERNELS = ("decode_step", "sdpa", "reference")
# Whether a kernel is faster for this request than the kernels below it; kernels without an entry are always faster.
SAVES: dict[str, Callable[[Request], bool]] = {
    "flash": flash.saves,
    "grouped": grouped.saves,
    "flex": flex.saves,
    "chunked": chunked.saves,
}


def choose(request: Request) -> str:
    """Name of the fastest kernel for the request."""
    for name in DENSE_KERNELS if isinstance(request.sight.pattern, (Full, Causal)) else KERNELS:
        if KERNELS[name].supports(request) is None and (name not in SAVES or SAVES[name](request)):
            return name
    raise AssertionError("the reference supports every request")


def compute(request: Request, kernel: str = "auto", watch: Watch | None = None) -> Tensor:
    """Attention heads (B, H, N, E), computed by a kernel (auto: the fastest).

    `watch` records the attention weights.
    """
    if request.q.shape[2] == 0 or request.k.shape[2] == 0:
        return _empty(request)
    if watch is None or not watch.wants_attention:
        return KERNELS[_name(kernel, request)].run(request)
    request = request.prepare()
    name = _name(kernel, request)
    weights = reference.weigh(request.q, request.k, request.sight, request.score)
    watch.saw_attention(weights, name)
    if name == "reference":  # use the recorded weights themselves
        return reference.mix(weights, request.v, request.dropout)
    return KERNELS[name].run(request)


def _name(kernel: str, request: Request) -> str:
    """Name of the kernel to run; error if this kernel does not support the request."""
    if kernel == "auto":
        return choose(request)
    one_of("the kernel", kernel, ["auto", *KERNELS])
    if (why := KERNELS[kernel].supports(request)) is not None:
        pattern = request.sight.pattern
        raise UserError(f"the kernel {kernel!r} cannot be used with {pattern}: {why}", hint="Use kernel='auto'.")
    return kernel


def _empty(request: Request) -> Tensor:
    """Heads if there are no queries or no keys: zeros, with zero gradients."""
    (_, heads, n, _), bias = request.q.shape, request.sight.bias
    out = request.v[:, :1, :0].sum(2, keepdim=True).expand(-1, heads, n, -1)
    return out + 0 * bias.values.sum() if isinstance(bias, PairBias) else out


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sight: Sight | None = None,
    *,
    score: Score = DEFAULT_SCORE,
    dropout: float = 0.0,
    kernel: str = "auto",
) -> Tensor:
    """Attention of queries q to keys k and values v.

        out_i = sum_j softmax_j(score(q_i, k_j) + bias_ij) v_j

    The sum is over the keys that `sight` makes visible. Shapes: q (B, H, N, E); k and v (B, G, M, E), where G divides H
    (key-value heads are shared); result (B, H, N, E).
    """
    sight = Sight() if sight is None else sight
    if not isinstance(sight, Sight) or not isinstance(score, Score):
        found = type(sight if isinstance(score, Score) else score).__name__
        message = f"`sight` must be a Sight and `score` a Score, not {found}"
        raise UserError(message, hint="Pass a mask as Sight(valid=mask) and a score as ScaledDot().")
    queries, keys, values = q.shape, k.shape, v.shape
    if (
        not len(queries) == len(keys) == len(values) == 4
        or queries[0] != keys[0]
        or queries[3] != keys[3]
        or keys[:3] != values[:3]
        or queries[1] % keys[1]
    ):
        raise UserError(
            "queries must have shape (B, H, N, E), and keys and values (B, G, M, E) with H a multiple of G, "
            f"not {tuple(queries)}, {tuple(keys)} and {tuple(values)}",
            hint="Pass a single head of a single sample as x[None, None].",
        )
    sight.check(queries[0], queries[1], queries[2], keys[2])
    k = k if score.fused else repeat_heads(k, queries[1])
    return compute(Request(score.query(q), score.key(k), v, sight, score, dropout), kernel)
