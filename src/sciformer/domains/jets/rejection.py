"""How much of a background is left where a share of a signal is kept, and what that does to a column of the data.

Two classes of many are told apart by s = p_S / (p_S + p_B). The score used here is ln(p_S / p_B): it has the same
order, and does not round to one where a model is very sure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...metrics.arrays import NAN, Floats, Integers, classes, demand_numbers, numbers
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
    probabilities: Floats, label: Integers, signal: int = 1, background: int = 0, efficiency: float = 0.5
) -> Rejection:
    """1 / e_B for the highest cut on p_S / (p_S + p_B) that keeps the share `efficiency` of the signal, or more.

    Where no background passes that cut there is only a bound: the value is then that of one sample of it, and `bound`
    is True. Samples of other classes do not count. nan where the probabilities are not numbers, or one of both classes
    does not occur.
    """
    found = _signal_and_background(probabilities, label, signal, background)
    if found is None:
        return Rejection(NAN, False, NAN, NAN, NAN, 0)
    score, positive = found
    kept = np.sort(score[positive])[::-1]
    place = int(np.ceil(efficiency * len(kept) * (1 - 1e-12))) - 1
    cut = float(kept[place])
    passes = score >= cut
    reached = float(passes[positive].mean())
    against, left = int((~positive).sum()), int((passes & ~positive).sum())
    if not left:
        return Rejection(float(against), True, NAN, reached, cut, 0)
    value = against / left
    return Rejection(value, False, value / np.sqrt(left), reached, cut, left)


def tradeoff(probabilities: Floats, label: Integers, signal: int = 1, background: int = 0) -> Roc:
    """The share of the background and of the signal that pass each cut on p_S / (p_S + p_B)."""
    demand_numbers("a ROC curve", probabilities)
    found = _signal_and_background(probabilities, label, signal, background)
    if found is None:
        raise UserError(f"class {signal} (signal) or class {background} (background) has no samples")
    score, positive = found
    return _roc(score, positive, np.ones(len(score)))


def sculpting(values: Floats, passes: NDArray[np.bool_]) -> Sculpting:
    """How a cut changes the spectrum of a column, such as a mass: Jensen-Shannon divergence of p before and q after.

        D = ½ Σ p log₂(p / m) + ½ Σ q log₂(q / m),   m = (p + q) / 2

    values   (n,) of the background samples, before the cut
    passes   (n,) which of them pass

    Bins have equal widths from one end of the spectrum to the other, but for half a per cent of the samples at either
    end, which are counted in the outermost bins. A few samples never have the spectrum of many: `chance` is the
    mean divergence of as many that are chosen at random. nan where none pass.
    """
    low, high = np.quantile(values, [TAIL_SHARE, 1 - TAIL_SHARE])
    if not high > low:
        low, high = values.min() - 0.5, values.max() + 0.5
    edges = np.linspace(low, high, SPECTRUM_BINS + 1)
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, SPECTRUM_BINS - 1)
    before, after, count = _bin_shares(place), _bin_shares(place[passes]), int(passes.sum())
    if not count:
        return Sculpting(edges, before, after, NAN, NAN, count)
    rng = np.random.default_rng(0)
    drawn = [rng.choice(len(values), count, replace=False) for _ in range(CHANCE_DRAWS)]
    chance = np.mean([_jensen_shannon(before, _bin_shares(place[rows])) for rows in drawn])
    return Sculpting(edges, before, after, _jensen_shannon(before, after), float(chance), count)


def _bin_shares(place: NDArray[np.int64]) -> Floats:
    return np.bincount(place, minlength=SPECTRUM_BINS) / max(1, len(place))


def _jensen_shannon(p: Floats, q: Floats) -> float:
    middle = (p + q) / 2
    parts = [one[one > 0] @ np.log2(one[one > 0] / middle[one > 0]) for one in (p, q)]
    return max(0.0, float(sum(parts) / 2))


def _signal_and_background(
    probabilities: Floats, label: Integers, signal: int, background: int
) -> tuple[Floats, NDArray[np.bool_]] | None:
    """Score of the samples of two classes, and whether they are of the signal; None where there is nothing to cut."""
    p, truth = classes(probabilities, label)
    if not numbers(p) or not {signal, background} <= set(np.unique(truth).tolist()):
        return None
    mine = (truth == signal) | (truth == background)
    return log_odds(p[mine], signal, background), truth[mine] == signal


def log_odds(p: Floats, signal: int, background: int) -> Floats:
    """ln(p_S / p_B) (n,); 0 where both are zero, for then nothing is known."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.clip(p[:, [signal, background]], 0, None))
    both = np.isneginf(logs).all(axis=1)
    logs[both] = 0
    return logs[:, 0] - logs[:, 1]
