"""Background rejection at fixed signal efficiency; sculpting of spectra.

The discriminant of signal S and background B is s = p_S / (p_S + p_B). Cuts are made on ln(p_S / p_B), which orders the
samples in the same way but does not round to 1 for very confident models.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...metrics.arrays import NAN, Floats, Integers, classes, demand_numbers, numbers
from ...metrics.classification import Roc, _roc

SPECTRUM_BINS = 40  # bins of a spectrum
TAIL_SHARE = 0.005  # share of samples below and above the range of the bins
MIN_SPECTRUM_SAMPLES = 50  # smallest number of samples of a spectrum
CHANCE_DRAWS = 20  # random selections for the divergence expected by chance


class Rejection(NamedTuple):
    """Background rejection 1 / e_B at a fixed signal efficiency."""

    value: float  # 1 / e_B; for a bound, the value with one background sample above the cut
    bound: bool  # no background sample passes: the value is a lower bound
    error: float  # standard error from the number of background samples above the cut; nan for a bound
    efficiency: float  # signal efficiency of the cut
    odds: float  # cut on ln(p_S / p_B)
    left: int  # background samples above the cut

    @property
    def cut(self) -> float:
        """Cut on the discriminant p_S / (p_S + p_B)."""
        return float(1 / (1 + np.exp(-np.clip(self.odds, -700, 700))))

    def __str__(self) -> str:
        if self.bound:
            return f"≥ {self.value:.4g}"
        if not np.isfinite(self.error):
            return "–"
        places = max(0, 1 - int(np.floor(np.log10(max(self.error, 1e-8)))))
        return f"{self.value:.{places}f} ± {self.error:.{places}f}"


class Sculpting(NamedTuple):
    """Background spectrum before and after a cut, as shares of the samples per bin."""

    edges: Floats  # (bins + 1,)
    before: Floats  # (bins,) all samples
    after: Floats  # (bins,) samples that pass the cut
    divergence: float  # Jensen-Shannon, in bits: 0 for equal spectra, 1 for spectra apart
    chance: float  # mean divergence of equally many random samples
    passed: int  # samples that pass


def rejection(
    probabilities: Floats, label: Integers, signal: int = 1, background: int = 0, efficiency: float = 0.5
) -> Rejection:
    """Background rejection 1 / e_B at a signal efficiency of at least `efficiency`.

    The cut on p_S / (p_S + p_B) is the highest cut with this efficiency. If no background sample is above the cut,
    `value` is a lower bound: the rejection with one background sample above the cut. Samples of other classes are
    ignored. All values are nan if a probability is nan or a class has no samples.
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
    """ROC curve of signal against background for cuts on p_S / (p_S + p_B)."""
    demand_numbers("the ROC curve", probabilities)
    found = _signal_and_background(probabilities, label, signal, background)
    if found is None:
        raise UserError(f"the signal (class {signal}) or the background (class {background}) has no samples")
    score, positive = found
    return _roc(score, positive, np.ones(len(score)))


def sculpting(values: Floats, passes: NDArray[np.bool_]) -> Sculpting:
    """Jensen-Shannon divergence of a spectrum before (p) and after (q) a cut.

        D = ½ Σ p log₂(p / m) + ½ Σ q log₂(q / m),   m = (p + q) / 2

    values   (n,) values of the column for all background samples
    passes   (n,) mask of the samples that pass the cut

    Bins have equal widths between the quantiles 0.5 % and 99.5 %; samples outside count in the outermost bins. Even a
    random selection of samples has a divergence above 0. `chance` is the mean divergence of random selections with as
    many samples as pass the cut. Divergence and `chance` are nan if no sample passes.
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
    """Log odds and signal flags of the samples of both classes.

    None if a probability is nan or a class has no samples.
    """
    p, truth = classes(probabilities, label)
    if not numbers(p) or not {signal, background} <= set(np.unique(truth).tolist()):
        return None
    mine = (truth == signal) | (truth == background)
    return log_odds(p[mine], signal, background), truth[mine] == signal


def log_odds(p: Floats, signal: int, background: int) -> Floats:
    """Log odds ln(p_S / p_B) (n,); 0 if both probabilities are zero."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.clip(p[:, [signal, background]], 0, None))
    logs[np.isneginf(logs).all(axis=1)] = 0
    return logs[:, 0] - logs[:, 1]
