"""Error of the mean of Markov chains, from their autocorrelation time."""

from __future__ import annotations

from typing import Any

import numpy as np

WINDOW = 5.0  # the sum over lags ends at this multiple of the autocorrelation time (Sokal)


def autocorrelation_time(series: Any) -> float:
    """Integrated autocorrelation time tau = 1/2 + sum_t rho(t) of chains (C, T); 1/2 for independent values.

    rho is averaged over the chains. The sum ends at the first lag t >= 5 tau (Sokal 1997).
    """
    values = np.asarray(series, np.float64)
    values = values - values.mean()
    count = values.shape[1]
    variance = float((values**2).mean())
    if variance == 0 or count < 2:
        return 0.5
    tau = 0.5
    for lag in range(1, count):
        tau += float((values[:, lag:] * values[:, : count - lag]).mean()) / variance
        if lag >= WINDOW * tau:
            break
    return max(0.5, tau)


def mean_error(series: Any) -> float:
    """Standard error of the mean of chains (C, T): sqrt(2 tau variance / (C T))."""
    values = np.asarray(series, np.float64)
    return float(np.sqrt(2 * autocorrelation_time(values) * values.var() / values.size))
