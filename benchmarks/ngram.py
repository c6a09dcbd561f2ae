"""N-gram baseline with interpolated, modified Kneser-Ney smoothing.

    model = NGram(order=5, size=tokens.size).fit([ids])
    model.log_probabilities(other)        ln p of every token, given up to four tokens before it
    evaluate(recipe, order=5)             loss and perplexity on the tokens and the data of a recipe

The probability of a word w after a history h (Chen and Goodman 1999):

    p(w | h) = (c(h w) - D(c(h w))) / c(h) + g(h) p(w | h'),     g(h) = sum over w of D(c(h w)) / c(h)

h' is h without its first word. For the longest n-grams, c counts occurrences. For shorter n-grams, it counts the
different words before them (Kneser and Ney 1995). D is one of three discounts, for counts of one, two and more; the
last distribution is uniform. Probabilities therefore sum to one over all words, after any history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sciformer.data.dataset import Dataset
from sciformer.errors import UserError, one_of

if TYPE_CHECKING:
    from sciformer.recipe import Recipe
    from sciformer.run import Run

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
FALLBACK = (0.0, 0.5, 1.0, 1.5)  # discounts where there are too few counts to estimate them (as KenLM has them)


class Level(NamedTuple):
    """All n-grams of one length; the number of an n-gram is its index in `keys`.

    keys     (n,) sorted: number of the n-gram's first words among the shorter n-grams, times the size, plus its last
    mass     (n + 1,) share of the n-gram in the probability of its history: (c - D(c)) / c(h)
    rest     (number of histories + 1,) share left for shorter n-grams: g(h), 1 if nothing was seen after h

    The last entry of both, number -1, is for unseen n-grams.
    """

    keys: Integers
    mass: Floats
    rest: Floats


class NGram:
    """Probabilities from counts of up to `order` tokens in a row.

    size   number of different ids
    """

    def __init__(self, order: int = 5, size: int = 0) -> None:
        if order < 1 or size < 1:
            raise UserError(f"order and size of the vocabulary must be 1 or more, not {order} and {size}")
        self.order, self.size = order, size
        self.levels: list[Level] = []

    def fit(self, texts: Iterable[Any]) -> Self:
        """Count the n-grams of texts (ids); no n-gram spans two texts."""
        parts = [np.asarray(ids, np.int64).reshape(-1) for ids in texts]
        ids, place = _end_to_end(parts)
        self._check(ids)
        if not len(ids):
            raise UserError("there are no tokens to count")
        here, keys, shorter = ids, [np.arange(self.size)], []
        for length in range(2, self.order + 1):
            ends = np.flatnonzero(place >= length - 1)  # where an n-gram of that length ends
            found, first, which = np.unique(
                here[ends - 1] * self.size + ids[ends], return_index=True, return_inverse=True
            )
            shorter.append(here[ends[first]])  # the same n-gram without its first word
            keys.append(found)
            here = np.full(len(ids), -1)
            here[ends] = which
        often = np.bincount(here[here >= 0], minlength=len(keys[-1]))
        counts = [np.bincount(number, minlength=len(keys[i])) for i, number in enumerate(shorter)] + [often]
        histories = [1, *(len(found) for found in keys[:-1])]
        self.levels = [self._level(*level) for level in zip(keys, counts, histories)]
        return self

    def _level(self, keys: Integers, counts: Integers, histories: int) -> Level:
        # A word alone has the empty history, the number of which is 0.
        history = np.zeros(len(keys), np.int64) if histories == 1 else keys // self.size
        cut = discounts(counts)[np.minimum(counts, 3)]
        total = np.bincount(history, counts, histories)
        seen = np.maximum(total, 1)
        rest = np.where(total > 0, np.bincount(history, cut, histories) / seen, 1.0)
        return Level(keys, np.append((counts - cut) / seen[history], 0.0), np.append(rest, 1.0))

    def log_probabilities(self, ids: Any, start: int = 0) -> Floats:
        """ln p (n - start,) of the tokens from `start` on, given the tokens before."""
        ids = np.asarray(ids, np.int64).reshape(-1)
        self._check(ids)
        first = self._fitted[0]
        here: Integers = ids  # the number of the n-gram that ends at each place, -1 where it was never seen
        p = first.mass[ids] + first.rest[0] / self.size
        for level in self._fitted[1:]:
            history = np.concatenate([[-1], here[:-1]])
            here = np.where(history >= 0, _find(level.keys, history * self.size + ids), -1)
            p = level.rest[history] * p + level.mass[here]
        return np.asarray(np.log(p[start:]))

    def probabilities(self, history: Any) -> Floats:
        """p (size,) of every token after a history."""
        ids = np.asarray(history, np.int64).reshape(-1)[max(0, len(history) - self.order + 1) :]
        self._check(ids)
        first = self._fitted[0]
        p = first.mass[:-1] + first.rest[0] / self.size
        for length, level in enumerate(self._fitted[1:], 1):
            number = self._number(ids[len(ids) - length :]) if length <= len(ids) else -1
            if number < 0:
                break  # what is not there is in no longer n-gram either
            low, high = np.searchsorted(level.keys, [number * self.size, (number + 1) * self.size])
            p = p * level.rest[number]
            p[level.keys[low:high] - number * self.size] += level.mass[low:high]
        return p

    def _number(self, ids: Integers) -> int:
        number = int(ids[0])
        for level, word in zip(self._fitted[1:], ids[1:]):
            number = int(_find(level.keys, np.array([number * self.size + word]))[0])
            if number < 0:
                break
        return number

    @property
    def _fitted(self) -> list[Level]:
        if not self.levels:
            raise UserError("no n-grams were counted yet", hint="Call fit.")
        return self.levels

    def _check(self, ids: Integers) -> None:
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.size:
            raise UserError(f"ids must be from 0 to {self.size - 1}, not {ids.min()} to {ids.max()}")


def discounts(counts: Any) -> Floats:
    """Discounts D (4,) for counts of 0, 1, 2 and more (Chen and Goodman).

    D(i) = i - (i + 1) Y n(i + 1) / n(i),    Y = n(1) / (n(1) + 2 n(2))

    n(i) is the number of n-grams seen i times.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6)[:5].astype(np.float64)
    if not n[1:].all():
        return np.array(FALLBACK)
    y = n[1] / (n[1] + 2 * n[2])
    found = np.array([0.0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))])
    return found if (found[1:] > 0).all() and (found <= [0, 1, 2, 3]).all() else np.array(FALLBACK)


