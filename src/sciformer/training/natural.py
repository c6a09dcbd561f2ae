"""Natural gradient: the gradient times the inverse of the Fisher matrix of a batch.

    g <- (F + d)^-1 g,   F = R^T R

R (n, P) comes from the derivatives of the outputs of each sample (`Objective.fisher`); P is the number of weights and d
the damping. The linear system is solved in the smaller space:

    n < P     (F + d)^-1 g = (g - R^T (R R^T + d)^-1 R g) / d      in sample space: n equations
    n >= P    (R^T R + d)^-1 g                                     in weight space: P equations

For a classifier F is the Fisher information of its probabilities (Amari 1998); for a wave function it is the quantum
geometric tensor, and the method is called stochastic reconfiguration (Sorella 1998).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..data.collate import ModelInputs
from ..errors import UserError
from ..files.limits import free_memory
from ..objectives.base import Fisher


class _Outputs(nn.Module):
    """Wrapper of a model for `functional_call`, with `fisher.outputs` as forward pass."""

    def __init__(self, model: nn.Module, fisher: Fisher) -> None:
        super().__init__()
        self.model, self.fisher = model, fisher

    def forward(self, inputs: ModelInputs) -> Tensor:
        return self.fisher.outputs(self.model, inputs)


def natural_gradient(
    model: nn.Module, fisher: Fisher, gradients: dict[str, Tensor], damping: float
) -> dict[str, Tensor]:
    """Natural gradient of all weights in `gradients`, by name."""
    names = sorted(gradients)
    check_memory(len(next(fisher.inputs.tensors())), sum(gradient.numel() for gradient in gradients.values()))
    rows = fisher_rows(model, fisher, names)
    found = solve(rows, torch.cat([gradients[name].detach().double().flatten() for name in names]), damping)
    parts = found.split([gradients[name].numel() for name in names])
    return {name: part.view_as(gradients[name]) for name, part in zip(names, parts)}


def solve(rows: Tensor, gradient: Tensor, damping: float) -> Tensor:
    """(R^T R + d)^-1 g for R (n, P) and g (P,), in double precision."""
    rows, gradient = rows.double(), gradient.double()
    count, weights = rows.shape
    inner = rows @ rows.T if count < weights else rows.T @ rows
    inner.diagonal().add_(damping)
    lower = torch.linalg.cholesky(inner)
    if count >= weights:
        return torch.cholesky_solve(gradient[:, None], lower)[:, 0]
    return (gradient - rows.T @ torch.cholesky_solve((rows @ gradient)[:, None], lower)[:, 0]) / damping


@torch.no_grad()
def fisher_rows(model: nn.Module, fisher: Fisher, names: list[str]) -> Tensor:
    """Rows R (n, P) of the Fisher matrix R^T R, for the weights `names` in this order."""
    values, jacobian = jacobian_of(model, fisher, names)
    return fisher.rows(values.double(), jacobian.double())


def jacobian_of(model: nn.Module, fisher: Fisher, names: list[str]) -> tuple[Tensor, Tensor]:
    """Outputs (B, K), and their derivatives (B, K, P) by the weights `names`, sample by sample.

    Dropout is off. The samples are mapped with `torch.func.vmap`, so that one backward pass serves all of them.
    """
    weights = dict(model.named_parameters())
    chosen = {f"model.{name}": weights[name].detach() for name in names}
    tensors, axes = list(fisher.inputs.tensors()), _sample_axes(fisher.inputs)
    wrapped, was = _Outputs(model, fisher), model.training

    def outputs(parameters: dict[str, Tensor], *some: Tensor) -> tuple[Tensor, Tensor]:
        alone = [one if axis is None else one[None] for one, axis in zip(some, axes)]
        found = torch.func.functional_call(wrapped, parameters, (fisher.inputs.placed(iter(alone)),))[0]
        return found, found.detach()

    model.eval()
    try:
        each: Any = torch.func.vmap(torch.func.jacrev(outputs, has_aux=True), in_dims=(None, *axes))
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be mapped
            found, values = each(chosen, *tensors)
    finally:
        model.train(was)
    return values, torch.cat([found[f"model.{name}"].flatten(2) for name in names], 2)


def _sample_axes(inputs: ModelInputs) -> list[int | None]:
    """Axis of the samples of each tensor of the inputs; None for coordinates that all samples share."""
    found: list[int | None] = []
    for view in inputs.streams.values():
        assert isinstance(view.valid, Tensor) or view.valid is None
        for name, column in view.columns.items():
            wide = next((other.shape[1] for key, other in view.columns.items() if key != "at"), 0)
            shared = name == "at" and column.dim() == 2 and column.shape[1] < wide == column.shape[0]
            found.append(None if shared else 0)
        found += [] if view.valid is None else [0]
    return found + [0] * (len(inputs.samples) + (inputs.real is not None))


def check_memory(samples: int, weights: int) -> None:
    """Refuse derivatives that need more than the free memory, even for one output of a sample."""
    needed = 16 * samples * weights  # two copies in double precision
    if needed > (free := free_memory()):
        message = f"the derivatives of {samples:,} samples by {weights:,} weights need {needed:,} bytes"
        hint = "Use a smaller model, a smaller train.batch, or train.optimizer: adamw."
        raise UserError(f"{message}, but {free:,} are free", hint=hint, key="train.optimizer")
