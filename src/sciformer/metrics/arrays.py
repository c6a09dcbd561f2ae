"""What a metric may be given, checked once for all of them.

Empty input, shapes that do not fit, and labels, targets or weights that are not numbers are mistakes in the data: a
`UserError`. An *output of the model* that is not a number makes the metric nan: a model that diverged must be seen in
the log, and must not end the run that logs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NAN = float("nan")
MAX_ROUNDING_ERROR = 0.02  # what a row of probabilities in half precision may miss of one


def floats(name: str, values: ArrayLike, shape: tuple[int, ...] | None = None) -> Floats:
    """An array of numbers, not empty, of the `shape` if one is given."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise UserError(f"`{name}` must be numbers, not an array of {array.dtype}")
    if array.ndim == 0 or array.size == 0:
        raise UserError(f"`{name}` must have one sample or more, not the shape {array.shape}")
    if shape is not None and array.shape != shape:
        raise UserError(f"`{name}` must have the shape {shape}, as the others have, not {array.shape}")
    return array.astype(np.float64)


def finite_floats(name: str, values: ArrayLike, shape: tuple[int, ...] | None = None) -> Floats:
    """An array of finite numbers that come from the data and not from a model."""
    array = floats(name, values, shape)
    if wrong := int((~np.isfinite(array)).sum()):
        raise UserError(f"{wrong} of {array.size} numbers in `{name}` are not finite", hint="Leave them out first.")
    return array


def weights(weight: ArrayLike | None, n: int) -> Floats:
    """Weights (n,) of samples, none below zero and not all zero; ones unless given."""
    array = np.ones(n) if weight is None else finite_floats("weight", weight, (n,))
    if array.min() < 0 or array.sum() == 0:
        raise UserError(
            f"weights must be zero or more, with a sum above zero, but they are {array.min():g} to {array.max():g}"
        )
    return array


def classes(probabilities: ArrayLike, label: ArrayLike) -> tuple[Floats, Integers]:
    """Probabilities (n, C) of C >= 2 classes, whose rows sum to one, and labels (n,) in 0 .. C - 1."""
    p = floats("probabilities", probabilities)
    if p.ndim != 2 or p.shape[1] < 2:
        raise UserError(
            f"`probabilities` must have the shape (n, C) with two classes or more, not {p.shape}",
            hint="For one probability p of class 1: np.stack([1 - p, p], axis=1)." if p.size == len(p) else "",
        )
    finite = p[np.isfinite(p).all(axis=1)]
    if finite.size and (
        finite.min() < -MAX_ROUNDING_ERROR
        or finite.max() > 1 + MAX_ROUNDING_ERROR
        or np.abs(finite.sum(axis=1) - 1).max() > MAX_ROUNDING_ERROR
    ):
        raise UserError(
            "probabilities must be in 0 .. 1, with sum 1 for every sample, but they are from "
            f"{finite.min():.3g} to {finite.max():.3g}, with sums of {finite.sum(axis=1).min():.3g} to "
            f"{finite.sum(axis=1).max():.3g}",
            hint="Are they logits? Take their softmax.",
        )
    found: NDArray[Any] = np.asarray(label)
    if found.dtype.kind not in "iub" or found.shape != p.shape[:1]:
        raise UserError(f"`label` must be {len(p)} integers, not {found.dtype} of shape {found.shape}")
    found = found.astype(np.int64)
    if found.min() < 0 or found.max() >= p.shape[1]:
        raise UserError(f"labels must be in 0 .. {p.shape[1] - 1}, but they are {found.min()} to {found.max()}")
    return p, found


def numbers(*outputs: Floats) -> bool:
    """Whether what a model gave is free of nan (and of infinity, which is no probability or mean either)."""
    return all(bool(np.isfinite(output).all()) for output in outputs)


def demand_numbers(what: str, output: Floats) -> None:
    """Refuse outputs that are not finite, where the answer is a table of counts and cannot be nan."""
    if not numbers(output):
        wrong = int((~np.isfinite(output)).sum())
        raise UserError(f"{what} needs finite numbers, but {wrong} are not finite", hint="Has the model diverged?")
