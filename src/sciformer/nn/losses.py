"""Cross-entropy of a linear layer, without ever holding all its logits at once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100


def linear_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """-ln softmax(W h)[target], (n,) for hidden (n, D), weight (V, D), target (n,); 0 where the target is IGNORED."""
    return F.cross_entropy(_exact(F.linear(hidden, weight)), target, reduction="none", ignore_index=IGNORED)


def total_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, chunk: int = 0) -> Tensor:
    """The sum of `linear_cross_entropy`.

    With many tokens and a large vocabulary the logits would be the largest tensor of a training step. In chunks of so
    many tokens they never exist together: gradients are made with the loss, chunk by chunk.
    """
    if not chunk or hidden.shape[0] <= chunk:
        return F.cross_entropy(_exact(F.linear(hidden, weight)), target, reduction="sum", ignore_index=IGNORED)
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    total: Tensor = _Chunked.apply(hidden, weight, target, chunk)
    return total


def _exact(x: Tensor) -> Tensor:
    """In single precision or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Chunked(torch.autograd.Function):
    """sum_i -ln p_i[t_i] with p_i = softmax(W h_i);   dh_i = (p_i - 1[t_i]) W,   dW = sum_i (p_i - 1[t_i]) h_i."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, chunk: int) -> Tensor:
        total = _exact(hidden.new_zeros(()))
        to_hidden = torch.empty_like(hidden)
        to_weight = _exact(torch.zeros_like(weight))
        for start in range(0, hidden.shape[0], chunk):
            h, t = hidden[start : start + chunk], target[start : start + chunk]
            logits = _exact(h @ weight.T)
            wanted = t != IGNORED
            right = t.clamp(min=0)[:, None]
            norm = logits.logsumexp(-1, keepdim=True)
            total += ((norm - logits.gather(1, right)) * wanted[:, None]).sum()
            hit = torch.arange(weight.shape[0], device=t.device) == right  # a comparison fuses, a scatter does not
            error = (((logits - norm).exp() - hit.float()) * wanted[:, None]).to(hidden.dtype)
            to_hidden[start : start + chunk] = error @ weight
            to_weight += _exact(error.T @ h)
        ctx.save_for_backward(to_hidden, to_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (gradient,) = gradients
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * gradient.to(to_hidden.dtype), to_weight * gradient.to(to_weight.dtype), None, None
