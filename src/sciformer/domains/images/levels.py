"""Values of training pixels (type, range, levels), and rounding to these values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.columns import Array

MAX_LEVELS = 16  # distinct values of pixels that are stored, such as the two values of a spin
VALUES_AT_ONCE = 1 << 18  # number of pixel values that are compared at a time


class PixelLevels:
    """Type, range and levels of pixel values, collected from arrays of pixels."""

    def __init__(self) -> None:
        self.type, self.low, self.high = "", np.inf, -np.inf
        self.levels: set[float] | None = set()

    def add(self, values: Array) -> None:
        """Add an array of pixel values, of any shape."""
        if not values.size:
            return
        self.type = np.result_type(values, self.type).name if self.type else values.dtype.name
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        flat = values.reshape(-1)
        for start in range(0, len(flat), VALUES_AT_ONCE):
            if self.levels is None:
                return
            found = np.unique(flat[start : start + VALUES_AT_ONCE])[: MAX_LEVELS + 1]
            self.levels |= set(found.tolist())
            if len(self.levels) > MAX_LEVELS:
                self.levels = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `levels` is null if there are more than `MAX_LEVELS` levels."""
        levels = None if self.levels is None else sorted(map(float, self.levels))
        return {"type": self.type, "low": self.low, "high": self.high, "levels": levels}


def round_to_levels(values: Array, known: Mapping[str, Any] | None) -> Array:
    """Round pixels to values that training pixels can have.

    Values are clipped to the range of the training pixels. If the training pixels have few levels, the nearest level is
    taken. Otherwise values of an integer type are rounded.

    known   result of `PixelLevels.to_json`; None leaves the values unchanged
    """
    if not known:
        return values
    values = np.clip(values, known["low"], known["high"])
    if known["levels"]:
        levels = np.array(known["levels"])
        edges = (levels[1:] + levels[:-1]) / 2
        values = levels[np.searchsorted(edges, values)]
    elif np.dtype(known["type"]).kind in "bui":
        values = np.rint(values)
    return values.astype(known["type"])
