"""Norms and stochastic depth."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError, one_of
from .gather import gather_row
from .ragged import Ragged

NORMS = ("layer", "rms", "none")


def make_norm(name: str, dim: int, bias: bool = True, epsilon: float | None = None) -> nn.Module:
    """Make a norm by its name: `layer`, `rms` or `none`.

    layer  g (x - mean) / std + b (arXiv 1607.06450); b only if `bias`; default epsilon 1e-5
    rms    g x / rms (arXiv 1910.07467); default epsilon 1e-6
    """
    one_of("the norm", name, NORMS)
    if name == "none":
        return nn.Identity()
    if name == "layer":
        return nn.LayerNorm(dim, eps=1e-5 if epsilon is None else epsilon, bias=bias)
    return nn.RMSNorm(dim, eps=1e-6 if epsilon is None else epsilon)


class BatchNorm(nn.Module):
    """Batch norm y = g (x - mean) / std + b over all real tokens (arXiv 1502.03167).

    Padding does not count in the statistics, so padded and packed batches give the same result. Evaluation uses the
    running mean and variance.
    """

    running_mean: Tensor
    running_var: Tensor
    over_ranks: bool = False
    """Whether each batch is divided over the ranks of the default process group (default: no). If so, all ranks must
    call the norm."""

    def __init__(self, dim: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.dim, self.momentum, self.epsilon = dim, momentum, epsilon
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalise x (..., D); `real` (...) marks the real tokens (default: all)."""
        rows = x.reshape(-1, self.dim)
        if not self.training or (real is None and len(rows) > 1):
            return self.plain(rows).view(x.shape)
        real = rows.new_ones(len(rows), 1, dtype=torch.bool) if real is None else real.reshape(-1, 1)
        exact = rows.to(torch.promote_types(x.dtype, torch.float32)).masked_fill(~real, 0)
        count = real.sum()
        some = count.clamp(min=1).to(exact.dtype)
        mean = exact.sum(0) / some
        apart = (exact - mean).masked_fill(~real, 0)
        variance = apart.square().sum(0) / some
        if self.over_ranks:
            mean, variance, count = moments_over_ranks(mean, variance, count)
            apart = (exact - mean).masked_fill(~real, 0)
        self._update_running(mean, variance, count)
        y = apart * (self.weight * (variance + self.epsilon).rsqrt()) + self.bias
        return y.to(x.dtype).view(x.shape)

    def plain(self, x: Tensor) -> Tensor:
        """Normalise x (n, D, ...); in training, all rows count in the statistics."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.epsilon)
        if self.over_ranks:
            return self._plain_over_ranks(x)
        mean, unbiased = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        y = F.batch_norm(x, mean, unbiased, self.weight, self.bias, True, 1.0, self.epsilon)
        self._move_running(mean, unbiased, self.momentum)
        return y

    def _plain_over_ranks(self, x: Tensor) -> Tensor:
        exact, shape = x.to(torch.promote_types(x.dtype, torch.float32)), (-1, *[1] * (x.dim() - 2))
        variance, mean = torch.var_mean(exact, [0, *range(2, x.dim())], correction=0)
        count = torch.full((), x.numel() // self.dim, device=x.device)
        mean, variance, count = moments_over_ranks(mean, variance, count)
        self._update_running(mean, variance, count)
        scale = self.weight * (variance + self.epsilon).rsqrt()
        return ((exact - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)).to(x.dtype)

    def affine(self, found: tuple[Tensor, Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Scale and shift (D,) of the norm as y = scale x + shift.

        found  mean, variance and number of rows of a batch (None: use the running statistics)
        """
        mean, variance = self.running_mean, self.running_var
        if found is not None:
            mean, variance, count = moments_over_ranks(*found) if self.over_ranks else found
            self._update_running(mean, variance, count)
        scale = self.weight * (variance + self.epsilon).rsqrt()
        return scale, self.bias - scale * mean

    def _update_running(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Update the running statistics from a batch of `count` rows (0: no change)."""
        some = count.to(mean.dtype).clamp(min=1)
        unbiased = variance * (some / (some - 1).clamp(min=1))
        self._move_running(mean, unbiased, self.momentum * (count > 0).to(some.dtype))

    @torch.no_grad()
    def _move_running(self, mean: Tensor, variance: Tensor, share: float | Tensor) -> None:
        """Move the running statistics by `share` towards a finite mean and variance."""
        fine = mean.isfinite() & variance.isfinite()
        for running, found in ((self.running_mean, mean), (self.running_var, variance)):
            running += torch.where(fine, share * (found.to(running.dtype) - running), 0)

    def extra_repr(self) -> str:
        return f"{self.dim}, momentum={self.momentum}, epsilon={self.epsilon}"


def moments_over_ranks(mean: Tensor, variance: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (D,), variance (D,) and count over all ranks, from each rank's moments.

    n = sum_r n_r,   mean = sum_r n_r mean_r / n,   variance = sum_r n_r (variance_r + (mean_r - mean)^2) / n
    """
    every = gather_row(torch.cat([mean, variance, count.to(mean.dtype).view(1)]))
    means, variances, counts = every.split([len(mean), len(mean), 1], 1)
    total = counts.sum()
    share = counts / total.clamp(min=1)
    mean = (share * means).sum(0)
    return mean, (share * (variances + (means - mean).square())).sum(0), total


def batch_norms(module: nn.Module, still: Iterable[nn.Module] = ()) -> list[BatchNorm]:
    """Batch norms of a module, without the frozen modules `still`."""
    fixed = {part for one in still for part in one.modules()}
    return [part for part in module.modules() if isinstance(part, BatchNorm) and part not in fixed]


class DropPath(nn.Module):
    """Stochastic depth per sample (arXiv 1603.09382).

    y = x b / (1 - p),   b ~ Bernoulli(1 - p)
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise UserError(f"the drop path rate must be at least 0 and below 1, not {p}")
        self.p = p

    def forward(self, x: Tensor, ragged: Ragged | None = None) -> Tensor:
        """Drop the branch x (B, N, D) of random samples.

        For packed x (1, T, D), pass the layout `ragged`.
        """
        if not self.training or self.p == 0:
            return x
        if ragged is None:
            kept = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.p
        else:
            kept = (torch.rand(len(ragged) + 1, device=x.device) >= self.p)[ragged.sample][None, :, None]
        return x * kept / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
