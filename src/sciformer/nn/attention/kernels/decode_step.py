"""One query of each sequence against a fixed cache, on CUDA: the attention of a decoding step.

The other kernels read the whole cache and hide what is not filled yet. This one (Triton) turns the query and the new
key by their position, stores key and value, and reads only what is there: how many that are stands on the device, so
that one recorded step serves every length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..masks import Both, Causal, Pattern, Window
from .request import Request, no_triton


def supports(request: Request) -> str | None:
    """Reason why this kernel cannot take the request, or None."""
    store, sight = request.store, request.sight
    if store is None or store.capacity is None or request.q.shape[2] != 1:
        return "it takes one new token of each sequence and a cache of fixed capacity"
    if request.qkv is None:
        return "it takes queries, keys and values as the projection made them"
    if sight.bias is not None or sight.valid is None or not isinstance(sight.start, Tensor):
        return "it takes no bias, and needs validity and position on the device, as a decoder's cache has them"
    if reach(sight.pattern) is None:
        return "it takes Causal(), alone or with a Window"
    return no_triton(request.qkv)


def reach(pattern: Pattern) -> int | None:
    """How many earlier tokens are seen at most, -1 for all of them; None where a pattern is not of that kind."""
    if isinstance(pattern, Causal):
        return -1
    if isinstance(pattern, Both) and isinstance(pattern.first, Causal) and isinstance(pattern.second, Window):
        return pattern.second.left
    return None


def run(request: Request) -> Tensor:
    """The heads (B, H, 1, E)."""
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
    """The heads (B, H, 1, E) of a new token at `start` of keys (B, G, M, E); it sees `back` tokens before, -1: all.

    Query, key and value come side by side, qkv (B, 1, (H + 2 G) E): cut apart, a compiler would copy each of them.
    """
    from .decode_step_triton import launch

    return launch(*inputs)


@attend_one.register_fake
def _(qkv: Tensor, cos: Tensor | None, sin: Tensor | None, halves: bool, keys: Tensor, *rest: Any) -> Tensor:
    kv_heads, width = keys.shape[1], keys.shape[3]
    return qkv.new_empty(qkv.shape[0], qkv.shape[-1] // width - 2 * kv_heads, 1, width)
