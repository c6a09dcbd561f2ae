"""Climatology: mean of a field by place, hour of the day and day of the year.

    c(x, h, d) = a_0(x, h) + sum_k a_k(x, h) cos(2 pi k d) + b_k(x, h) sin(2 pi k d),   k = 1, 2

x is a grid cell, h the hour of the day, d the fraction of the year. The terms of the year need data of at least
`MIN_YEAR` of a year; steps of a day or more have no hour of the day. The coefficients are a least-squares fit to the
values that are not missing. A large grid is divided into blocks of cells with one climatology.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....data.columns import Array
from .axes import HOURS_PER_DAY

MAX_NUMBERS = 1_000_000  # of the coefficients of a field, because they are stored as JSON
MIN_YEAR = 0.9  # of a year of data for the terms of the year
HARMONICS = 2
RIDGE = 1e-6  # relative to the number of values, for cells with few values


def waves(part_of_year: Array, terms: int) -> Array:
    """Fourier functions (..., terms) of the fraction of the year: 1, cos, sin, ..."""
    turns = 2 * np.pi * np.asarray(part_of_year)[..., None] * np.arange(1, (terms - 1) // 2 + 1)
    ones = np.ones((*np.shape(part_of_year), 1))
    return np.concatenate([ones, np.stack([np.cos(turns), np.sin(turns)], -1).reshape(*turns.shape[:-1], -1)], -1)


class Climatology:
    """Climatology and standard deviation of the anomalies of a field, on a grid.

    coefficients         (hours of the day, functions, levels, rows, columns) of the blocks of cells; see `waves`
    deviation            (levels,) standard deviation of the anomalies x - c
    latitude, longitude  (rows,) and (columns,) centres of the blocks
    """

    def __init__(self, coefficients: Array, deviation: Array, latitude: Array, longitude: Array) -> None:
        self.coefficients, self.deviation = coefficients, deviation
        self.latitude, self.longitude = latitude, longitude  # centres of the blocks

    def at(self, date: Array, latitude: Array, longitude: Array) -> Array:
        """Climatology (levels, times, rows, columns), from the nearest blocks.

        date                 (times, 3); see `dates`
        latitude, longitude  (rows,) and (columns,) in degrees
        """
        rows = np.abs(self.latitude[:, None] - latitude).argmin(0)
        apart = np.abs(np.mod(self.longitude[:, None] - longitude + 180.0, 360.0) - 180.0)
        chosen = self.coefficients[..., rows, :][..., apart.argmin(0)]
        hours, terms = chosen.shape[:2]
        bins, functions = hour_bins(date, hours), waves(date[:, 1], terms).astype(np.float32)
        return np.stack([np.tensordot(wave, chosen[hour], 1) for hour, wave in zip(bins, functions)], 1)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; the coefficients are base64 of little-endian float32."""
        return {
            "shape": list(self.coefficients.shape),
            "coefficients": base64.b64encode(self.coefficients.astype("<f4").tobytes()).decode(),
            "deviation": self.deviation.tolist(),
            "latitude": self.latitude.tolist(),
            "longitude": self.longitude.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Climatology:
        """Inverse of `to_json`."""
        flat = np.frombuffer(base64.b64decode(stored["coefficients"]), "<f4").astype(np.float32)
        places = (np.asarray(stored[name], np.float64) for name in ("deviation", "latitude", "longitude"))
        return cls(flat.reshape(stored["shape"]), *places)


def hour_bins(date: Array, hours: int) -> Array:
    """Bin (times,) of the hour of the day, for dates (times, 3).

    hours   number of bins of a day
    """
    return np.floor(date[:, 2] * hours + 1e-6).astype(np.int64) % hours


class ClimatologyFit:
    """Least-squares fit of a climatology; `add` takes the data in blocks of times.

    levels   number of levels
    step     hours between two times
    years    years of data
    """

    def __init__(self, levels: int, latitude: Array, longitude: Array, step: float, years: float) -> None:
        self.terms = 1 + 2 * HARMONICS if years >= MIN_YEAR else 1
        self.bins = max(1, min(24, round(HOURS_PER_DAY / step))) if step < HOURS_PER_DAY else 1
        numbers = self.bins * self.terms * levels * len(latitude) * len(longitude)
        self.block = max(1, math.ceil(math.sqrt(numbers / MAX_NUMBERS)))
        self.rows, self.columns = (np.arange(len(axis)) // self.block for axis in (latitude, longitude))
        self.latitude, self.longitude = (
            np.bincount(blocks, axis) / np.bincount(blocks)
            for blocks, axis in ((self.rows, latitude), (self.columns, longitude))
        )
        size = (self.bins, self.terms, levels, len(self.latitude), len(self.longitude))
        self.right = np.zeros(size)
        self.matrix = np.zeros((self.bins, self.terms, self.terms, *size[2:]))
        self.found: Array | None = None
        self.squares, self.count = np.zeros(levels), np.zeros(levels)

    def add(self, values: Array, date: Array) -> None:
        """Add values (levels, times, rows, columns) at dates (times, 3).

        Missing values are NaN.
        """
        known = np.isfinite(values)
        sums = self._in_blocks(np.where(known, values, 0.0))
        counts = self._in_blocks(known.astype(np.float64))
        functions, bins = waves(date[:, 1], self.terms), hour_bins(date, self.bins)
        for place, (hour, wave) in enumerate(zip(bins, functions)):
            self.right[hour] += wave[:, None, None, None] * sums[:, place]
            self.matrix[hour] += (wave[:, None] * wave)[..., None, None, None] * counts[:, place]

    def _in_blocks(self, values: Array) -> Array:
        """Sums (levels, times, rows, columns) over the cells of each block."""
        if self.block == 1:
            return values
        starts = [np.arange(0, len(of), self.block) for of in (self.rows, self.columns)]
        return np.add.reduceat(np.add.reduceat(values, starts[0], axis=2), starts[1], axis=3)

    def solve(self) -> Array:
        """Coefficients of the fit.

        A cell without values at an hour of the day has the mean over the other hours. A cell without any value has the
        mean over all cells.
        """
        count = self.matrix[:, 0, 0]
        damp = RIDGE * np.maximum(count, 1.0)
        matrix = np.moveaxis(self.matrix, (1, 2), (-2, -1)) + damp[..., None, None] * np.eye(self.terms)
        solved = np.linalg.solve(matrix, np.moveaxis(self.right, 1, -1)[..., None])[..., 0]
        weight = np.broadcast_to(count[..., None], solved.shape)
        overall = np.nan_to_num(_mean(solved, weight, (0, 2, 3)))
        by_cell = _mean(solved, weight, (0,))
        by_cell = np.where(np.isfinite(by_cell), by_cell, overall)
        solved = np.where(weight > 0, solved, by_cell)
        self.found = np.ascontiguousarray(np.moveaxis(solved, -1, 1), np.float32)
        return self.found

    def add_anomalies(self, values: Array, date: Array) -> None:
        """Add the squared anomalies of values (levels, times, rows, columns).

        `solve` must be called before.
        """
        anomaly = values - self._climatology(np.ones(len(self.squares))).at(date, *self._points)
        known = np.isfinite(anomaly)
        self.squares += np.where(known, anomaly, 0.0).astype(np.float64).__pow__(2).sum((1, 2, 3))
        self.count += known.sum((1, 2, 3))

    @property
    def _points(self) -> tuple[Array, Array]:
        return self.latitude[self.rows], self.longitude[self.columns]

    def _climatology(self, deviation: Array) -> Climatology:
        assert self.found is not None
        return Climatology(self.found, deviation, self.latitude, self.longitude)

    def finish(self) -> Climatology:
        """The fitted climatology; a field without variation has the standard deviation 1."""
        deviation = np.sqrt(self.squares / np.maximum(1, self.count))
        return self._climatology(np.where(deviation > 0, deviation, 1.0))


def _mean(values: Array, weight: Array, axes: Iterable[int]) -> Array:
    """Weighted mean over axes, which stay with length 1; NaN without weight."""
    axes = tuple(axes)
    total = weight.sum(axes, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (values * weight).sum(axes, keepdims=True) / total, np.nan)
