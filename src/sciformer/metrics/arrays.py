"""Checks of the inputs of all metrics.

Mistakes in the data raise a `UserError`: empty input, unequal shapes, and labels, targets or weights that are not
finite. If a *model output* is not finite, the metric is nan. In this way a diverged model is visible in the log and
does not end the run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NAN = float("nan")
MAX_ROUNDING_ERROR = 0.02  # largest |sum - 1| of a row of probabilities, for half precision


def floats(name: str, values: ArrayLike, shape: tuple[int, ...] | None = None) -> Floats:
    """Convert to a float array; refuse an empty array or another `shape`."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise UserError(f"`{name}` must be numbers, not an array of {array.dtype}")
    if array.ndim == 0 or array.size == 0:
        raise UserError(f"`{name}` is empty: its shape is {array.shape}, but a metric needs at least one sample")
    if shape is not None and array.shape != shape:
        raise UserError(f"`{name}` has the shape {array.shape}, but the other arrays have the shape {shape}")
    return array.astype(np.float64)


def finite_floats(name: str, values: ArrayLike, shape: tuple[int, ...] | None = None) -> Floats:
    """Convert data (not model outputs) to a float array; refuse NaN and infinity."""
    array = floats(name, values, shape)
    if wrong := int((~np.isfinite(array)).sum()):
        raise UserError(f"{wrong} of {array.size} numbers in `{name}` are not finite", hint="Remove them first.")
    return array


def weights(weight: ArrayLike | None, n: int) -> Floats:
    """Check sample weights (n,): not negative, and not all zero (default: all 1)."""
    array = np.ones(n) if weight is None else finite_floats("weight", weight, (n,))
    if array.min() < 0 or array.sum() == 0:
        found = f"but range from {array.min():g} to {array.max():g}"
        raise UserError(f"weights must be at least 0 and not all 0, {found}")
    return array


def classes(probabilities: ArrayLike, label: ArrayLike) -> tuple[Floats, Integers]:
    """Check probabilities (n, C >= 2) with row sums 1, and labels (n,) in 0 .. C - 1."""
    p = floats("probabilities", probabilities)
    if p.ndim != 2 or p.shape[1] < 2:
        raise UserError(
            f"`probabilities` must have the shape (n, C) with two classes or more, not {p.shape}",
            hint="If p is the probability of class 1, use np.stack([1 - p, p], axis=1)." if p.size == len(p) else "",
        )
    finite = p[np.isfinite(p).all(axis=1)]
    sums = finite.sum(axis=1)
    if (np.abs(finite - 0.5) > 0.5 + MAX_ROUNDING_ERROR).any() or (np.abs(sums - 1) > MAX_ROUNDING_ERROR).any():
        raise UserError(
            f"probabilities must be from 0 to 1 and sum to 1 for each sample, but they are from {finite.min():.3g} to "
            f"{finite.max():.3g}, with sums from {sums.min():.3g} to {sums.max():.3g}",
            hint="If they are logits, apply a softmax first.",
        )
    found: NDArray[Any] = np.asarray(label)
    if found.dtype.kind not in "iub" or found.shape != p.shape[:1]:
        raise UserError(f"`label` must be {len(p)} integers, not {found.dtype} of shape {found.shape}")
    found = found.astype(np.int64)
    if found.min() < 0 or found.max() >= p.shape[1]:
        wanted = f"from 0 to {p.shape[1] - 1}"
        raise UserError(f"labels must be {wanted}, but they are from {found.min()} to {found.max()}")
    return p, found


def numbers(*outputs: Floats) -> bool:
    """Whether all values of the model outputs are finite."""
    return all(bool(np.isfinite(output).all()) for output in outputs)


def demand_numbers(what: str, output: Floats) -> None:
    """Refuse non-finite model outputs, for results that cannot be nan.

    what   name of the result in the error, such as "the ROC curve"
    """
    if not numbers(output):
        wrong = int((~np.isfinite(output)).sum())
        message = f"{what} cannot be computed, because {wrong} numbers in the model output are NaN or infinite"
        raise UserError(message, hint="The model may have diverged: check its loss.")
