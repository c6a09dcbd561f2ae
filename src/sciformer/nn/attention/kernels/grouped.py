"""Attention within packed sets (sequences) on the CPU, grouped by similar length.

Padding all sets to the longest set would cost several times the work. A set begins a new group if it is much shorter
than the longest set of the current group, because padding it would then cost more than another group:

    lengths 61 58 57 | 49 48 44 43 | 36 33 ...      padded to 61, 49, 36 ...

The pair bias is padded once for all blocks of a stack. Attention weights and dropout masks are stored for the backward
pass, because PyTorch's own kernels would need more passes over memory. Longer sets without a pair bias are computed one
by one, without copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...dropout import keep
from ...ragged import Ragged
from ..masks import Documents
from ..pair_bias import PairBias, square
from .request import Request, not_packed

MAX_LENGTH = 512  # tokens of a set
SHORT_SET_LENGTH = 128  # this kernel is always chosen if no set is longer
MIN_PADDING_RATIO = 1.2  # minimum of (pairs after padding to the longest set) / (real pairs)
MIN_LENGTH_RATIO = 0.9  # minimum length of the shortest set of a group, divided by the length of its longest set
MIN_MEAN_LENGTH_ALONE = 48  # minimum mean length for computing sets one by one
MAX_STORED_LENGTH = 256  # longest set for which storing the weights beats PyTorch's kernel
ONE_GROUP_LENGTH = 12  # all sets up to this length form one group


def supports(request: Request) -> str | None:
    """Reason why this kernel does not support the request, or None."""
    if (why := not_packed(request)) is not None:
        return why
    if request.q.device.type != "cpu" or torch.compiler.is_compiling():
        return "it runs only on the CPU and cannot be compiled"
    return f"a sequence is longer than {MAX_LENGTH} tokens" if _layout(request).longest > MAX_LENGTH else None


def saves(request: Request) -> bool:
    """Whether this kernel saves time: with bias, dropout, or short or unequal sets."""
    sight, ragged = request.sight, _layout(request)
    if sight.bias is not None or request.dropout > 0 or ragged.longest <= SHORT_SET_LENGTH:
        return True
    if ragged.longest <= MAX_STORED_LENGTH:
        lengths = sight.once("lengths", ragged.lengths.tolist)
        if sum(lengths) >= MIN_MEAN_LENGTH_ALONE * len(lengths):
            return True
    return sight.once("uneven", lambda: _uneven(ragged))


def _layout(request: Request) -> Ragged:
    assert isinstance(request.sight.pattern, Documents)
    return request.sight.pattern.queries


def _uneven(ragged: Ragged) -> bool:
    """Whether padding all sets to the longest set would mean much more work."""
    pairs = float(ragged.lengths.double().square().sum())
    return len(ragged) * float(ragged.longest) ** 2 > MIN_PADDING_RATIO * pairs


def run(request: Request) -> Tensor:
    """Attention outputs of all heads (1, H, T, E); E is the head width."""
    qkv, heads, scale, dropout = request.join(), request.q.shape[1], request.scale, request.dropout
    sight, ragged = request.sight, _layout(request)
    lengths = sight.once("lengths", ragged.lengths.tolist)
    if sight.bias is None and sum(lengths) >= MIN_MEAN_LENGTH_ALONE * len(lengths) > 0:
        if dropout or (qkv.requires_grad and torch.is_grad_enabled()):
            return Alone.apply(qkv[0], heads, scale, dropout, lengths).transpose(0, 1)[None]
        return _alone(qkv[0], heads, lengths, scale)
    plan, biases = sight.once(("grouped", qkv.dtype), lambda: _prepared(ragged, sight.bias, heads, qkv.dtype))
    if plan.groups:
        out = Grouped.apply(qkv[0], heads, scale, dropout, plan, *biases)
    else:  # no tokens: zeros, with zero gradients
        nothing = qkv[0, :, : qkv.shape[-1] // 3] * 0
        out = nothing + 0 * sight.bias.values.sum() if isinstance(sight.bias, PairBias) else nothing
    return out.unflatten(1, (heads, -1)).transpose(0, 1)[None]


def _alone(x: Tensor, heads: int, lengths: list[int], scale: float) -> Tensor:
    """Heads (1, H, T, E), computed set by set, without copies or gradients."""
    q, k, v = (part[None] for part in _split_qkv(x, heads))
    out = x.new_zeros(1, len(x), heads, q.shape[-1])
    for rows in _set_slices(lengths):
        part = F.scaled_dot_product_attention(q[:, :, rows], k[:, :, rows], v[:, :, rows], scale=scale)
        out[:, rows] = part.transpose(1, 2)
    return out.transpose(1, 2)


class Alone(torch.autograd.Function):
    """Self-attention (T, H, E), computed set by set.

    out_i = sum_j d_ij softmax_j(scale q_i k_j) v_j        d = dropout mask
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, scale: float, p: float, lengths: list[int]) -> Tensor:
        q, k, v = _split_qkv(x, heads)
        out, kept = x.new_zeros(len(x), heads, q.shape[-1]), []
        for rows in _set_slices(lengths):
            n = rows.stop - rows.start
            score = x.new_empty(heads, n, n)
            torch.baddbmm(score, q[:, rows], k[:, rows].transpose(1, 2), beta=0, alpha=scale, out=score)
            weights = score.softmax(-1)
            mask = keep(weights.shape, p, weights.dtype) if p else None
            used = weights if mask is None else weights * mask
            out[rows] = torch.bmm(used, v[:, rows]).transpose(0, 1)
            kept += [weights, mask, used]
        ctx.save_for_backward(x, *kept)
        ctx.options = heads, scale, lengths
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        (heads, scale, lengths), (x, *kept) = ctx.options, ctx.saved_tensors
        (q, k, v), change, up = _split_qkv(x, heads), torch.zeros_like(x), up.transpose(0, 1)
        to_q, to_k, to_v = _split_qkv(change, heads)
        for number, rows in enumerate(_set_slices(lengths)):
            (weights, mask, used), above = kept[3 * number : 3 * number + 3], up[:, rows]
            to_v[:, rows] = torch.bmm(used.transpose(1, 2), above)
            slope = torch.bmm(above, v[:, rows].transpose(1, 2))
            if mask is not None:
                slope *= mask
            slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype).mul_(scale)
            to_q[:, rows] = torch.bmm(slope, k[:, rows])
            to_k[:, rows] = torch.bmm(slope.transpose(1, 2), q[:, rows])
        return change, None, None, None, None