def evaluate(what: Run | Recipe | str, part: str = "test", order: int = 5, assembly: Any = None) -> Mapping[str, float]:
    """Loss (nats per token) and perplexity of n-grams from a recipe's training part.

    They are evaluated on the same tokens as the recipe's model: all tokens of a text except the first, which has no
    context.
    """
    from sciformer.assembly import Assembly
    from sciformer.recipe import Recipe
    from sciformer.run import Run

    if assembly is None:
        if isinstance(what, Run):
            assembly = what.data()
        else:
            assembly = Assembly.open(what if isinstance(what, Recipe) else Recipe.load(what), write=False)
    if assembly.objective.kind != "next_token":
        raise UserError(
            f"the recipe must ask for the next token, not `objective.kind: {assembly.objective.kind}`",
            key="objective.kind",
        )
    (tokens,) = assembly.tokens.values()
    if not hasattr(tokens, "size"):
        raise UserError(f"the tokens have no vocabulary: `tokens.kind: {tokens.kind}`", key="tokens.kind")
    model = NGram(order, tokens.size).fit(texts_of(assembly, "train"))
    found = [model.log_probabilities(ids, start=1) for ids in texts_of(assembly, part)]
    count = sum(len(values) for values in found)
    if not count:
        raise UserError(f"the part {part} of the data has no tokens to judge by")
    loss = -sum(float(values.sum()) for values in found) / count
    return {"loss": loss, "perplexity": math.exp(loss), "tokens": float(count), "order": float(order)}


def texts_of(assembly: Any, part: str) -> list[Integers]:
    """Ids of every text of a part of the data, by the recipe's tokens."""
    one_of("the part of the data", part, assembly.parts())
    dataset = Dataset(assembly.splits.sources[part], assembly.tokens)
    found: list[Integers] = []
    for stop, size in zip(dataset.stops, dataset.sizes):
        stream = dataset.batch(np.arange(stop - size, stop)).stream
        found += np.split(stream.columns["ids"].astype(np.int64), stream.lengths.cumsum()[:-1])
    return found


def _end_to_end(parts: list[Integers]) -> tuple[Integers, Integers]:
    """All texts concatenated, and the position of each token in its own text."""
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    place = [np.arange(len(part)) for part in parts]
    return ids, np.concatenate(place) if parts else ids


def _find(keys: Integers, wanted: Integers) -> Integers:
    """Indices of numbers in a sorted array; -1 for missing numbers."""
    place = np.searchsorted(keys, wanted)
    there = np.append(keys, -1)[place] == wanted
    return np.where(there, place, -1)
