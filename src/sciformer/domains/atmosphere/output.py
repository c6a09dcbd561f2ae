"""Predicted maps as NetCDF files, with the coordinates of the input files.

forecast      maps after the last time of the files, step by step: predicted maps are the input of the next step
other masks   each neighbourhood of the files is masked, and overlapping predictions are averaged
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.batch import Batch
from ...data.columns import Array
from ...errors import UserError
from ...files.atomic import atomic_write, check_name
from ...files.packages import require
from ...progress import ProgressBar
from ...tokens.base import Tokens
from ...tokens.protocols import Change, HiddenTask
from .counterfactual import change_source, write_differences
from .reader.axes import EPOCH
from .reader.files import Catalog, Field, FieldInMemory, MapsInMemory, opened
from .reader.neighbourhoods import Boxes, Neighbourhoods

FORECAST = "forecast"


@dataclass
class Answers:
    """Predicted maps, by name of the field.

    hours   (times,) in hours since 1970-01-01
    values  (members or 1, levels, times, rows, columns); NaN where nothing is predicted
    spread  (levels, times, rows, columns) standard deviations; empty if there are none
    """

    hours: Array
    values: dict[str, Array]
    spread: dict[str, Array]


def write_maps(
    path: Path, source: Any, tokens: Mapping[str, Tokens], task: HiddenTask, changes: Sequence[Change] = ()
) -> int:
    """Write predicted maps to a file; return its number of time steps.

    changes  changes of the input; the file then also has the difference from the prediction for the unchanged input
    """
    check_name(path, (".nc",), "a NetCDF file")
    if not isinstance(source, Neighbourhoods) or not isinstance(source.catalog, Catalog):
        raise UserError("maps can be predicted only for gridded files", hint="Use data.kind: fields.", key="data.kind")
    answer = forecast if task.mask == FORECAST else fill
    differences: dict[str, Array] = {}
    changed = change_source(source, changes) if changes else source
    with ProgressBar(0, show=False):
        found = answer(changed, tokens, task)
        if changes:
            before = answer(source, tokens, task).values
            differences = {name: _mean(values - before[name]) for name, values in found.values.items()}
    write_answers(path, source.catalog, source.names, found, differences)
    if changes:
        shown = {source.names[name]: values for name, values in differences.items()}
        write_differences(path, shown, found.hours, source.catalog)
    return len(found.hours)


# Predictions


def restore_maps(table: Any, numbers: Array, tokens: Any, task: HiddenTask, length: float | None) -> Any:
    """Yield (stream, predicted maps) for the neighbourhoods in a table.

    The maps are arrays (neighbourhoods, members or 1, levels, times, rows, columns) by name: value, std, members. They
    are NaN where nothing is predicted.

    numbers  numbers of the neighbourhoods
    length   length of the mask, or None
    """
    batch = Batch({name: one.tokenize(table) for name, one in tokens.items()}, {}, numbers)
    seen = task.hide(batch, length)
    for name, answer in task.predict(seen).items():
        stream, own = seen.streams[name], tokens[name]
        asked = stream.columns["asked"].astype(bool)
        shape = np.shape(table[own.field])
        made = {}
        for key, values in own.restore_values(stream.keep(asked), answer).items():
            several = values if values.ndim == 3 else values[:, None]
            cubes = np.full((len(asked), *several.shape[1:]), np.nan, np.float32)
            cubes[asked] = several
            each = cubes.reshape(len(stream), -1, *several.shape[1:])
            maps = [[own.maps(one[:, part], shape[1:]) for part in range(several.shape[1])] for one in each]
            made[key] = np.asarray(maps)  # (n, members or 1, L, T, H, W)
        yield name, made


class Average:
    """Mean of overlapping predictions, on a map (levels, times, rows, columns)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total, self.count = np.zeros(shape), np.zeros(shape, np.int32)

    def add(self, times: Array, rows: Array, columns: Array, values: Array) -> None:
        """Add values (levels, t, h, w) at t times, h rows and w columns of the map.

        NaN is left out.
        """
        known = np.isfinite(values)
        place = np.ix_(np.arange(len(values)), times, rows, columns)
        self.total[place] += np.where(known, values, 0)
        self.count[place] += known

    def mean(self) -> Array:
        """Means, NaN where nothing was added."""
        with np.errstate(invalid="ignore"):
            return np.where(self.count > 0, self.total / np.maximum(1, self.count), np.nan)


