"""Splits into train, valid and test, and subsets with few labels per class."""

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
    """Draw `per_class` training rows of each class, sorted (default: all rows).

    A larger number keeps the rows of a smaller number and adds further rows. The draws of the classes are independent.

    labels  (n,) class of every sample
    rows    (m,) rows to draw from
    notes   list to which a note is added for each class with too few samples
    unit    singular noun for a sample, in the notes
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
            found = f"class {name} has {len(mine):,} {unit}s to train on"
            notes.append(f"data.labels_per_class is {per_class:,}, but {found}.")
    return rows[np.sort(np.concatenate(kept))] if kept else rows


Rows = NDArray[np.int64]


class Split(BaseModel):
    """Random split into train, valid and test; a group of samples stays together."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    valid: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the samples for validation, which chooses the best model (default: 0.1)."""
    test: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the samples for the final test (default: 0.1)."""
    by: str = ""
    """Group column: samples of equal value (an object, a patient) stay in one part (default: no groups)."""
    stratify: str = ""
    """Stratification column, such as the class: its values have the same fractions in every part. A group counts with
    the value of its first sample (default: no stratification)."""
    folds: int | None = Field(default=None, ge=2)
    """Number of equal folds for cross-validation; one fold is the test part, and `test` is ignored (default: none)."""
    fold: int = Field(default=0, ge=0)
    """Number of the test fold, from 0; validation samples come from the other folds (default: 0)."""
    seed: int = 0
    """Random seed of the split, independent of train.seed (default: 0)."""

    @model_validator(mode="after")
    def _one_of_the_folds(self) -> Split:
        if self.fold and self.fold >= (self.folds or 1):
            raise ValueError(f"data.split.fold must be less than data.split.folds, not {self.fold}")
        return self

    @property
    def lot(self) -> int:
        """Seed for draws besides the split, such as labels per class; differs by fold."""
        if self.folds is None:
            return self.seed
        return int(key(self.seed, "fold", self.folds, self.fold)[0] >> np.uint64(1))

    def less(self, valid: Any, test: Any) -> Split:
        """Copy with fraction 0 for `valid` or `test`, if the part has its own files."""
        if test and self.folds:
            raise UserError("data.split.folds cannot be combined with files in data.test", key="data.split.folds")
        return self.model_copy(update={"valid": 0.0 if valid else self.valid, "test": 0.0 if test else self.test})

    def of_table(self, table: Mapping[str, Any], count: int, rows: Rows | None = None) -> dict[str, Rows]:
        """Split a table by its own columns.

        rows   (count,) subset of rows to split (default: all rows); the result has indices into this subset
        """
        columns: dict[str, Any] = {}
        for where, name in (("by", self.by), ("stratify", self.stratify)):
            if name:
                one_of(f"data.split.{where}", name, table)
                columns[where] = table[name] if rows is None else table[name][rows]
        return self.divide(count, columns.get("by"), columns.get("stratify"))

    def divide(self, count: int, groups: Any = None, strata: Any = None) -> dict[str, Rows]:
        """Sorted row numbers of train, valid and test.

        groups  (count,) values of the column `by`
        strata  (count,) values of the column `stratify`
        """
        if self.valid + (0 if self.folds else self.test) >= 1:
            shares = f"data.split.valid and data.split.test ({self.valid} + {self.test})"
            raise UserError(f"{shares} leave no samples for training", key="data.split")
        if self.stratify and strata is None:
            message = f"this reader cannot stratify the split by `{self.stratify}`: it reads the column after the split"
            raise UserError(message, key="data.split.stratify")
        names = first = group = np.arange(count)
        if groups is not None:
            names, first, group = np.unique(groups, return_index=True, return_inverse=True)
        what = f"different values of `{self.by}`" if self.by else "samples"
        if self.folds and len(names) < self.folds:
            message = f"data.split.folds is {self.folds}, but there are only {len(names)} {what}"
            raise UserError(message, key="data.split.folds")
        stratum = None if strata is None else np.unique(np.asarray(strata)[first], return_inverse=True)[1]
        order = _shuffle(np.arange(len(names)), stratum, key(self.seed, "split"))
        kept = self._in_folds(order, stratum) if self.folds else self._by_shares(order, stratum)
        part = np.zeros(len(names), np.int64)
        for number, chosen in enumerate(kept.values(), 1):
            part[chosen] = number
        parts = {name: np.flatnonzero(part[group] == number) for number, name in enumerate(("train", *kept))}
        if not len(parts["train"]):
            raise UserError(
                f"{len(names)} {what} are too few for a split into train, valid and test",
                hint="Set data.split.valid and data.split.test to 0, or use more data.",
                key="data.split",
            )
        return {name: rows for name, rows in parts.items() if len(rows)}

    def _by_shares(self, order: Rows, stratum: Rows | None) -> dict[str, Rows]:
        kept, total = {}, len(order)
        for name, share in (("valid", self.valid), ("test", self.test)):
            kept[name] = _pick(order, _number(share, total), stratum is not None)
            order = order[~np.isin(order, kept[name])]
        return kept

    def _in_folds(self, order: Rows, stratum: Rows | None) -> dict[str, Rows]:
        assert self.folds is not None
        fold = np.arange(len(order)) % self.folds == self.fold
        rest = _shuffle(np.sort(order[~fold]), stratum, key(self.seed, "valid", self.fold))
        return {"valid": _pick(rest, _number(self.valid, len(order)), stratum is not None), "test": order[fold]}


def _number(share: float, total: int) -> int:
    return max(1, round(share * total)) if share else 0


def _shuffle(ids: Rows, stratum: Rows | None, word: Any) -> Rows:
    """Shuffle sample ids; with `stratum`, within each stratum."""
    drawn = mix(word ^ mix(ids))
    found: Rows = ids[np.argsort(drawn, kind="stable") if stratum is None else np.lexsort((drawn, stratum[ids]))]
    return found


def _pick(order: Rows, count: int, even: bool) -> Rows:
    """Pick the first `count` ids; if `even`, evenly spaced ids of sorted strata."""
    if not even or count >= len(order):
        return order[:count]
    return order[((np.arange(count) + 0.5) * len(order) / max(1, count)).astype(np.int64)]
