"""Cubes as tokens: boxes of time steps, rows and columns of a field at one level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field, model_validator
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Table
from ...data.random import SampleRandom
from ...data.source import Source
from ...errors import UserError, one_of
from ...tokens.base import Tokens
from ...tokens.cutting import PatchGrid
from ...tokens.protocols import Change, HiddenTask, Mask, Readout, Restorable
from .draw import draw_map, draw_maps
from .layers import CubeEmbedding, CubeInfo, CubeReadout
from .masks import BY_LENGTH, BY_SHARE, COARSE, coarse_cubes, cube_grid
from .output import write_maps
from .reader.neighbourhoods import CLIMATOLOGY, DATE, DEVIATION, LATITUDE, LEVEL, LONGITUDE, NUMBER, TIME
from .scores import FieldScores

Side = Annotated[int, Field(ge=1)]
INFO = (
    "year",
    "year sin",
    "year cos",
    "day sin",
    "day cos",
    "level",
    "latitude",
    "east sin",
    "east cos",
    "grid",
    "step",
)
"""Facts of a cube that the model reads beside its values, whether it is hidden or not."""
NOISE = 0.1  # standard deviation of noisy cubes, in standard deviations of the anomalies
HOURS = 24.0


class Cubes(Restorable):
    """Cubes of a field: boxes of time steps, rows and columns at one level.

    The model also reads date, hour, level and place of each cube.

    Values are normalised anomalies (x - c) / s: c is the climatology of the cell, hour and day, s the standard
    deviation of the anomalies of the level. Missing values have no loss, and cubes without any value are hidden.
    """

    hides: ClassVar[tuple[str, ...]] = ("value",)
    host_columns: ClassVar[tuple[str, ...]] = (
        *("climate", "scale", "time", "step", "grid"),
        *("level", "north", "spacing"),
    )
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = ("field",)
    model_keys: ClassVar[tuple[str, ...]] = ("loss", "members")

    field: str
    """Name of the field in the files, for example t2m."""
    cube: tuple[Side, Side, Side] = (3, 9, 9)
    """Size of a token: time steps, rows and columns (default: 3, 9, 9)."""
    loss: Literal["squared", "gaussian", "crps", "statistical"] = "squared"
    """Loss of hidden values (default: squared). squared: squared error. gaussian: negative log-likelihood with a
    predicted standard deviation. crps: fair continuous ranked probability score of the members. statistical: loss of
    AtmoRep for the members."""
    members: int | None = Field(default=None, ge=1, le=1024)
    """Number of members that the model predicts, each by its own linear layer (default: 16 for crps and statistical,
    otherwise 1)."""

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        several = self.loss in ("crps", "statistical")
        if self.members is not None and several != (self.members > 1):
            asks = "two members or more" if several else "one member"
            raise ValueError(f"tokens.members must fit tokens.loss: {self.loss} needs {asks}, not {self.members}")
        return self

    @property
    def heads(self) -> int:
        """Number of predicted members."""
        return self.members or (16 if self.loss in ("crps", "statistical") else 1)

    @property
    def source_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        own = (form.format(self.field) for form in (CLIMATOLOGY, DEVIATION, LEVEL))
        return (self.field, *own, TIME, DATE, LATITUDE, LONGITUDE)

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (self.field,)

    # Tokens and their positions

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn the shape of a neighbourhood: levels, time steps, rows, columns."""
        table = next(iter(tables))
        self._check(table)
        values: Any = table[self.field]
        self.state["shape"] = list(values.shape[1:])

    def _check(self, table: Table) -> None:
        one_of("tokens.field, a field of the data", self.field, table, key="tokens.field")
        if CLIMATOLOGY.format(self.field) not in table:
            message = f"`{self.field}` has no climatology, so it cannot be cut into cubes"
            raise UserError(message, hint="Read it with data.kind: fields.", key="data.kind")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Levels, time steps, rows and columns of a neighbourhood in training."""
        if "shape" not in self.state:
            raise UserError("the cubes have not been fitted on data yet", hint="Call fit, or load a run.")
        levels, *box = self.state["shape"]
        return (levels, *box)

    @property
    def cutting(self) -> PatchGrid:
        return cube_grid(self.cube)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of levels, and of cubes along time, rows and columns."""
        levels, *box = self.shape
        return (levels, *self.cutting.grid(box).tolist())

    @property
    def axes(self) -> int:
        return 4

    @property
    def initial_std(self) -> float:
        """Initial standard deviation of learned positions, that of embedded anomalies."""
        return 0.5

    @property
    def size(self) -> int:
        """Number of values of a cube."""
        return prod(self.cube)

    def count_tokens(self, known: Callable[..., Array | None]) -> Array | None:
        numbers = known(NUMBER)
        return None if numbers is None else np.full(len(numbers), prod(self.grid_shape), np.int64)

    def tokenize(self, table: Table) -> Stream:
        """Cut neighbourhoods into cubes, in the order of level, time, row and column.

        value     (T, P) values of the cube
        climate   (T, P) climatology of these values
        scale     (T,) standard deviation of the anomalies of the level
        at        (T, 4) level, time, row and column on the grid of cubes
        info      (T, F) features in the order of `INFO`
        time      (T, 4) first and last hour of the cube, first and last hour of its neighbourhood
        step      (T,) hours between two time steps
        grid      (T, 3) number of cubes along time, rows and columns
        level     (T,) level in hPa, or 0
        north     (T, rows of a cube) latitudes
        spacing   (T,) distance of the rows in degrees
        """
        self._check(table)
        values: Any = table[self.field]
        count, levels, *box = values.shape
        if levels != self.shape[0]:
            message = f"`{self.field}` has {levels} levels, but in training it had {self.shape[0]}"
            raise UserError(message, key="data.levels")
        grid = np.asarray(self.cutting.grid(box))
        climate: Any = table[CLIMATOLOGY.format(self.field)]
        each = int(levels * grid.prod())
        # Cubes at the edges are padded with missing values.
        places = np.stack(np.unravel_index(np.arange(each), (levels, *grid)), 1).astype(np.int32)
        scale: Any = table[DEVIATION.format(self.field)]
        columns = {
            "value": self._cut(values),
            "climate": self._cut(climate),
            "scale": np.asarray(scale, np.float32)[:, places[:, 0]].ravel(),
            "at": np.tile(places, (count, 1)),
            "grid": np.broadcast_to(grid.astype(np.int32), (count * each, 3)),
            **self._describe(table, places),
        }
        return Stream(columns, np.full(count, each, np.int64))

    def _cut(self, values: Array) -> Array:
        flat = np.asarray(values, np.float32).reshape(-1, *values.shape[2:], 1)
        return self.cutting.cut(flat, np.float32(np.nan)).astype(np.float32, copy=False)

    def _describe(self, table: Table, places: Array) -> dict[str, Array]:
        """Times and facts of cubes at `places` (N, 4) in each neighbourhood."""
        hours, date, latitude, longitude, level = (
            np.asarray(table[name], np.float64) for name in (TIME, DATE, LATITUDE, LONGITUDE, LEVEL.format(self.field))
        )
        count = len(hours)
        first = places[:, 1:] * self.cube
        ends = np.minimum(first + self.cube, [hours.shape[1], latitude.shape[1], longitude.shape[1]]) - 1
        step = np.median(np.diff(hours, axis=1), axis=1) if hours.shape[1] > 1 else np.ones(count)
        last = date[:, ends[:, 0]]
        north = (latitude[:, first[:, 1]] + latitude[:, ends[:, 1]]) / 2
        east = np.deg2rad((longitude[:, first[:, 2]] + longitude[:, ends[:, 2]]) / 2)
        turns = 2 * np.pi * last[..., 1:]
        spacing = np.abs(latitude[:, -1] - latitude[:, 0]) / max(1, latitude.shape[1] - 1)
        facts = [
            (last[..., 0] - 2000) / 100,
            *(wave(turns[..., part]) for part in (0, 1) for wave in (np.sin, np.cos)),
            np.nan_to_num(level)[:, places[:, 0]] / 1000,
            north / 90,
            np.sin(east),
            np.cos(east),
            np.broadcast_to(spacing[:, None], north.shape),
            np.broadcast_to(step[:, None] / HOURS, north.shape),
        ]
        assert len(facts) == len(INFO)
        rows = np.minimum(first[:, 1, None] + np.arange(self.cube[1]), latitude.shape[1] - 1)
        whole = np.broadcast_to(hours[:, None, [0, -1]], (count, len(places), 2))
        time = np.concatenate([np.stack([hours[:, first[:, 0]], hours[:, ends[:, 0]]], -1), whole], -1)
        return {
            "info": np.stack(facts, -1).reshape(-1, len(INFO)).astype(np.float32),
            "time": time.reshape(-1, 4),
            "step": np.repeat(step, len(places)),
            "level": np.nan_to_num(level)[:, places[:, 0]].ravel(),
            "north": latitude[:, rows].reshape(-1, self.cube[1]),
            "spacing": np.repeat(spacing, len(places)),
        }

    def normalise(self, stream: Stream) -> Stream:
        """Normalised anomalies, 0 where `missing` (T, P) is True.

        If the stream has the column `hidden`, cubes without a value are hidden.
        """
        columns = stream.columns
        climate, scale = columns["climate"], columns["scale"][:, None]
        value = (columns["value"] - climate) / scale
        missing = ~np.isfinite(value)
        made = {"value": np.where(missing, np.float32(0), value), "missing": missing}
        if "hidden" in columns:
            made["hidden"] = columns["hidden"].astype(bool) | missing.all(1)
        if "target value" in columns:
            made["target value"] = (columns["target value"] - climate) / scale
        return stream.with_columns(**made)

    def restore_values(self, stream: Stream, answer: Mapping[str, Array]) -> dict[str, Array]:
        """Predictions of the readout in the units of the data.

        The climatology is added to values and members, but not to standard deviations.
        """
        climate, scale = stream.columns["climate"], stream.columns["scale"][:, None]
        found = {"value": answer["value"] * scale + climate}
        if "std" in answer:
            found["std"] = answer["std"] * scale
        if "members" in answer:
            found["members"] = answer["members"] * scale[:, None] + climate[:, None]
        return found

    def hidden_scores(self, mask: str) -> FieldScores:
        return FieldScores(self.field, self.cube, mask)

    def write_restored(
        self,
        path: Path,
        source: Source,
        tokens: Mapping[str, Tokens],
        task: HiddenTask,
        changes: Sequence[Change] = (),
    ) -> int:
        return write_maps(path, source, tokens, task, changes)

    def maps(self, cubes: Array, shape: tuple[int, ...]) -> Array:
        """Assemble cubes (N, P) of one sample to an array of the given shape.

        shape   levels, times, rows, columns
        """
        levels, *box = shape
        return self.cutting.assemble(cubes.reshape(levels, -1, self.size), tuple(box))[..., 0]

    # Model input and output

    def embedding(self, dim: int) -> nn.Module:
        return CubeEmbedding(self.size, len(INFO), dim)

    def visible_part(self, dim: int) -> nn.Module:
        return CubeInfo(len(INFO), dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        return CubeReadout(dim, self.size, self.loss, self.heads)

    # Masks

    def maskable(self, stream: Stream) -> Array:
        """Mask of the cubes with at least one value."""
        return np.asarray(np.isfinite(stream.columns["value"]).any(1))

    @property
    def masks(self) -> dict[str, Mask]:
        """Functions for `objective.mask` by name; see the module `masks`."""
        return {**super().masks, **BY_SHARE}

    @property
    def masks_by_length(self) -> dict[str, Mask]:
        """Masks with a length in hours."""
        return dict(BY_LENGTH)

    @property
    def coarse_masks(self) -> tuple[str, ...]:
        return COARSE

    def coarse_values(self, stream: Stream, tokens: Array, factor: int) -> dict[str, Array]:
        """Averages over blocks of factor x factor cells, where `tokens` (T,) is True."""
        value = stream.columns["value"].copy()
        value[tokens] = coarse_cubes(value[tokens], self.cube, factor)
        return {"value": value}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """Anomalies of random strength with noise, where `tokens` (T,) is True.

        The noise has 0.1 standard deviations of the anomalies (AtmoRep).
        """
        columns, here = stream.columns, np.flatnonzero(tokens)
        value, climate = columns["value"].copy(), columns["climate"][here]
        lengths = stream.lengths * self.size
        noise = rng.normal("noise", lengths).reshape(-1, self.size)[here]
        weight = rng.uniform("blend", stream.lengths)[here, None]
        noisy = climate + weight * (value[here] - climate) + NOISE * columns["scale"][here, None] * noise
        value[here] = noisy
        return {"value": value}

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        scale = np.repeat(stream.columns["scale"][:, None], self.size, 1)
        return stream.columns["climate"].astype(np.float64), scale.astype(np.float64)

    # Labels and plots

    def token_labels(self, stream: Stream) -> list[str]:
        """Time, level, row and column of each cube.

        The time is in hours from the end of the neighbourhood.
        """
        at, time = stream.columns["at"], stream.columns["time"]
        several = self.shape[0] > 1
        return [
            f"{last - end:+g} h {f'level {place[0]} ' if several else ''}{place[2]},{place[3]}"
            for place, last, end in zip(at.tolist(), time[:, 1], time[:, 3])
        ]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Draw the map of the last time step and level, with cubes shaded by their weight."""
        stream = sample.stream
        shape = self._sample_shape(stream)
        values = stream.columns["value"].astype(np.float64)
        if "hidden" in stream.columns:
            values[stream.columns["hidden"].astype(bool)] = np.nan
        shade = None
        if weights is not None:
            on_map = np.asarray(weights, np.float64).reshape(shape[0], *self.cutting.grid(shape[1:])).sum((0, 1))
            shade = np.kron(on_map, np.ones(self.cube[1:]))[: shape[2], : shape[3]]
        maps = self.maps(values, shape)[-1]
        known = np.flatnonzero(np.isfinite(maps).any((1, 2)))
        draw_map(axes, maps[known[-1] if len(known) else -1], shade)

    def _sample_shape(self, stream: Stream) -> tuple[int, int, int, int]:
        """Levels, time steps, rows and columns of one sample, with padding."""
        duration, height, width = (int(count) * side for count, side in zip(stream.columns["grid"][0], self.cube))
        return self.shape[0], duration, height, width

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """Draw maps at the last hidden time: seen, predicted, true and the error."""
        stream = sample.stream
        columns, shape = stream.columns, self._sample_shape(stream)
        asked, hidden = (columns[name].astype(bool) for name in ("asked", "hidden"))
        truth = columns["target value"].astype(np.float64)
        said = self.restore_values(stream, {"value": np.nan_to_num(answer["value"])})["value"]
        seen = np.where(hidden[:, None], np.nan, columns["value"].astype(np.float64))
        said = np.where(asked[:, None], said, np.where(hidden[:, None], np.nan, truth))
        found = {"seen": seen, "model": said, "truth": truth}
        maps = {name: self.maps(values, shape) for name, values in found.items()}
        wanted = self.maps(np.repeat(asked[:, None], self.size, 1).astype(np.float64), shape) > 0
        level, time = (int(axis[-1]) for axis in np.nonzero(wanted.any((2, 3))))
        draw_maps(axes, {name: one[level, time] for name, one in maps.items()}, self.field)