def fill(source: Neighbourhoods, tokens: Mapping[str, Tokens], task: HiddenTask) -> Answers:
    """Predict the masked part of every neighbourhood; average where they overlap."""
    catalog, boxes = source.catalog, source.boxes
    if catalog.members > 1:
        message = f"the files have {catalog.members} members"
        hint = "Write one member to a file of its own first."
        raise UserError(f"{message}, but hidden parts can be predicted for one member only", hint=hint, key="--mask")
    size = np.array(boxes.size)
    means: dict[str, dict[str, Average]] = {}
    for numbers in source.numbers:
        for start in range(0, len(numbers), task.batch):
            some = numbers[start : start + task.batch]
            chosen = [boxes.box(number) for number in some]
            table = source.read(chosen, np.asarray(some))
            for name, found in restore_maps(table, np.asarray(some), tokens, task, task.length):
                own: Any = tokens[name]
                shape = (len(catalog.fields[source.names[own.field]].levels), len(catalog.hours), *catalog.grid.shape)
                kept = means.setdefault(own.field, {key: Average(shape) for key in ("value", "std") if key in found})
                for row, box in enumerate(chosen):
                    times, rows, columns = (np.arange(n) + first for n, first in zip(size, box[1:]))
                    for key, average in kept.items():
                        average.add(times, rows, columns % catalog.grid.shape[1], found[key][row, 0])
    values = {name: kept["value"].mean()[None] for name, kept in means.items()}
    spread = {name: kept["std"].mean() for name, kept in means.items() if "std" in kept}
    return Answers(catalog.hours, values, spread)


