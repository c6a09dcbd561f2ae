"""A few samples of each class: what a model can learn from so many labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import UserError, one_of
from .random import key, mix


def sample_per_class(
    labels: Any, rows: Rows, per_class: int | None, seed: int, notes: list[str], unit: str = "sample"
) -> Rows:
    """Those of `rows` that are trained on: `per_class` of each class, sorted; all where it is None.

    A larger number adds to a smaller one, and the draw of one class does not depend on the others.

    labels  (n,) the class of every sample, of which rows (m,) are chosen
    notes   takes a sentence for each class that has too few
    unit    what a sample is called
    """
    if per_class is None:
        return rows
    label = np.asarray(labels)[rows]
    drawn = mix(key(seed, "labels") ^ mix(rows))
    kept = []
    for name in np.unique(label):
        mine = np.flatnonzero(label == name)
        kept.append(mine[np.argsort(drawn[mine], kind="stable")[:per_class]])
        if len(mine) < per_class:
            notes.append(
                f"data.labels_per_class is {per_class:,}, but class {name} has {len(mine):,} {unit}s to train on."
            )
    return rows[np.sort(np.concatenate(kept))] if kept else rows


# Which samples are trained on, and which are kept to choose and to judge


Rows = NDArray[np.int64]


class Split(BaseModel):
    """Shares of the data kept apart; samples of one group never come into two parts."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    valid: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the samples in the validation part, which selects the best model (default: 0.1)."""
    test: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the samples in the test part, for the final evaluation (default: 0.1)."""
    by: str = ""
    """Group column: samples with equal values (an object, a chain, a patient) stay in one part (default: none)."""
    stratify: str = ""
    """Class column: each part has the same fraction of every class, up to one group (default: none). The class of a
    group is that of its first sample."""
    folds: int | None = Field(default=None, ge=2)
    """Number of equally large folds for cross-validation (default: none). One fold is then the test part, and `test` is
    ignored."""
    fold: int = Field(default=0, ge=0)
    """Number of the fold that is the test part, from 0 (default: 0). The validation part is drawn from the other
    folds."""
    seed: int = 0
    """Random seed of the split, independent of train.seed (default: 0)."""

    @model_validator(mode="after")
    def _one_of_the_folds(self) -> Split:
        if self.fold and self.fold >= (self.folds or 1):
            raise ValueError(f"data.split.fold must be below data.split.folds, counted from 0, not {self.fold}")
        return self

    @property
    def lot(self) -> int:
        """A seed for what else is drawn once for a division, such as a few labels of each class."""
        if self.folds is None:
            return self.seed
        return int(key(self.seed, "fold", self.folds, self.fold)[0] >> np.uint64(1))

    def less(self, valid: Any, test: Any) -> Split:
        """The same without what has files of its own: `valid`, `test`."""
        if test and self.folds:
            raise UserError("test has files of its own and is also one of data.split.folds", key="data.split.folds")
        return self.model_copy(update={"valid": 0.0 if valid else self.valid, "test": 0.0 if test else self.test})

    def of_table(self, table: Mapping[str, Any], count: int, rows: Rows | None = None) -> dict[str, Rows]:
        """Rows of the parts of a table, by its own columns; with `rows` (count,), of these alone, counted anew."""
        columns = []
        for where, name in (("by", self.by), ("stratify", self.stratify)):
            if name:
                one_of(f"data.split.{where}", name, table)
            column = table[name] if name else None
            columns.append(column if column is None or rows is None else column[rows])
        return self.divide(count, *columns)

    def divide(self, count: int, groups: Any = None, strata: Any = None) -> dict[str, Rows]:
        """Rows of train, valid and test, each sorted.

        groups  (count,) the values of the column `by`
        strata  (count,) the values of the column `stratify`
        """
        if self.valid + (0 if self.folds else self.test) >= 1:
            raise UserError(
                f"data.split.valid and data.split.test ({self.valid} + {self.test}) leave nothing to train on",
                key="data.split",
            )
        if self.stratify and strata is None:
            raise UserError(
                f"data.split.stratify cannot be {self.stratify}: these data do not know that column before they are "
                "divided",
                key="data.split.stratify",
            )
        names, first, group = (
            (np.arange(count),) * 3 if groups is None else np.unique(groups, return_index=True, return_inverse=True)
        )
        stratum = None if strata is None else np.unique(np.asarray(strata)[first], return_inverse=True)[1]
        order = _drawn(np.arange(len(names)), stratum, key(self.seed, "split"))
        kept = self._in_folds(order, stratum) if self.folds else self._by_shares(order, stratum)
        part = np.zeros(len(names), np.int64)
        for number, chosen in enumerate(kept.values(), 1):
            part[chosen] = number
        parts = {name: np.flatnonzero(part[group] == number) for number, name in enumerate(("train", *kept))}
        if not len(parts["train"]):
            what = f"different values of `{self.by}`" if self.by else "samples"
            raise UserError(
                f"{len(names)} {what} are too few to divide into train, valid and test",
                hint="Set data.split.valid and data.split.test to 0, or bring more data.",
                key="data.split",
            )
        return {name: rows for name, rows in parts.items() if len(rows)}

    def _by_shares(self, order: Rows, stratum: Rows | None) -> dict[str, Rows]:
        kept, total = {}, len(order)
        for name, share in (("valid", self.valid), ("test", self.test)):
            kept[name] = _picked(order, _number(share, total), stratum is not None)
            order = order[~np.isin(order, kept[name])]
        return kept

    def _in_folds(self, order: Rows, stratum: Rows | None) -> dict[str, Rows]:
        assert self.folds is not None
        if len(order) < self.folds:
            what = f"different values of `{self.by}`" if self.by else "samples"
            raise UserError(
                f"data.split.folds is {self.folds}, but there are only {len(order)} {what}", key="data.split.folds"
            )
        fold = np.arange(len(order)) % self.folds == self.fold
        rest = _drawn(np.sort(order[~fold]), stratum, key(self.seed, "valid", self.fold))
        return {"valid": _picked(rest, _number(self.valid, len(order)), stratum is not None), "test": order[fold]}


def _number(share: float, total: int) -> int:
    return max(1, round(share * total)) if share else 0


def _drawn(ids: Rows, stratum: Rows | None, word: Any) -> Rows:
    """The ids in random order, those of a stratum together."""
    drawn = mix(word ^ mix(ids))
    found: Rows = ids[np.argsort(drawn, kind="stable") if stratum is None else np.lexsort((drawn, stratum[ids]))]
    return found


def _picked(order: Rows, count: int, even: bool) -> Rows:
    """So many of them: the first, or at even steps, so that each stratum gives its share."""
    if not even or count >= len(order):
        return order[:count]
    return order[((np.arange(count) + 0.5) * len(order) / max(1, count)).astype(np.int64)]
