"""How much of a background is left where a share of a signal is kept, and what that does to a column of the data.

Two classes of many are told apart by s = p_S / (p_S + p_B). The score used here is ln(p_S / p_B): it has the same
order, and does not round to one where a model is very sure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UserError
from ...metrics.arrays import NAN, Floats, classes, demand_numbers, finite_floats, numbers, weights
from ...metrics.classification import Roc, _roc

SPECTRUM_BINS = 40  # of a spectrum
TAIL_SHARE = 0.005  # share of the samples at either end of a spectrum that its outermost bins take in
CHANCE_DRAWS = 20  # random choices that tell how much of a divergence is chance


class Rejection(NamedTuple):
    """1 / e_B at a cut that keeps at least the wanted share of the signal."""

    value: float  # 1 / e_B; where no background is left, what one sample of it would give
    bound: bool  # whether none is left, so that the value is a lower bound
    error: float  # standard error of the value, from the number of background samples above the cut; nan for a bound
    efficiency: float  # share of the signal that is kept, at least what was asked for
    odds: float  # least ln(p_S / p_B) that passes
    left: int  # background samples above the cut

    @property
    def cut(self) -> float:
        """The least p_S / (p_S + p_B) that passes."""
        return float(1 / (1 + np.exp(-np.clip(self.odds, -700, 700))))

    def __str__(self) -> str:
        if self.bound:
            return f"≥ {self.value:.4g}"
        if not np.isfinite(self.error):
            return "–"
        places = max(0, 1 - int(np.floor(np.log10(max(self.error, 1e-8)))))
        return f"{self.value:.{places}f} ± {self.error:.{places}f}"


class Sculpting(NamedTuple):
    """A spectrum of the background before and after a cut, in shares of bins."""

    edges: Floats  # (bins + 1,)
    before: Floats  # (bins,) of all samples
    after: Floats  # (bins,) of those that pass
    divergence: float  # Jensen-Shannon, in bits: 0 for equal spectra, 1 for spectra apart
    chance: float  # the same for as many samples chosen at random
    passed: int  # samples that pass


def rejection(
    probabilities: ArrayLike,
    label: ArrayLike,
    signal: int = 1,
    background: int = 0,
    efficiency: float = 0.5,
    weight: ArrayLike | None = None,
) -> Rejection:
    """1 / e_B for the highest cut on p_S / (p_S + p_B) that keeps the share `efficiency` of the signal, or more.

    Where no background passes that cut there is only a bound: the value is then that of one sample of it (the heaviest,
    if they have weights), and `bound` is True. Samples of other classes do not count. nan where the probabilities are
    not numbers, or one of both classes does not occur.
    """
    if not 0 < efficiency <= 1:
        raise UserError(
            f"`efficiency`, a share of the signal, must be above 0 and up to 1, not {efficiency:g}", hint="50 % is 0.5."
        )
    found = _signal_and_background(probabilities, label, signal, background, weight)
    if found is None:
        return Rejection(NAN, False, NAN, NAN, NAN, 0)
    score, positive, w = found
    order = np.argsort(-score[positive], kind="stable")
    kept = np.cumsum(w[positive][order])
    total = kept[-1]
    place = int(np.searchsorted(kept, efficiency * total * (1 - 1e-12)))
    cut = float(score[positive][order][min(place, len(order) - 1)])
    passes = score >= cut
    reached = float(w[positive & passes].sum() / total)
    against = w[~positive]
    left = against[passes[~positive]]
    if not len(left):
        return Rejection(float(against.sum() / against.max()), True, NAN, reached, cut, 0)
    value = float(against.sum() / left.sum())
    spread = float(np.sqrt((left**2).sum()) / left.sum())  # of the sum of the weights above the cut
    return Rejection(value, False, value * spread, reached, cut, len(left))


def tradeoff(
    probabilities: ArrayLike,
    label: ArrayLike,
    signal: int = 1,
    background: int = 0,
    weight: ArrayLike | None = None,
) -> Roc:
    """The share of the background and of the signal that pass each cut on p_S / (p_S + p_B)."""
    p, _ = classes(probabilities, label)
    demand_numbers("a ROC curve", p)
    found = _signal_and_background(probabilities, label, signal, background, weight)
    if found is None:
        raise UserError(f"class {signal} (signal) or class {background} (background) has no samples")
    return _roc(*found)


def sculpting(
    values: ArrayLike, passes: ArrayLike, weight: ArrayLike | None = None, bins: int = SPECTRUM_BINS, seed: int = 0
) -> Sculpting:
    """How a cut changes the spectrum of a column, such as a mass: Jensen-Shannon divergence of p before and q after.

        D = ½ Σ p log₂(p / m) + ½ Σ q log₂(q / m),   m = (p + q) / 2

    values   (n,) of the background samples, before the cut
    passes   (n,) which of them pass

    Bins have equal widths from one end of the spectrum to the other, but for half a per cent of the samples at either
    end, which are counted in the outermost bins. A few samples never have the spectrum of many: `chance` is the
    mean divergence of as many that are chosen at random. nan where none pass.
    """
    x = finite_floats("values", values)
    chosen: NDArray[np.bool_] = np.asarray(passes)
    if x.ndim != 1 or chosen.shape != x.shape or chosen.dtype != np.bool_:
        raise UserError(f"`passes` must be {x.size} booleans, not {chosen.dtype} of shape {chosen.shape}")
    if bins < 2:
        raise UserError(f"`bins` must be 2 or more, not {bins}")
    w = weights(weight, len(x))
    low, high = np.quantile(x, [TAIL_SHARE, 1 - TAIL_SHARE])
    if not high > low:
        low, high = x.min() - 0.5, x.max() + 0.5
    edges = np.linspace(low, high, bins + 1)
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, bins - 1)
    before = _bin_shares(place, w, bins)
    after, count = _bin_shares(place, w * chosen, bins), int(chosen.sum())
    if not (w * chosen).sum() > 0:
        return Sculpting(edges, before, after, NAN, NAN, count)
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(len(x), count, replace=False) for _ in range(CHANCE_DRAWS)]
    chance = np.mean([_jensen_shannon(before, _bin_shares(place[rows], w[rows], bins)) for rows in drawn])
    return Sculpting(edges, before, after, _jensen_shannon(before, after), float(chance), count)


def _bin_shares(place: NDArray[np.int64], weight: Floats, bins: int) -> Floats:
    counts = np.bincount(place, weights=weight, minlength=bins)
    return counts / counts.sum() if counts.sum() > 0 else np.zeros(bins)


def _jensen_shannon(p: Floats, q: Floats) -> float:
    middle = (p + q) / 2
    parts = [one[one > 0] @ np.log2(one[one > 0] / middle[one > 0]) for one in (p, q)]
    return max(0.0, float(sum(parts) / 2))


def _signal_and_background(
    probabilities: ArrayLike, label: ArrayLike, signal: int, background: int, weight: ArrayLike | None
) -> tuple[Floats, NDArray[np.bool_], Floats] | None:
    """Score, whether it is the signal, and weight of the samples of two classes; None where there is nothing to cut."""
    p, truth = classes(probabilities, label)
    for name, c in (("signal", signal), ("background", background)):
        if not 0 <= c < p.shape[1]:
            raise UserError(f"`{name}` must be the number of a class, 0 to {p.shape[1] - 1}, not {c}")
    if signal == background:
        raise UserError(f"`signal` and `background` must be two different classes, but both are {signal}")
    w = weights(weight, len(p))
    if not numbers(p):
        return None
    mine = ((truth == signal) | (truth == background)) & (w > 0)
    p, truth, w = p[mine], truth[mine], w[mine]
    if not (truth == signal).any() or not (truth == background).any():
        return None
    return log_odds(p, signal, background), truth == signal, w


def log_odds(p: Floats, signal: int, background: int) -> Floats:
    """ln(p_S / p_B) (n,); 0 where both are zero, for then nothing is known."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.clip(p[:, [signal, background]], 0, None))
    both = np.isneginf(logs).all(axis=1)
    logs[both] = 0
    return logs[:, 0] - logs[:, 1]
