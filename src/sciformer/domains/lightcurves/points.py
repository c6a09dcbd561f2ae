"""The points of series on their way into tokens: columns read and checked, what is learned from them, variations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.batch import Stream
from ...data.columns import Array, Lists, Table, rows_of
from ...data.random import SampleRandom
from ...errors import UserError, one_of
from .draw import SeriesView
from .periods import add_phases, describe_features, learn_period, period_search
from .scaling import compute_level, cut_patches

if TYPE_CHECKING:
    from .tokens import Observations

MAX_FITTED_POINTS = 1_000_000  # points from which something is learned
OTHER_NAME = "other"  # in place of a name that training did not have


@dataclass
class Points:
    """All points of some series, end to end, each in the order of time; bands by number."""

    lengths: Array
    time: Array
    band: Array
    limit: Array
    columns: dict[str, Array]  # value, error, and where it is known clean

    @property
    def sample(self) -> Array:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def take(self, index: Array) -> Points:
        """Some points, in another order; those of a series stay together."""
        lengths = np.bincount(self.sample[index], minlength=len(self.lengths)).astype(np.int64)
        columns = {name: column[index] for name, column in self.columns.items()}
        return Points(lengths, self.time[index], self.band[index], self.limit[index], columns)


def read_points(table: Table, bands: Sequence[str]) -> Points:
    """The points of a table that have a value, in the order of time; `bands` names those that are known."""
    time = _list_column(table, "time")
    lengths = time.lengths.astype(np.int64)
    when = np.asarray(time.values, np.float64)
    if not np.isfinite(when).all():
        raise UserError(f"column `time` has NaN or infinity at {(~np.isfinite(when)).sum():,} points")
    columns = {"value": _list_column(table, "value", lengths).values.astype(np.float32)}
    columns["error"] = np.full(len(when), np.nan, np.float32)
    if "error" in table:
        error = _list_column(table, "error", lengths).values.astype(np.float32)
        columns["error"] = np.where(np.isfinite(error) & (error > 0), error, np.float32(np.nan))
    if "clean" in table:
        columns["clean"] = _list_column(table, "clean", lengths).values.astype(np.float32)
    limit = _list_column(table, "limit", lengths).values.astype(bool) if "limit" in table else np.zeros(len(when), bool)
    band = np.zeros(len(when), np.int64)
    if len(bands) > 1 or "band" in table:
        band = _band_numbers(_list_column(table, "band", lengths).values, bands)
    made = Points(lengths, when, band, limit, columns)
    kept = np.isfinite(columns["value"])
    if not kept.all():
        made = made.take(np.flatnonzero(kept))
    back = np.diff(made.time, prepend=-np.inf) < 0
    starts = made.lengths.cumsum() - made.lengths
    back[starts[made.lengths > 0]] = False
    return made.take(np.lexsort((made.time, made.sample))) if back.any() else made


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


# What is learned


def learn_statistics(tables: Iterable[Table], tokens: Observations) -> dict[str, Any]:
    """What tokenising and scaling need, from the first million points."""
    some, count, names, beside = [], 0, set(tokens.bands), []
    for table in tables:
        if "band" in table:
            names |= {str(name) for name in np.unique(_list_column(table, "band").values)}
        some.append(table)
        beside.append({name: np.asarray(_extra_column(table, name)) for name in tokens.extra})
        count += int(_list_column(table, "time").lengths.sum())
        if count >= MAX_FITTED_POINTS:
            break
    if not count:
        raise UserError("the series have no points to learn from")
    bands = list(tokens.bands) or sorted(names)
    parts = [read_points(table, bands) for table in some]
    values, errors = (np.concatenate([one.columns[name] for one in parts]) for name in ("value", "error"))
    limit, band, time = (np.concatenate([getattr(one, name) for one in parts]) for name in ("limit", "band", "time"))
    sample = np.repeat(np.arange(sum(len(one.lengths) for one in parts)), np.concatenate([p.lengths for p in parts]))
    wide, seen = values.astype(np.float64)[:, None], ~limit[:, None]
    if not seen.any():
        raise UserError("all values of the series are limits, so there is no value to learn from")
    middle = float(np.median(wide[seen]))
    centre = tokens.centre if tokens.centre in ("mean", "median") else "learned"
    own = band if tokens.by_band else None
    rest = wide - compute_level(wide, seen, sample, own, centre, "none", (middle, 1.0)).centre
    low, high = np.percentile(rest[seen], [16, 84])
    spread = float((high - low) / 2) if high > low else float(rest[seen].std()) or 1.0
    state: dict[str, Any] = {"bands": bands, "limits": bool(limit.any()), "level": [middle, spread]}
    about = compute_level(wide, seen, sample, own, centre, tokens.scale, (middle, spread))
    relative = errors[:, None] / about.scale
    known = np.isfinite(relative) & seen
    state["error"] = None
    if known.any():
        logs = np.log(relative[known])
        state["error"] = [float(logs.mean()), float(max(logs.std(), 0.1))]
    if tokens.patch > 1 and tokens.cadence is None:
        line = sample * (int(band.max(initial=0)) + 1) + band
        order = np.lexsort((time, line))
        apart = np.diff(time[order])[np.diff(line[order]) == 0]
        if not (apart > 0).any():
            raise UserError(
                "tokens.cadence cannot be learned because no series has two points or more at different times",
                hint="Set tokens.cadence.",
                key="tokens.cadence",
            )
        state["cadence"] = float(np.median(apart[apart > 0]))
    if tokens.periods:
        state["period"] = learn_period(parts, period_search(tokens, state.get("cadence")))
    state["extra"] = [_extra_statistics(name, np.concatenate([one[name] for one in beside])) for name in tokens.extra]
    return state


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


# Tokens


def tokenize_series(table: Table, tokens: Observations) -> Stream:
    """The tokens of a table."""
    several = tokens.known_bands
    found = read_points(table, list(tokens.bands) or tokens.state.get("bands", []))
    if not tokens.limited and found.limit.any():
        found = found.take(np.flatnonzero(~found.limit))
    lengths, at, band, columns = found.lengths, found.time, found.band, dict(found.columns)
    if tokens.patch > 1:
        rows, keep = len(lengths), tokens.gaps == "keep"
        lengths, at, band, columns = cut_patches(
            found.time, found.sample, found.band, columns, rows, tokens.patch, tokens.spacing, keep
        )
    columns["at"] = at
    if several:
        columns["band"] = band
    if tokens.limited:
        columns["limit"] = found.limit
    stream = Stream(columns, lengths)
    stream = _prepend_extra(stream, table, tokens) if tokens.extra else stream
    return add_phases(stream, tokens) if tokens.periods else stream


def _prepend_extra(stream: Stream, table: Table, tokens: Observations) -> Stream:
    """The same with a token for each column of `extra` before those of every sample, at its first time."""
    rows, more = rows_of(table), len(tokens.extra)
    lengths = stream.lengths + more
    own = np.arange(len(stream.columns["at"])) + more * (stream.sample + 1)
    first = ((lengths.cumsum() - lengths)[:, None] + np.arange(more)).ravel()
    columns = {}
    for name, column in stream.columns.items():
        empty = np.nan if column.dtype.kind == "f" else 0
        columns[name] = np.full((int(lengths.sum()), *column.shape[1:]), empty, column.dtype)
        columns[name][own] = column
    begin = np.zeros(rows)
    some = stream.lengths > 0
    begin[some] = stream.columns["at"][stream.starts[some]]
    columns["at"][first] = np.repeat(begin, more)
    entry, given = np.zeros((rows, more), np.int64), np.zeros((rows, more), np.float32)
    row = 1
    for place, about in enumerate(tokens.state["extra"]):
        column = np.asarray(_extra_column(table, about["name"]))
        if "values" in about:
            number = {name: i for i, name in enumerate(about["values"])}
            entry[:, place] = [row + number.get(str(name), len(number)) for name in column]
            row += len(number) + 1
        else:
            values = column.astype(np.float64)
            known = np.isfinite(values)
            entry[:, place], given[:, place] = np.where(known, row, row + 1), np.where(known, values, 0)
            row += 2
    columns["entry"] = np.zeros(int(lengths.sum()), np.int64)
    columns["given"] = np.zeros(int(lengths.sum()), np.float32)
    columns["entry"][first], columns["given"][first] = entry.ravel(), given.ravel()
    return Stream(columns, lengths)


def count_extra_rows(beside: Sequence[dict[str, Any]]) -> int:
    """Rows of the table of what is given beside: one for observations, for each number two, for each name one and one
    for others."""
    return 1 + sum(len(about["values"]) + 1 if "values" in about else 2 for about in beside)


def standardise_extra(entry: Array, given: Array, beside: Sequence[dict[str, Any]]) -> Array:
    """Numbers given beside, less their mean in the training data, over their deviation; 0 elsewhere."""
    made, row = np.zeros(len(given), np.float32), 1
    for about in beside:
        if "values" in about:
            row += len(about["values"]) + 1
            continue
        here = entry == row
        made[here] = (given[here] - about["mean"]) / about["deviation"]
        row += 2
    return made


def augment_series(stream: Stream, tokens: Observations, rng: SampleRandom) -> Stream:
    """The series with values moved by their errors, or some points left out."""
    if "noise" in tokens.augment:
        value, error = stream.columns["value"], stream.columns["error"]
        if tokens.patch == 1:
            draws = rng.normal("noise", stream.lengths)
        else:
            draws = rng.normal("noise", stream.lengths * tokens.patch).reshape(value.shape)
        stream = stream.with_columns(value=(value + np.nan_to_num(error) * draws).astype(np.float32))
    if "thin" in tokens.augment:
        share = tokens.drop_points * rng.uniform("share")[stream.sample]
        kept = rng.uniform("thin", stream.lengths) >= share
        kept |= stream.position <= tokens.prefix_tokens  # the first point stays, with what is given beside
        stream = stream.keep(kept)
    return stream


# For others, and for people


def example_table(tokens: Observations) -> Table:
    """Three random series."""
    rng, lengths = np.random.default_rng(0), np.array([31, 12, 54]) * tokens.patch
    total, (centre, scale) = int(lengths.sum()), tokens.state.get("level", (0.0, 1.0))
    gaps = np.full(total, tokens.spacing) if tokens.patch > 1 else rng.exponential(2 * tokens.time_unit, total)
    table: dict[str, Array | Lists] = {
        "time": Lists(gaps.cumsum(), lengths),
        "value": Lists(rng.normal(centre, scale, total).astype(np.float32), lengths),
        "error": Lists((scale * rng.uniform(0.05, 0.3, total)).astype(np.float32), lengths),
    }
    if tokens.known_bands:
        table["band"] = Lists(rng.choice(tokens.known_bands, total), lengths)
    if tokens.limited:
        table["limit"] = Lists(rng.random(total) < 0.2, lengths)
    for about in tokens.state.get("extra", []):
        drawn = (
            rng.choice(about["values"], 3) if "values" in about else rng.normal(about["mean"], about["deviation"], 3)
        )
        table[about["name"]] = drawn
    return table


def describe_columns(tokens: Observations) -> dict[str, str]:
    """How each column that a model reads is made of raw data."""
    unit = f" / {tokens.time_unit:g}" if tokens.time_unit != 1 else ""
    centre = {"learned": "learned.level[0]", "none": "0"}.get(tokens.centre, f"{tokens.centre} of the window's values")
    scale = {"learned": "learned.level[1]", "none": "1"}.get(tokens.scale, "their root mean square about the centre")
    words = {
        "features": "in the order of `features`: value: (value - centre) / scale; no value: 1 where there is none; "
        "error: clip((ln(error / scale) - learned.error[0]) / learned.error[1], -5, 5), a mean over a patch, 0 if "
        f"unknown; no error: 1 where unknown; since: ln(1 + time since the token before{unit}), 0 for the first; "
        f"limit: 1 for upper limits. centre: {centre}"
        + (", of each band" if tokens.by_band else "")
        + f"; scale: {scale}; limits count in neither"
        + (describe_features(tokens) if tokens.periods else ""),
    }
    if tokens.times != "differences":
        words["at"] = f"(time - mean time of the window){unit}, in double precision until then"
    if tokens.known_bands:
        words["band"] = f"number of the band in {', '.join(tokens.known_bands)}, from 0"
    if tokens.extra:
        words["entry"] = (
            "0 for observations; for each of learned.extra, in order, a token before them with the next rows: a number "
            "has one row, and one more for a missing one; a name has a row for each value, and one more for others"
        )
        words["given"] = "(number - mean) / deviation, 0 elsewhere; these tokens have zeros in `features` and `at`"
    return words


def series_view(stream: Stream, tokens: Observations) -> SeriesView:
    """What a drawing needs of one sample."""
    columns, size, names = stream.columns, tokens.patch, tokens.known_bands
    slot = (np.arange(size) - (size - 1) / 2) * tokens.spacing * (size > 1)
    truth = columns.get("target value", columns["value"]).reshape(-1, size)
    error = columns.get("target error", columns["error"]).reshape(-1, size)
    none = np.zeros(len(truth), bool)
    return SeriesView(
        columns["at"][:, None] + slot,
        truth,
        error,
        columns.get("band", none.astype(np.int64)),
        names or [""],
        columns.get("hidden", none).astype(bool),
        columns.get("limit", none).astype(bool),
        columns.get("asked", none).astype(bool),
    )
