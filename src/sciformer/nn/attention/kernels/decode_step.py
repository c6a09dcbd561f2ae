"""Decoding step of attention on CUDA: one query per sequence, with a fixed cache.

The other kernels read the whole cache and mask its empty part. This kernel (Triton) rotates the query and the new key
by their position, stores key and value, and reads only the filled part. The number of filled slots is on the device, so
one captured CUDA graph serves every length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..masks import Both, Causal, Pattern, Window
from .request import Request, no_triton


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    store, sight = request.store, request.sight
    if store is None or store.capacity is None or request.q.shape[2] != 1:
        return "it supports only one new token per sequence, with a cache of fixed capacity"
    if request.qkv is None:
        return "it needs the unchanged projection of queries, keys and values"
    if sight.bias is not None or sight.valid is None or not isinstance(sight.start, Tensor):
        return "it does not support a bias, and mask and position must be on the device, as in the cache of a decoder"
    if reach(sight.pattern) is None:
        return "it supports only Causal(), alone or with a Window"
    return no_triton(request.qkv)


def reach(pattern: Pattern) -> int | None:
    """Number of visible earlier tokens (-1: all), or None for an unsupported pattern."""
    if isinstance(pattern, Causal):
        return -1
    if isinstance(pattern, Both) and isinstance(pattern.first, Causal) and isinstance(pattern.second, Window):
        return pattern.second.left
    return None


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (B, H, 1, E); E is the head width."""
    store, sight, rotation = request.store, request.sight, request.rotation
    back = reach(sight.pattern)
    assert store is not None
    assert back is not None
    keys, values = store.fixed(request.k, request.v)
    cos, sin, halves = (None, None, False) if rotation is None else rotation
    return attend_one(request.qkv, cos, sin, halves, keys, values, sight.valid, sight.start, request.scale, back)


@torch.library.custom_op(
    "sciformer::attend_one",
    mutates_args=("keys", "values"),
    schema="(Tensor qkv, Tensor? cos, Tensor? sin, bool halves, Tensor(a!) keys, Tensor(b!) values, Tensor valid, "
    "Tensor start, float scale, SymInt back) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
)
def attend_one(*inputs: Any) -> Tensor:
    """Attention heads (B, H, 1, E) of the new token.

    The new token is stored at index `start` of the keys (B, G, M, E) and sees `back` earlier tokens (-1: all). Query,
    key and value are one tensor qkv (B, 1, (H + 2 G) E), because a compiler would copy three separate tensors.
    """
    from .decode_step_triton import launch

    return launch(*inputs)


@attend_one.register_fake
def _(qkv: Tensor, cos: Tensor | None, sin: Tensor | None, halves: bool, keys: Tensor, *rest: Any) -> Tensor:
    kv_heads, width = keys.shape[1], keys.shape[3]
    return qkv.new_empty(qkv.shape[0], qkv.shape[-1] // width - 2 * kv_heads, 1, width)
