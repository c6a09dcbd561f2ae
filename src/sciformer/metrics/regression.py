"""Regression metrics: errors of values, and quality of predicted deviations.

`mean`, `std` and `target` have the same shape, (n,) or (n, F); averages are over all entries.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, finite_floats, floats, numbers, weights
from .base import NUMBERS, SPREADS, metric


@metric("lower", NUMBERS, "root mean squared error")
def rmse(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Root mean squared error √(Σ w (mean − target)² / Σ w), with weights w (n,)."""
    error, w = _errors(mean, target, weight)
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.average(error**2, weights=w)))


@metric("lower", NUMBERS, "mean absolute error")
def mae(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean absolute error Σ w |mean − target| / Σ w, with weights w (n,)."""
    error, w = _errors(mean, target, weight)
    return float(np.average(np.abs(error), weights=w))


@metric("neither", ("low_68", "high_68", "target"), "share of targets inside the predicted 68 % interval")
def coverage_68(low_68: ArrayLike, high_68: ArrayLike, target: ArrayLike) -> float:
    """Coverage of the 68 % interval: P(low ≤ target ≤ high)."""
    return _inside(low_68, high_68, target)


@metric("neither", ("low_95", "high_95", "target"), "share of targets inside the predicted 95 % interval")
def coverage_95(low_95: ArrayLike, high_95: ArrayLike, target: ArrayLike) -> float:
    """Coverage of the 95 % interval: P(low ≤ target ≤ high)."""
    return _inside(low_95, high_95, target)


@metric("lower", SPREADS, "mean distance of the predicted quantiles from calibrated quantiles")
def quantile_error(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """Quantile calibration error: ∫₀¹ |P(target ≤ Q_q) − q| dq.

    Q_q is the q-quantile of the Gaussian (mean, std) predicted for a sample. If the model is calibrated, a share q of
    the targets is below Q_q, for every q. The integral is exact, without bins. 0 is perfect; with n samples, the error
    of a calibrated model is about 0.3 / √n. An error of ¼ means that the deviations are much too small or too large; ½
    means that all targets are well above or well below the predictions.
    """
    z, _ = _scores(mean, std, target)
    if np.isnan(z).any():
        return NAN
    u = np.sort([0.5 * math.erfc(-value / math.sqrt(2)) for value in z.ravel()])  # Φ(z), uniform if calibrated
    steps = np.arange(len(u) + 1) / len(u)
    ahead, behind = steps[1:] - u, steps[:-1] - u  # ∫ |q − u| dq = ½ (q − u) |q − u|
    return float(np.sum(ahead * np.abs(ahead) - behind * np.abs(behind)) / 2)


@metric("lower", SPREADS, "negative log-likelihood of Gaussians, in nats per value")
def negative_log_likelihood(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> float:
    """Mean of ½ ((target − mean) / std)² + log std + ½ log 2π, in nats."""
    z, spread = _scores(mean, std, target)
    with np.errstate(over="ignore"):
        return float(np.mean(z**2 / 2 + np.log(spread)) + math.log(2 * math.pi) / 2)


def _inside(low: ArrayLike, high: ArrayLike, target: ArrayLike) -> float:
    below = floats("low", low)
    above, truth = floats("high", high, below.shape), finite_floats("target", target, below.shape)
    return float(np.mean((below <= truth) & (truth <= above))) if numbers(below) and numbers(above) else NAN


def _errors(mean: ArrayLike, target: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats]:
    """Differences mean − target, and the weight of each difference."""
    predicted = floats("mean", mean)
    error = predicted - finite_floats("target", target, predicted.shape)
    w = weights(weight, len(error)).reshape(-1, *[1] * (error.ndim - 1))
    return (error if numbers(error) else np.full_like(error, NAN)), np.broadcast_to(w, error.shape)


def _scores(mean: ArrayLike, std: ArrayLike, target: ArrayLike) -> tuple[Floats, Floats]:
    """Standard scores z = (target − mean) / std (nan for non-finite outputs), and std."""
    predicted = floats("mean", mean)
    spread = floats("std", std, predicted.shape)
    truth = finite_floats("target", target, predicted.shape)
    if (spread <= 0).any():
        message = f"standard deviations in `std` must be above 0, not {np.nanmin(spread):g}"
        raise UserError(message, hint="Add a small constant to the deviations of the model.")
    finite = np.isfinite(predicted) & np.isfinite(spread)
    with np.errstate(over="ignore"):
        return np.divide(truth - predicted, spread, out=np.full_like(truth, NAN), where=finite), spread


# Denoised series: the inputs are sums per sample, so that each point counts equally


@metric("lower", ("residual", "count"), "root mean square of the residuals")
def scatter(residual: ArrayLike, count: ArrayLike) -> float:
    """Root mean square of the residuals: √(Σ residual / Σ count).

    residual   (n,) sum of (found − true)² over the points of each sample
    count      (n,) number of points of each sample
    """
    return _root_of_ratio(residual, count)


@metric("lower", ("residual", "noise"), "scatter of the residuals divided by the scatter of the data")
def noise_left(residual: ArrayLike, noise: ArrayLike) -> float:
    """Residual scatter relative to the scatter of the data: √(Σ residual / Σ noise).

    1 means no improvement on the data; nan if there is no noise.

    residual   (n,) sum of (found − true)² over the points of each sample
    noise      (n,) sum of (data − true)² over the points of each sample
    """
    return _root_of_ratio(residual, noise)


@metric("higher", ("inner", "power", "true_power"), "mean normalised inner product of the found and the true series")
def overlap(inner: ArrayLike, power: ArrayLike, true_power: ArrayLike) -> float:
    """Mean of <found, true> / √(<found, found> <true, true>); 1 is perfect.

    Each product <a, b> is a sum over the points of a sample. Samples with a true series of only zeros are excluded; nan
    if no sample remains. A sample with a found series of only zeros counts as 0.

    inner        (n,) products <found, true>
    power        (n,) products <found, found>
    true_power   (n,) products <true, true>
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
