"""Losses: cross-entropy with logits in chunks, and losses of ensembles."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE_INDEX = -100
MIN_SPREAD = 1e-3  # standard deviation of an ensemble without spread, in units of the values


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Cross-entropy of each token for logits W h: -ln softmax(W h)[target].

    Shapes: hidden vectors h (n, D), weight W (V, D), target (n,), result (n,), for n tokens and V classes. The loss is
    0 where the target is IGNORE_INDEX. With a `bias` b (V,) the logits are W h + b. With label smoothing s and
    p = softmax(W h), the loss is -(1 - s) ln p[target] - s / V sum_v ln p[v] (arXiv 1706.03762).
    """
    return _cross_entropy(hidden, weight, bias, target, smoothing, "none")


def total_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, chunk: int = 0, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Sum of `linear_cross_entropy` over all tokens.

    With many tokens and a large vocabulary, the logits would be the largest tensor of a training step. Loss and
    gradients are therefore computed for `chunk` tokens at a time (0: all tokens at once).
    """
    if not chunk or hidden.shape[0] <= chunk:
        return _cross_entropy(hidden, weight, bias, target, smoothing, "sum")
    if bias is not None:  # as one more column of the weight, with a 1 appended to each hidden vector
        weight = torch.cat([weight, bias[:, None]], 1)
        hidden = torch.cat([hidden, hidden.new_ones(hidden.shape[0], 1)], 1)
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    total: Tensor = _Chunked.apply(hidden, weight, target, chunk, smoothing)
    return total


def _cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, reduction: str
) -> Tensor:
    logits = at_least_float32(F.linear(hidden, weight, bias))
    return F.cross_entropy(logits, target, reduction=reduction, ignore_index=IGNORE_INDEX, label_smoothing=smoothing)


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """Symmetric KL divergence (n,) of the distributions p and q of two logits (n, V).

    sum_v (p_v - q_v)(ln p_v - ln q_v)
    """
    p, q = at_least_float32(first).log_softmax(-1), at_least_float32(second).log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1)


def fair_crps(members: Tensor, target: Tensor) -> Tensor:
    """Fair continuous ranked probability score (CRPS) of M members x_i.

        1/M sum_i |x_i - y| - 1 / (2 M (M - 1)) sum_ij |x_i - x_j|

    members  (M, ...)
    target   (...) true values y

    Its mean does not depend on M if the members are drawn from the right distribution (Ferro 2014). The second sum is
    computed from the sorted members.
    """
    count = len(members)
    error = (members - target).abs().mean(0)
    if count < 2:
        return error
    weight = 2 * torch.arange(count, device=members.device, dtype=members.dtype) - (count - 1)
    ordered = members.sort(0).values
    half = (ordered * weight.view(-1, *[1] * target.dim())).sum(0)  # sum over pairs i < j of |x_i - x_j|
    return error - half / (count * (count - 1))


def statistical_loss(members: Tensor, target: Tensor) -> Tensor:
    """Statistical loss of AtmoRep (arXiv 2308.13280) for M members x_i.

        1/M sum_i (x_i - y)^2 + (1 - exp(-(y - m)^2 / (2 s^2)))^2 + sqrt(s)

    m and s are mean and standard deviation of the members.

    members  (M, ...)
    target   (...) true values y
    """
    mean = members.mean(0)
    spread = (((members - mean) ** 2).sum(0) / max(1, len(members) - 1) + MIN_SPREAD**2).sqrt()
    away = 1 - torch.exp(-0.5 * ((target - mean) / spread) ** 2)
    return ((members - target) ** 2).mean(0) + away**2 + spread.sqrt()


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to single precision; double precision stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Chunked(torch.autograd.Function):
    """Cross-entropy summed over all tokens, computed `chunk` tokens at a time.

        loss = -sum_i sum_v q_i[v] ln p_i[v],   p_i = softmax(W h_i),   q_i = (1 - s) 1[t_i] + s / V
        dh_i = (p_i - q_i) W,   dW = sum_i (p_i - q_i) h_i

    t_i is the target of token i, and s is the label smoothing.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, chunk: int, smoothing: float) -> Tensor:
        total = at_least_float32(hidden.new_zeros(()))
        to_hidden = torch.empty_like(hidden)
        to_weight = at_least_float32(torch.zeros_like(weight))
        for start in range(0, hidden.shape[0], chunk):
            h, t = hidden[start : start + chunk], target[start : start + chunk]
            logits = at_least_float32(h @ weight.T)
            wanted = t != IGNORE_INDEX
            right = t.clamp(min=0)[:, None]
            norm = logits.logsumexp(-1, keepdim=True)
            hoped = logits.gather(1, right)
            if smoothing:
                hoped = (1 - smoothing) * hoped + smoothing * logits.mean(-1, keepdim=True)
            total += ((norm - hoped) * wanted[:, None]).sum()
            hit = torch.arange(weight.shape[0], device=t.device) == right  # a comparison fuses, a scatter does not
            aim = hit.to(logits.dtype)
            if smoothing:
                aim = (1 - smoothing) * aim + smoothing / weight.shape[0]
            error = (((logits - norm).exp() - aim) * wanted[:, None]).to(hidden.dtype)
            to_hidden[start : start + chunk] = error @ weight
            to_weight += at_least_float32(error.T @ h)
        ctx.save_for_backward(to_hidden, to_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (gradient,) = gradients
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * gradient.to(to_hidden.dtype), to_weight * gradient.to(to_weight.dtype), None, None, None
