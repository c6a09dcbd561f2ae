"""Axes of a dataset: time, level, latitude, longitude and member.

They are found by CF attributes first, then by names:

    axes = find_axes(dataset, dims, path)

Inside the library latitudes ascend from south to north. Longitudes ascend from west to east: from 0 on a grid around
the globe, otherwise from the western edge of the region, which is between -180 and 180. Times are hours since
1970-01-01 00:00 in the calendar of the data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....data.columns import Array
from ....errors import UserError, nearest, one_of
from ....files.packages import require

EPOCH = "hours since 1970-01-01"
CALENDARS = (
    *("standard", "gregorian", "proleptic_gregorian", "julian"),
    *("noleap", "365_day", "all_leap", "366_day", "360_day"),
)
NAMES = {
    "time": ("time", "valid_time", "t", "date", "datetime", "initial_time"),
    "level": ("level", "lev", "plev", "pressure_level", "isobaricinhpa", "isobaric", "pressure", "hybrid", "height"),
    "latitude": ("latitude", "lat", "nav_lat", "y"),
    "longitude": ("longitude", "lon", "long", "nav_lon", "x"),
    "member": ("number", "member", "realization", "ensemble", "ens", "ensemble_member"),
}
"""Usual names of the axes, in lower case; digits at the end are ignored."""
STANDARD_NAMES = {
    "time": ("time",),
    "level": (
        "air_pressure",
        "height",
        "altitude",
        "model_level_number",
        "atmosphere_hybrid_sigma_pressure_coordinate",
    ),
    "latitude": ("latitude",),
    "longitude": ("longitude",),
    "member": ("realization",),
}
UNITS = {
    "latitude": re.compile(r"degrees?_?n(orth)?", re.IGNORECASE),
    "longitude": re.compile(r"degrees?_?e(ast)?", re.IGNORECASE),
    "level": re.compile(r"(hpa|mbar|millibars?|mb|pa|pascals?)", re.IGNORECASE),
    "time": re.compile(r"\w+ since .*", re.IGNORECASE),
}
AXIS_LETTERS = {"time": "T", "level": "Z", "latitude": "Y", "longitude": "X", "member": "E"}
HECTOPASCAL = {"pa": 0.01, "pascal": 0.01, "pascals": 0.01}  # factors of units of pressure
TOLERANCE = 1e-3  # of the spacing of a regular axis
DATE = re.compile(r"(\d{4,})-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{2})(?::(\d{2}))?)?Z?)?)?")
HOURS_PER_DAY = 24.0


@dataclass(frozen=True)
class Grid:
    """Horizontal grid: coordinates in ascending order, and their order in a file.

    latitude   (H,) ascending
    longitude  (W,) ascending
    rows       (H,) index in the file of each latitude
    columns    (W,) index in the file of each longitude
    periodic   whether the longitudes go around the globe
    """

    latitude: Array
    longitude: Array
    rows: Array
    columns: Array
    periodic: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Number of latitudes and of longitudes."""
        return len(self.latitude), len(self.longitude)

    @property
    def spacing(self) -> tuple[float, float]:
        """Mean distances of neighbouring latitudes and longitudes, in degrees."""
        return _spacing(self.latitude), _spacing(self.longitude)

    def same_points(self, other: Grid) -> bool:
        """Whether two grids have the same points."""
        near = (abs(one) * TOLERANCE + 1e-9 for one in self.spacing)
        pairs = ((self.latitude, other.latitude), (self.longitude, other.longitude))
        return self.shape == other.shape and all(
            np.allclose(one, two, rtol=0, atol=width) for (one, two), width in zip(pairs, near)
        )


def _spacing(axis: Array) -> float:
    return float(np.diff(axis).mean()) if len(axis) > 1 else 1.0


