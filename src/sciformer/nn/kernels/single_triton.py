"""The Triton kernel of `single`; imported where it is launched, for Triton may not be installed."""

# Triton reads the annotations of a kernel, so they must not become strings.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator, misc"

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def attend_one_kernel(
    q, k, v, keys, values, valid, start, out,
    q_b, q_h, k_b, k_g, v_b, v_g, keys_b, keys_g, keys_m, values_b, values_g, values_m, valid_b,
    scale, back,
    HEADS: tl.constexpr, SHARED: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each head of each sequence: a softmax that is put right while the keys pass by."""
    b = tl.program_id(0) // HEADS
    h = tl.program_id(0) % HEADS
    g = h // SHARED
    e = tl.arange(0, WIDE)
    inside = e < E
    query = tl.load(q + b * q_b + h * q_h + e, mask=inside, other=0.0).to(tl.float32) * scale
    new_key = tl.load(k + b * k_b + g * k_g + e, mask=inside, other=0.0)
    new_value = tl.load(v + b * v_b + g * v_g + e, mask=inside, other=0.0)
    place = tl.load(start)
    first = tl.zeros_like(place)
    if back >= 0:
        first = tl.maximum(place - back, 0)
    # The new token sees itself: it opens the sum.
    highest = tl.sum(query * new_key.to(tl.float32), 0)
    weight = highest * 0 + 1.0
    total = new_value.to(tl.float32)
    for low in range(first, place, BLOCK):
        j = low + tl.arange(0, BLOCK)
        seen = j < place
        seen = seen & (tl.load(valid + b * valid_b + j, mask=seen, other=0) != 0)
        open_ = seen[:, None] & inside[None, :]
        old = tl.load(keys + b * keys_b + g * keys_g + j[:, None] * keys_m + e[None, :], mask=open_, other=0.0)
        score = tl.where(seen, tl.sum(old.to(tl.float32) * query[None, :], 1), -float("inf"))
        top = tl.maximum(highest, tl.max(score, 0))
        share = tl.exp(score - top)
        fade = tl.exp(highest - top)
        old = tl.load(values + b * values_b + g * values_g + j[:, None] * values_m + e[None, :], mask=open_, other=0.0)
        total = total * fade + tl.sum(old.to(tl.float32) * share[:, None], 0)
        weight = weight * fade + tl.sum(share, 0)
        highest = top
    tl.store(out + (b * HEADS + h) * E + e, (total / weight).to(out.dtype.element_ty), mask=inside)
    if h % SHARED == 0:
        tl.store(keys + b * keys_b + g * keys_g + place * keys_m + e, new_key, mask=inside)
        tl.store(values + b * values_b + g * values_g + place * values_m + e, new_value, mask=inside)


def launch(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, valid: Tensor, start: Tensor, scale: float, back: int
) -> Tensor:
    """(B, H, 1, E), laid out as (B, 1, H, E): the heads of a token side by side."""
    batch, heads, _, width = q.shape
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    out = torch.empty(batch, heads, 1, width, dtype=q.dtype, device=q.device)
    wide = triton.next_power_of_2(width)
    attend_one_kernel[(batch * heads,)](
        q, k, v, keys, values, valid, start, out,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        keys.stride(0), keys.stride(1), keys.stride(2), values.stride(0), values.stride(1), values.stride(2),
        valid.stride(0), scale, back,
        HEADS=heads, SHARED=heads // k.shape[1], E=width, WIDE=wide, BLOCK=max(16, 8192 // wide), num_warps=4,
    )  # fmt: skip
    return out
