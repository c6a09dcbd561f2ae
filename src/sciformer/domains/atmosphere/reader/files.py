"""NetCDF files and Zarr stores: find, open, and read parts of a field.

A file stays open in the process that reads it; only the values that are asked for are read.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ....data.columns import Array
from ....data.source import expand_glob, find_files, fingerprint
from ....errors import UserError
from ....files.packages import reading, require
from .axes import Grid, find_axes, make_grid, need_field, read_levels, read_times

WHAT = "gridded files"
ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")  # files in the folder of a Zarr store
MAX_OPEN_FILES = 64  # in each process
MIN_AXES = 3  # time, latitude, longitude


@dataclass(frozen=True)
class FieldPart:
    """Field in one file.

    name     name of the variable
    dims     dimension of the file for each axis
    hours    (n,) times in the order of the file, in hours since 1970-01-01
    levels   (L,) levels; NaN for a field without levels
    members  number of members
    about    the attributes `long_name` and `standard_name`
    """

    path: Path
    name: str
    dims: dict[str, str]
    grid: Grid
    hours: Array
    calendar: str
    levels: Array
    members: int
    units: str
    about: dict[str, Any] = field(default_factory=dict, compare=False)

    def read(self, times: Array, rows: Array, columns: Array, levels: Array, member: int = 0) -> Array:
        """Values (levels, times, rows, columns) at indices of the file; NaN if missing."""
        with reading(self.path, "NetCDF or Zarr"):
            variable = opened(self.path)[self.name]
            indices = {"time": times, "latitude": rows, "longitude": columns}
            if "level" in self.dims:
                indices["level"] = levels
            if "member" in self.dims:
                indices["member"] = np.array([member])
            order = [
                self.dims[axis] for axis in ("member", "level", "time", "latitude", "longitude") if axis in self.dims
            ]
            found = _read(variable, {self.dims[axis]: index for axis, index in indices.items()}, order)
        if "member" in self.dims:
            found = found[0]
        return found if "level" in self.dims else found[None]


def _read(variable: Any, indices: dict[str, Array], order: Sequence[str]) -> Array:
    """Read a variable at indices of its dimensions, run by run.

    Dimensions without indices have length 1.

    order   dimensions of the result
    """
    shape = tuple(len(indices[dim]) for dim in order)
    made = np.empty(shape, np.float32)
    rest = {dim: 0 for dim in variable.dims if dim not in indices}

    def fill(axis: int, chosen: dict[str, slice], flips: list[bool], place: tuple[slice, ...]) -> None:
        if axis == len(order):
            values = np.asarray(variable.isel({**chosen, **rest}).transpose(*order).values, np.float32)
            made[place] = values[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
            return
        dim = order[axis]
        for start, stop, first, last, flip in runs(indices[dim]):
            fill(axis + 1, {**chosen, dim: slice(first, last)}, [*flips, flip], (*place, slice(start, stop)))

    fill(0, {}, [], ())
    return made


def runs(index: Array) -> Iterator[tuple[int, int, int, int, bool]]:
    """Divide indices into runs of neighbours.

    Yield begin and end of each run in `index`, its smallest index, its largest index + 1, and whether its indices
    descend.
    """
    if not len(index):
        return
    steps = np.diff(index)
    start = 0
    while start < len(index):
        stop = start + 1
        if stop < len(index) and abs(int(steps[start])) == 1:
            other = np.flatnonzero(steps[start:] != steps[start])
            stop = len(index) if not len(other) else start + int(other[0]) + 1
        low, high = sorted((int(index[start]), int(index[stop - 1])))
        yield start, stop, low, high + 1, int(index[stop - 1]) < int(index[start])
        start = stop


# Open files

_OPENED: OrderedDict[tuple[int, Path], tuple[tuple[int, int], Any]] = OrderedDict()


def is_store(path: Path) -> bool:
    """Whether a path is the folder of a Zarr store."""
    return path.is_dir() and any((path / name).exists() for name in ZARR_MARKS)


def opened(path: Path) -> Any:
    """Open a file as a dataset of xarray, or reuse its handle in this process."""
    key, status = (os.getpid(), path), path.stat()
    stamp = status.st_mtime_ns, status.st_size
    if key in _OPENED and _OPENED[key][0] != stamp:
        release([path])
    if key not in _OPENED:
        while len(_OPENED) >= MAX_OPEN_FILES:
            release([next(iter(_OPENED))[1]])
        _OPENED[key] = stamp, _open(path)
    _OPENED.move_to_end(key)
    return _OPENED[key][1]


def release(paths: Sequence[Path] = ()) -> None:
    """Close open files (default: all open files)."""
    for key in [key for key in _OPENED if not paths or key[1] in paths]:
        _, dataset = _OPENED.pop(key)
        if key[0] == os.getpid():
            dataset.close()


def _open(path: Path) -> Any:
    xarray = require("xarray", WHAT)
    store = is_store(path)
    require("zarr" if store else "netCDF4", WHAT)
    options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if store else {"engine": "netcdf4"}
    with reading(path, "Zarr" if store else "NetCDF"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that xarray cannot decode and that are not used here
        return xarray.open_dataset(path, decode_times=False, cache=False, chunks=None, **options)


def find_stores(names: Sequence[str | Path]) -> list[Path]:
    """Files and Zarr stores for names and globs, in order."""
    found: list[Path] = []
    for name in names:
        hits = expand_glob(Path(name).expanduser())
        stores = [hit for hit in hits if is_store(hit)]
        found += stores
        if len(stores) < len(hits) or not hits:
            others = [hit for hit in hits if hit not in stores]
            found += find_files(others or [name], WHAT)
    if not names:
        find_files([], WHAT)
    return list(dict.fromkeys(found))


def fingerprints(paths: Sequence[Path]) -> dict[str, str]:
    """Fingerprint of each file or Zarr store.

    The fingerprint of a store is computed from its metadata, and from the names and sizes of its chunks.
    """
    return {str(path): _store_fingerprint(path) if is_store(path) else fingerprint(path) for path in paths}


def _store_fingerprint(path: Path) -> str:
    digest, size = hashlib.sha256(), 0
    for part in sorted(part for part in path.rglob("*") if part.is_file()):
        length = part.stat().st_size
        size += length
        digest.update(f"{part.relative_to(path)} {length}\n".encode())
        if part.name in ("zarr.json", ".zarray", ".zattrs"):
            digest.update(part.read_bytes())
    return f"{size} bytes, {digest.hexdigest()[:16]}"


# Contents of a file


def list_fields(path: Path) -> list[str]:
    """Names of the variables with at least three axes."""
    dataset = opened(path)
    return [str(name) for name, one in dataset.data_vars.items() if one.ndim >= MIN_AXES and one.dtype.kind in "fiu"]


def open_field(path: Path, name: str) -> FieldPart:
    """Axes of a field of a file, without its values."""
    dataset = opened(path)
    need_field(name, list_fields(path), path, "data.fields")
    variable = dataset[name]
    dims = find_axes(dataset, variable.dims, path)
    with reading(path, "NetCDF or Zarr"):
        values = {axis: np.asarray(dataset[dim].values) for axis, dim in dims.items() if dim in dataset.variables}
    hours, calendar = read_times(values["time"], dataset[dims["time"]].attrs, path)
    grid = make_grid(values["latitude"], values["longitude"], path)
    levels = np.array([np.nan])
    if "level" in dims:
        attributes = dataset[dims["level"]].attrs if dims["level"] in dataset.variables else {}
        levels = read_levels(values.get("level", np.arange(dataset.sizes[dims["level"]])), attributes)
    about = {key: str(variable.attrs[key]) for key in ("long_name", "standard_name") if key in variable.attrs}
    members = dataset.sizes[dims["member"]] if "member" in dims else 1
    units = str(variable.attrs.get("units", "")).strip()
    return FieldPart(path, name, dims, grid, hours, calendar, levels, members, units, about)


@dataclass(frozen=True)
class Field:
    """Field over all files, on one time axis.

    levels   (L,) levels in the order of the library: ascending in hPa, that is from the top
    where    (T, 2) for each time of the axis: number of the file, and index in this file; -1 if no file has the time
    """

    name: str
    parts: tuple[FieldPart, ...]
    levels: Array
    where: Array
    units: str

    @property
    def members(self) -> int:
        """Number of members in the files."""
        return self.parts[0].members

    def read(self, times: Array, rows: Array, columns: Array, member: int = 0) -> Array:
        """Values (levels, times, rows, columns) at these indices; NaN if missing."""
        made = np.full((len(self.levels), len(times), len(rows), len(columns)), np.nan, np.float32)
        file, index = self.where[times].T
        for number in np.unique(file[file >= 0]):
            part, here = self.parts[number], np.flatnonzero(file == number)
            order = np.argsort(part.levels, kind="stable") if "level" in part.dims else np.zeros(1, np.int64)
            chosen = order[np.isin(part.levels[order], self.levels)] if "level" in part.dims else order
            wanted = part.read(index[here], part.grid.rows[rows], part.grid.columns[columns], chosen, member)
            made[:, here] = wanted
        made[~np.isfinite(made)] = np.nan
        return made


class MapField(Protocol):
    """Field on a time axis, with values read on demand."""

    @property
    def levels(self) -> Array:
        """Levels (L,); NaN for a field without levels."""

    @property
    def units(self) -> str:
        """Unit of the values; may be empty."""

    @property
    def members(self) -> int:
        """Number of members."""

    def read(self, times: Array, rows: Array, columns: Array, member: int = 0) -> Array:
        """Values (levels, times, rows, columns) at these indices; NaN if missing."""


class Maps(Protocol):
    """Fields on one grid and one time axis, in files or in memory.

    See `Catalog` for files, and `MapsInMemory`.
    """

    grid: Grid
    hours: Array
    step: float
    calendar: str

    @property
    def members(self) -> int:
        """Largest number of members of a field."""

    @property
    def fields(self) -> Mapping[str, MapField]:
        """Fields by name."""


@dataclass
class FieldInMemory:
    """Field in memory.

    values   (members, levels, times, rows, columns), NaN if missing
    levels   (levels,); NaN for a field without levels
    units    unit of the values; may be empty
    """

    values: Array
    levels: Array
    units: str = ""

    @property
    def members(self) -> int:
        return len(self.values)

    def read(self, times: Array, rows: Array, columns: Array, member: int = 0) -> Array:
        return np.asarray(self.values[member][:, times][:, :, rows][..., columns], np.float32)


@dataclass
class MapsInMemory:
    """Fields in memory on one grid and one time axis."""

    fields: dict[str, FieldInMemory]
    grid: Grid
    hours: Array
    step: float
    calendar: str = "standard"

    @property
    def members(self) -> int:
        return max(field.members for field in self.fields.values())


class Catalog:
    """Fields of several files on one grid and one time axis.

    names   names of the fields (default: all fields with time, latitude and longitude)
    levels  levels to keep, in the unit of the library (default: all)

    Times that no file has are missing steps, if all distances of times are multiples of the smallest distance.
    Otherwise (calendar months) the axis has the times as they are.
    """

    def __init__(self, paths: Sequence[Path], names: Sequence[str] = (), levels: Sequence[float] = ()) -> None:
        self.paths = list(paths)
        known = {path: list_fields(path) for path in self.paths}
        every = list(dict.fromkeys(name for some in known.values() for name in some))
        listed = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files"
        if not every:
            message = f"{listed} has no field with time, latitude and longitude" if len(self.paths) == 1 else ""
            raise UserError(message or "no file has a field with time, latitude and longitude", file=self.paths[0])
        for name in names:
            need_field(name, every, listed, "data.fields")
        self.names = list(names) or every
        parts = {name: [open_field(path, name) for path in self.paths if name in known[path]] for name in self.names}
        first = next(iter(parts.values()))[0]
        self.grid, self.calendar = first.grid, first.calendar
        for part in (part for some in parts.values() for part in some):
            self._check(part, first)
        self.hours, self.step = time_axis(np.concatenate([one.hours for some in parts.values() for one in some]))
        self.fields = {name: self._join(name, some, levels) for name, some in parts.items()}
        self.members: int = max(part.members for some in parts.values() for part in some)
        for part in (part for some in parts.values() for part in some):
            if part.members not in (1, self.members):
                message = (
                    f"`{part.name}` of {part.path} has {part.members} members, but other fields have {self.members}"
                )
                raise UserError(message, file=part.path)

    def _check(self, part: FieldPart, first: FieldPart) -> None:
        if part.calendar != first.calendar:
            message = f"{part.path} has the calendar {part.calendar}, but {first.path} has {first.calendar}"
            raise UserError(message, hint="Read files with one calendar.", file=part.path)
        if not part.grid.same_points(first.grid):
            height, width = part.grid.shape
            message = f"the grid of {part.path} ({height} x {width}) differs from the grid of {first.path}"
            hint = "Interpolate the fields to one grid first, or read the files separately."
            raise UserError(message, hint=hint, file=part.path)

    def _join(self, name: str, parts: list[FieldPart], levels: Sequence[float]) -> Field:
        first = parts[0]
        for part in parts:
            if part.units != first.units:
                units = f"{part.units or 'empty'} in {part.path}, but {first.units or 'empty'} in {first.path}"
                message = f"the unit of `{name}` is {units}"
                raise UserError(message, hint="Convert the files to one unit.", file=part.path)
        common = sorted(set.intersection(*({*part.levels.tolist()} for part in parts))) if self._layered(parts) else []
        if common and levels:
            if absent := [level for level in levels if not np.isclose(common, level).any()]:
                there = ", ".join(f"{level:g}" for level in common)
                message = f"`{name}` has no level {absent[0]:g}; its levels are {there}"
                raise UserError(message, key="data.levels")
            common = [level for level in common if np.isclose(levels, level).any()]
        where = np.full((len(self.hours), 2), -1, np.int64)
        for number, part in enumerate(parts):
            place = np.searchsorted(self.hours, part.hours - 1e-6)
            if (where[place, 0] >= 0).any() or len(np.unique(place)) < len(place):
                message = f"`{name}` has the same times in several files, or twice in {part.path}"
                raise UserError(message, hint="Give each file once.", file=part.path)
            where[place] = np.stack([np.full(len(place), number), np.arange(len(place))], 1)
        return Field(name, tuple(parts), np.array(common or [np.nan]), where, first.units)

    @staticmethod
    def _layered(parts: Sequence[FieldPart]) -> bool:
        layered = {"level" in part.dims for part in parts}
        if len(layered) > 1:
            message = f"`{parts[0].name}` has levels only in some files"
            raise UserError(message, file=parts[0].path)
        return layered.pop()


def time_axis(hours: Array) -> tuple[Array, float]:
    """Common time axis and its step in hours; see `Catalog`.

    The step of an irregular axis is the median distance.
    """
    axis = np.unique(np.round(hours * 3600)) / 3600
    if len(axis) < 2:
        return axis, 1.0
    distances = np.diff(axis)
    least = float(distances.min())
    steps = distances / least
    regular = np.abs(steps - np.round(steps)).max() < TIME_TOLERANCE
    if regular and steps.sum() <= MAX_FILLED * len(axis):
        return axis[0] + least * np.arange(round(float(steps.sum())) + 1), least
    return axis, float(np.median(distances))


TIME_TOLERANCE = 1e-3  # of a step
MAX_FILLED = 4.0  # longest time axis with its missing steps, in units of the number of times


def segments(mask: Array) -> list[tuple[int, int]]:
    """Runs (start, stop) of True in a mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(pairwise(edges.tolist()))[::2]
