"""How well a series is recovered from its noise. Sums come per sample, so that a long one counts by its points."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import NAN, Floats, finite_floats, floats, numbers
from .base import metric


@metric("lower", ("residual", "count"), "root of the mean square of what is left of the noise")
def scatter(residual: ArrayLike, count: ArrayLike) -> float:
    """√(Σ residual / Σ count), where `residual` (n,) sums (found − true)² over the `count` (n,) points of a sample."""
    squares, counts = _sums(residual, count)
    return float(np.sqrt(squares.sum() / counts.sum())) if numbers(squares) and counts.sum() > 0 else NAN


@metric("lower", ("residual", "noise"), "scatter that is left, over that of the data")
def noise_left(residual: ArrayLike, noise: ArrayLike) -> float:
    """√(Σ residual / Σ noise): the scatter that is left over that of the data; 1 is no better than the data.

    noise   (n,) sums (data − true)² over the points of a sample; nan where there is none
    """
    squares, before = _sums(residual, noise)
    return float(np.sqrt(squares.sum() / before.sum())) if numbers(squares) and before.sum() > 0 else NAN


@metric(
    "higher", ("inner", "power", "true_power"), "normalised product of the found and the true series, mean of samples"
)
def overlap(inner: ArrayLike, power: ArrayLike, true_power: ArrayLike) -> float:
    """Mean over samples of <found, true> / √(<found, found> <true, true>), each a sum over points; 1 is perfect.

    Samples whose true series is zero everywhere do not count, for they have no form; nan where none is left. One that
    is found to be zero everywhere has 0.
    """
    product = floats("inner", inner)
    own, truth = floats("power", power, product.shape), finite_floats("true_power", true_power, product.shape)
    if not numbers(product) or not numbers(own) or not (truth > 0).any():
        return NAN
    scale = np.sqrt(own * truth)
    each = np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0)
    return float(each[truth > 0].mean())


def _sums(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    sums = floats("residual", first)
    return sums, finite_floats("count or noise", second, sums.shape)
