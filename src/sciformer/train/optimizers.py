"""AdamW with its groups, and the rate at each step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .settings import Train


def make_optimizer(model: nn.Module, settings: Train, device: torch.device) -> torch.optim.AdamW:
    """AdamW (arXiv 1711.05101): matrices decay, vectors (biases, norms, tokens that stand alone) do not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.dim() >= 2], "weight_decay": settings.decay},
        {"params": [parameter for parameter in trained if parameter.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=device.type in ("cpu", "cuda"),
    )


def rate(step: int, total: int, settings: Train) -> float:
    """The learning rate of a step, counted from 0.

    cosine        floor + (1 - floor) (1 + cos(pi t)) / 2,   t from 0 after the warm-up to 1 at the end
    inverse_sqrt  sqrt(warmup / step)                         (arXiv 1706.03762, with the peak as the scale)
    flat          1 for a share of the steps, then a line down to the floor
    """
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    if settings.schedule == "constant":
        return settings.rate
    if settings.schedule == "inverse_sqrt":
        return settings.rate * math.sqrt(max(1, settings.warmup) / (step + 1))
    if settings.schedule == "cosine":
        part = (step - settings.warmup) / max(1, total - settings.warmup)
        return settings.rate * (settings.floor + (1 - settings.floor) * (1 + math.cos(math.pi * min(1.0, part))) / 2)
    level = settings.flat * total
    part = max(0.0, step - level) / max(1.0, total - level)
    return settings.rate * (1 - (1 - settings.floor) * min(1.0, part))


def optimizer_state(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Tensor]:
    """What the optimizer remembers, by the names of the parameters: «exp_avg blocks.0.out.weight»."""
    found: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # Sorted: ranks put divided tensors together one by one, and must ask for them in the same order.
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                found[f"{key} {names[id(parameter)]}"] = value
    return found


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: dict[int, str], saved: dict[str, Tensor], place: Any
) -> None:
    """The way back; `place(value, parameter)` puts a whole tensor where and how the parameter is."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            suffix = f" {names[id(parameter)]}"
            kept = {key.removesuffix(suffix): value for key, value in saved.items() if key.endswith(suffix)}
            if kept:
                optimizer.state[parameter] = {key: place(value, parameter) for key, value in kept.items()}
