"""Triton kernel of `decode_step`; imported at launch, because Triton is optional."""

# Triton reads the annotations of a kernel, so they must not become strings.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator, misc"

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def attend_one_kernel(
    qkv, cos, sin, keys, values, valid, start, out,
    qkv_b, turn_b, keys_b, keys_g, keys_m, values_b, values_g, values_m, valid_b,
    scale, back,
    TURN: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys; one program for each head of each sequence."""
    b = tl.program_id(0) // HEADS
    h = tl.program_id(0) % HEADS
    g = h // (HEADS // KV_HEADS)
    e = tl.arange(0, WIDE)
    inside = e < E
    row = qkv + b * qkv_b
    query = tl.load(row + h * E + e, mask=inside, other=0.0).to(tl.float32)
    new_key = tl.load(row + (HEADS + g) * E + e, mask=inside, other=0.0)
    new_value = tl.load(row + (HEADS + KV_HEADS + g) * E + e, mask=inside, other=0.0)
    if TURN != 0:  # (a, b) -> (a cos - b sin, b cos + a sin), of neighbours (1) or of halves (2)
        if TURN == 1:
            other, angle = e ^ 1, e // 2
            sign = tl.where(e % 2 == 0, -1.0, 1.0)
        else:
            other, angle = (e + E // 2) % E, e % (E // 2)
            sign = tl.where(e < E // 2, -1.0, 1.0)
        c = tl.load(cos + b * turn_b + angle, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + b * turn_b + angle, mask=inside, other=0.0).to(tl.float32) * sign
        partner = tl.load(row + h * E + other, mask=inside, other=0.0).to(tl.float32)
        query = query * c + partner * s
        partner = tl.load(row + (HEADS + g) * E + other, mask=inside, other=0.0).to(tl.float32)
        new_key = (new_key.to(tl.float32) * c + partner * s).to(new_key.dtype)
    query = query * scale
    place = tl.load(start)
    first = tl.zeros_like(place)
    if back >= 0:
        first = tl.maximum(place - back, 0)
    # The new token sees itself: it is the first term of the sum.
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
    if h % (HEADS // KV_HEADS) == 0:
        tl.store(keys + b * keys_b + g * keys_g + place * keys_m + e, new_key, mask=inside)
        tl.store(values + b * values_b + g * values_g + place * values_m + e, new_value, mask=inside)


def launch(
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
    """Launch the kernel and return the heads (B, H, 1, E)."""
    (batch, kv_heads, _, width), wide = keys.shape, triton.next_power_of_2(keys.shape[3])
    heads = qkv.shape[-1] // width - 2 * kv_heads
    qkv = qkv if qkv.stride(-1) == 1 else qkv.contiguous()
    turn, apart = 0, 0
    if cos is None or sin is None:
        cos = sin = qkv
    else:
        cos, sin = cos.contiguous(), sin.contiguous()
        turn, apart = 2 if halves else 1, width // 2 if cos.shape[0] > 1 else 0
    out = torch.empty(batch, heads, 1, width, dtype=qkv.dtype, device=qkv.device)
    attend_one_kernel[(batch * heads,)](
        qkv, cos, sin, keys, values, valid, start, out,
        qkv.stride(0), apart, keys.stride(0), keys.stride(1), keys.stride(2), values.stride(0), values.stride(1),
        values.stride(2), valid.stride(0), scale, back,
        TURN=turn, HEADS=heads, KV_HEADS=kv_heads, E=width, WIDE=wide, BLOCK=max(16, 8192 // wide), num_warps=4,
    )  # fmt: skip
    return out
