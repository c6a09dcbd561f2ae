"""Reweighting of all classes to a common spectrum in two columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ....errors import UserError, one_of
from ...columns import Array

FLAT = "flat"
Edges = Annotated[list[float], Field(min_length=2)]


class Reweight(BaseModel):
    """Weight for each class and each bin of two columns, from the training part alone.

    Let h be the sum of the weights of a class in a bin, and H its sum over all bins. The new weight is 1 / h (flat), or
    (r / R) / (h / H) with the sums r and R of the class `to`. It is scaled to a mean of 1 over the samples of the
    class, so that the total weight of a class stays the same, and capped at `cap`. Samples outside the edges have the
    weight 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    x: str
    """Column or formula for the first axis of the spectrum."""
    y: str
    """Column or formula for the second axis of the spectrum."""
    x_edges: Edges
    """Bin edges of `x`, ascending."""
    y_edges: Edges
    """Bin edges of `y`, ascending."""
    to: str = FLAT
    """Target spectrum of all classes: `flat`, or the name of a class (default: flat)."""
    cap: float = Field(default=10.0, gt=1)
    """Maximum weight; the other samples of the class are scaled up to compensate (default: 10)."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for name, edges in (("x_edges", self.x_edges), ("y_edges", self.y_edges)):
            if any(not a < b for a, b in pairwise(edges)):
                raise ValueError(f"the numbers of {name} must be ascending")
        return self

    def learn(self, label: Array, x: Array, y: Array, weight: Array) -> Weights:
        """Learn the weights from samples (n,) of the training part."""
        names = np.unique(label)
        if self.to != FLAT:
            known = [FLAT, *map(str, names)]
            one_of("data.reweight.to, `flat` or a class,", self.to, known, key="data.reweight.to")
        shape = (len(names), len(self.x_edges) - 1, len(self.y_edges) - 1)
        bins = self.bins(x, y)
        inside, place = bins >= 0, np.searchsorted(names, label)
        number = (place * shape[1] * shape[2] + bins)[inside]
        sums = np.bincount(number, weight[inside], minlength=int(np.prod(shape))).reshape(shape)
        target = np.ones(shape[1:]) if self.to == FLAT else sums[[*map(str, names)].index(self.to)]
        table = np.zeros(shape)
        for name, mine, own in zip(names, sums, table):
            filled = mine > 0
            if not (filled & (target > 0)).any():
                where = "" if self.to == FLAT else f" in the bins of class {self.to}"
                message = f"class {name} has no samples inside the edges of data.reweight{where}"
                raise UserError(message, key="data.reweight")
            own[:] = self._capped(np.where(filled, target / np.where(filled, mine, 1), 0), mine)
        return Weights(self, names, table, int((~inside).sum()))

    def _capped(self, factor: Array, sums: Array) -> Array:
        """Scale the factors of the bins to a mean weight of 1, with the maximum `cap`."""
        total, fixed = sums.sum(), np.zeros(factor.shape, bool)
        while True:
            free = (factor * sums)[~fixed].sum()
            if not free:
                return factor
            factor = np.where(fixed, self.cap, factor * (total - self.cap * sums[fixed].sum()) / free)
            over = ~fixed & (factor > self.cap)
            if not over.any():
                return factor
            fixed |= over
            factor[over] = self.cap

    def bins(self, x: Array, y: Array) -> Array:
        """Bin number of each sample; -1 outside the bin edges."""
        places = []
        for values, edges in ((x, self.x_edges), (y, self.y_edges)):
            place = np.searchsorted(edges, values, side="right") - 1
            place[values == edges[-1]] = len(edges) - 2
            place[(place >= len(edges) - 1) | ~np.isfinite(values)] = -1
            places.append(place)
        return np.where((places[0] >= 0) & (places[1] >= 0), places[0] * (len(self.y_edges) - 1) + places[1], -1)


@dataclass(frozen=True)
class Weights:
    """Fitted weights.

    names     class names, sorted
    table     (classes, x bins, y bins) weight of each class in each bin
    outside   number of training samples outside the bins
    """

    section: Reweight
    names: Array
    table: Array
    outside: int

    def of(self, label: Array, x: Array, y: Array) -> Array:
        """Weights of samples; 0 for samples outside the bin edges or of an unknown class."""
        bins = self.section.bins(x, y)
        place = np.minimum(np.searchsorted(self.names, label), len(self.names) - 1)
        known = (bins >= 0) & (self.names[place] == label)
        return np.where(known, self.table.reshape(len(self.names), -1)[place, np.maximum(bins, 0)], 0)
