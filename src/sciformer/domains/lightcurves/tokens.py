"""Observation tokens: measurements, or patches of a regular series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Lists, Table, concatenate, rows_of
from ...data.random import SampleRandom
from ...errors import UserError, one_of
from ...tokens.base import Drawing
from ...tokens.protocols import Augmentable, Editable, Exportable, Maskable, Readout, Windowed
from .draw import SeriesView, draw_hidden_values, draw_series
from .layers import ObservationEmbedding, ObservationReadout, ObservationTrace
from .periods import (
    PERIOD_COLUMNS,
    Points,
    add_phases,
    describe_features,
    feature_names,
    learn_period,
    period_features,
    period_search,
    refuse_hidden_values,
)
from .scaling import Level, compute_level, cut_patches, draw_replacements, error_weights
from .summary import add_summary, describe_summary, learn_summary, summary_features, summary_names

MAX_FITTED_POINTS = 1_000_000  # points used by `fit`
TARGET_PREFIX = "target "


class Observations(Maskable, Windowed, Augmentable, Exportable, Editable):
    """Measurements of time series, from lists in the columns `time` and `value`.

    The columns `error`, `band` and `limit` are optional. Time and band of a hidden measurement stay visible. Centre and
    scale of the values come from visible values only.
    """

    source_columns: ClassVar[tuple[str, ...]] = ("time", "value")
    hides: ClassVar[tuple[str, ...]] = ("value", "error")
    host_columns: ClassVar[tuple[str, ...]] = ("value", "error", "limit", "drawn", "clean", *PERIOD_COLUMNS, "summary")
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = (
        *("window", "stride", "weighting", "gaussian", "magnitudes", "augment", "drop_points"),
    )
    changeable_columns: ClassVar[tuple[str, ...]] = ("value", "error", "band")
    movable_column: ClassVar[str] = "at"
    coordinates: ClassVar[tuple[str, ...]] = ("time",)

    window: int | None = Field(default=200, ge=1)
    """Maximum number of tokens per window (default: 200). Longer series are cut into windows; with null, series stay
    whole."""
    stride: int | None = Field(default=None, ge=1)
    """Distance in tokens between the starts of training windows (default: one random window of each series per
    epoch)."""
    centre: Literal["mean", "median", "learned", "none"] = "mean"
    """Centre subtracted from the values (default: mean). mean or median: of the visible values in the window; learned:
    a common centre of all series, which keeps their levels; none: 0."""
    by_band: bool = False
    """Subtract a separate centre for each band (default: false). Otherwise differences between bands (colours) are
    kept."""
    scale: Literal["none", "deviation", "learned"] = "learned"
    """Divisor of values and errors (default: learned). learned: half the 68 % range of the training data; deviation:
    standard deviation of the visible values in the window; none: 1."""
    errors: Literal["none", "input", "weight", "both"] = "input"
    """Use of the errors (default: input). none: not used; input: input of the model; weight: weights in the loss of
    hidden values; both: input and weights."""
    weighting: Literal["minmax", "chi2"] = "minmax"
    """Loss weights from errors (default: minmax). minmax: minmax(1 / error) + 1e-3 in each window (ASTROMER 2); chi2:
    1 / error^2. If `gaussian` is set, chi2 adds error^2 to the predicted variance instead."""
    gaussian: bool = False
    """Predict hidden values as normal distributions, with a standard deviation (default: false)."""
    times: Literal["position", "differences", "both"] = "position"
    """Use of times (default: position). position: position of a token; differences: feature ln(1 + time since the
    previous token), with the positions 0, 1, 2, ...; both: position and feature."""
    time_unit: float = Field(default=1.0, gt=0)
    """Divisor of times before they become positions or differences (default: 1)."""
    bands: tuple[str, ...] = ()
    """Names of the bands (default: all bands of the training data)."""
    limits: Literal["keep", "drop"] = "keep"
    """Use of upper limits (default: keep). keep: marked tokens, which are not predicted and do not count for the
    centre. drop: remove them."""
    extra: tuple[str, ...] = ()
    """Columns with one number or name for each series, added as tokens before the observations (default: none)."""
    patch: int = Field(default=1, ge=1)
    """Number of values in a token (default: 1). More than 1 is for regular series only; missing values are marked, not
    filled."""
    cadence: float | None = Field(default=None, gt=0)
    """Time step of a regular series, for patches (default: median step of the training data)."""
    gaps: Literal["keep", "drop"] = "keep"
    """Use of patches without any value (default: keep). keep: tokens, so that the tokens stay regular in time. drop:
    remove them."""
    periods: int = Field(default=0, ge=0, le=8)
    """Number of periods per series, from the highest peaks of its periodogram (default: 0). Phases of these periods
    become features: sin and cos of the phase, of half and twice the phase, ln(period) and power. Periods are found
    once, from all values of the whole series, and augmentations do not change them. Not for objectives that hide
    values."""
    shortest: float = Field(default=0.05, gt=0)
    """Shortest period of the period search, in units of the column `time` (default: 0.05)."""
    longest: float | None = Field(default=None, gt=0)
    """Longest period of the period search, in units of the column `time` (default: the span of the series)."""
    summary: bool = False
    """Add statistics of the whole series to the features of each token (default: false): deviation, skewness, kurtosis,
    percentiles and roughness; with `periods` also harmonics and shape of the curve folded with the first period and
    with twice this period. This helps with few labels. Not for objectives that hide values."""
    magnitudes: bool = False
    """Whether values are magnitudes (default: false). Plots then show small values on top."""
    augment: tuple[Literal["noise", "thin"], ...] = ()
    """Augmentations in training: noise shifts values by their errors, thin removes random points (default: none)."""
    drop_points: float = Field(default=0.3, ge=0, lt=1)
    """Maximum share of points removed by `augment: [thin]` (default: 0.3)."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*self.source_columns, *self.extra)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return ("error", "band", "limit", "clean", "period")

    @property
    def invariances(self) -> dict[str, str]:
        """Invariance of the tokens for each column: `shift` or `scale`.

        Times have no origin. If each series is centred, values have no origin; if each series is also scaled, they have
        no unit.
        """
        unread = {"clean": "scale", "period": "scale"} | ({"error": "scale"} if self.errors == "none" else {})
        if self.centre in ("learned", "none"):
            return {"time": "shift", **unread}
        own = {"value": "scale", "error": "scale"} if self.scale == "deviation" else {"value": "shift"}
        return {"time": "shift", **own, **unread}

    @property
    def can_hide(self) -> bool:
        """Whether tokens can be hidden: no, if features come from all values of a series."""
        return not (self.periods or self.summary)

    @property
    def grid_shape(self) -> None:
        return None

    @property
    def random_windows(self) -> bool:
        return True

    @property
    def prefix_tokens(self) -> int:
        """Number of extra tokens at the start of every window."""
        return len(self.extra)

    # Learned properties

    @property
    def known_bands(self) -> list[str]:
        found: list[str] = list(self.bands) or self.state.get("bands", [])
        return found if len(found) > 1 else []

    @property
    def usual_error(self) -> tuple[float, float] | None:
        """Mean and deviation of ln(error / scale) in training data; None without errors."""
        found = self.state.get("error")
        return None if found is None else (found[0], found[1])

    @property
    def input_features(self) -> list[str]:
        names = ["value"]
        if self.patch > 1:
            names = [f"{what} {i + 1}" for what in ("value", "no value") for i in range(self.patch)]
        if self.errors in ("input", "both") and self.usual_error is not None:
            names += ["error", "no error"]
        if self.times != "position":
            names.append("since")
        if self.limited:
            names.append("limit")
        return names + feature_names(self.periods) + (summary_names(self.periods > 0) if self.summary else [])

    @property
    def limited(self) -> bool:
        return self.limits == "keep" and self.patch == 1 and bool(self.state.get("limits", False))

    @property
    def spacing(self) -> float:
        return self.cadence or float(self.state.get("cadence", 1.0))

    @property
    def slots(self) -> Array:
        """Times (P,) of the values in a patch, relative to its middle."""
        return (np.arange(self.patch) - (self.patch - 1) / 2) * self.spacing * (self.patch > 1)

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn bands, cadence, centres and scales, and the values of extra columns."""
        some, count = [], 0
        for table in tables:
            some.append(table)
            count += int(_list_column(table, "time").lengths.sum())
            if count >= MAX_FITTED_POINTS:
                break
        if not count:
            raise UserError("the training series have no points")
        whole = concatenate(some)
        names = np.unique(_list_column(whole, "band").values).astype(str).tolist() if "band" in whole else []
        bands = list(self.bands) or sorted(names)
        points = read_points(whole, bands)
        columns, sample = points.columns, points.sample
        band, limit = columns["band"], columns["limit"]
        wide, seen = columns["value"].astype(np.float64)[:, None], ~limit[:, None]
        if not seen.any():
            raise UserError("all points of the training series are upper limits, so the scale of values is unknown")
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
                message = "tokens.cadence cannot be learned, because no series has points at two different times"
                raise UserError(message, hint="Set tokens.cadence.", key="tokens.cadence")
            state["cadence"] = float(np.median(apart[apart > 0]))
        if self.periods or self.summary:
            some_points = points.keep(~points.columns["limit"])
            time, value, error, band = (some_points.columns[name] for name in ("at", "value", "error", "band"))
            visible = Points(some_points.lengths, time, value, error, band if band.any() else None)
            self.state.update(state)  # the period search needs the cadence
            if self.periods:
                state["period"] = learn_period(visible, period_search(self))
            if self.summary:
                state["summary"] = learn_summary(visible, self)
        state["extra"] = [_extra_statistics(name, _extra_column(whole, name)) for name in self.extra]
        self.state.update(state)

    # Tokens and their positions

    def tokenize(self, table: Table) -> Stream:
        """Make tokens with the columns `at`, `value` and `error`; NaN for missing values.

        Values and errors are (T,), or (T, P) for patches of P values. Times are in double precision. Optional columns:
        `band`, `limit`, `clean`, and for extra tokens `entry` (row in the embedding table) and `given` (value).
        """
        stream = read_points(table, list(self.bands) or self.state.get("bands", []))
        if not self.limited and stream.columns["limit"].any():
            stream = stream.keep(~stream.columns["limit"])
        if self.patch > 1:
            stream = cut_patches(stream, self.patch, self.spacing, self.gaps == "keep")
        unused = {"band": not self.known_bands, "limit": not self.limited}
        columns = {name: column for name, column in stream.columns.items() if not unused.get(name)}
        stream = Stream(columns, stream.lengths)
        return self._describe_series(self._prepend_extra(stream, table) if self.extra else stream)

    def _describe_series(self, stream: Stream) -> Stream:
        """Add phases and summary of each whole series."""
        return add_summary(add_phases(stream, self), self)

    def _prepend_extra(self, stream: Stream, table: Table) -> Stream:
        """Add a token for each column of `extra` at the start of each sample."""
        rows, more, count = rows_of(table), len(self.extra), len(stream.columns["at"])
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
        begin, some = np.zeros(rows), stream.lengths > 0
        begin[some] = stream.columns["at"][stream.starts[some]]
        extra = {"at": np.repeat(begin, more), "entry": entry.ravel(), "given": given.ravel()}
        columns = stream.with_columns(entry=np.zeros(count, np.int64), given=np.zeros(count, np.float32)).columns
        order = np.argsort(np.concatenate([np.repeat(np.arange(rows), more), stream.sample]), kind="stable")
        for name, column in columns.items():
            empty = np.full((rows * more, *column.shape[1:]), np.nan if column.dtype.kind == "f" else 0, column.dtype)
            columns[name] = np.concatenate([extra.get(name, empty), column])[order]
        return Stream(columns, stream.lengths + more)

    def truncate(self, stream: Stream, limit: float) -> Stream:
        """Cut each series to its beginning, and compute periods and summary again."""
        return self._describe_series(super().truncate(stream, limit))

    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        if "noise" in self.augment:
            value, error = stream.columns["value"], stream.columns["error"]
            draws = rng.normal("noise", stream.lengths * self.patch).reshape(value.shape)
            stream = stream.with_columns(value=(value + np.nan_to_num(error) * draws).astype(np.float32))
        if "thin" in self.augment:
            share = self.drop_points * rng.uniform("share")[stream.sample]
            kept = rng.uniform("thin", stream.lengths) >= share
            kept |= stream.position <= self.prefix_tokens  # keep the extra tokens and the first point
            stream = stream.keep(kept)
        return stream

    def _level(self, stream: Stream) -> tuple[Array, Array, Level]:
        """Values and mask of visible values (T, P), and centre and scale of each token."""
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
        """Add `features` (T, F), centred times `at`, and scaled targets with weights."""
        columns, sample = stream.columns, stream.sample
        value, seen, about = self._level(stream)
        error = columns["error"].reshape(value.shape).astype(np.float64) / about.scale
        value = (value - about.centre) / about.scale
        if "drawn" in columns:
            those, instead = draw_replacements(columns["drawn"], np.asarray(seen.any(1)), sample)
            value[those], error[those] = value[instead], error[instead]
        made = {"features": self._features(stream, value, error)}
        if TARGET_PREFIX + "value" in columns:
            made |= self._hidden_targets(stream, about)
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

    def _features(self, stream: Stream, value: Array, error: Array) -> Array:
        """Input features (T, F) from scaled values and errors (T, P)."""
        parts = [np.nan_to_num(value)]
        if self.patch > 1:
            parts.append(np.isnan(value))
        listed = self.input_features
        if "error" in listed:
            assert self.usual_error is not None
            middle, wide = self.usual_error
            known = np.isfinite(error) & (error > 0)
            logs = np.where(known, np.log(np.where(known, error, 1)) - middle, 0).sum(1, keepdims=True)
            number = known.sum(1, keepdims=True)
            parts += [np.clip(logs / np.maximum(number, 1) / wide, -5, 5), number == 0]
        if "since" in listed:
            since = np.diff(stream.columns["at"], prepend=0.0) / self.time_unit
            since[stream.starts[stream.lengths > 0]] = 0
            parts.append(np.log1p(np.maximum(since, 0))[:, None])
        if self.limited:
            parts.append(stream.columns["limit"][:, None])
        if self.periods:
            parts.append(period_features(stream, tuple(self.state["period"])))
        if self.summary:
            parts.append(summary_features(stream, self.state["summary"]))
        return np.concatenate([part.astype(np.float32) for part in parts], 1)

    def _hidden_targets(self, stream: Stream, about: Level) -> dict[str, Array]:
        """Targets of hidden tokens: scaled values and errors, and weights of the values."""
        value, error = (stream.columns[TARGET_PREFIX + name] for name in self.hides)
        shape, usual = value.shape, np.exp(self.usual_error[0]) if self.usual_error else 1.0
        wide = value.reshape(-1, self.patch).astype(np.float64)
        there, raw = np.isfinite(wide), error.reshape(wide.shape).astype(np.float64)
        errors = raw / about.scale
        errors = np.where(np.isfinite(errors), errors, usual)
        weight = there.astype(np.float64)
        if self.errors in ("weight", "both") and self.usual_error is not None:
            if self.weighting == "minmax":
                known = np.isfinite(raw) & there
                if "limit" in stream.columns:
                    known &= ~stream.columns["limit"][:, None]
                weight *= error_weights(raw, known, stream.sample)
            elif not self.gaussian:
                weight /= errors**2 + (0.1 * usual) ** 2
        found = {"value": np.nan_to_num((wide - about.centre) / about.scale), "error": errors, "weight": weight}
        return {TARGET_PREFIX + name: part.astype(np.float32).reshape(shape) for name, part in found.items()}

    # Embedding, masking and readout

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
        """Mask of tokens with a value, except upper limits and the only point of a series."""
        refuse_hidden_values(self)
        columns = stream.columns
        may = np.isfinite(columns["value"].reshape(-1, self.patch)).any(1)
        if "limit" in columns:
            may &= ~columns["limit"]
        return np.asarray(may & (np.bincount(stream.sample[may], minlength=len(stream)) > 1)[stream.sample])

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        refuse_hidden_values(self)
        found = {name: stream.columns[name].copy() for name in self.hides}
        for column in found.values():
            column[tokens] = np.nan
        return found

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """Replace value and error by another visible measurement of the same series."""
        choice = np.where(tokens, rng.uniform("drawn", stream.lengths), np.nan)
        return {**self.mask_out(stream, tokens), "drawn": choice}

    # Edits by a person

    def refresh(self, stream: Stream) -> Stream:
        """Sort changed measurements by time, and find periods and summary again."""
        order = np.lexsort((stream.columns["at"], stream.position >= self.prefix_tokens))
        return self._describe_series(stream.reorder(order))

    # Export

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
        """Description of each model input in terms of the raw data."""
        unit = f" / {self.time_unit:g}" if self.time_unit != 1 else ""
        centre = {"learned": "learned.level[0]", "none": "0"}.get(self.centre, f"{self.centre} of the window's values")
        scale = {"learned": "learned.level[1]", "none": "1"}.get(self.scale, "their root mean square about the centre")
        words = {
            "features": "in the order of `features`: value: (value - centre) / scale; no value: 1 if it is missing; "
            "error: clip((ln(error / scale) - learned.error[0]) / learned.error[1], -5, 5), the mean over a patch, 0 "
            f"if unknown; no error: 1 if unknown; since: ln(1 + time since the previous token{unit}), 0 for the first; "
            f"limit: 1 for upper limits. centre: {centre}"
            + (", for each band" if self.by_band else "")
            + f"; scale: {scale}; both without upper limits"
            + (describe_features(self) if self.periods else "")
            + (describe_summary(self) if self.summary else ""),
        }
        if self.times != "differences":
            words["at"] = f"(time - mean time of the window){unit}, computed in double precision"
        if self.known_bands:
            words["band"] = f"number of the band in {', '.join(self.known_bands)}, from 0"
        if self.extra:
            words["entry"] = (
                "0 for observations; for each column of learned.extra, in order, a token before the observations with "
                "the next rows: a number has one row, and one more if it is missing; a name has a row for each value, "
                "and one more for unknown values"
            )
            words["given"] = "(number - mean) / deviation for extra tokens; 0 for observations"
            words["entry"] += "; `features` and `at` of extra tokens are 0"
        return words

    # Plots

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

    def draw(self, sample: Batch, weights: Array | None, axes: Axes, period: float | None = None) -> None:
        draw_series(axes, self._series_view(sample.stream), weights, self.magnitudes, period)

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        period = self._period(sample)
        return {} if period is None else {"folded": partial(self.draw, period=period)}

    def _period(self, sample: Batch) -> float | None:
        known = sample.samples.get("period", np.zeros(0))[:1].tolist()
        known += sample.stream.columns.get("period", np.zeros((0, 1)))[-1:, 0].tolist()
        return next((float(one) for one in known if 0 < one < np.inf), None)

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """Plot visible, hidden and predicted values, with predicted standard deviations."""
        _, _, about = self._level(sample.stream)
        mean = answer["value"].reshape(-1, self.patch) * about.scale + about.centre
        spread = answer["error"].reshape(-1, self.patch) * about.scale if self.gaussian else None
        view = self._series_view(sample.stream)
        draw_hidden_values(axes, view, mean, spread, self.magnitudes, self._period(sample))


# Points of series and extra columns of a table, with checks


def read_points(table: Table, bands: Sequence[str]) -> Stream:
    """Read the points with a finite value from a table, sorted by time.

    Columns: `value`, the time `at`, `error` (NaN if unknown), `limit`, `band` (index in `bands`), `clean` if known.
    """
    time = _list_column(table, "time")
    lengths = time.lengths.astype(np.int64)
    when = np.asarray(time.values, np.float64)
    if (wrong := ~np.isfinite(when)).any():
        raise UserError(f"column `time` has NaN or infinity at {wrong.sum():,} points", hint="Remove these points.")
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
    if name not in table:
        raise UserError(f"the series have no column `{name}`; their columns are {', '.join(table)}")
    column = table[name]
    if not isinstance(column, Lists):
        raise UserError(f"column `{name}` is an array of shape {column.shape}, but it must have a list for each series")
    if lengths is not None and not np.array_equal(column.lengths, lengths):
        row = int(np.argmax(column.lengths != lengths))
        found = f"{column.lengths[row]} points in `{name}`, but {lengths[row]} points in `time`"
        raise UserError(f"sample {row} has {found}")
    return column


def _band_numbers(names: Array, known: Sequence[str]) -> Array:
    """Index of each band name; without known bands, all names must be equal."""
    found = np.full(len(names), -1, np.int64)
    for number, name in enumerate(known or np.unique(names)):
        found[names == name] = number
    if not (found >= 0).all() or (not known and (found > 0).any()):
        odd = sorted({str(name) for name in np.unique(names)} - set(known))
        allowed = f"the known bands are {', '.join(known)}" if known else "the training data have no bands"
        raise UserError(
            f"column `band` has unknown bands: {', '.join(odd[:8])}; {allowed}",
            hint="Select bands in the data section, or list all bands in tokens.bands.",
            key="tokens.bands",
        )
    return found


def _extra_statistics(name: str, column: Array) -> dict[str, Any]:
    """Mean and deviation of a column of numbers, or distinct names of a text column."""
    if column.dtype.kind in "biuf":
        values = column[np.isfinite(column.astype(np.float64))].astype(np.float64)
        mean, deviation = (float(values.mean()), float(values.std())) if len(values) else (0.0, 1.0)
        return {"name": name, "mean": mean, "deviation": deviation or 1.0}
    return {"name": name, "values": np.unique(column.astype(str)).tolist()}


def _extra_column(table: Table, name: str) -> Array:
    one_of("tokens.extra", name, table)
    column = table[name]
    if isinstance(column, Lists) or column.ndim != 1:
        message = f"column `{name}` of tokens.extra has several values per series, but it must have one number or name"
        raise UserError(message, key="tokens.extra")
    return column


def extra_rows(beside: Sequence[dict[str, Any]]) -> list[int]:
    """First row of each extra column in the embedding table, and the number of rows.

    Row 0 stands for observations. A column of numbers has two rows, the second for missing numbers. A column of names
    has a row for each name and a row for unknown names.
    """
    sizes = [len(about["values"]) + 1 if "values" in about else 2 for about in beside]
    return [1 + sum(sizes[:place]) for place in range(len(sizes) + 1)]


def standardise_extra(entry: Array, given: Array, beside: Sequence[dict[str, Any]]) -> Array:
    """Standardise the numbers of extra tokens; 0 for observations and names.

    entry   (T,) row of each token in the embedding table
    given   (T,) number of each token
    """
    made = np.zeros(len(given), np.float32)
    for about, row in zip(beside, extra_rows(beside)):
        if "mean" in about:
            here = entry == row
            made[here] = (given[here] - about["mean"]) / about["deviation"]
    return made
