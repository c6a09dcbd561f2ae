"""Windows: the parts of long samples that a model sees at once, on any number of axes.

A sample is a grid of places along A axes, filled by its tokens in row-major order (a text has one axis, an image two).
How many windows there are, and where number k begins, are pure functions of the shape of the sample.
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

import numpy as np

from .batch import Stream
from .columns import Array

Shape = tuple[int, ...]
WINDOW = "window of"  # the column of samples with the number of the whole sample that a window was cut from
START = "window from"  # the column of samples with the place (A,) where a window begins, a number if there is one axis


class Windows(NamedTuple):
    """How samples are cut into windows.

    size     (A,) places of a window along each axis
    stride   (A,) places from one window to the next, at most `size`
    rule     full    windows that fit, at least one; the rest at the end of an axis is not seen
             tail    a shorter window for the rest
             even    as few windows as cover the axis, overlapping evenly from its beginning to its end
             loose   one window, anywhere
    prefix   tokens at the beginning of a sample that every window begins with, before those of its places
    """

    size: Shape
    stride: Shape
    rule: Literal["full", "tail", "even", "loose"] = "tail"
    prefix: int = 0

    @property
    def tokens(self) -> int:
        """Most tokens of a window."""
        return self.prefix + prod(self.size)

    def counts(self, shapes: Array) -> Array:
        """Windows (n, A) along each axis of samples of these shapes (n, A)."""
        size, stride = np.asarray(self.size), np.asarray(self.stride)
        if self.rule == "loose":
            return np.ones_like(shapes)
        if self.rule == "even":
            return np.maximum(1, -(-shapes // size))
        if self.rule == "tail":  # the last window may be shorter, but none repeats only what others hold
            return np.maximum(1, -(-np.maximum(0, shapes - (size - stride)) // stride))
        return 1 + np.maximum(0, shapes - size) // stride

    def starts(self, shapes: Array, number: Array, where: Array | float = 0.5) -> Array:
        """First places (n, A) of the windows of these numbers (n,) in samples of these shapes (n, A).

        where  (n, A) in [0, 1): how far along its sample a loose window begins
        """
        spare = np.maximum(0, shapes - np.asarray(self.size))
        if self.rule == "loose":
            return (where * (spare + 1)).astype(np.int64)
        counts = self.counts(shapes)
        turn = np.stack(unravel(number, counts), 1)
        return turn * spare // np.maximum(1, counts - 1) if self.rule == "even" else turn * np.asarray(self.stride)


class WindowIndex:
    """All windows of samples of these shapes (n, A), numbered from sample to sample.

    beside   (n,) tokens of each sample in its longest other stream, whole in every window
    """

    def __init__(self, windows: Windows, shapes: Array, beside: Array | int = 0) -> None:
        self.windows, self.shapes, self.beside = windows, shapes, np.broadcast_to(beside, len(shapes))
        self.firsts = np.concatenate([[0], windows.counts(shapes).prod(1).cumsum()])
        """(n + 1,) number of the first window of each sample, and of all windows."""

    def __len__(self) -> int:
        return int(self.firsts[-1])

    @property
    def whole_lengths(self) -> Array:
        """Tokens (n,) of the whole samples."""
        return np.asarray(self.windows.prefix + self.shapes.prod(1))

    @property
    def widths(self) -> Array:
        """Tokens of every window, in its longest stream."""
        sample, starts = self.find(np.arange(len(self)))
        return np.maximum(self.windows.prefix + self._sizes(sample, starts).prod(1), self.beside[sample])

    def find(self, numbers: Array, where: Array | float = 0.5) -> tuple[Array, Array]:
        """The sample (n,) and the first place (n, A) of windows; `where` is that of `Windows.starts`."""
        sample = np.searchsorted(self.firsts, numbers, side="right") - 1
        return sample, self.windows.starts(self.shapes[sample], numbers - self.firsts[sample], where)

    def cut(self, stream: Stream, sample: Array, starts: Array) -> Stream:
        """The windows that begin at these places (n, A) of samples (n,) of a stream."""
        first, sizes, prefix = stream.starts[sample], self._sizes(sample, starts), self.windows.prefix
        if sizes.shape[1] == 1 and not prefix:
            return stream.cut(first + starts[:, 0], sizes[:, 0])
        # A window is a run of tokens for each of its lines along the last axis, after a run of prefix tokens.
        lines, shapes = sizes[:, :-1].prod(1), self.shapes[sample]
        window, ahead = np.repeat(np.arange(len(sample)), lines), lines.cumsum() - lines
        place = np.zeros(len(window), np.int64)
        for axis, turn in enumerate(unravel(np.arange(len(window)) - ahead[window], sizes[window, :-1])):
            place = (place + starts[window, axis] + turn) * shapes[window, axis + 1]
        begins, runs = (first + prefix + starts[:, -1])[window] + place, sizes[window, -1]
        if prefix:
            begins, runs = np.insert(begins, ahead, first), np.insert(runs, ahead, prefix)
        return Stream(stream.cut(begins, runs).columns, prefix + sizes.prod(1))

    def _sizes(self, sample: Array, starts: Array) -> Array:
        return np.minimum(self.windows.size, self.shapes[sample] - starts)


def unravel(number: Array, shapes: Array) -> list[Array]:
    """Indices along each axis of row-major numbers (n,) in grids of these shapes (n, A)."""
    found: list[Array] = []
    for axis in reversed(range(shapes.shape[1])):
        number, index = np.divmod(number, shapes[:, axis])
        found.insert(0, index)
    return found


def truncate(stream: Stream, far: float, prefix: int = 0) -> Stream:
    """The tokens at most `far` after the first of their sample: by `at` on a single axis, otherwise by their places.

    prefix   tokens at the beginning of each sample that stay
    """
    at, own = stream.columns.get("at"), stream.position >= prefix
    if at is None or at.ndim > 1:
        at = stream.position - prefix
    first = np.full(len(stream), np.inf)
    np.minimum.at(first, stream.sample[own], at[own])
    return stream.keep(~own | (at - first[stream.sample] <= far))
