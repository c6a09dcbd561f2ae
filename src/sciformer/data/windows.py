"""Windows of long samples, on any number of axes.

A sample is a grid of tokens in row-major order along A axes (a text has one axis, an image two). The number of windows
and the start of window k are pure functions of the shape of the sample.
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

import numpy as np

from .batch import Stream
from .columns import Array

Shape = tuple[int, ...]
WINDOW = "window of"  # sample column: number of the sample that the window was cut from
START = "window from"  # sample column: start (A,) of the window, a number if there is one axis


class Windows(NamedTuple):
    """Rule for cutting samples into windows.

    size     (A,) window size along each axis, in grid points
    stride   (A,) distance between the starts of two windows, at most `size`
    rule     full    complete windows only, at least one; the rest at the end of an axis is dropped
             tail    complete windows, and a shorter window for the rest
             even    the fewest windows that cover the axis, overlapping evenly
             loose   one window at a random start
    prefix   number of tokens at the beginning of a sample that are repeated in every window
    """

    size: Shape
    stride: Shape
    rule: Literal["full", "tail", "even", "loose"] = "tail"
    prefix: int = 0

    @property
    def tokens(self) -> int:
        """Maximum number of tokens of a window, including the prefix."""
        return self.prefix + prod(self.size)

    def counts(self, shapes: Array) -> Array:
        """Number of windows (n, A) along each axis for sample shapes (n, A)."""
        size, stride = np.asarray(self.size), np.asarray(self.stride)
        if self.rule == "loose":
            return np.ones_like(shapes)
        if self.rule == "even":
            return np.maximum(1, -(-shapes // size))
        if self.rule == "tail":  # the last window may be shorter, but always has new tokens
            return np.maximum(1, -(-np.maximum(0, shapes - (size - stride)) // stride))
        return 1 + np.maximum(0, shapes - size) // stride

    def starts(self, shapes: Array, number: Array, where: Array | float = 0.5) -> Array:
        """Starts (n, A) of the windows with numbers (n,) in samples of shapes (n, A).

        where  (n, A) relative start of a loose window in [0, 1)
        """
        spare = np.maximum(0, shapes - np.asarray(self.size))
        if self.rule == "loose":
            return (where * (spare + 1)).astype(np.int64)
        counts = self.counts(shapes)
        turn = np.stack(unravel(number, counts), 1)
        return turn * spare // np.maximum(1, counts - 1) if self.rule == "even" else turn * np.asarray(self.stride)


class WindowIndex:
    """Index of the windows of all samples; windows are numbered sample by sample.

    beside   (n,) number of tokens in the longest uncut stream of each sample; every window contains the uncut streams
    """

    def __init__(self, windows: Windows, shapes: Array, beside: Array | int = 0) -> None:
        self.windows, self.shapes, self.beside = windows, shapes, np.broadcast_to(beside, len(shapes))
        self.firsts = np.concatenate([[0], windows.counts(shapes).prod(1).cumsum()])
        """(n + 1,) number of the first window of each sample, and the total."""

    def __len__(self) -> int:
        return int(self.firsts[-1])

    @property
    def whole_lengths(self) -> Array:
        """Number of tokens (n,) of the uncut samples."""
        return np.asarray(self.windows.prefix + self.shapes.prod(1))

    @property
    def widths(self) -> Array:
        """Number of tokens of every window, in its longest stream."""
        sample, starts = self.find(np.arange(len(self)))
        return np.maximum(self.windows.prefix + self._sizes(sample, starts).prod(1), self.beside[sample])

    def find(self, numbers: Array, where: Array | float = 0.5) -> tuple[Array, Array]:
        """Sample (n,) and start (n, A) of windows by number.

        where   see `Windows.starts`
        """
        sample = np.searchsorted(self.firsts, numbers, side="right") - 1
        return sample, self.windows.starts(self.shapes[sample], numbers - self.firsts[sample], where)

    def cut(self, stream: Stream, sample: Array, starts: Array) -> Stream:
        """Cut windows with starts (n, A) from samples (n,) of a stream."""
        first, sizes, prefix = stream.starts[sample], self._sizes(sample, starts), self.windows.prefix
        if sizes.shape[1] == 1 and not prefix:
            return stream.cut(first + starts[:, 0], sizes[:, 0])
        # A window is a run of prefix tokens, then a run of tokens for each line along the last axis.
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
    """Indices along each axis of row-major numbers (n,) in grids of shapes (n, A)."""
    found: list[Array] = []
    for axis in reversed(range(shapes.shape[1])):
        number, index = np.divmod(number, shapes[:, axis])
        found.insert(0, index)
    return found


def truncate(stream: Stream, limit: float, prefix: int = 0) -> Stream:
    """Keep tokens up to a distance `limit` from the first token of their sample.

    Distances are differences of `at` if it has one coordinate, otherwise numbers of tokens.

    prefix   number of tokens at the beginning of each sample that are always kept
    """
    at, own = stream.columns.get("at"), stream.position >= prefix
    if at is None or at.ndim > 1:
        at = stream.position - prefix
    first = np.full(len(stream), np.inf)
    np.minimum.at(first, stream.sample[own], at[own])
    return stream.keep(~own | (at - first[stream.sample] <= limit))
