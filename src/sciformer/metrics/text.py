"""How well tokens are foretold. Sums come per document, so that a long one counts by its tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .arrays import NAN, Floats, finite_floats, floats, numbers
from .base import metric


@metric("lower", ("loss", "count"), "exp of the mean loss of a token")
def perplexity(loss: ArrayLike, count: ArrayLike) -> float:
    """exp(Σ loss / Σ count), where `loss` (n,) sums −log p in nats over the `count` (n,) tokens of each sample.

    nan where no token was counted; infinity where the exponential is beyond a float.
    """
    losses, counts = _sums("loss", loss, count)
    if not numbers(losses) or counts.sum() == 0:
        return NAN
    with np.errstate(over="ignore"):
        return float(np.exp(losses.sum() / counts.sum()))


@metric("higher", ("correct", "count"), "share of tokens that are right")
def token_accuracy(correct: ArrayLike, count: ArrayLike) -> float:
    """Σ correct / Σ count: the share of tokens whose most probable value is right; nan where none was counted."""
    rights, counts = _sums("correct", correct, count)
    if (rights < 0).any() or (rights > counts).any():
        raise UserError(
            "`correct` must be in 0 .. `count`, but a sample has more than its count or less than 0",
            hint="Are they sums over tokens?",
        )
    return float(rights.sum() / counts.sum()) if numbers(rights) and counts.sum() > 0 else NAN


def _sums(name: str, values: ArrayLike, count: ArrayLike) -> tuple[Floats, Floats]:
    sums = floats(name, values)
    counts = finite_floats("count", count, sums.shape)
    if counts.min() < 0:
        raise UserError(f"`count` must be zero or more, not {counts.min():g}")
    return sums, counts
