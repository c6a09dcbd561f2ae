"""How attention is computed: one definition, several kernels, all in agreement.

    reference   the definition, short and readable; takes every score and every option
    sdpa        PyTorch's fused kernels, CPU and CUDA
    chunked     windows in blocks and packed sequences, linear in the number of tokens, made for the CPU
    flex        FlexAttention: sparse patterns on CUDA
    flash       FlashAttention: packed sequences without a bias, in half precision on CUDA
    sets        Triton: many small packed sets, with a bias of their pairs, on CUDA
    grouped     the same on the CPU, sets of similar length together

`attend` chooses one, or takes the one it is told to; a kernel that cannot do what is asked says why.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ....errors import UserError, one_of
from ..masks import Causal, Documents, Full, Sight
from ..scores import ScaledDot, Score
from . import chunked, flash, flex, grouped, reference, sdpa
from . import packed_bias as sets

__all__ = ["KERNELS", "Kernel", "attend", "choose", "compute"]


class Kernel(Protocol):
    """What every module of this folder offers."""

    def refuse(self, q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float) -> str | None:
        """Why this kernel cannot do it, or None."""

    def run(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float) -> Tensor:
        """(B, H, N, E) from prepared queries (B, H, N, E), keys and values (B, G, M, E)."""


KERNELS: dict[str, Kernel] = {
    "reference": reference,
    "sdpa": sdpa,
    "chunked": chunked,
    "flex": flex,
    "flash": flash,
    "sets": sets,
    "grouped": grouped,
}
DEFAULT_SCORE = ScaledDot()


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
    """out_i = sum_j softmax_j(score(q_i, k_j) + bias_ij) v_j over the keys that `sight` lets query i see.

    q (B, H, N, E), k and v (B, G, M, E) with G dividing H: shared key-value heads. Returns (B, H, N, E).
    """
    sight = Sight() if sight is None else sight
    if not isinstance(sight, Sight) or not isinstance(score, Score):
        found = type(sight if isinstance(score, Score) else score).__name__
        raise UserError(
            f"attend needs a Sight and a Score, not {found}",
            hint="Write a mask as Sight(valid=mask) and a score as ScaledDot().",
        )
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
            hint="Write a single head of a single sample as x[None, None].",
        )
    sight.check(queries[0], queries[1], queries[2], keys[2])
    k = k if score.fused else reference.repeat_heads(k, queries[1])
    return compute(score.query(q), score.key(k), v, sight, score, dropout, kernel)


def compute(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, score: Score, dropout: float = 0.0, kernel: str = "auto"
) -> Tensor:
    """`attend` for queries and keys that the score has prepared."""
    _, heads, n, _ = q.shape
    if n == 0 or k.shape[2] == 0:  # a sum over no keys
        return v[:, :1, :0].sum(2, keepdim=True).expand(-1, heads, n, -1)
    if kernel == "auto":
        kernel = choose(q, k, sight, score, dropout)
    else:
        one_of("the kernel", kernel, ["auto", *KERNELS])
        if (why := KERNELS[kernel].refuse(q, k, sight, score, dropout)) is not None:
            raise UserError(f"the kernel {kernel!r} cannot be used here: {why}", hint="Use kernel='auto'.")
    return KERNELS[kernel].run(q, k, v, sight, score, dropout)


def choose(q: Tensor, k: Tensor, sight: Sight, score: Score, dropout: float = 0.0) -> str:
    """The name of the fastest kernel that can do it."""
    if not score.fused:
        return "reference"
    if isinstance(sight.pattern, (Full, Causal)):
        return "sdpa"
    n, m = q.shape[2], k.shape[2]
    if sets.refuse(q, k, sight, score, dropout) is None:
        return "sets"
    if flash.better(q, q.shape[3], sight, dropout):
        return "flash"
    if grouped.refuse(q, k, sight, score, dropout) is None and grouped.saves(sight, dropout):
        return "grouped"
    if q.is_cuda:
        if n * m >= 1 << 18 and flex.refuse(q, k, sight, score, dropout) is None:
            return "flex"
        return "chunked" if isinstance(sight.pattern, Documents) else "sdpa"
    cheap = chunked.refuse(q, k, sight, score, dropout) is None and chunked.saves(n, sight)
    return "chunked" if cheap else "sdpa"
