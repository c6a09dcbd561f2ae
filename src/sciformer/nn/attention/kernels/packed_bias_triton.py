"""Triton kernels of `packed_bias`; imported at launch, because Triton is optional."""

# Triton reads the annotations of a kernel, so they must not become strings.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator, misc"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # maximum rows of a block
MAX_BLOCK_FLOAT32 = 32  # maximum rows in single precision without a bias, where products need many registers
# Launch options by the rows of a block; sets of a single block need only one stage.
LAYOUT: dict[str, dict[int, dict[str, Any]]] = {
    "along": {32: {"num_warps": 4, "num_stages": 1}, 64: {"num_warps": 4, "num_stages": 3}},
    "forward": {rows: {"num_warps": rows // 16, "num_stages": 1} for rows in (16, 32, 64)},
    "backward": {rows: {"num_warps": rows // 16, "num_stages": 1, "maxnreg": 128} for rows in (16, 32, 64)},
    "more": {rows: {"num_warps": rows // 8, "num_stages": 1} for rows in (16, 32, 64)},
}
# Rows of a program (ROWS), rows of each step of its loop (STEP), and launch options; `exact` is for single precision.
# In half precision (heads 64 wide, no dropout) a program has at most 128 registers, so that four
# programs fit on a multiprocessor of an H200.
LONG_LAYOUT: dict[str, dict[str, int]] = {
    "exact": {"ROWS": 32, "STEP": 32, "num_warps": 4, "num_stages": 1},
    "queries": {"ROWS": 64, "STEP": 32, "num_warps": 4, "num_stages": 2},
    "keys": {"ROWS": 64, "STEP": 32, "num_warps": 4, "num_stages": 1},
}


@triton.jit
def _tile(base, rows, there, apart, e, E: tl.constexpr):
    """Load a block (BLOCK, WIDE) of tokens of one head; 0 where `there` is False.

    apart  stride between rows
    """
    return tl.load(base + rows[:, None] * apart + e[None, :], mask=there[:, None] & (e < E)[None, :], other=0.0)


@triton.jit
def _dense_bias(bias, i, j, seen):
    """Load the symmetric bias (BLOCK, BLOCK) from the triangle of a set."""
    high = tl.maximum(i[:, None], j[None, :])
    low = tl.minimum(i[:, None], j[None, :])
    return tl.load(bias + (high * (high + 1) >> 1) + low, mask=seen, other=0.0).to(tl.float32)


@triton.jit
def _kept(word, j, rare):
    """Dropout mask: a hash of the random bits of the query and the index of the key."""
    x = word.to(tl.uint32, bitcast=True) ^ (j.to(tl.uint32) * 0x9E3779B1)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return (x >> 8).to(tl.int32) >= rare


@triton.jit
def forward_kernel(
    x, memory, ends, lengths, memory_ends, memory_lengths, bias, starts, bits, out, lse,
    x_t, memory_t, bias_h, total, scale, rare, grow,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, LEAN: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys; one program per set, head and block of queries."""
    b = tl.program_id(0) // H
    h = tl.program_id(0) % H
    n = tl.load(lengths + b).to(tl.int32)
    m = tl.load(memory_lengths + b).to(tl.int32)
    row = tl.program_id(1) * BLOCK
    if row < n:
        first = tl.load(ends + b) - n
        begin = tl.load(memory_ends + b) - m
        e = tl.arange(0, WIDE)
        i = row + tl.arange(0, BLOCK)
        mine = i < n
        q = _tile(x + first * x_t + h * E, i, mine, x_t, e, E)
        keys = memory + begin * memory_t + h * E
        if LEAN:
            bias += h * bias_h + tl.load(starts + b)
        word = i
        if DROP:
            word = tl.load(bits + h * total + first + i, mask=mine, other=0)
        highest = tl.full([BLOCK], -float("inf"), tl.float32)
        weight = tl.zeros([BLOCK], tl.float32)
        sums = tl.zeros([BLOCK, WIDE], tl.float32)
        for start in range(0, m, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = j < m
            k = _tile(keys, j, there, memory_t, e, E)
            score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            seen = mine[:, None] & there[None, :]
            if LEAN:
                score += _dense_bias(bias, i, j, seen)
            score = tl.where(seen, score, -float("inf"))
            top = tl.maximum(highest, tl.max(score, 1))
            ground = tl.where(top == -float("inf"), 0.0, top)  # queries without a visible key so far
            share = tl.exp(score - ground[:, None])
            fade = tl.exp(highest - ground)
            weight = weight * fade + tl.sum(share, 1)
            if DROP:
                share = tl.where(_kept(word[:, None], j[None, :], rare), share * grow, 0.0)
            v = _tile(keys + H * E, j, there, memory_t, e, E)
            sums = sums * fade[:, None] + tl.dot(share.to(v.dtype), v, input_precision=PRECISION)
            highest = top
        empty = weight == 0
        sums = sums / tl.where(empty, 1.0, weight)[:, None]
        target = out + (first * H + h) * E + i[:, None] * (H * E) + e[None, :]
        tl.store(target, sums.to(out.dtype.element_ty), mask=mine[:, None] & (e < E)[None, :])
        level = tl.where(empty, float("inf"), highest + tl.log(tl.where(empty, 1.0, weight)))
        tl.store(lse + h * total + first + i, level, mask=mine)


@triton.jit
def backward_kernel(
    x, memory, ends, lengths, memory_ends, memory_lengths, bias, starts, bits, out, lse, up, dx, dmemory, dbias,
    x_t, memory_t, dx_t, dmemory_t, bias_h, total, scale, rare, grow,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, LEAN: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys and values for a block of tokens I.

        queries I, keys J   p = exp(q_I k_J + b_IJ - lse_I),   g = p (d dp - delta_I),   dq_I = sum_J g k_J
        keys I, queries J   the same transposed (p', g'),      dk_I = sum_J g' q_J,      dv_I = sum_J p' d do_J

    One program computes one block of one head of one set. b is the bias, lse the logsumexp of the scores, d the dropout
    mask, do the gradient of the output, dp = do v_J the gradient of the weights, and delta the product of the output
    and do.

    The bias is symmetric, so p and p' both use b_IJ. The gradient of the bias is g + g' below the diagonal, and g on
    the diagonal. The first launch computes the pairs within each block, where g' is the transpose of g. For most sets
    these are all pairs. The second launch (MORE) adds the pairs with the other blocks. Each output is written by one
    program only, so results are deterministic.
    """
    b = tl.program_id(0) // H
    h = tl.program_id(0) % H
    n = tl.load(lengths + b).to(tl.int32)
    m = tl.load(memory_lengths + b).to(tl.int32)
    longest = tl.maximum(n, m)
    row = tl.program_id(1) * BLOCK
    work = row < longest
    if MORE:
        work = work & (longest > BLOCK)
    if work:
        first = tl.load(ends + b) - n
        begin = tl.load(memory_ends + b) - m
        e = tl.arange(0, WIDE)
        i = row + tl.arange(0, BLOCK)
        asks = i < n
        answers = i < m
        wide = (e < E)[None, :]
        queries = x + first * x_t + h * E
        keys = memory + begin * memory_t + h * E
        ups = up + (first * H + h) * E
        outs = out + (first * H + h) * E
        levels = lse + h * total + first
        bits += h * total + first
        dqueries = dx + first * dx_t + h * E + i[:, None] * dx_t + e[None, :]
        dkeys = dmemory + begin * dmemory_t + h * E + i[:, None] * dmemory_t + e[None, :]
        if LEAN:
            shift = h * bias_h + tl.load(starts + b)
            bias += shift
            dbias += shift
        q_i = _tile(queries, i, asks, x_t, e, E)
        k_i = _tile(keys, i, answers, memory_t, e, E)
        v_i = _tile(keys + H * E, i, answers, memory_t, e, E)
        up_i = _tile(ups, i, asks, H * E, e, E)
        delta_i = tl.sum(up_i.to(tl.float32) * _tile(outs, i, asks, H * E, e, E).to(tl.float32), 1)
        level_i = tl.load(levels + i, mask=asks, other=float("inf"))
        word_i = i
        if DROP:
            word_i = tl.load(bits + i, mask=asks, other=0)
        if not MORE:
            seen = asks[:, None] & answers[None, :]
            score = tl.dot(q_i, tl.trans(k_i), input_precision=PRECISION) * scale
            if LEAN:
                score += _dense_bias(bias, i, i, seen)
            p = tl.where(seen, tl.exp(score - level_i[:, None]), 0.0)
            dp = tl.dot(up_i, tl.trans(v_i), input_precision=PRECISION)
            used = p
            if DROP:
                kept = _kept(word_i[:, None], i[None, :], rare)
                dp = tl.where(kept, dp * grow, 0.0)
                used = tl.where(kept, p * grow, 0.0)
            dv = tl.dot(tl.trans(used.to(x.dtype.element_ty)), up_i, input_precision=PRECISION)
            tl.store(dkeys + H * E, dv.to(dx.dtype.element_ty), mask=answers[:, None] & wide)
            gradient = (p * (dp - delta_i[:, None])).to(x.dtype.element_ty)
            turned = tl.trans(gradient)
            dq = tl.dot(gradient, k_i, input_precision=PRECISION) * scale
            tl.store(dqueries, dq.to(dx.dtype.element_ty), mask=asks[:, None] & wide)
            dk = tl.dot(turned, q_i, input_precision=PRECISION) * scale
            tl.store(dkeys, dk.to(dx.dtype.element_ty), mask=answers[:, None] & wide)
            if LEAN:
                both = gradient + tl.where(i[:, None] == i[None, :], 0.0, turned)
                place = (i * (i + 1) >> 1)[:, None] + i[None, :]
                tl.store(dbias + place, both.to(dbias.dtype.element_ty), mask=seen & (i[None, :] <= i[:, None]))
        else:
            dq = tl.load(dqueries, mask=asks[:, None] & wide, other=0.0).to(tl.float32)
            dk = tl.load(dkeys, mask=answers[:, None] & wide, other=0.0).to(tl.float32)
            dv = tl.load(dkeys + H * E, mask=answers[:, None] & wide, other=0.0).to(tl.float32)
            for block in range(1, tl.cdiv(longest, BLOCK)):
                start = (row + block * BLOCK) % (tl.cdiv(longest, BLOCK) * BLOCK)
                j = start + tl.arange(0, BLOCK)
                asked = j < n
                there = j < m
                seen = asks[:, None] & there[None, :]
                dense = tl.zeros([BLOCK, BLOCK], tl.float32)
                if LEAN:
                    dense = _dense_bias(bias, i, j, seen)
                k_j = _tile(keys, j, there, memory_t, e, E)
                v_j = _tile(keys + H * E, j, there, memory_t, e, E)
                score = tl.dot(q_i, tl.trans(k_j), input_precision=PRECISION) * scale + dense
                p = tl.where(seen, tl.exp(score - level_i[:, None]), 0.0)
                dp = tl.dot(up_i, tl.trans(v_j), input_precision=PRECISION)
                if DROP:
                    dp = tl.where(_kept(word_i[:, None], j[None, :], rare), dp * grow, 0.0)
                gradient = p * (dp - delta_i[:, None])
                dq += tl.dot(gradient.to(k_j.dtype), k_j, input_precision=PRECISION) * scale
                q_j = _tile(queries, j, asked, x_t, e, E)
                up_j = _tile(ups, j, asked, H * E, e, E)
                delta_j = tl.sum(up_j.to(tl.float32) * _tile(outs, j, asked, H * E, e, E).to(tl.float32), 1)
                level_j = tl.load(levels + j, mask=asked, other=float("inf"))
                score = tl.dot(k_i, tl.trans(q_j), input_precision=PRECISION) * scale + dense
                p = tl.where(answers[:, None] & asked[None, :], tl.exp(score - level_j[None, :]), 0.0)
                dp = tl.dot(v_i, tl.trans(up_j), input_precision=PRECISION)
                used = p
                if DROP:
                    word_j = tl.load(bits + j, mask=asked, other=0)
                    kept = _kept(word_j[None, :], i[:, None], rare)
                    dp = tl.where(kept, dp * grow, 0.0)
                    used = tl.where(kept, p * grow, 0.0)
                dv += tl.dot(used.to(up_j.dtype), up_j, input_precision=PRECISION)
                turned = p * (dp - delta_j[None, :])
                dk += tl.dot(turned.to(q_j.dtype), q_j, input_precision=PRECISION) * scale
                if LEAN:
                    place = (i * (i + 1) >> 1)[:, None] + j[None, :]
                    below = seen & (j[None, :] < i[:, None])
                    tl.store(dbias + place, (gradient + turned).to(dbias.dtype.element_ty), mask=below)
            tl.store(dqueries, dq.to(dx.dtype.element_ty), mask=asks[:, None] & wide)
            tl.store(dkeys, dk.to(dx.dtype.element_ty), mask=answers[:, None] & wide)
            tl.store(dkeys + H * E, dv.to(dx.dtype.element_ty), mask=answers[:, None] & wide)


@triton.jit
def queries_kernel(
    x, memory, ends, lengths, memory_ends, memory_lengths, bits, out, lse, up, dx, delta,
    x_t, memory_t, dx_t, total, scale, rare, grow,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of the queries.

        dq_I = sum_J g_IJ k_J,   g = p (d dp - delta_I)

    Delta is stored for `keys_kernel`. Rows without a query are not written. Symbols as in `backward_kernel`.
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
    """Gradients of keys and values.

        dk_I = sum_J g_JI q_J,   dv_I = sum_J d p_JI do_J

    Rows without a query have weight 0. Symbols as in `backward_kernel`.
    """
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


def _options(width: int, heads: int, longest: int, x: Tensor, bias: Tensor | None, dropout: float) -> dict[str, Any]:
    most = MAX_BLOCK_FLOAT32 if x.dtype == torch.float32 and bias is None else BLOCK
    return {
        "H": heads,
        "E": width,
        "WIDE": max(16, triton.next_power_of_2(width)),
        "BLOCK": max(16, min(most, triton.next_power_of_2(longest))),
        "LEAN": bias is not None,
        "DROP": dropout > 0,
        "PRECISION": "ieee" if x.dtype == torch.float32 else "tf32",
    }


def _dropout_threshold(p: float) -> tuple[int, float]:
    """Dropout threshold in units of 2^-24, and the scale 1 / (1 - p) of kept weights."""
    return round(p * 2**24), 1 / (1 - p)


def _long_gradients(
    x: Tensor, keys: Tensor, sets: tuple[Tensor, Tensor, Tensor, Tensor], bits: Tensor | None, out: Tensor,
    lse: Tensor, up: Tensor, dx: Tensor, dkeys: Tensor, scale: float, rng: tuple[int, float],
    longest: int, options: dict[str, Any],
) -> None:  # fmt: skip
    """Write the gradients of queries into dx, and of keys and values into dkeys.

    Used for sets of more than one block without a pair bias. There are two kernels:

        queries   one program per block of queries, loop over the keys:      3 products for each pair of blocks
        keys      one program per block of keys, loop over the queries:      4 products for each pair of blocks

    Scores are computed twice, but each program needs few registers, so several programs share a multiprocessor and hide
    memory latency. Each output is written by one program only, so results are deterministic.
    """
    total, delta = x.shape[0], lse.new_empty(lse.shape)
    drawn = sets[0] if bits is None else bits
    options = {name: options[name] for name in ("H", "E", "WIDE", "DROP", "PRECISION")}

    exact = options["PRECISION"] == "ieee"
    ways = {name: LONG_LAYOUT["exact" if exact else name] for name in ("queries", "keys")}
    grids = {name: (len(sets[1]) * options["H"], triton.cdiv(longest, way["ROWS"])) for name, way in ways.items()}
    queries_kernel[grids["queries"]](
        x, keys, *sets, drawn, out, lse, up, dx, delta, x.stride(0), keys.stride(0), dx.stride(0), total, scale,
        *rng, **options, **ways["queries"],
    )  # fmt: skip
    keys_kernel[grids["keys"]](
        x, keys, *sets, drawn, lse, up, dkeys, delta, x.stride(0), keys.stride(0), dkeys.stride(0), total, scale,
        *rng, **options, **ways["keys"],
    )  # fmt: skip


def forward(
    x: Tensor, memory: Tensor | None, ends: Tensor, lengths: Tensor, memory_ends: Tensor, memory_lengths: Tensor,
    bias: Tensor | None, starts: Tensor | None, bits: Tensor | None, heads: int, scale: float, dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Forward pass of `packed_bias.attend_packed`."""
    total, width = x.shape[0], x.shape[1] // (heads * (3 if memory is None else 1))
    out, lse = x.new_zeros(total, heads * width), x.new_zeros(heads, total, dtype=torch.float32)
    if not total or not longest or not len(lengths):
        return out, lse
    keys = x[:, heads * width :] if memory is None else memory
    options = _options(width, heads, longest, x, bias, dropout)
    rows = options["BLOCK"]
    forward_kernel[(len(lengths) * heads, triton.cdiv(longest, rows))](
        x, keys, ends, lengths, memory_ends, memory_lengths, x if bias is None else bias,
        ends if starts is None else starts, ends if bits is None else bits, out, lse,
        x.stride(0), keys.stride(0), 0 if bias is None else bias.stride(0), total, scale, *_dropout_threshold(dropout),
        **options, **LAYOUT["along" if bias is None and longest > rows else "forward"][rows],
    )  # fmt: skip
    return out, lse


def backward(
    up: Tensor, x: Tensor, memory: Tensor | None, ends: Tensor, lengths: Tensor, memory_ends: Tensor,
    memory_lengths: Tensor, bias: Tensor | None, starts: Tensor | None, bits: Tensor | None, out: Tensor, lse: Tensor,
    heads: int, scale: float, dropout: float, longest: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Backward pass: `packed_bias.attend_packed_backward`."""
    total, width = x.shape[0], x.shape[1] // (heads * (3 if memory is None else 1))
    dx, dmemory, dbias = (x.new_zeros(0) if one is None else one.new_zeros(one.shape) for one in (x, memory, bias))
    if not total or not longest or not len(lengths):
        return dx, dmemory, dbias
    keys, dkeys = (x[:, heads * width :], dx[:, heads * width :]) if memory is None else (memory, dmemory)
    options = _options(width, heads, longest, x, bias, dropout)
    rows = options["BLOCK"]
    if bias is None and longest > rows:
        sets = ends, lengths, memory_ends, memory_lengths
        _long_gradients(
            x, keys, sets, bits, out, lse, up, dx, dkeys, scale, _dropout_threshold(dropout), longest, options
        )
        return dx, dmemory, dbias
    for more in (False, True)[: 1 + (longest > rows)]:
        backward_kernel[(len(lengths) * heads, triton.cdiv(longest, rows))](
            x, keys, ends, lengths, memory_ends, memory_lengths, x if bias is None else bias,
            ends if starts is None else starts, ends if bits is None else bits, out, lse, up, dx, dkeys,
            dx if bias is None else dbias, x.stride(0), keys.stride(0), dx.stride(0), dkeys.stride(0),
            0 if bias is None else bias.stride(0), total, scale, *_dropout_threshold(dropout),
            **options, MORE=more, **LAYOUT["more" if more else "backward"][rows],
        )  # fmt: skip
    return dx, dmemory, dbias
