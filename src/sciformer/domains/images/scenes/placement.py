"""Random kinds and places for the things of scenes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from .rendering import templates
from .things import COLOURS, MAX_THINGS, MIN_LEAN, SHAPES, SIZES

REPEAT_PROBABILITY = 0.25  # that a thing has the same kind as the thing before
MIN_GAP = 2  # pixels between two boxes
TRIES_AT_ONCE = 8  # places drawn for a scene at a time


class Kinds(NamedTuple):
    """Indices (n, K) of shape, colour and size of up to K things in n scenes.

    An index of -1 is no thing. The things of a scene are in canonical order.
    """

    shape: Array
    colour: Array
    size: Array


def held_out(number: int) -> Array:
    """Mask (shapes, colours) of the held-out combinations: `number` colours per shape.

    Each colour is held out of the same number of shapes, so that every shape and every colour is trained.
    """
    shape, colour = np.arange(len(SHAPES))[:, None], np.arange(len(COLOURS))
    apart: Array = (colour - shape) % len(COLOURS) < number
    return apart


def draw_kinds(rng: np.random.Generator, counts: Array, pairs: Array, required: Array | None = None) -> Kinds:
    """Draw the kinds of the things of scenes.

    counts    (n,) number of things
    pairs     combinations to draw from, as numbers: shape * (number of colours) + colour
    required  combinations of which each scene has at least one (default: none)
    """
    code = np.full((len(counts), MAX_THINGS), -1)
    todo = np.arange(len(counts))
    place = np.arange(MAX_THINGS)
    while len(todo):
        here = place < counts[todo, None]
        new = rng.random(here.shape) >= REPEAT_PROBABILITY
        new[:, 0] = True
        group = np.cumsum(new, 1) - 1
        drawn = rng.choice(pairs, here.shape)
        if required is not None:
            which = (rng.random(len(todo)) * (np.where(here, group, 0).max(1) + 1)).astype(np.int64)
            drawn[np.arange(len(todo)), which] = rng.choice(required, len(todo))
        drawn = drawn * len(SIZES) + rng.integers(len(SIZES), size=here.shape)
        used = np.where(place <= np.where(here, group, 0).max(1)[:, None], drawn, -1 - place)
        distinct = (np.diff(np.sort(used, 1), axis=1) > 0).all(1)  # groups have different kinds
        last = len(SHAPES) * len(COLOURS) * len(SIZES)
        found = np.sort(np.where(here, np.take_along_axis(drawn, group, 1), last), 1)
        code[todo[distinct]] = np.where(found < last, found, -1)[distinct]
        todo = todo[~distinct]
    pair, size = code // len(SIZES), code % len(SIZES)
    nothing = code < 0
    return Kinds(*(np.where(nothing, -1, part) for part in (pair // len(COLOURS), pair % len(COLOURS), size)))


def draw_places(rng: np.random.Generator, kinds: Kinds, side: int) -> tuple[Array, Array]:
    """Draw centres x, y (n, K) of things without overlap and with clear relations."""
    x, y = (np.zeros(kinds.shape.shape, np.int64) for _ in "xy")
    todo = np.arange(len(x))
    while len(todo):
        rows = np.repeat(todo, TRIES_AT_ONCE)
        some = Kinds(*(part[rows] for part in kinds))
        box = templates(side).boxes[some.shape, some.size]  # of no thing: any box
        low, high = -box[..., :2], side - box[..., :2] - box[..., 2:]
        tries = low + (rng.random(low.shape) * (high - low + 1)).astype(np.int64)
        fits = (_apart(some, tries, box) & _clear(some, tries, side)).reshape(-1, TRIES_AT_ONCE)
        done = fits.any(1)
        first = tries.reshape(len(todo), TRIES_AT_ONCE, -1, 2)[np.arange(len(todo)), fits.argmax(1)]
        x[todo[done]], y[todo[done]] = first[done, :, 0], first[done, :, 1]
        todo = todo[~done]
    return x, y


@lru_cache(maxsize=1)
def _pairs() -> tuple[Array, Array]:
    return np.triu_indices(MAX_THINGS, 1)


def _apart(kinds: Kinds, centre: Array, box: Array) -> Array:
    """Whether no two boxes of a scene overlap."""
    one, two = _pairs()
    low = centre + box[..., :2]
    gap = np.maximum(low[:, two] - (low + box[..., 2:])[:, one], low[:, one] - (low + box[..., 2:])[:, two]).max(-1)
    nothing = kinds.shape[:, two] < 0
    return np.asarray((nothing | (gap >= MIN_GAP)).all(1))


def _clear(kinds: Kinds, centre: Array, side: int) -> Array:
    """Whether the first group has a clear relation to every other group."""
    code = (kinds.shape * len(COLOURS) + kinds.colour) * len(SIZES) + kinds.size
    group = np.cumsum(np.diff(code, axis=1, prepend=code[:, :1]) != 0, 1)
    away = centre[:, None] - centre[:, :, None]  # (n, from, to, 2)
    lean = np.abs(away[..., 0]) - np.abs(away[..., 1])
    axis = (lean < 0).astype(np.int64)
    before = np.take_along_axis(away, axis[..., None], -1)[..., 0] > 0
    how = np.where(np.abs(lean) >= MIN_LEAN * side, 2 * axis + before, -1)
    first = (group[:, :, None] == group[:, None]).argmax(-1)  # first member of the group of each thing
    wanted = np.take_along_axis(how[:, 0], first, 1)[:, None]
    asked = (group[:, :, None] == 0) & (group[:, None] > 0) & (kinds.shape[:, None] >= 0)
    return np.asarray((~asked | ((how == wanted) & (how >= 0))).all((1, 2)))
