"""One query of each sequence against a fixed cache, on CUDA: the attention of a decoding step.

The other kernels read the whole cache and hide what is not filled yet. This one (Triton) turns the query and the new
key by their position, stores key and value, and reads only what is there: how many that are stands on the device, so
that one recorded step serves every length.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from ...positions import Rotation
from ..cache import Store
from ..masks import Both, Causal, Pattern, Sight, Window

HAS_TRITON = importlib.util.find_spec("triton") is not None  # asked once: a compiler cannot trace the question


def suits(x: Tensor, store: Store, sight: Sight) -> bool:
    """Whether this kernel can do it for tokens x (B, N, D): one each, a fixed cache, the past or near past in sight."""
    return (
        x.is_cuda
        and store.capacity is not None
        and x.shape[1] == 1
        and x.dtype != torch.float64
        and sight.bias is None
        and isinstance(sight.start, Tensor)
        and sight.valid is not None
        and reach(sight.pattern) is not None
        and HAS_TRITON
    )


def reach(pattern: Pattern) -> int | None:
    """How many earlier tokens are seen at most, -1 for all of them; None where a pattern is not of that kind."""
    if isinstance(pattern, Causal):
        return -1
    if isinstance(pattern, Both) and isinstance(pattern.first, Causal) and isinstance(pattern.second, Window):
        return pattern.second.left
    return None


def run(
    qkv: Tensor, k: Tensor, v: Tensor, rotation: Rotation | None, store: Store, sight: Sight, scale: float
) -> Tensor:
    """(B, H, 1, E) from query, key and value side by side (B, 1, W), of which k and v (B, G, 1, E) are parts."""
    keys, values = store.fixed(k, v)
    back = reach(sight.pattern)
    assert back is not None
    assert sight.valid is not None
    assert isinstance(sight.start, Tensor)
    cos, sin, halves = (None, None, False) if rotation is None else rotation
    return attend_one(qkv, cos, sin, halves, keys, values, sight.valid, sight.start, scale, back)


@torch.library.custom_op("sciformer::attend_one", mutates_args=("keys", "values"), tags=(torch.Tag.flexible_layout,))
def attend_one(
    qkv: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    halves: bool,
    keys: Tensor,
    values: Tensor,
    valid: Tensor,
    start: Tensor,
    scale: float,
    back: int,
) -> Tensor:
    """As `run`; the new key is at `start` in keys (B, G, M, E), and sees the `back` before it, or all with -1.

    Query, key and value come as one: cut apart, a compiler would copy each of them.
    """
    from .decode_step_triton import launch

    return launch(qkv, cos, sin, halves, keys, values, valid, start, scale, back)


@attend_one.register_fake
def _(
    qkv: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    halves: bool,
    keys: Tensor,
    values: Tensor,
    valid: Tensor,
    start: Tensor,
    scale: float,
    back: int,
) -> Tensor:
    kv_heads, width = keys.shape[1], keys.shape[3]
    return qkv.new_empty(qkv.shape[0], qkv.shape[-1] // width - 2 * kv_heads, 1, width)
