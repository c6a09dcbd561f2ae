"""Optimizers, parameter groups and learning rate schedules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .config import Train

# Parts of a model that map the output of the trunk to predictions.
ANSWER_PARTS = ("heads", "pooling", "readout", "mask_decoder")
# Parts of a trunk before its blocks.
PARTS_BEFORE_BLOCKS = ("position", "embedding_norm", "input_norm", "stem", "stem_norm")
BLOCK_NAME = re.compile(r"(?P<stack>(?:\w+\.)+?)(?:blocks|layers)\.(?P<number>\d+)\.")


class Ranger(torch.optim.RAdam):
    """RAdam (arXiv 1908.03265) with Lookahead (arXiv 1907.08610).

    RAdam is Adam with a rectified second moment in the first steps. Lookahead keeps slow weights s and fast weights w.
    Once in `every` steps, s <- s + share (w - s) and then w <- s.
    """

    def __init__(self, params: Any, every: int = 6, share: float = 0.5, **options: Any) -> None:
        super().__init__(params, decoupled_weight_decay=True, **options)
        self.every, self.share = every, share

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do a step of RAdam and, once in `every` steps, a Lookahead update.

        The slow weights are in the optimizer state `slow`.
        """
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        begun = {weight: weight.clone() for weight in weights if "slow" not in self.state[weight]}
        found = super().step(closure)
        for weight, before in begun.items():
            self.state[weight]["slow"] = before
        due = [weight for weight in weights if int(self.state[weight]["step"]) % self.every == 0]
        if due:
            slow = [self.state[weight]["slow"] for weight in due]
            torch._foreach_lerp_(slow, due, self.share)
            torch._foreach_copy_(due, slow)
        return found


def make_optimizer(model: nn.Module, settings: Train, device: torch.device) -> torch.optim.Optimizer:
    """Build AdamW (arXiv 1711.05101), Ranger, or plain gradient descent for natural gradients.

    Weight decay applies to matrices, not to vectors (biases, norms, single learned tokens). Each parameter group has a
    `scale`, the factor of its learning rate: see `scales`.
    """
    trained = {name.removeprefix("model."): weight for name, weight in model.named_parameters() if weight.requires_grad}
    scale = scales(trained, settings)
    kinds: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, weight in sorted(trained.items(), key=lambda item: item[1].dim() < 2):  # stable: matrices first
        kinds.setdefault((settings.weight_decay if weight.dim() >= 2 else 0.0, scale[name]), []).append(weight)
    groups = [{"params": weights, "weight_decay": decay, "scale": scale} for (decay, scale), weights in kinds.items()]
    options: dict[str, Any] = {"lr": settings.learning_rate, "betas": settings.betas, "eps": settings.epsilon}
    if settings.optimizer == "natural":  # the gradient is transformed before the step
        return torch.optim.SGD(groups, lr=settings.learning_rate)
    if settings.optimizer == "ranger":
        return Ranger(groups, **options)
    return torch.optim.AdamW(groups, fused=device.type in ("cpu", "cuda"), **options)


def is_answer(name: str) -> bool:
    """Whether a parameter belongs to the heads, to the pooling or to the readout."""
    return name.partition(".")[0] in ANSWER_PARTS


def scales(names: Iterable[str], settings: Train) -> dict[str, float]:
    """Learning rate factor of each parameter (layer-wise decay, arXiv 1801.06146).

    block i of n blocks         layer_decay^(n - 1 - i)
    embedding and positions     layer_decay^n; with several stacks of blocks, n is from the longest stack
    final norm of the trunk     1
    heads, pooling, readout     head_lr_scale
    """
    names = list(names)
    blocks = {name: found for name in names if not is_answer(name) and (found := BLOCK_NAME.match(name))}
    depth: dict[str, int] = {}
    for found in blocks.values():
        depth[found["stack"]] = max(depth.get(found["stack"], 0), int(found["number"]) + 1)

    def below(name: str) -> int:
        """Number of blocks between a parameter and the heads."""
        if name in blocks:
            return depth[blocks[name]["stack"]] - 1 - int(blocks[name]["number"])
        for stack, count in depth.items():
            if name.startswith(stack):
                return count if name.removeprefix(stack).partition(".")[0] in PARTS_BEFORE_BLOCKS else 0
        return max(depth.values(), default=0)

    return {name: settings.head_lr_scale if is_answer(name) else settings.layer_decay ** below(name) for name in names}


def learning_rate(step: int, total: int, settings: Train) -> float:
    """Learning rate of a step; steps are counted from 0.

    After a linear warmup, the learning rate is its peak times a factor (with min = `min_lr_ratio`):

    cosine        min + (1 - min) (1 + cos(pi t)) / 2       t goes from 0 after the warmup to 1 at the end
    inverse_sqrt  sqrt(warmup / step)                       (arXiv 1706.03762)
    flat          1 for the fraction `flat` of all steps, then min^t; t goes from 0 at this point to 1 at the end
    constant      1
    """
    peak, least = settings.learning_rate, settings.min_lr_ratio
    if step < settings.warmup:
        return peak * (step + 1) / settings.warmup
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(1, settings.warmup) / (step + 1))
    if settings.schedule == "cosine":
        part = (step - settings.warmup) / max(1, total - settings.warmup)
        return peak * (least + (1 - least) * (1 + math.cos(math.pi * min(1.0, part))) / 2)
    level = settings.flat * total
    part = max(0.0, step - level) / max(1.0, total - level)
    return peak * least ** min(1.0, part)


def optimizer_state(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Tensor]:
    """Optimizer state by parameter name, for example `exp_avg blocks.0.out.weight`."""
    return {
        f"{key} {names[id(parameter)]}": value
        for group in optimizer.param_groups
        for parameter in group["params"]
        # Sorted: ranks gather sharded tensors one by one, and must ask for them in the same order.
        for key, value in sorted(optimizer.state.get(parameter, {}).items())
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: dict[int, str], saved: Mapping[str, Tensor], place: Any
) -> None:
    """Restore the optimizer state.

    place(value, parameter)   moves a full tensor to the device and the sharding of a parameter
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            suffix = f" {names[id(parameter)]}"
            kept = {key.removesuffix(suffix): saved[key] for key in saved if key.endswith(suffix)}
            if kept:
                optimizer.state[parameter] = {key: place(value, parameter) for key, value in kept.items()}
                if not group.get("fused") and not group.get("capturable"):  # the host reads it at every step
                    optimizer.state[parameter]["step"] = kept["step"].cpu()
