"""Columns of particles as a table has them: lists, each as long as those of the momentum, with finite numbers."""

from __future__ import annotations

import numpy as np

from ..data.source import Lists, Table
from ..errors import UserError, one_of
from ..formula import Formula
from .base import Array
from .particle_features import Feature


def column_of(table: Table, name: str) -> Lists:
    """A column of particles."""
    one_of("a column of particles", name, table)
    column = table[name]
    if not isinstance(column, Lists):
        raise UserError(f"column `{name}` must have a list for each jet, not an array of shape {column.shape}")
    return column


def values_of(table: Table, feature: Feature, lengths: Array, like: str) -> Array:
    """(T,) a feature that is a column of the data, or a formula over such."""
    if not feature.formula:
        name = feature.column or feature.name
        values = even(column_of(table, name), lengths, name, like).values
        return getattr(np, feature.change)(values) if feature.change else values
    found = Formula(feature.formula).of(table)
    if not isinstance(found, Lists):
        found = Lists(np.repeat(np.broadcast_to(found, len(lengths)), lengths), lengths)
    return even(found, lengths, feature.formula, like).values


def even(column: Lists, lengths: Array, name: str, like: str) -> Lists:
    """The column, if its lists are as long as those of the column `like`."""
    if not np.array_equal(column.lengths, lengths):
        row = int(np.argmax(column.lengths != lengths))
        raise UserError(
            f"sample {row} has {column.lengths[row]} particles in `{name}`, but {lengths[row]} particles in `{like}`"
        )
    return column


def check_finite(values: Array, what: str) -> None:
    """Refuse numbers (T, K) that are not finite."""
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values).all(-1)
        raise UserError(f"{what} is NaN or infinite for {bad.sum()} particles")
