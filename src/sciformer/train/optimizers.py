"""The optimizers with their groups, and the learning rate at each step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .config import Train

ANSWER_PARTS = (
    "heads",
    "pooling",
    "readout",
    "mask_decoder",
)  # the parts of a model that make an answer of what its trunk found
# What of a trunk comes before its blocks.
PARTS_BEFORE_BLOCKS = ("position", "embedding_norm", "input_norm", "stem", "stem_norm")
BLOCK_NAME = re.compile(r"(?P<stack>(?:\w+\.)+?)(?:blocks|layers)\.(?P<number>\d+)\.")


class Ranger(torch.optim.RAdam):
    """RAdam whose weights are drawn back, every `every` steps, half the way to where they then were.

    RAdam (arXiv 1908.03265) is Adam whose second moment is trusted as far as it is known. Lookahead (arXiv 1907.08610)
    keeps slow weights s beside the fast ones w:   s <- s + share (w - s),   w <- s.
    """

    def __init__(self, params: Any, every: int = 6, share: float = 0.5, **options: Any) -> None:
        super().__init__(params, decoupled_weight_decay=True, **options)
        self.every, self.share = every, share

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of RAdam, and the way back where it is due; the slow weights are part of the state, as `slow`."""
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
    """AdamW (arXiv 1711.05101) or Ranger: matrices decay, vectors (biases, norms, tokens that stand alone) do not.

    A group has a `scale`, its learning rate over that of the schedule: see `scales`.
    """
    trained = {name.removeprefix("model."): weight for name, weight in model.named_parameters() if weight.requires_grad}
    scale = scales(trained, settings)
    kinds: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, weight in sorted(trained.items(), key=lambda item: item[1].dim() < 2):  # as they come, matrices first
        kinds.setdefault((settings.weight_decay if weight.dim() >= 2 else 0.0, scale[name]), []).append(weight)
    groups = [{"params": weights, "weight_decay": decay, "scale": scale} for (decay, scale), weights in kinds.items()]
    options: dict[str, Any] = {"lr": settings.learning_rate, "betas": settings.betas, "eps": settings.epsilon}
    if settings.optimizer == "ranger":
        return Ranger(groups, **options)
    return torch.optim.AdamW(groups, fused=device.type in ("cpu", "cuda"), **options)


def is_answer(name: str) -> bool:
    """Whether a parameter of this name belongs to what makes an answer: heads, pooling, readout."""
    return name.partition(".")[0] in ANSWER_PARTS


def scales(names: Iterable[str], settings: Train) -> dict[str, float]:
    """The learning rate of each parameter of a model over that of the schedule (arXiv 1801.06146), by its name.

    block i of n      layer_decay^(n - 1 - i)
    before block 0    layer_decay^n: embedding, positions; n is that of the longest stack
    after the blocks  1: the norm of a trunk
    answers           head_lr_scale: heads, pooling, readout
    """
    names = list(names)
    blocks = {name: found for name in names if not is_answer(name) and (found := BLOCK_NAME.match(name))}
    depth: dict[str, int] = {}
    for found in blocks.values():
        depth[found["stack"]] = max(depth.get(found["stack"], 0), int(found["number"]) + 1)

    def below(name: str) -> int:
        """How many blocks lie above a parameter, itself included where it is before them."""
        if name in blocks:
            return depth[blocks[name]["stack"]] - 1 - int(blocks[name]["number"])
        for stack, count in depth.items():
            if name.startswith(stack):
                return count if name.removeprefix(stack).partition(".")[0] in PARTS_BEFORE_BLOCKS else 0
        return max(depth.values(), default=0)

    return {name: settings.head_lr_scale if is_answer(name) else settings.layer_decay ** below(name) for name in names}


def learning_rate(step: int, total: int, settings: Train) -> float:
    """The learning rate of a step, counted from 0. Over the peak, with min = `min_lr_ratio`:

    cosine        min + (1 - min) (1 + cos(pi t)) / 2,      t from 0 after the warm-up to 1 at the end
    inverse_sqrt  sqrt(warmup / step)                       (arXiv 1706.03762, with the peak as the scale)
    flat          1 for a share of the steps, then min^t,   t from 0 there to 1 at the end
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
                if not group.get("fused") and not group.get("capturable"):  # it is read on the host at every step
                    optimizer.state[parameter]["step"] = kept["step"].cpu()