def _split_qkv(x: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Views (H, T, E) of queries, keys and values in a tensor (T, 3 H E)."""
    return x.view(len(x), 3, heads, -1).permute(1, 2, 0, 3).unbind(0)


def _set_slices(lengths: list[int]) -> Iterator[slice]:
    first = 0
    for length in lengths:
        if length:
            yield slice(first, first + length)
        first += length


class Group:
    """Sets of similar length, padded to one width.

    sets    (count,) indices of the sets
    valid   (count, width) True where there is a token
    rows    (count * width,) index of each token among the T packed tokens; 0 at padding

    `rows_or_none` is `rows` with T at padding.
    """

    def __init__(self, sets: Tensor, first: Tensor, lengths: Tensor, width: int, total: int) -> None:
        self.sets, self.count, self.width = sets, len(sets), width
        self.valid = torch.arange(width) < lengths[:, None]
        place = first[:, None] + torch.arange(width)
        self.rows = place.masked_fill(~self.valid, 0).flatten()
        self.rows_or_none = place.masked_fill(~self.valid, total).flatten()


class Plan:
    """Groups of packed sets; token t is row `back[t]` of the concatenated groups."""

    def __init__(self, ragged: Ragged) -> None:
        self.groups = list(_groups(ragged))
        whole = torch.cat([*(group.rows_or_none for group in self.groups), torch.zeros(0, dtype=torch.long)])
        real = whole < ragged.total
        self.back = torch.full((ragged.total,), len(whole))
        self.back[whole[real]] = torch.arange(len(whole))[real]

    def packed(self, parts: list[Tensor], width: int) -> Tensor:
        """Packed tokens (T, width) from the rows of all groups; 0 after the last sequence."""
        return torch.cat([*parts, parts[0].new_zeros(1, width)])[self.back]


def _groups(ragged: Ragged) -> Iterator[Group]:
    lengths, order = ragged.lengths.sort(descending=True)
    first, sizes = (ragged.ends - ragged.lengths)[order], lengths.tolist()
    begin, end = 0, sum(size > 0 for size in sizes)
    while begin < end:
        shortest = MIN_LENGTH_RATIO * sizes[begin] if sizes[begin] > ONE_GROUP_LENGTH else 0
        stop = begin + 1
        while stop < end and sizes[stop] >= shortest:
            stop += 1
        part = slice(begin, stop)
        yield Group(order[part], first[part], lengths[part], sizes[begin], ragged.total)
        begin = stop


def _prepared(ragged: Ragged, bias: Any, heads: int, dtype: torch.dtype) -> tuple[Plan, tuple[Tensor, ...]]:
    plan = Plan(ragged)
    if bias is None or not plan.groups:
        return plan, tuple(_padding_mask(group, heads, dtype) for group in plan.groups)
    return plan, Laid.apply(bias.values.to(dtype), bias.starts, plan)


def _padding_mask(group: Group, heads: int, dtype: torch.dtype) -> Tensor:
    """Additive mask (H * count, width, width): 0 at real keys, -inf at padding."""
    n, valid = group.width, group.valid
    mask = torch.zeros(valid.shape, dtype=dtype).masked_fill(~valid, -torch.inf)
    return mask[None, :, None].expand(heads, -1, n, -1).reshape(-1, n, n)


class Laid(torch.autograd.Function):
    """Padded bias (H * count, width, width) of each group, from a PairBias (S, H).

    The padded bias is -inf at padded keys, and 0 for padded queries with real keys.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, starts: Tensor, plan: Plan) -> tuple[Tensor, ...]:
        count, heads = values.shape
        beside = values.new_tensor([-torch.inf, 0]).expand(heads, -1)
        table = torch.cat([values.t(), beside], 1)
        laid, lower, upper, pairs, done = [], [], [], [], 0
        for group in plan.groups:
            n, valid = group.width, group.valid
            place = starts[group.sets][:, None, None] + square(torch.arange(n))
            there = valid[:, None, :].expand(-1, n, -1)
            rows = there & valid[:, :, None]
            index = torch.where(rows, place, torch.where(there, count + 1, count)).flatten()
            laid.append(table.index_select(1, index).view(-1, n, n))
            cells = torch.arange(done, done + place.numel()).view(place.shape)
            below = rows & torch.ones(n, n, dtype=torch.bool).tril()
            lower.append(cells[below])
            upper.append(cells.transpose(1, 2)[below])
            pairs.append(place[below])
            done += place.numel()
        ctx.cells = torch.cat(lower), torch.cat(upper), torch.cat(pairs)
        ctx.shape = count, heads
        return tuple(laid)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (count, heads), (lower, upper, pairs) = ctx.shape, ctx.cells
        whole = torch.cat([gradient.view(heads, -1) for gradient in gradients], 1)
        sums = whole.index_select(1, lower)
        sums += whole.index_select(1, upper).masked_fill_(lower == upper, 0)
        found = whole.new_zeros(heads, count)
        found[:, pairs] = sums
        return found.t(), None, None


