"""How far predicted numbers are from the true ones, and whether predicted spreads are true.

`mean`, `std` and `target` have one shape, (n,) or (n, F); the means go over all entries.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, finite_floats, floats, numbers, weights
from .base import NUMBERS, SPREADS, metric


@metric("lower", NUMBERS, "root of the mean squared error")
def rmse(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """√(Σ w (mean − target)² / Σ w); weights (n,) are those of samples."""
    error, w = _errors(mean, target, weight)
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.average(error**2, weights=w)))


@metric("lower", NUMBERS, "mean absolute error")
def mae(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Σ w |mean − target| / Σ w; weights (n,) are those of samples."""
    error, w = _errors(mean, target, weight)
    return float(np.average(np.abs(error), weights=w))


@metric("neither", ("low_68", "high_68", "target"), "share of targets where 68 % of them should be")
def coverage_68(low_68: ArrayLike, high_68: ArrayLike, target: ArrayLike) -> float:
    """P(low ≤ target ≤ high): the share of targets in the interval in which 68 % of them should be."""
    return _inside(low_68, high_68, target)


@metric("neither", ("low_95", "high_95", "target"), "share of targets where 95 % of them should be")
def coverage_95(low_95: ArrayLike, high_95: ArrayLike, target: ArrayLike) -> float:
    """P(low ≤ target ≤ high): the share of targets in the interval in which 95 % of them should be."""
    return _inside(low_95, high_95, target)


@metric("lower", SPREADS, "how far the predicted quantiles are from the true ones")
def quantile_error(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """∫₀¹ |P(target ≤ Q_q) − q| dq, where Q_q is the q-quantile of the Gaussian (mean, std) predicted for a sample.

    Of a calibrated model, a share q of the targets lies below its q-quantile, for every q; this is the mean distance
    from that, computed exactly and without bins. 0 is perfect, ¼ means spreads far too small or far too large, ½ means
    that all targets lie far on one side. n perfect samples have about 0.3 / √n.
    """
    z, _ = _scores(mean, std, target)
    if np.isnan(z).any():
        return NAN
    u = np.sort([0.5 * math.erfc(-value / math.sqrt(2)) for value in z.ravel()])  # Φ(z), uniform if calibrated
    steps = np.arange(len(u) + 1) / len(u)
    ahead, behind = steps[1:] - u, steps[:-1] - u  # ∫ |q − u| dq = ½ (q − u) |q − u|
    return float(np.sum(ahead * np.abs(ahead) - behind * np.abs(behind)) / 2)


@metric("lower", SPREADS, "of Gaussians, in nats per number")
def negative_log_likelihood(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """Mean of ½ ((target − mean) / std)² + log std + ½ log 2π, in nats per number; it may be negative."""
    z, spread = _scores(mean, std, target)
    with np.errstate(over="ignore"):
        return float(np.mean(z**2 / 2 + np.log(spread)) + math.log(2 * math.pi) / 2)


def _inside(low: ArrayLike, high: ArrayLike, target: ArrayLike) -> float:
    below = floats("low", low)
    above, truth = floats("high", high, below.shape), finite_floats("target", target, below.shape)
    return float(np.mean((below <= truth) & (truth <= above))) if numbers(below) and numbers(above) else NAN


def _errors(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats]:
    """mean − target and the weight of each entry."""
    predicted = floats("mean", mean)
    error = predicted - finite_floats("target", target, predicted.shape)
    w = weights(weight, len(error)).reshape(-1, *[1] * (error.ndim - 1))
    return (error if numbers(error) else np.full_like(error, NAN)), np.broadcast_to(w, error.shape)


def _scores(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> tuple[Floats, Floats]:
    """z = (target − mean) / std, and std; nan where an output is not finite."""
    predicted = floats("mean", mean)
    spread = floats("std", std, predicted.shape)
    truth = finite_floats("target", target, predicted.shape)
    if (spread <= 0).any():
        raise UserError(
            f"standard deviations in `std` must be above zero, not {np.nanmin(spread):g}",
            hint="Give the model's spread a floor.",
        )
    finite = np.isfinite(predicted) & np.isfinite(spread)
    with np.errstate(over="ignore"):
        return np.divide(truth - predicted, spread, out=np.full_like(truth, NAN), where=finite), spread


# Series recovered from their noise: sums come per sample, so that a long one counts by its points


@metric("lower", ("residual", "count"), "root of the mean square of what is left of the noise")
def scatter(residual: ArrayLike, count: ArrayLike) -> float:
    """√(Σ residual / Σ count), where `residual` (n,) sums (found − true)² over the `count` (n,) points of a sample."""
    return _root_of_ratio(residual, count)


@metric("lower", ("residual", "noise"), "scatter that is left, over that of the data")
def noise_left(residual: ArrayLike, noise: ArrayLike) -> float:
    """√(Σ residual / Σ noise): the scatter that is left over that of the data; 1 is no better than the data.

    noise   (n,) sums (data − true)² over the points of a sample; nan where there is none
    """
    return _root_of_ratio(residual, noise)


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


def _root_of_ratio(residual: ArrayLike, other: ArrayLike) -> float:
    squares = floats("residual", residual)
    total = finite_floats("count or noise", other, squares.shape).sum()
    return float(np.sqrt(squares.sum() / total)) if numbers(squares) and total > 0 else NAN
