"""The gradients of `packed_bias` where a set is more than one block and pairs have no bias (Triton).

    queries   one program for a block of queries goes along the keys:      3 products for each pair of blocks
    keys      one program for a block of keys goes along the queries:      4 products

Scores are made twice, but a program holds little, so that several share a processor and one works while others wait.
Nobody else writes where a program does: results do not depend on who comes first.
"""

# Triton reads the annotations of a kernel, so they must not become strings.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator, misc"

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .packed_bias_triton import _kept, _tile

# Rows of a program's own block, rows of those that it goes along, and how it is laid out; `exact` in single precision.
# In half precision they have at most 128 registers (64 wide, no dropout): four programs on a processor of an H200.
LAYOUT: dict[str, dict[str, int]] = {
    "exact": {"ROWS": 32, "STEP": 32, "num_warps": 4, "num_stages": 1},
    "queries": {"ROWS": 64, "STEP": 32, "num_warps": 4, "num_stages": 2},
    "keys": {"ROWS": 64, "STEP": 32, "num_warps": 4, "num_stages": 1},
}


@triton.jit
def queries_kernel(
    x, memory, ends, lengths, memory_ends, memory_lengths, bits, out, lse, up, dx, delta,
    x_t, memory_t, dx_t, total, scale, rare, grow,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq_I = sum_J g_IJ k_J with g = p (d dp - delta_I); delta is left for the other kernel.

    Queries that are not there are not written.
    """
    b = tl.program_id(0) // H
    h = tl.program_id(0) % H
    n = tl.load(lengths + b).to(tl.int32)
    m = tl.load(memory_lengths + b).to(tl.int32)
    row = tl.program_id(1) * ROWS
    if row < n:
        first = tl.load(ends + b) - n
        begin = tl.load(memory_ends + b) - m
        e = tl.arange(0, WIDE)
        i = row + tl.arange(0, ROWS)
        mine = i < n
        q = _tile(x + first * x_t + h * E, i, mine, x_t, e, E)
        keys = memory + begin * memory_t + h * E
        up_i = _tile(up + (first * H + h) * E, i, mine, H * E, e, E)
        out_i = _tile(out + (first * H + h) * E, i, mine, H * E, e, E)
        d = tl.sum(up_i.to(tl.float32) * out_i.to(tl.float32), 1)
        level = tl.load(lse + h * total + first + i, mask=mine, other=float("inf"))
        word = i
        if DROP:
            word = tl.load(bits + h * total + first + i, mask=mine, other=0)
        dq = tl.zeros([ROWS, WIDE], tl.float32)
        for start in range(0, m, STEP):
            j = start + tl.arange(0, STEP)
            there = j < m
            k = _tile(keys, j, there, memory_t, e, E)
            v = _tile(keys + H * E, j, there, memory_t, e, E)
            score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            p = tl.exp(tl.where(there[None, :], score - level[:, None], -float("inf")))
            dp = tl.dot(up_i, tl.trans(v), input_precision=PRECISION)
            if DROP:
                dp = tl.where(_kept(word[:, None], j[None, :], rare), dp * grow, 0.0)
            dq += tl.dot((p * (dp - d[:, None])).to(k.dtype), k, input_precision=PRECISION)
        tl.store(delta + h * total + first + i, d, mask=mine)
        place = dx + first * dx_t + h * E + i[:, None] * dx_t + e[None, :]
        tl.store(place, (dq * scale).to(dx.dtype.element_ty), mask=mine[:, None] & (e < E)[None, :])


@triton.jit
def keys_kernel(
    x, memory, ends, lengths, memory_ends, memory_lengths, bits, lse, up, dmemory, delta,
    x_t, memory_t, dmemory_t, total, scale, rare, grow,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk_I = sum_J g_JI q_J and dv_I = sum_J d p_JI do_J; to a query that is not there nothing has a weight."""
    b = tl.program_id(0) // H
    h = tl.program_id(0) % H
    n = tl.load(lengths + b).to(tl.int32)
    m = tl.load(memory_lengths + b).to(tl.int32)
    row = tl.program_id(1) * ROWS
    if row < m:
        first = tl.load(ends + b) - n
        begin = tl.load(memory_ends + b) - m
        e = tl.arange(0, WIDE)
        i = row + tl.arange(0, ROWS)
        mine = i < m
        keys = memory + begin * memory_t + h * E
        k = _tile(keys, i, mine, memory_t, e, E)
        v = _tile(keys + H * E, i, mine, memory_t, e, E)
        queries = x + first * x_t + h * E
        ups = up + (first * H + h) * E
        rest = h * total + first
        dk = tl.zeros([ROWS, WIDE], tl.float32)
        dv = tl.zeros([ROWS, WIDE], tl.float32)
        for start in range(0, n, STEP):
            j = start + tl.arange(0, STEP)
            asked = j < n
            q = _tile(queries, j, asked, x_t, e, E)
            up_j = _tile(ups, j, asked, H * E, e, E)
            level = tl.load(lse + rest + j, mask=asked, other=float("inf"))
            d = tl.load(delta + rest + j, mask=asked, other=0.0)
            score = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale
            p = tl.exp(tl.where(mine[:, None], score - level[None, :], -float("inf")))
            dp = tl.dot(v, tl.trans(up_j), input_precision=PRECISION)
            used = p
            if DROP:
                word = tl.load(bits + rest + j, mask=asked, other=0)
                kept = _kept(word[None, :], i[:, None], rare)
                dp = tl.where(kept, dp * grow, 0.0)
                used = tl.where(kept, p * grow, 0.0)
            dv += tl.dot(used.to(up_j.dtype), up_j, input_precision=PRECISION)
            dk += tl.dot((p * (dp - d[None, :])).to(q.dtype), q, input_precision=PRECISION)
        place = dmemory + begin * dmemory_t + h * E + i[:, None] * dmemory_t + e[None, :]
        wide = mine[:, None] & (e < E)[None, :]
        tl.store(place, (dk * scale).to(dmemory.dtype.element_ty), mask=wide)
        tl.store(place + H * E, dv.to(dmemory.dtype.element_ty), mask=wide)


def gradients(
    x: Tensor, keys: Tensor, sets: tuple[Tensor, Tensor, Tensor, Tensor], bits: Tensor | None, out: Tensor,
    lse: Tensor, up: Tensor, dx: Tensor, dkeys: Tensor, scale: float, rng: tuple[int, float],
    longest: int, options: dict[str, Any],
) -> None:  # fmt: skip
    """Write the gradients of the queries of x into dx, those of keys and values into dkeys."""
    total, delta = x.shape[0], lse.new_empty(lse.shape)
    drawn = sets[0] if bits is None else bits
    options = {name: options[name] for name in ("H", "E", "WIDE", "DROP", "PRECISION")}

    exact = options["PRECISION"] == "ieee"
    ways = {name: LAYOUT["exact" if exact else name] for name in ("queries", "keys")}
    grids = {name: (len(sets[1]) * options["H"], triton.cdiv(longest, way["ROWS"])) for name, way in ways.items()}
    queries_kernel[grids["queries"]](
        x, keys, *sets, drawn, out, lse, up, dx, delta, x.stride(0), keys.stride(0), dx.stride(0), total, scale,
        *rng, **options, **ways["queries"],
    )  # fmt: skip
    keys_kernel[grids["keys"]](
        x, keys, *sets, drawn, lse, up, dkeys, delta, x.stride(0), keys.stride(0), dkeys.stride(0), total, scale,
        *rng, **options, **ways["keys"],
    )  # fmt: skip
