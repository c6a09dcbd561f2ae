"""One query of each sequence against a fixed cache, on CUDA: the attention of a decoding step.

The other kernels read the whole cache and hide what is not filled yet. This one (Triton) stores the new key and value
and reads only what is there: how many that are stands on the device, so that one recorded step serves every length.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache

import torch
from torch import Tensor

from ..cache import Store
from ..patterns import Both, Causal, Pattern, Sight, Window
from ..scores import Score

TRITON = importlib.util.find_spec("triton") is not None  # asked once: a compiler cannot trace the question


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether Triton is installed."""
    return TRITON


def suits(q: Tensor, store: Store, sight: Sight, score: Score) -> bool:
    """Whether this kernel can do it: one query, a fixed cache, a product, and the past or the near past in sight."""
    return (
        q.is_cuda
        and store.capacity is not None
        and q.shape[2] == 1
        and q.dtype != torch.float64
        and score.fused
        and sight.bias is None
        and isinstance(sight.start, Tensor)
        and sight.valid is not None
        and reach(sight.pattern) is not None
        and available()
    )


def reach(pattern: Pattern) -> int | None:
    """How many earlier tokens are seen at most, -1 for all of them; None where a pattern is not of that kind."""
    if isinstance(pattern, Causal):
        return -1
    if isinstance(pattern, Both) and isinstance(pattern.first, Causal) and isinstance(pattern.second, Window):
        return pattern.second.left
    return None


def run(q: Tensor, k: Tensor, v: Tensor, store: Store, sight: Sight, score: Score) -> Tensor:
    """(B, H, 1, E) from prepared queries (B, H, 1, E) and the new keys and values (B, G, 1, E), which are stored."""
    keys, values = store.fixed(k, v)
    back = reach(sight.pattern)
    assert back is not None
    assert sight.valid is not None
    assert isinstance(sight.start, Tensor)
    return attend_one(q, k, v, keys, values, sight.valid, sight.start, score.scale(q.shape[-1]), back)


@torch.library.custom_op("sciformer::attend_one", mutates_args=("keys", "values"))
def attend_one(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    valid: Tensor,
    start: Tensor,
    scale: float,
    back: int,
) -> Tensor:
    """As `run`; the new key is at `start` in keys (B, G, M, E), and sees the `back` before it, or all with -1."""
    from .single_triton import launch

    return launch(q, k, v, keys, values, valid, start, scale, back)


@attend_one.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, valid: Tensor, start: Tensor, scale: float, back: int
) -> Tensor:
    return q.new_empty(q.shape)
