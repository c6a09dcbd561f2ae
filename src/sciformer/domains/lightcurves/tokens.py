"""Observations: a token is one measurement of a series (value, error, band, time) or a patch of a regular one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Table
from ...data.random import SampleRandom
from ...tokens.base import Drawing
from ...tokens.protocols import Augmentable, Editable, Exportable, Maskable, Readout, Windowed
from . import points
from .draw import draw_hidden_values, draw_series
from .features import TARGET_PREFIX, hidden_targets, observation_features
from .layers import ObservationEmbedding, ObservationReadout, ObservationTrace
from .periods import PERIOD_COLUMNS, add_phases, feature_names, refuse_hidden_values
from .scaling import Level, compute_level, draw_replacements


class Observations(Maskable, Windowed, Augmentable, Exportable, Editable):
    """The measurements of series at any times: columns `time`, `value`, and where there are such `error`, `band` and
    `limit`, each a list for every sample.

    Of a hidden measurement, time and band are still known. Level and scale of values come from those that are seen.
    """

    source_columns: ClassVar[tuple[str, ...]] = ("time", "value")
    hides: ClassVar[tuple[str, ...]] = ("value", "error")
    host_columns: ClassVar[tuple[str, ...]] = ("value", "error", "limit", "drawn", "clean", *PERIOD_COLUMNS)
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = (
        "window",
        "stride",
        "weighting",
        "gaussian",
        "magnitudes",
        "augment",
        "drop_points",
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

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn bands, cadence, level and scale of values, size of errors, and of what is given beside."""
        self.state.update(points.learn_statistics(tables, self))

    # What is a token, and where is it?

    def tokenize(self, table: Table) -> Stream:
        """Columns `at` (T,) in double precision, `value` and `error` (T,) or (T, P), NaN where there is none; where
        there are such, `band`, `limit`, `clean`, and of tokens given beside `entry` and `given`."""
        return points.tokenize_series(table, self)

    def truncate(self, stream: Stream, far: float) -> Stream:
        """The beginnings of series, with the periods of those alone."""
        kept = super().truncate(stream, far)
        return add_phases(kept, self) if self.periods else kept

    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        return points.augment_series(stream, self, rng) if self.augment else stream

    def _level(self, stream: Stream) -> tuple[Array, Array, Level]:
        """Values (T, P) in double precision, which of them are seen, and their level."""
        columns = stream.columns
        value = columns["value"].reshape(len(columns["value"]), self.patch).astype(np.float64)
        seen = np.isfinite(value)
        if "limit" in columns:
            seen &= ~columns["limit"][:, None]
        band = columns.get("band") if self.by_band else None
        known = tuple(self.state.get("level", (0.0, 1.0)))
        return (
            value,
            seen,
            compute_level(value, seen, stream.sample, band, self.centre, self.scale, (known[0], known[1])),
        )

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        about = self._level(stream)[2]
        return about.centre, about.scale

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
            made["given"] = points.standardise_extra(columns["entry"], columns["given"], self.state["extra"])
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
        entries = points.count_extra_rows(self.state["extra"]) if self.extra else 0
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
        return add_phases(stream.reorder(order), self) if self.periods else stream.reorder(order)

    # How do others make it?

    def example(self) -> Table:
        return points.example_table(self)

    @property
    def max_tokens(self) -> int | None:
        return self.window

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "features": self.input_features, "columns": points.describe_columns(self)}

    # How does a person look at it?

    def token_labels(self, stream: Stream) -> list[str]:
        columns, bands = stream.columns, self.known_bands
        at = columns["at"] - columns["at"].min(initial=np.inf)
        names = [f"{bands[band]} " if bands else "" for band in columns.get("band", np.zeros(len(at), np.int64))]
        words = [f"{name}{time:.4g}" for name, time in zip(names, at)]
        if "entry" in columns:
            words[: self.prefix_tokens] = self.extra
        return words

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        draw_series(axes, points.series_view(sample.stream, self), weights, self.magnitudes)

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        period = self._period(sample)
        if period is None:
            return {}

        def folded(one: Batch, weights: Array | None, axes: Axes) -> None:
            draw_series(axes, points.series_view(one.stream, self), weights, self.magnitudes, period)

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
        shown = points.series_view(sample.stream, self)
        draw_hidden_values(axes, shown, mean, spread, self.magnitudes, self._period(sample))
