"""Layers for observations: embeddings of visible and hidden tokens, and a readout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn.heads import Gaussian
from ...tokens.base import Columns
from ...tokens.protocols import Readout


class ObservationEmbedding(nn.Module):
    """Embedding of observations and extra tokens.

        observation with features u     x = W u + b + B[band]
        extra token with value z        x = E[entry] + z S[entry]

    bands    number of bands; B is used if there are several
    entries  number of rows of E and S; row 0 stands for observations and is unused
    """

    def __init__(self, features: int, dim: int, bands: int = 0, entries: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(features, dim)
        self.bands = _embedding_table(bands, dim)
        self.entries, self.slopes = _embedding_table(entries, dim), _embedding_table(entries, dim)

    def forward(self, columns: Columns) -> Tensor:
        """Embed features (..., N, F) -> (..., N, D)."""
        x = self.linear(columns["features"])
        if self.bands is not None:
            x = x + self.bands(columns["band"])
        if self.entries is not None:
            assert self.slopes is not None
            entry, given = columns["entry"], columns["given"][..., None]
            x = torch.where(entry[..., None] > 0, self.entries(entry) + given * self.slopes(entry), x)
        return x


class ObservationTrace(nn.Module):
    """Embedding of the visible band and time of a hidden observation.

    since  index of the feature «time since the previous observation»; None without this feature
    """

    def __init__(self, dim: int, bands: int, since: int | None) -> None:
        super().__init__()
        self.bands, self.place = _embedding_table(bands, dim), since
        self.since = None if since is None else nn.Linear(1, dim, bias=False)

    def forward(self, columns: Columns) -> Tensor:
        """Embed band and time of tokens (..., N) -> (..., N, D)."""
        parts = [] if self.bands is None else [self.bands(columns["band"])]
        if self.since is not None:
            assert self.place is not None
            parts.append(self.since(columns["features"][..., self.place : self.place + 1]))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


class ObservationReadout(Readout):
    """Readout m = W h + b of hidden values y.

    The loss is the mean over the values of a token of

        w (y - m)^2                                            if `gaussian` is false
        -w ln N(y; m, s),  s = softplus(V h + c) + 0.001       if `gaussian` is true

    with the weight w of a value (default: 1).

    size   number of values in a token
    noisy  whether the variance is s^2 + e^2, with the error e of a value
    """

    FLOOR = 1e-3

    def __init__(self, dim: int, size: int, gaussian: bool, noisy: bool) -> None:
        super().__init__()
        self.size, self.noisy = size, noisy
        self.mean = nn.Linear(dim, size)
        self.spread = nn.Linear(dim, size) if gaussian else None

    def gaussian(self, hidden: Tensor) -> Gaussian:
        """Mean and standard deviation (..., P) of the P values of a token.

        The standard deviation is 0 if `gaussian` is false.
        """
        mean = self.mean(hidden).float()
        if self.spread is None:
            return Gaussian(mean, torch.zeros_like(mean))
        return Gaussian(mean, F.softplus(self.spread(hidden).float()) + self.FLOOR)

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        mean, std = self.gaussian(hidden)
        value = target["value"].float().view_as(mean)
        if self.spread is None:
            loss = (value - mean) ** 2
        else:
            if self.noisy and "error" in target:
                std = (std**2 + target["error"].float().view_as(mean) ** 2).sqrt()
            loss = Gaussian(mean, std).loss(value)
        if "weight" not in target:
            return loss.mean(-1)
        weight = target["weight"].float().view_as(mean)
        there = (weight > 0).sum(-1).clamp(min=1)
        return (loss * weight).sum(-1) / there

    def predict(self, hidden: Tensor) -> Columns:
        mean, std = self.gaussian(hidden)
        return {"value": mean, "error": std} if self.size > 1 else {"value": mean[..., 0], "error": std[..., 0]}


def _embedding_table(rows: int, dim: int) -> nn.Embedding | None:
    if not rows:
        return None
    table = nn.Embedding(rows, dim)
    nn.init.normal_(table.weight, std=0.02)
    return table
