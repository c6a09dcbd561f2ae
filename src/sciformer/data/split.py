"""Which samples are trained on, and which are kept to choose and to judge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ..errors import UserError
from .chance import key, mix

Rows = NDArray[np.int64]


class Split(BaseModel):
    """Shares of the data kept apart; samples of one group never come into two parts."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    valid: float = Field(default=0.1, ge=0, lt=1)
    """Share kept to choose the best model."""
    test: float = Field(default=0.1, ge=0, lt=1)
    """Share kept for the final judgement."""
    by: str = ""
    """Column whose equal values stay together (an object, a chain, a patient); empty: every sample is its own group."""
    seed: int = 0
    """Another seed draws another division; the training's seed does not."""

    def divide(self, count: int, groups: Any = None) -> dict[str, Rows]:
        """Rows of train, valid and test, each sorted. `groups` (count,) are the values of the column `by`."""
        if self.valid + self.test >= 1:
            raise UserError("valid and test shares that leave something to train on", f"{self.valid} + {self.test}")
        names, group = (
            (np.arange(count), np.arange(count)) if groups is None else np.unique(groups, return_inverse=True)
        )
        rank = np.empty(len(names), np.int64)
        rank[np.argsort(mix(key(self.seed, "split") ^ mix(np.arange(len(names)))), kind="stable")] = np.arange(
            len(names)
        )
        kept = {"valid": self.valid, "test": self.test}
        parts, low = {}, 0
        for name, share in kept.items():
            high = low + (max(1, round(share * len(names))) if share else 0)
            parts[name] = np.flatnonzero((rank[group] >= low) & (rank[group] < high))
            low = high
        parts = {"train": np.flatnonzero(rank[group] >= low), **parts}
        if not len(parts["train"]):
            raise UserError(
                "enough groups to divide into train, valid and test",
                f"{len(names)}" + (f" different values of `{self.by}`" if self.by else " samples"),
                "Set data.split.valid and data.split.test to 0, or bring more data.",
            )
        return {name: rows for name, rows in parts.items() if len(rows)}