def forecast(source: Neighbourhoods, tokens: Mapping[str, Tokens], task: HiddenTask) -> Answers:
    """Forecast beyond the last time of the files, with a trajectory for each member.

    Each step predicts as many hours as were masked in training, or the hours of a cube. Trajectory m continues with the
    m-th predicted member, so the trajectories differ from the first step on.
    """
    catalog, own_tokens = source.catalog, dict[str, Any](tokens)
    duration = source.boxes.size[0]
    cubes = [one.cube[0] for one in own_tokens.values()]
    hours = task.length or task.usual or max(cubes) * catalog.step
    each = round((task.usual or max(cubes) * catalog.step) / catalog.step)
    each = max(1, min(each, round(hours / catalog.step)))
    if each >= duration:
        raise UserError(
            f"a forecast of {each} time steps at once leaves no known step in a neighbourhood of {duration}",
            hint="Train with a longer data.neighbourhood.",
            key="--length",
        )
    wanted = round(hours / catalog.step)
    if wanted < 1:
        message = f"a forecast of {hours:g} h is shorter than the time step of the files, {catalog.step:g} h"
        raise UserError(message, hint="Choose a longer forecast.", key="--length")
    steps = -(-wanted // each) * each
    known = duration - each
    if known > len(catalog.hours):
        message = f"a forecast needs {known} known time steps, but the files have {len(catalog.hours)}"
        raise UserError(message, hint="Give files with more time steps.")
    last = np.arange(len(catalog.hours) - known, len(catalog.hours))
    ahead = catalog.hours[-1] + catalog.step * np.arange(1, steps + 1)
    copies = max(one.heads for one in own_tokens.values())
    rows, columns = (np.arange(length) for length in catalog.grid.shape)
    maps: dict[str, FieldInMemory] = {}
    for own in source.names.values():
        field = catalog.fields[own]
        found = [field.read(last, rows, columns, member) for member in range(field.members)]
        begin = np.stack([found[member % len(found)] for member in range(copies * catalog.members)])
        later = np.full((*begin.shape[:2], steps, *begin.shape[3:]), np.nan, np.float32)
        maps[own] = FieldInMemory(np.concatenate([begin, later], 2), field.levels)
    memory = MapsInMemory(
        maps, catalog.grid, np.concatenate([catalog.hours[last], ahead]), catalog.step, catalog.calendar
    )
    for first in range(0, steps, each):
        _forecast_step(source, memory, own_tokens, task, first, each)
    values = {name: maps[own].values[:, :, known : known + wanted] for name, own in source.names.items()}
    spread = {name: one.std(0, ddof=1) for name, one in values.items() if len(one) > 1}
    return Answers(ahead[:wanted], values, spread)


def _forecast_step(
    source: Neighbourhoods, memory: MapsInMemory, tokens: dict[str, Any], task: HiddenTask, first: int, each: int
) -> None:
    """Predict the `each` time steps after the known steps, and store them in `memory`.

    first   index of the first known time step
    """
    duration = source.boxes.size[0]
    stop = first + duration
    boxes = Boxes(
        ((first, stop),),
        source.boxes.size,
        source.boxes.stride,
        source.boxes.grid,
        source.boxes.periodic,
        memory.members,
    )
    cut = Neighbourhoods(memory, boxes, source.names, source.climatology)
    times = np.arange(stop - each, stop)
    means: dict[tuple[str, int], Average] = {}
    numbers = np.arange(len(boxes))
    for start in range(0, len(numbers), task.batch):
        some = numbers[start : start + task.batch]
        chosen = [boxes.box(int(number)) for number in some]
        table: Any = cut.read(chosen, some)
        for name, found in restore_maps(table, some, tokens, task, each * memory.step):
            own = source.names[tokens[name].field]
            members = found.get("members", found["value"])
            shape = (members.shape[2], each, *memory.grid.shape)
            for row, box in enumerate(chosen):
                average = means.setdefault((own, box.member), Average(shape))
                down, aside = (np.arange(n) + begin for n, begin in zip(source.boxes.size[1:], box[2:]))
                answer = members[row, box.member % members.shape[1], :, -each:]
                average.add(np.arange(each), down, aside % memory.grid.shape[1], answer)
    for (own, member), average in means.items():
        memory.fields[own].values[member][:, times] = average.mean()


# Files


def write_answers(
    path: Path, catalog: Catalog, names: Mapping[str, str], found: Answers, differences: Mapping[str, Array]
) -> None:
    """Write predicted maps with the order, names and units of the input files.

    differences   (levels, times, rows, columns) differences of fields, by field
    """
    xarray, cftime = (require(name, "NetCDF files") for name in ("xarray", "cftime"))
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for name, values in found.values.items():
        field = catalog.fields[names[name]]
        assert isinstance(field, Field)
        part = field.parts[0]
        dataset = opened(part.path)
        time = dataset[part.dims["time"]]
        dates = cftime.num2date(found.hours, EPOCH, part.calendar)
        numbers = cftime.date2num(dates, time.attrs["units"], calendar=part.calendar)
        coordinates[part.dims["time"]] = (part.dims["time"], np.asarray(numbers, np.float64), dict(time.attrs))
        for axis in ("latitude", "longitude"):
            coordinates[part.dims[axis]] = dataset[part.dims[axis]]
        layers = [part.dims["level"]] if "level" in part.dims else []
        order = np.arange(len(field.levels))
        if layers:
            order = np.argsort(
                np.argsort(part.levels[np.isin(part.levels, field.levels)], kind="stable"), kind="stable"
            )
            kept = dataset[layers[0]].values[np.isin(part.levels, field.levels)]
            coordinates[layers[0]] = (layers[0], kept, dict(dataset[layers[0]].attrs))
        dims = [*layers, *(part.dims[axis] for axis in ("time", "latitude", "longitude"))]
        about = {**part.about, **({"units": part.units} if part.units else {})}
        several = len(values) > 1
        variables[part.name] = (dims, _in_file_order(_mean(values), part, order, bool(layers)), about)
        if name in found.spread:
            words = f"standard deviation of {part.name}"
            spread = _in_file_order(found.spread[name], part, order, bool(layers))
            variables[f"{part.name}_spread"] = (dims, spread, {**about, "long_name": words})
        if name in differences:
            words = f"difference of {part.name} from the answer to the unchanged input"
            change = _in_file_order(differences[name], part, order, bool(layers))
            unit = {"units": part.units} if part.units else {}
            variables[f"{part.name}_change"] = (dims, change, {"long_name": words, **unit})
        if several:
            each = np.stack([_in_file_order(one, part, order, bool(layers)) for one in values])
            variables[f"{part.name}_members"] = (["number", *dims], each, about)
    made = xarray.Dataset(variables, coordinates, {"Conventions": "CF-1.7"})
    with atomic_write(path) as partial:
        made.to_netcdf(partial, engine="netcdf4", format="NETCDF4")


def _mean(values: Array) -> Array:
    """Mean (L, T, H, W) of members, NaN where nothing was predicted."""
    return np.asarray(values[0] if len(values) == 1 else np.nanmean(values, 0))


def _in_file_order(values: Array, part: Any, levels: Array, layered: bool) -> Array:
    """Values in the order of the levels, rows and columns of a file.

    values   (levels, times, rows, columns)
    levels   order of the levels in the file
    layered  whether the field has an axis of levels
    """
    height = len(part.grid.rows)
    width = int(part.grid.columns.max()) + 1
    made = np.full((*values.shape[:2], height, width), np.nan, np.float32)
    made[:, :, part.grid.rows[:, None], part.grid.columns] = values
    return made[levels] if layered else made[0]
