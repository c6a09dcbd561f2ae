"""Losses of an ensemble: members x_1 ... x_M of a predicted value y."""

from __future__ import annotations

import torch
from torch import Tensor

MIN_SPREAD = 1e-3  # standard deviation of an ensemble without spread, in units of the values


def fair_crps(members: Tensor, target: Tensor) -> Tensor:
    """Fair continuous ranked probability score (...) of members (M, ...) for targets (...).

        1/M sum_i |x_i - y| - 1 / (2 M (M - 1)) sum_ij |x_i - x_j|

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
    """Statistical loss (...) of AtmoRep (arXiv 2308.13280) of members (M, ...) for targets (...).

        1/M sum_i (x_i - y)^2 + (1 - exp(-(y - m)^2 / (2 s^2)))^2 + sqrt(s)

    m and s are mean and standard deviation of the members.
    """
    mean = members.mean(0)
    spread = (((members - mean) ** 2).sum(0) / max(1, len(members) - 1) + MIN_SPREAD**2).sqrt()
    away = 1 - torch.exp(-0.5 * ((target - mean) / spread) ** 2)
    return ((members - target) ** 2).mean(0) + away**2 + spread.sqrt()
