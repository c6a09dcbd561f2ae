"""Light curves in memory: conversion to a table of samples, and to a file.

table = read_series(t, y, err, band)                         # one object, NumPy arrays
table = read_series([t1, t2], [y1, y2], label=["a", "b"])    # two objects
table = read_series(frame, id="objectId", value="psfFlux")   # astropy Table or TimeSeries, pandas, pyarrow, mapping
Run("runs/mine").predict(table)
write_series("mine.parquet", table)                          # then --data.kind series --data.files mine.parquet
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UserError
from ....files.atomic import check_name
from ....files.formats.frames import is_frame, read_frame
from ....files.formats.memory import from_mapping, words
from ....files.tables import write_table
from ...columns import Lists, Samples, Table, rows_of, select
from ...fileset import Counts, concatenate_shared
from .clean import BadErrors, Column, Rules, SameTime, clean, describe_cleaning
from .curves import CurveFile
from .names import NONE, Names, need

WHERE = "the table"
ROWS_PER_GROUP = 4096  # objects per row group


def read_series(
    what: Any,
    value: Any = None,
    error: Any = None,
    band: Any = None,
    *,
    limit: Any = None,
    id: Any = None,
    label: Any = None,
    meta: Mapping[str, Any] | Sequence[str] = (),
    time: str = "",
    quality: str = "",
    min_points: int = 1,
    same_time: SameTime = "mean",
    bad_errors: BadErrors = "drop",
    bands: Sequence[str] = (),
    missing_values: Sequence[float] = (),
) -> Table:
    """Convert light curves to a table of samples.

    The table is the input of `Run.predict`, `embed` and `write_series`. Points and objects that are left out are
    reported as warnings. `what` has one of two forms:

    arrays  times (n,) of one object, or a list of arrays for several objects. `value`, `error`, `band` and `limit` have
            the same form. `id`, `label` and the values of `meta` are single values, or lists with a value per object.
    table   rows are observations or objects: an astropy Table, TimeSeries or LightCurve (or a list of tables with one
            object each), a pandas or pyarrow table, or a mapping. `time`, `value`, `error`, `band`, `limit`, `id` and
            `label` are column names (default: common names), `meta` is a list of column names.
    """
    rules = Rules(min_points, same_time, bad_errors, tuple(bands), tuple(missing_values))
    if is_frame(what) or (isinstance(what, (list, tuple)) and what and all(map(is_frame, what))):
        given = {"time": time, "value": value, "error": error, "band": band, "limit": limit, "id": id, "label": label}
        for role, name in given.items():
            if not isinstance(name, str | None):
                kind = type(name).__name__
                raise UserError(f"`{role}` must be a column name if the curves are a table, but is a {kind}")
        names = Names(**{role: name or "" for role, name in given.items()}, quality=quality)
        tables = [what] if is_frame(what) else what
        parts = [_read(CurveFile(read_frame(one, WHERE), names), list(meta), alone=len(tables) == 1) for one in tables]
        raw = concatenate_shared(_number_objects(parts))
    else:
        raw = _columns_of_arrays(what, {"value": value, "error": error, "band": band, "limit": limit}, id, label, meta)
    counts = Counts()
    table = clean(raw, rules, WHERE, counts)
    assert isinstance(table["time"], Lists)
    rows = np.flatnonzero(table["time"].lengths >= rules.min_points)
    notes = describe_cleaning(counts, rows_of(table), len(rows), rules)
    if not len(rows):
        raise UserError(f"all {rows_of(table):,} objects are left out", hint=" ".join(notes))
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Samples(select(table, rows))


def _read(file: CurveFile, meta: Sequence[str], alone: bool) -> dict[str, Column]:
    used, named = file.names.used().values(), {name: need(name, file.kinds, WHERE, "for `meta`") for name in meta}
    if not meta and alone and not file.single:
        named = {name: name for name in file.kinds if name not in used and file.of_object(name)}
    found = file.read(list(named.values()), 0, file.rows)
    roles = {role: found[role] for role in (*file.names.used(), "id", "label") if role in found}
    if isinstance(label := roles.get("label"), np.ndarray) and label.dtype.kind != "f":
        roles["label"] = words(label)
    return {**{new: found[old] for new, old in named.items()}, **roles}


def _number_objects(parts: list[dict[str, Column]]) -> list[dict[str, Column]]:
    if all(str(part["id"][0]) == WHERE for part in parts):  # type: ignore[index]
        return [{**part, "id": np.array([str(number)])} for number, part in enumerate(parts)]
    return parts


def _columns_of_arrays(
    time: Any, points: Mapping[str, Any], id: Any, label: Any, meta: Mapping[str, Any] | Sequence[str]
) -> dict[str, Column]:
    """Make columns from the arrays of one object, or from a list of objects."""
    one = not len(time) or not np.ndim(time[0])
    if points["value"] is None:
        raise UserError("`value` is missing", hint="Call read_series(time, value, error, band).")
    if meta and not isinstance(meta, Mapping):
        kind = type(meta).__name__
        raise UserError(f"`meta` must be a mapping from names to values when the curves are arrays, not {kind}")
    times = [time] if one else list(time)
    found: dict[str, Any] = {"time": times}
    for name, given in points.items():
        if given is not None:
            entries = [given] * len(times) if one or np.isscalar(given) else list(given)
            same = len(entries) == len(times)
            found[name] = [_per_point(entry, len(own)) for entry, own in zip(entries, times)] if same else entries
    single = dict(meta) if isinstance(meta, Mapping) else {}
    single |= {} if label is None else {"label": label}
    found |= {name: [given] if one else list(given) for name, given in single.items()}
    found["id"] = list(map(str, range(len(times)))) if id is None else [id] if one else list(id)
    for name, column in found.items():
        if len(column) != len(times):
            raise UserError(f"`{name}` must have an entry for each of the {len(times):,} objects, not {len(column):,}")
    roles = ("time", "value", "error", "band", "limit", "id", "label")
    names = Names(**{role: role if role in found else NONE for role in roles})
    return _read(CurveFile(from_mapping(found, WHERE), names), list(meta), alone=False)


def _per_point(entry: Any, count: int) -> Any:
    """Value of each point, from a string with a letter per point or a single value."""
    if isinstance(entry, str) and len(entry) == count:
        return np.array(list(entry))
    return entry if np.ndim(entry) else np.full(count, entry)


def write_series(path: str | Path, table: Table, overwrite: bool = False) -> Path:
    """Write a table of samples to a Parquet file, with a row for each object."""
    path = Path(path).expanduser()
    check_name(path, (".parquet",))
    if path.exists() and not overwrite:
        hint = "Choose another file, or replace it with overwrite=True."
        raise UserError(f"{path} exists already", hint=hint, file=path)
    rows = np.arange(rows_of(table))
    starts = range(0, max(1, len(rows)), ROWS_PER_GROUP)
    write_table(path, (select(table, rows[start : start + ROWS_PER_GROUP]) for start in starts), overwrite=True)
    return path
