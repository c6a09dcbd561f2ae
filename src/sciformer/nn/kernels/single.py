"""One query of each sequence against a fixed cache, on CUDA: the attention of a decoding step.

The other kernels read the whole cache and hide what is not filled yet. This one (Triton) stores the new key and value
and reads only what is there: how many that are stands on the device, so that one recorded step serves every length.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from ..cache import Store
from ..patterns import Both, Causal, Pattern, Sight, Window
from ..scores import Score

TRITON = importlib.util.find_spec("triton") is not None  # asked once: a compiler cannot trace the question


TRITON = importlib.util.find_spec("triton") is not None


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
        and TRITON
    )


def reach(pattern: Pattern) -> int | None:
    """How many earlier tokens are seen at most, -1 for all of them; None where a pattern is not of that kind."""
    if isinstance(pattern, Causal):
        return -1
    if isinstance(pattern, Both) and isinstance(pattern.first, Causal) and isinstance(pattern.second, Window):
        return pattern.second.left
    return None


def run(qkv: Tensor, widths: list[int], store: Store, sight: Sight, score: Score) -> Tensor:
    """(B, H, 1, E) from the prepared query, key and value side by side (B, 1, W); key and value are stored."""
    key, value = (part.unflatten(-1, (-1, store.width)).transpose(1, 2) for part in qkv.split(widths, -1)[1:])
    keys, values = store.fixed(key, value)
    back = reach(sight.pattern)
    assert back is not None
    assert sight.valid is not None
    assert isinstance(sight.start, Tensor)
    return attend_one(qkv, keys, values, sight.valid, sight.start, score.scale(keys.shape[-1]), back)


@torch.library.custom_op("sciformer::attend_one", mutates_args=("keys", "values"))
def attend_one(
    qkv: Tensor, keys: Tensor, values: Tensor, valid: Tensor, start: Tensor, scale: float, back: int
) -> Tensor:
    """As `run`; the new key is at `start` in keys (B, G, M, E), and sees the `back` before it, or all with -1.

    Query, key and value come as one: cut apart, the compiler would copy each of them.
    """
    from .single_triton import launch

    return launch(qkv, keys, values, valid, start, scale, back)


@attend_one.register_fake
def _(qkv: Tensor, keys: Tensor, values: Tensor, valid: Tensor, start: Tensor, scale: float, back: int) -> Tensor:
    groups, width = keys.shape[1], keys.shape[3]
    return qkv.new_empty(qkv.shape[0], qkv.shape[-1] // width - 2 * groups, 1, width)
