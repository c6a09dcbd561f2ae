"""Observations: a token is one measurement of a series (value, error, band, time) or a patch of a regular one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Lists, Table, rows_of
from ...data.random import SampleRandom
from ...errors import UserError, one_of
from ...tokens.base import Drawing
from ...tokens.protocols import Augmentable, Editable, Exportable, Maskable, Readout, Windowed
from .draw import SeriesView, draw_hidden_values, draw_series
from .features import TARGET_PREFIX, hidden_targets, observation_features
from .layers import ObservationEmbedding, ObservationReadout, ObservationTrace
from .periods import (
    PERIOD_COLUMNS,
    add_phases,
    describe_features,
    feature_names,
    learn_period,
    period_search,
    refuse_hidden_values,
)
from .scaling import Level, compute_level, cut_patches, draw_replacements

MAX_FITTED_POINTS = 1_000_000  # points from which something is learned


class Observations(Maskable, Windowed, Augmentable, Exportable, Editable):
    """The measurements of series at any times: columns `time`, `value`, and where there are such `error`, `band` and
    `limit`, each a list for every sample.

    Of a hidden measurement, time and band are still known. Level and scale of values come from those that are seen.
    """

    source_columns: ClassVar[tuple[str, ...]] = ("time", "value")
    hides: ClassVar[tuple[str, ...]] = ("value", "error")
    host_columns: ClassVar[tuple[str, ...]] = ("value", "error", "limit", "drawn", "clean", *PERIOD_COLUMNS)
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = (
        *("window", "stride", "weighting", "gaussian", "magnitudes", "augment", "drop_points"),
    )
    changeable_columns: ClassVar[tuple[str, ...]] = ("value", "error", "band")
    movable_column: ClassVar[str] = "at"
    coordinates: ClassVar[tuple[str, ...]] = ("time",)

    window: int | None = Field(default=200, ge=1)
    """The most tokens the model sees at once; longer series are cut into windows of that length (null: they stay
    whole)."""
    stride: int | None = Field(default=None, ge=1)
    """How many tokens apart the windows of the training begin. Unset: one window of each series in every epoch,
    anywhere in it."""
    centre: Literal["mean", "median", "learned", "none"] = "mean"
    """What is subtracted from values: mean or median of those seen in the window, or the same for all (learned), which
    keeps the level of a series."""
    by_band: bool = False
    """Whether each band has a centre of its own; otherwise differences between bands (colours) stay."""
    scale: Literal["none", "deviation", "learned"] = "learned"
    """What values and errors are divided by: nothing, the deviation of values seen in the window, or what 68 % of the
    training data are within (learned)."""
    errors: Literal["none", "input", "weight", "both"] = "input"
    """Where errors go: into the model, as weights into the loss of hidden values, or both."""
    weighting: Literal["minmax", "chi2"] = "minmax"
    """How errors weigh the loss: by minmax(1 / error) + 1e-3 in each window (ASTROMER 2), or by 1 / error^2 (with
    `gaussian` they add to the variance instead)."""
    gaussian: bool = False
    """Whether hidden values are predicted with their uncertainty, by a normal distribution."""
    times: Literal["position", "differences", "both"] = "position"
    """How times enter: as the position of a token, as ln(1 + time since the one before) among its features, or both.
    With differences alone, positions are 0, 1, 2, ..."""
    time_unit: float = Field(default=1.0, gt=0)
    """Times are divided by this before they become positions or differences."""
    bands: tuple[str, ...] = ()
    """Names of the bands; those of the training data unless given."""
    limits: Literal["keep", "drop"] = "keep"
    """Upper limits: tokens with a mark, which count in no centre and are never asked for, or left out."""
    extra: tuple[str, ...] = ()
    """Columns with one number or name for each series that enter as tokens of their own, before the others."""
    patch: int = Field(default=1, ge=1)
    """Values in a token; more than one of a regular series: times without a value are marked, not filled."""
    cadence: float | None = Field(default=None, gt=0)
    """Of patches: the time between two values; the usual one of the training data unless given."""
    gaps: Literal["keep", "drop"] = "keep"
    """Patches without any value: tokens with a learned stand-in, so that neighbours stay neighbours, or left out."""
    periods: int = Field(default=0, ge=0, le=8)
    """So many periods, those of the highest peaks of a series' periodogram, tell each observation its phase: sin and
    cos of it, of half and of twice of it, ln(period) and the power of the peak. They are found once, from all values of
    the whole series; variations leave them as they are. Not with objectives that hide values."""
    shortest: float = Field(default=0.05, gt=0)
    """The shortest period that is looked for, in units of the column `time`."""
    longest: float | None = Field(default=None, gt=0)
    """The longest one; the span of the series unless given."""
    magnitudes: bool = False
    """Whether values are magnitudes, which drawings show with small ones on top."""
    augment: tuple[Literal["noise", "thin"], ...] = ()
    """Augmentations in training: values moved by their errors (noise), some points left out (thin)."""
    drop_points: float = Field(default=0.3, ge=0, lt=1)
    """Of `augment: [thin]`: the greatest share of points that is left out (default: 0.3)."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*self.source_columns, *self.extra)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return ("error", "band", "limit", "clean", "period")

    @property
    def grid_shape(self) -> None:
        return None

    @property
    def random_windows(self) -> bool:
        return True

    @property
    def prefix_tokens(self) -> int:
        """What is given beside a series stands before every window."""
        return len(self.extra)

    # What was learned

    @property
    def known_bands(self) -> list[str]:
        found: list[str] = list(self.bands) or self.state.get("bands", [])
        return found if len(found) > 1 else []

    @property
    def usual_error(self) -> tuple[float, float] | None:
        """Mean and deviation of ln(error / scale) in the training data; None without errors."""
        found = self.state.get("error")
        return None if found is None else (found[0], found[1])

    @property
    def input_features(self) -> list[str]:
        names = [f"value {i + 1}" for i in range(self.patch)] if self.patch > 1 else ["value"]
        if self.patch > 1:
            names += [f"no value {i + 1}" for i in range(self.patch)]
        if self.errors in ("input", "both") and self.usual_error is not None:
            names += ["error", "no error"]
        if self.times != "position":
            names.append("since")
        if self.limited:
            names.append("limit")
        return names + feature_names(self.periods)

    @property
    def limited(self) -> bool:
        return self.limits == "keep" and self.patch == 1 and bool(self.state.get("limits", False))

    @property
    def spacing(self) -> float:
        return self.cadence or float(self.state.get("cadence", 1.0))

    @property
    def slots(self) -> Array:
        """(P,) times of the values of a patch, from its middle."""
        return (np.arange(self.patch) - (self.patch - 1) / 2) * self.spacing * (self.patch > 1)

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn bands, cadence, level and scale of values, size of errors, and of what is given beside."""
        some, count, names = [], 0, set(self.bands)
        for table in tables:
            if "band" in table:
                names |= {str(name) for name in np.unique(_list_column(table, "band").values)}
            some.append(table)
            count += int(_list_column(table, "time").lengths.sum())
            if count >= MAX_FITTED_POINTS:
                break
        if not count:
            raise UserError("the series have no points to learn from")
        bands = list(self.bands) or sorted(names)
        parts = [read_points(table, bands) for table in some]
        columns = {
            name: np.concatenate([part.columns[name] for part in parts])
            for name in ("at", "value", "error", "band", "limit")
        }
        points = Stream(columns, np.concatenate([part.lengths for part in parts]))
        sample, band, limit = points.sample, columns["band"], columns["limit"]
        wide, seen = columns["value"].astype(np.float64)[:, None], ~limit[:, None]
        if not seen.any():
            raise UserError("all values of the series are limits, so there is no value to learn from")
        middle = float(np.median(wide[seen]))
        centre = self.centre if self.centre in ("mean", "median") else "learned"
        own = band if self.by_band else None
        rest = wide - compute_level(wide, seen, sample, own, centre, "none", (middle, 1.0)).centre
        low, high = np.percentile(rest[seen], [16, 84])
        spread = float((high - low) / 2) if high > low else float(rest[seen].std()) or 1.0
        state: dict[str, Any] = {"bands": bands, "limits": bool(limit.any()), "level": [middle, spread]}
        about = compute_level(wide, seen, sample, own, centre, self.scale, (middle, spread))
        relative = columns["error"][:, None] / about.scale
        known = np.isfinite(relative) & seen
        logs = np.log(relative[known])
        state["error"] = [float(logs.mean()), float(max(logs.std(), 0.1))] if known.any() else None
        if self.patch > 1 and self.cadence is None:
            line = sample * (int(band.max(initial=0)) + 1) + band
            order = np.lexsort((columns["at"], line))
            apart = np.diff(columns["at"][order])[np.diff(line[order]) == 0]
            if not (apart > 0).any():
                raise UserError(
                    "tokens.cadence cannot be learned because no series has two points or more at different times",
                    hint="Set tokens.cadence.",
                    key="tokens.cadence",
                )
            state["cadence"] = float(np.median(apart[apart > 0]))
        if self.periods:
            state["period"] = learn_period(points, period_search(self, state.get("cadence")))
        state["extra"] = [
            _extra_statistics(name, np.concatenate([_extra_column(table, name) for table in some]))
            for name in self.extra
        ]
        self.state.update(state)

    # What is a token, and where is it?

    def tokenize(self, table: Table) -> Stream:
        """Columns `at` (T,) in double precision, `value` and `error` (T,) or (T, P), NaN where there is none; where
        there are such, `band`, `limit`, `clean`, and of tokens given beside `entry` and `given`."""
        stream = read_points(table, list(self.bands) or self.state.get("bands", []))
        if not self.limited and stream.columns["limit"].any():
            stream = stream.keep(~stream.columns["limit"])
        if self.patch > 1:
            stream = cut_patches(stream, self.patch, self.spacing, self.gaps == "keep")
        unused = {"band": not self.known_bands, "limit": not self.limited}
        columns = {name: column for name, column in stream.columns.items() if not unused.get(name)}
        stream = Stream(columns, stream.lengths)
        return add_phases(self._prepend_extra(stream, table) if self.extra else stream, self)

    def _prepend_extra(self, stream: Stream, table: Table) -> Stream:
        """The same with a token for each column of `extra` before those of every sample, at its first time."""
        rows, more = rows_of(table), len(self.extra)
        lengths = stream.lengths + more
        own = np.arange(len(stream.columns["at"])) + more * (stream.sample + 1)
        first = ((lengths.cumsum() - lengths)[:, None] + np.arange(more)).ravel()
        columns = {}
        for name, column in stream.columns.items():
            empty = np.nan if column.dtype.kind == "f" else 0
            columns[name] = np.full((int(lengths.sum()), *column.shape[1:]), empty, column.dtype)
            columns[name][own] = column
        begin, some = np.zeros(rows), stream.lengths > 0
        begin[some] = stream.columns["at"][stream.starts[some]]
        columns["at"][first] = np.repeat(begin, more)
        entry, given = np.zeros((rows, more), np.int64), np.zeros((rows, more), np.float32)
        for place, (about, row) in enumerate(zip(self.state["extra"], extra_rows(self.state["extra"]))):
            column = np.asarray(_extra_column(table, about["name"]))
            if "values" in about:
                number = {name: i for i, name in enumerate(about["values"])}
                entry[:, place] = [row + number.get(str(name), len(number)) for name in column]
            else:
                values = column.astype(np.float64)
                known = np.isfinite(values)
                entry[:, place], given[:, place] = np.where(known, row, row + 1), np.where(known, values, 0)
        columns["entry"] = np.zeros(int(lengths.sum()), np.int64)
        columns["given"] = np.zeros(int(lengths.sum()), np.float32)
        columns["entry"][first], columns["given"][first] = entry.ravel(), given.ravel()
        return Stream(columns, lengths)

    def truncate(self, stream: Stream, far: float) -> Stream:
        """The beginnings of series, with the periods of those alone."""
        return add_phases(super().truncate(stream, far), self)

    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        if "noise" in self.augment:
            value, error = stream.columns["value"], stream.columns["error"]
            draws = rng.normal("noise", stream.lengths * self.patch).reshape(value.shape)
            stream = stream.with_columns(value=(value + np.nan_to_num(error) * draws).astype(np.float32))
        if "thin" in self.augment:
            share = self.drop_points * rng.uniform("share")[stream.sample]
            kept = rng.uniform("thin", stream.lengths) >= share
            kept |= stream.position <= self.prefix_tokens  # the first point stays, with what is given beside
            stream = stream.keep(kept)
        return stream

    def _level(self, stream: Stream) -> tuple[Array, Array, Level]:
        """Values (T, P) in double precision, which of them are seen, and their level."""
        columns = stream.columns
        value = columns["value"].reshape(len(columns["value"]), self.patch).astype(np.float64)
        seen = np.isfinite(value)
        if "limit" in columns:
            seen &= ~columns["limit"][:, None]
        band = columns.get("band") if self.by_band else None
        known = self.state.get("level", (0.0, 1.0))
        return value, seen, compute_level(value, seen, stream.sample, band, self.centre, self.scale, known)

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        return self._level(stream)[2]

    def normalise(self, stream: Stream) -> Stream:
        """`features` (T, F) and the centred times `at`; targets in the same units, with their weights."""
        columns, sample = stream.columns, stream.sample
        value, seen, about = self._level(stream)
        error = columns["error"].reshape(value.shape).astype(np.float64) / about.scale
        value = (value - about.centre) / about.scale
        if "drawn" in columns:
            those, instead = draw_replacements(columns["drawn"], np.asarray(seen.any(1)), sample)
            value[those], error[those] = value[instead], error[instead]
        made = {"features": observation_features(self, stream, value, error)}
        if TARGET_PREFIX + "value" in columns:
            made |= hidden_targets(self, stream, about)
        if "given" in columns:
            made["given"] = standardise_extra(columns["entry"], columns["given"], self.state["extra"])
        own = columns["entry"] == 0 if "entry" in columns else np.ones(len(value), bool)
        total = np.bincount(sample[own], columns["at"][own], len(stream))
        mean = total / np.maximum(np.bincount(sample[own], minlength=len(stream)), 1)
        at = np.where(own, columns["at"] - mean[sample], 0) / self.time_unit
        kept = stream.with_columns(**made, at=at.astype(np.float32))
        if self.times == "differences":
            return Stream({name: column for name, column in kept.columns.items() if name != "at"}, kept.lengths)
        return kept

    # How does it enter the model, and how does it come back?

    def embedding(self, dim: int) -> nn.Module:
        entries = extra_rows(self.state["extra"])[-1] if self.extra else 0
        return ObservationEmbedding(len(self.input_features), dim, len(self.known_bands), entries)

    def visible_part(self, dim: int) -> nn.Module | None:
        since = self.input_features.index("since") if "since" in self.input_features else None
        bands = len(self.known_bands)
        return ObservationTrace(dim, bands, since) if bands or since is not None else None

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        noisy = self.gaussian and self.errors in ("weight", "both") and self.weighting == "chi2"
        return ObservationReadout(dim, self.patch, self.gaussian, noisy and self.usual_error is not None)

    def maskable(self, stream: Stream) -> Array:
        """All that have a value, but for limits and the only one of a series, of which nothing would be left."""
        refuse_hidden_values(self.periods)
        columns = stream.columns
        may = np.isfinite(columns["value"].reshape(-1, self.patch)).any(1)
        if "limit" in columns:
            may &= ~columns["limit"]
        return np.asarray(may & (np.bincount(stream.sample[may], minlength=len(stream)) > 1)[stream.sample])

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        refuse_hidden_values(self.periods)
        found = {name: stream.columns[name].copy() for name in self.hides}
        for column in found.values():
            column[tokens] = np.nan
        return found

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """The value and the error of another measurement of the series, one that stays to be seen."""
        choice = np.where(tokens, rng.uniform("drawn", stream.lengths), np.nan)
        return {**self.mask_out(stream, tokens), "drawn": choice}

    # How does a person edit it?

    def refresh(self, stream: Stream) -> Stream:
        """The order of times, and the periods of these values."""
        order = np.lexsort((stream.columns["at"], stream.position >= self.prefix_tokens))
        return add_phases(stream.reorder(order), self)

    # How do others make it?

    def example(self) -> Table:
        rng, lengths = np.random.default_rng(0), np.array([31, 12, 54]) * self.patch
        total, (centre, scale) = int(lengths.sum()), self.state.get("level", (0.0, 1.0))
        gaps = np.full(total, self.spacing) if self.patch > 1 else rng.exponential(2 * self.time_unit, total)
        table: dict[str, Array | Lists] = {
            "time": Lists(gaps.cumsum(), lengths),
            "value": Lists(rng.normal(centre, scale, total).astype(np.float32), lengths),
            "error": Lists((scale * rng.uniform(0.05, 0.3, total)).astype(np.float32), lengths),
        }
        if self.known_bands:
            table["band"] = Lists(rng.choice(self.known_bands, total), lengths)
        if self.limited:
            table["limit"] = Lists(rng.random(total) < 0.2, lengths)
        for about in self.state.get("extra", []):
            named = "values" in about
            drawn = rng.choice(about["values"], 3) if named else rng.normal(about["mean"], about["deviation"], 3)
            table[about["name"]] = drawn
        return table

    @property
    def max_tokens(self) -> int | None:
        return self.window

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "features": self.input_features, "columns": self._describe_columns()}

    def _describe_columns(self) -> dict[str, str]:
        """How each column that a model reads is made of raw data."""
        unit = f" / {self.time_unit:g}" if self.time_unit != 1 else ""
        centre = {"learned": "learned.level[0]", "none": "0"}.get(self.centre, f"{self.centre} of the window's values")
        scale = {"learned": "learned.level[1]", "none": "1"}.get(self.scale, "their root mean square about the centre")
        words = {
            "features": "in the order of `features`: value: (value - centre) / scale; no value: 1 where there is none; "
            "error: clip((ln(error / scale) - learned.error[0]) / learned.error[1], -5, 5), a mean over a patch, 0 if "
            f"unknown; no error: 1 where unknown; since: ln(1 + time since the token before{unit}), 0 for the first; "
            f"limit: 1 for upper limits. centre: {centre}"
            + (", of each band" if self.by_band else "")
            + f"; scale: {scale}; limits count in neither"
            + (describe_features(self) if self.periods else ""),
        }
        if self.times != "differences":
            words["at"] = f"(time - mean time of the window){unit}, in double precision until then"
        if self.known_bands:
            words["band"] = f"number of the band in {', '.join(self.known_bands)}, from 0"
        if self.extra:
            words["entry"] = (
                "0 for observations; for each of learned.extra, in order, a token before them with the next rows: a "
                "number has one row, and one more for a missing one; a name has a row for each value, and one more for "
                "others"
            )
            words["given"] = "(number - mean) / deviation, 0 elsewhere; these tokens have zeros in `features` and `at`"
        return words

    # How does a person look at it?

    def token_labels(self, stream: Stream) -> list[str]:
        columns, bands = stream.columns, self.known_bands
        at = columns["at"] - columns["at"].min(initial=np.inf)
        names = [f"{bands[band]} " if bands else "" for band in columns.get("band", np.zeros(len(at), np.int64))]
        words = [f"{name}{time:.4g}" for name, time in zip(names, at)]
        if "entry" in columns:
            words[: self.prefix_tokens] = self.extra
        return words

    def _series_view(self, stream: Stream) -> SeriesView:
        columns = stream.columns
        value, error = (columns.get(f"target {name}", columns[name]).reshape(-1, self.patch) for name in self.hides)
        none = np.zeros(len(value), bool)
        marks = {name: columns.get(name, none).astype(bool) for name in ("hidden", "limit", "asked")}
        band, names = columns.get("band", none.astype(np.int64)), self.known_bands or [""]
        return SeriesView(columns["at"][:, None] + self.slots, value, error, band, names, **marks)

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        draw_series(axes, self._series_view(sample.stream), weights, self.magnitudes)

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        period = self._period(sample)
        if period is None:
            return {}

        def folded(one: Batch, weights: Array | None, axes: Axes) -> None:
            draw_series(axes, self._series_view(one.stream), weights, self.magnitudes, period)

        return {"folded": folded}

    def _period(self, sample: Batch) -> float | None:
        known = sample.samples.get("period", np.zeros(0))[:1].tolist()
        known += sample.stream.columns.get("period", np.zeros((0, 1)))[-1:, 0].tolist()
        return next((float(one) for one in known if 0 < one < np.inf), None)

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """What was seen, what was hidden, and what the model says of it with one standard deviation."""
        _, _, about = self._level(sample.stream)
        mean = answer["value"].reshape(-1, self.patch) * about.scale + about.centre
        spread = answer["error"].reshape(-1, self.patch) * about.scale if self.gaussian else None
        view = self._series_view(sample.stream)
        draw_hidden_values(axes, view, mean, spread, self.magnitudes, self._period(sample))


# Points of series, read and checked, and what is given beside


def read_points(table: Table, bands: Sequence[str]) -> Stream:
    """The points of a table that have a value, in the order of time; `bands` names those that are known.

    Columns are `value`, `error`, `clean` where it is known, the time `at`, the number of the `band`, and `limit`.
    """
    time = _list_column(table, "time")
    lengths = time.lengths.astype(np.int64)
    when = np.asarray(time.values, np.float64)
    if not np.isfinite(when).all():
        raise UserError(f"column `time` has NaN or infinity at {(~np.isfinite(when)).sum():,} points")
    columns: dict[str, Array] = {"value": _list_column(table, "value", lengths).values.astype(np.float32)}
    columns["error"] = np.full(len(when), np.nan, np.float32)
    if "error" in table:
        error = _list_column(table, "error", lengths).values.astype(np.float32)
        columns["error"] = np.where(np.isfinite(error) & (error > 0), error, np.float32(np.nan))
    if "clean" in table:
        columns["clean"] = _list_column(table, "clean", lengths).values.astype(np.float32)
    columns |= {"at": when, "band": np.zeros(len(when), np.int64), "limit": np.zeros(len(when), bool)}
    if len(bands) > 1 or "band" in table:
        columns["band"] = _band_numbers(_list_column(table, "band", lengths).values, bands)
    if "limit" in table:
        columns["limit"] = _list_column(table, "limit", lengths).values.astype(bool)
    made = Stream(columns, lengths)
    kept = np.isfinite(columns["value"])
    if not kept.all():
        made = made.keep(kept)
    at = made.columns["at"]
    back = np.diff(at, prepend=-np.inf) < 0
    back[made.starts[made.lengths > 0]] = False
    return made.reorder(np.lexsort((at, made.sample))) if back.any() else made


def _list_column(table: Table, name: str, lengths: Array | None = None) -> Lists:
    one_of("a column of points", name, table)
    column = table[name]
    if not isinstance(column, Lists):
        raise UserError(f"column `{name}` must have a list for each series, not an array of shape {column.shape}")
    if lengths is not None and not np.array_equal(column.lengths, lengths):
        row = int(np.argmax(column.lengths != lengths))
        raise UserError(
            f"sample {row} has {column.lengths[row]} points in `{name}`, but {lengths[row]} points in `time`"
        )
    return column


def _band_numbers(names: Array, known: Sequence[str]) -> Array:
    """The number of each name among those that are known; where none is, all are one and the same."""
    found = np.full(len(names), -1, np.int64)
    for number, name in enumerate(known or np.unique(names)):
        found[names == name] = number
    if not (found >= 0).all() or (not known and (found > 0).any()):
        odd = sorted({str(name) for name in np.unique(names)} - set(known))
        allowed = f"only the bands {', '.join(known)}" if known else "one band"
        raise UserError(
            f"column `band` must have {allowed}, not {', '.join(odd[:8])}",
            hint="Choose bands where the data are read, or name all of them in tokens.bands.",
            key="tokens.bands",
        )
    return found


def _extra_statistics(name: str, column: Array) -> dict[str, Any]:
    """Mean and deviation of numbers, or the names there are."""
    if column.dtype.kind in "biuf":
        values = column[np.isfinite(column.astype(np.float64))].astype(np.float64)
        mean, deviation = (float(values.mean()), float(values.std())) if len(values) else (0.0, 1.0)
        return {"name": name, "mean": mean, "deviation": deviation or 1.0}
    return {"name": name, "values": np.unique(column.astype(str)).tolist()}


def _extra_column(table: Table, name: str) -> Array:
    one_of("tokens.extra", name, table)
    column = table[name]
    if isinstance(column, Lists) or column.ndim != 1:
        raise UserError(
            f"column `{name}` of tokens.extra must have one number or name for each series, not several",
            key="tokens.extra",
        )
    return column


def extra_rows(beside: Sequence[dict[str, Any]]) -> list[int]:
    """The first row of each column of `extra` in the table of their vectors, and the number of all rows.

    Row 0 stands for observations; a number has two rows, one of them for a missing one; a name has a row for each
    value, and one for others.
    """
    sizes = [len(about["values"]) + 1 if "values" in about else 2 for about in beside]
    return [1 + sum(sizes[:place]) for place in range(len(sizes) + 1)]


def standardise_extra(entry: Array, given: Array, beside: Sequence[dict[str, Any]]) -> Array:
    """Numbers given beside, less their mean in the training data, over their deviation; 0 elsewhere."""
    made = np.zeros(len(given), np.float32)
    for about, row in zip(beside, extra_rows(beside)):
        if "mean" in about:
            here = entry == row
            made[here] = (given[here] - about["mean"]) / about["deviation"]
    return made