class Grouped(torch.autograd.Function):
    """Self-attention (T, H E), computed group by group.

    out_i = sum_j d_ij softmax_j(scale q_i k_j + b_ij) v_j        d = dropout mask, b = bias
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, scale: float, p: float, plan: Plan, *biases: Tensor) -> Tensor:
        width, parts, kept = x.shape[1] // 3, [], []
        for group, bias in zip(plan.groups, biases):
            taken = x.index_select(0, group.rows).view(group.count, group.width, 3, heads, -1)
            q, k, v = taken.permute(2, 3, 0, 1, 4).reshape(3, heads * group.count, group.width, -1)
            weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale).softmax(-1)
            mask = keep(weights.shape, p, weights.dtype) if p else None
            used = weights if mask is None else weights * mask
            kept += [q, k, v, weights, mask, used]
            out = (used @ v).view(heads, group.count, group.width, -1).permute(1, 2, 0, 3)
            parts.append(out.reshape(-1, width))
        ctx.save_for_backward(*kept)
        ctx.options = heads, scale, plan
        ctx.biased = [bias.requires_grad for bias in biases]
        return plan.packed(parts, width).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        (heads, scale, plan), saved = ctx.options, ctx.saved_tensors
        up, parts, gradients = torch.cat([up, up.new_zeros(1, up.shape[1])]), [], []
        for number, group in enumerate(plan.groups):
            q, k, v, weights, mask, used = saved[6 * number : 6 * number + 6]
            above = up.index_select(0, group.rows_or_none).view(group.count, group.width, heads, -1)
            above = above.permute(2, 0, 1, 3).reshape(v.shape)
            change = torch.empty(3, *v.shape, dtype=v.dtype)
            torch.bmm(used.transpose(1, 2), above, out=change[2])
            slope = above @ v.transpose(1, 2)
            if mask is not None:
                slope *= mask
            slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype)
            torch.baddbmm(change[0], slope, k, beta=0, alpha=scale, out=change[0])
            torch.baddbmm(change[1], slope.transpose(1, 2), q, beta=0, alpha=scale, out=change[1])
            gradients.append(slope if ctx.biased[number] else None)
            change = change.view(3, heads, group.count, group.width, -1).permute(2, 3, 0, 1, 4)
            parts.append(change.reshape(group.count * group.width, -1))
        return plan.packed(parts, 3 * up.shape[1]), None, None, None, None, *gradients
