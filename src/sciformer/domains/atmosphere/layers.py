"""Embedding of cubes, and the readout of hidden cubes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn.heads import Gaussian
from ...nn.losses import fair_crps, statistical_loss
from ...tokens.base import Columns
from ...tokens.protocols import Readout

MIN_STD = 1e-3


class CubeInfo(nn.Module):
    """Embedding x = V i + b of the facts i of a cube: date, hour, level and place.

    V and b are zero before training.
    """

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, columns: Columns) -> Tensor:
        """Embed the facts (..., N, F) -> (..., N, D)."""
        return self.linear(columns["info"])


class CubeEmbedding(nn.Module):
    """Embedding x = W [a; g] + V i of a cube.

    a   normalised anomalies, 0 where missing
    g   1 for missing values, else 0
    i   date, hour, level and place
    """

    def __init__(self, size: int, features: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * size, dim)
        self.info = CubeInfo(features, dim)

    def forward(self, columns: Columns) -> Tensor:
        """Embed cubes of P values: (..., N, P) -> (..., N, D)."""
        value = columns["value"]
        return self.linear(torch.cat([value, columns["missing"].to(value.dtype)], -1)) + self.info(columns)


class CubeReadout(Readout):
    """Readout of the values y of a hidden cube: members x_i = W_i norm(h) + b_i.

    The loss of a token is the mean over its values that are not missing of

        (y - x)^2                                        squared (one member)
        -ln N(y; x, s),  s = softplus(V norm(h) + c)     gaussian (one member)
        `fair_crps`, `statistical_loss`                  crps, statistical (several members)
    """

    def __init__(self, dim: int, size: int, loss: str, members: int) -> None:
        super().__init__()
        self.size, self.kind, self.members = size, loss, members
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.mean = nn.Linear(dim, members * size)
        self.spread = nn.Linear(dim, size) if loss == "gaussian" else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Predict the P values of cubes: hidden vectors (n, D) -> M members (M, n, P)."""
        found = self.mean(self.norm(hidden)).float()
        return found.unflatten(-1, (self.members, self.size)).movedim(-2, 0)

    def std(self, hidden: Tensor) -> Tensor:
        assert self.spread is not None
        return F.softplus(self.spread(self.norm(hidden)).float()) + MIN_STD

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        truth = target["value"].to(torch.promote_types(target["value"].dtype, torch.float32))
        known = torch.isfinite(truth)
        truth = truth.nan_to_num()
        members = self(hidden)
        if self.kind == "squared":
            loss = (members[0] - truth) ** 2
        elif self.kind == "gaussian":
            loss = Gaussian(members[0], self.std(hidden)).loss(truth)
        else:
            loss = (fair_crps if self.kind == "crps" else statistical_loss)(members, truth)
        return loss.masked_fill(~known, 0).sum(-1) / known.sum(-1).clamp(min=1)

    def predict(self, hidden: Tensor) -> Columns:
        """Predicted values, as columns.

        value    (n, P) mean of the members
        std      (n, P) standard deviation; for the loss gaussian, or for several members
        members  (n, M, P) only for several members
        """
        members = self(hidden)
        found = {"value": members.mean(0)}
        if self.kind == "gaussian":
            found["std"] = self.std(hidden)
        elif self.members > 1:
            found |= {"std": members.std(0), "members": members.movedim(0, -2)}
        return found