def make_grid(latitude: Array, longitude: Array, path: Path) -> Grid:
    """Make a grid from the coordinates of a file.

    The coordinates may have any order; longitudes may be from 0 to 360 or from -180 to 180.
    """
    for name, axis in (("latitude", latitude), ("longitude", longitude)):
        if axis.ndim != 1:
            message = (
                f"`{name}` in {path} has {axis.ndim} axes, but the grid must have one {name} for each row or column"
            )
            raise UserError(message, hint="Interpolate the fields to a regular grid first.", file=path)
        if not np.isfinite(axis).all() or len(np.unique(axis)) < len(axis):
            raise UserError(f"`{name}` in {path} has missing or repeated values", file=path)
    if np.abs(latitude).max() > 90 + 1e-6:
        largest = np.abs(latitude).max()
        raise UserError(f"latitudes in {path} go up to {largest:g} degrees, but the limit is 90", file=path)
    east = np.mod(longitude, 360.0)
    east[np.isclose(east, 360.0, rtol=0, atol=1e-9)] = 0.0
    order = np.argsort(east, kind="stable")
    keep = np.diff(east[order], prepend=-1.0) > 1e-6  # 0 and 360 degrees are one meridian
    order = order[keep]
    east = east[order]
    gaps = np.diff(east, append=east[0] + 360.0)
    usual = float(np.median(gaps)) if len(east) > 1 else 360.0
    periodic = len(east) > 2 and float(gaps.max()) < 1.5 * usual
    if not periodic:
        first = (int(gaps.argmax()) + 1) % len(east)
        order, east = np.roll(order, -first), np.roll(east, -first)
        east = east[0] + np.concatenate([[0.0], np.mod(np.diff(east), 360.0)]).cumsum()
        east -= 360.0 * np.floor((east[0] + 180.0) / 360.0)
    rows = np.argsort(latitude, kind="stable")
    return Grid(latitude[rows].astype(np.float64), east.astype(np.float64), rows, order, periodic)


# Names of the axes


def find_axes(dataset: Any, dims: Sequence[str], path: Path) -> dict[str, str]:
    """Dimension of each axis of a field: {time: valid_time, latitude: lat, ...}.

    The axes are found by attributes of the coordinate variables first, then by names. A dimension with an unknown
    meaning is left out if it has length 1, and refused if it is longer.

    dims   dimensions of the field
    """
    found: dict[str, str] = {}
    for dim in dims:
        role = _role(dataset, dim)
        if role and role not in found:
            found[role] = dim
        elif dataset.sizes[dim] > 1:
            message = f"the dimension `{dim}` in {path} is neither time, level, latitude, longitude nor member"
            hint = "Give its coordinate a CF attribute `standard_name`, `axis` or `units`, or select one value first."
            raise UserError(message, hint=hint, file=path)
    for role in ("time", "latitude", "longitude"):
        if role not in found or found[role] not in dataset.variables:
            message = f"{path} has no coordinate {role} for the dimensions {', '.join(dims)}"
            hint = f"Add a variable named `{found.get(role, role)}` with the coordinates of this axis."
            raise UserError(message, hint=hint, file=path)
    return found


def _role(dataset: Any, dim: str) -> str:
    """Axis of a dimension: time, level, latitude, longitude, member; "" if unknown."""
    attributes: Mapping[str, Any] = dataset[dim].attrs if dim in dataset.variables else {}
    units = str(attributes.get("units", "")).strip()
    if UNITS["time"].fullmatch(units):  # also the time of a forecast's start, if there is no other
        return "time"
    for role, names in STANDARD_NAMES.items():
        if str(attributes.get("standard_name", "")).lower() in names:
            return role
    for role, pattern in UNITS.items():
        if pattern.fullmatch(units):
            return role
    for role, letter in AXIS_LETTERS.items():
        if str(attributes.get("axis", "")).upper() == letter:
            return role
    plain = dim.lower().rstrip("0123456789")
    return next((role for role, names in NAMES.items() if plain in names or dim.lower() in names), "")


# Levels and times


def read_levels(values: Array, attributes: Mapping[str, Any]) -> Array:
    """Levels (L,) in hPa where the unit is a pressure, otherwise as they are."""
    unit = str(attributes.get("units", "")).strip().lower()
    return np.asarray(values, np.float64) * HECTOPASCAL.get(unit, 1.0)


def read_times(values: Array, attributes: Mapping[str, Any], path: Path) -> tuple[Array, str]:
    """Hours since 1970-01-01 of times with CF attributes, and their calendar."""
    cftime = require("cftime", "times of gridded files")
    units = str(attributes.get("units", ""))
    calendar = str(attributes.get("calendar", "standard")).lower()
    if not UNITS["time"].fullmatch(units):
        message = f"the times in {path} need a unit such as 'hours since 1970-01-01', but have {units!r}"
        raise UserError(message, hint="Set the attributes `units` and `calendar` of the time.", file=path)
    one_of(f"the calendar of the times in {path}", calendar, CALENDARS)
    calendar = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}.get(calendar, calendar)
    numbers = np.asarray(values, np.float64)
    if not len(numbers) or not np.isfinite(numbers).all():
        raise UserError(f"{path} has no times, or times that are missing", file=path)
    try:
        start, later = (cftime.num2date(number, units, calendar) for number in (0.0, 1.0))
        zero = float(cftime.date2num(start, EPOCH, calendar=calendar))
    except (ValueError, OverflowError) as error:
        raise UserError(f"the times in {path} cannot be read: {error}", file=path) from error
    hour = (later - start).total_seconds() / 3600
    return np.round((zero + numbers * hour) * 3600) / 3600, calendar


def dates(hours: Array, calendar: str) -> Array:
    """Year, fraction of the year and fraction of the day of times (...): (..., 3).

    Both fractions are in [0, 1).
    """
    cftime = require("cftime", "times of gridded files")
    flat, back = np.unique(np.asarray(hours, np.float64), return_inverse=True)
    found = np.empty((len(flat), 3))
    lengths: dict[int, int] = {}
    for row, date in zip(found, np.atleast_1d(cftime.num2date(flat, EPOCH, calendar))):
        if date.year not in lengths:
            first, after = (cftime.datetime(year, 1, 1, calendar=calendar) for year in (date.year, date.year + 1))
            lengths[date.year] = (after - first).days
        day = (date.hour + date.minute / 60 + date.second / 3600) / HOURS_PER_DAY
        row[:] = date.year, (date.dayofyr - 1 + day) / lengths[date.year], day
    return found[back].reshape(*np.shape(hours), 3)


def describe_time(hours: float, calendar: str) -> str:
    """Text of a time, for example 2019-03-21T06:00."""
    cftime = require("cftime", "times of gridded files")
    date = cftime.num2date(hours, EPOCH, calendar)
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}T{date.hour:02d}:{date.minute:02d}"


def parse_range(bounds: Sequence[str], calendar: str, key: str) -> tuple[float, float]:
    """First hour and end (exclusive) of a range of dates.

    A date without an hour is a whole day, a date without a day is a whole month: `[2019-03-19, 2019-03-21]` are three
    whole days.

    key   recipe key of the range, for errors
    """
    first, last = (parse_date(text, calendar, key) for text in bounds)
    if last[1] <= first[0]:
        raise UserError(f"{key} must begin before it ends, not {bounds[0]} to {bounds[1]}", key=key)
    return first[0], last[1]


def parse_date(text: str, calendar: str, key: str) -> tuple[float, float]:
    """Begin and end (exclusive), in hours, of a written month, day, hour or minute."""
    cftime = require("cftime", "times of gridded files")
    match = DATE.fullmatch(str(text).strip())
    if match is None:
        hint = "Write dates as 2019-03-21 or 2019-03-21T06:00."
        raise UserError(f"{key} has {text!r}, which is not a date", hint=hint, key=key)
    year, month, day, hour, minute, second = (None if part is None else int(part) for part in match.groups())
    assert year is not None
    assert month is not None
    try:
        begin = cftime.datetime(year, month, day or 1, hour or 0, minute or 0, second or 0, calendar=calendar)
        after = cftime.datetime(year + month // 12, month % 12 + 1, 1, calendar=calendar) if day is None else None
    except ValueError as error:
        hint = f"The calendar of the data is {calendar}."
        raise UserError(f"{key} has {text!r}, which is not a date: {error}", hint=hint, key=key) from error
    start = float(cftime.date2num(begin, EPOCH, calendar=calendar))
    if after is not None:
        return start, float(cftime.date2num(after, EPOCH, calendar=calendar))
    # The end of an hour or minute is just behind it, so that the time itself belongs to the range.
    return start, start + (HOURS_PER_DAY if hour is None else 1e-4)


def need_field(name: str, known: Sequence[str], path: object, key: str) -> None:
    """Refuse the name of a field that the files do not have."""
    if name not in known:
        there = f"the fields are {', '.join(known)}" if known else "there is no field with time, latitude and longitude"
        raise UserError(f"{path} has no field `{name}`; {there}", hint=nearest(name, known), key=key)
