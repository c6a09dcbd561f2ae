"""Reader of fields: neighbourhoods of NetCDF files and Zarr stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.source import Data, Source, Splits, locate, order_parts
from ....errors import UserError
from .axes import dates, describe_time, parse_range
from .climatology import Climatology, ClimatologyFit
from .files import Catalog, Maps, find_stores, fingerprints, segments
from .neighbourhoods import Boxes, Neighbourhoods

Size = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Dates = tuple[str, str]
MAX_STATISTICS_BYTES = 16 << 20  # of a block of times that is read for the statistics
HOURS_PER_YEAR = 8766.0
SPACING_TOLERANCE = 0.01


class FieldOptions(Data):
    """Keys for the parts and neighbourhoods of fields."""

    reading_keys: ClassVar[tuple[str, ...]] = ("stride",)

    train: Dates | None = None
    """First and last date of the training part, such as [2019-03-01, 2019-03-18]; both days are included (default: all
    times outside `valid` and `test`)."""
    valid: Share | Dates = 0.1
    """Validation part, to choose the best model: first and last date, or a fraction of the time axis before the test
    part (default: 0.1)."""
    test: Share | Dates = 0.1
    """Test part, for the final evaluation: first and last date, or a fraction at the end of the time axis
    (default: 0.1)."""
    neighbourhood: tuple[Size, Size | None, Size | None] = (24, None, None)
    """Size of a sample: time steps, rows and columns; null is the whole map (default: 24 steps of the whole map)."""
    stride: tuple[Size, Size, Size] | None = None
    """Distance between neighbourhoods: time steps, rows and columns (default: 1 step, and half a neighbourhood along
    rows and columns). In training, rows and columns are shifted by a random part of this distance. In evaluation, only
    the distance in time is used, and the map is covered by as few neighbourhoods as possible."""
    statistics_steps: int = Field(default=20_000, ge=1)
    """Largest number of training time steps that are read for the climatology and the standard deviations, evenly
    spaced (default: 20,000)."""

    def open_maps(
        self, catalog: Maps, names: Mapping[str, str], fingerprint: dict[str, str], notes: list[str], log: Any
    ) -> Splits:
        """Learn the climatology of the training part, and divide the time axis.

        catalog      the fields
        names        names of the columns -> names of the fields
        fingerprint  fingerprints of the files
        notes        notes on the data
        log          function for messages, or None
        """
        size = self._size(catalog)
        masks = self._divide(catalog)
        boxes = {part: self._boxes(catalog, size, mask, part) for part, mask in masks.items()}
        learned = self._learn(catalog, names, masks["train"], log)
        climate = {name: Climatology.from_json(learned["fields"][name]["climatology"]) for name in names}
        sources: dict[str, Source] = {
            part: Neighbourhoods(catalog, one, names, climate, notes if part == "train" else ())
            for part, one in boxes.items()
        }
        return Splits(order_parts(sources), fingerprint, notes, learned=learned)

    def training_boxes(self, catalog: Maps) -> Boxes:
        """Places of the training neighbourhoods."""
        return self._boxes(catalog, self._size(catalog), self._divide(catalog)["train"], "train")

    def _size(self, catalog: Maps) -> tuple[int, int, int]:
        shape = (len(catalog.hours), *catalog.grid.shape)
        size = tuple(own or whole for own, whole in zip(self.neighbourhood, shape))
        for name, own, whole in zip(("time steps", "rows", "columns"), size, shape):
            if own > whole:
                named = _name(catalog)
                message = f"data.neighbourhood has {own} {name}, but {named} has {whole}"
                raise UserError(message, hint="Choose a smaller neighbourhood.", key="data.neighbourhood")
        return size  # type: ignore[return-value]

    def _boxes(self, catalog: Maps, size: tuple[int, int, int], mask: Array, part: str) -> Boxes:
        own = self.stride or (1, max(1, size[1] // 2), max(1, size[2] // 2))
        stride = (own[0], min(own[1], size[1]), min(own[2], size[2]))
        random = part == "train"
        boxes = Boxes(
            tuple(segments(mask)), size, stride, catalog.grid.shape, catalog.grid.periodic, catalog.members, random
        )
        if not len(boxes):
            longest = max((stop - start for start, stop in boxes.segments), default=0)
            of = f"the part {part} has" if part else f"{_name(catalog)} has"
            message = f"{of} no neighbourhood: {size[0]} time steps are needed, but there are {longest} in a row"
            hint = "Choose fewer steps in data.neighbourhood" + (f", or a longer part in data.{part}." if part else ".")
            raise UserError(message, hint=hint, key=f"data.{part}" if part else "data.neighbourhood")
        return boxes

    def _divide(self, catalog: Maps) -> dict[str, Array]:
        """Mask of the time axis for each part."""
        hours = catalog.hours
        masks: dict[str, Array] = {}
        for part in ("valid", "test", "train"):
            chosen = getattr(self, part)
            if isinstance(chosen, tuple):
                first, last = parse_range(chosen, catalog.calendar, f"data.{part}")
                masks[part] = (hours >= first - 1e-6) & (hours < last - 1e-6)
                if not masks[part].any():
                    ends = " to ".join(describe_time(hour, catalog.calendar) for hour in (hours[0], hours[-1]))
                    message = f"data.{part} has no times of the data, which go from {ends}"
                    raise UserError(message, key=f"data.{part}")
        free = ~np.logical_or.reduce([np.zeros(len(hours), bool), *masks.values()])
        for part in ("test", "valid"):
            share = getattr(self, part)
            if isinstance(share, float) and share > 0:
                count = round(share * len(hours))
                masks[part] = np.zeros(len(hours), bool)
                masks[part][np.flatnonzero(free)[len(np.flatnonzero(free)) - count :]] = True
                free &= ~masks[part]
        masks.setdefault("train", free)
        for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            if one in masks and other in masks and (masks[one] & masks[other]).any():
                raise UserError(f"data.{one} and data.{other} have common times", key=f"data.{other}")
        return masks

    def _learn(self, catalog: Maps, names: Mapping[str, str], mask: Array, log: Any) -> dict[str, Any]:
        """Units, levels and climatology of each field, from the training times."""
        times = np.flatnonzero(mask)
        times = times[:: -(-len(times) // self.statistics_steps)]
        grid, found = catalog.grid, dict[str, Any]()
        years = float(np.ptp(catalog.hours[times])) / HOURS_PER_YEAR
        rows, columns = (np.arange(length) for length in grid.shape)
        for name, own in names.items():
            field = catalog.fields[own]
            if log is not None and len(times) * grid.latitude.size * grid.longitude.size > MAX_STATISTICS_BYTES:
                log(f"climatology of {name} from {len(times):,} time steps")
            fit = ClimatologyFit(len(field.levels), grid.latitude, grid.longitude, catalog.step, years)
            each = max(1, MAX_STATISTICS_BYTES // (4 * len(field.levels) * len(rows) * len(columns)))
            blocks = [times[start : start + each] for start in range(0, len(times), each)]
            members = range(field.members)
            kept: list[tuple[Array, Array]] = []
            known = 0
            for some in blocks:
                date = dates(catalog.hours[some], catalog.calendar)
                for member in members:
                    values = field.read(some, rows, columns, member)
                    known += int(np.isfinite(values).sum())
                    fit.add(values, date)
                    if len(blocks) * len(members) <= 4:  # a second reading would take longer
                        kept.append((values, date))
            if not known:
                message = f"all values of `{own}` are missing in the training part"
                path = catalog.paths[0] if isinstance(catalog, Catalog) else None
                raise UserError(message, hint="Leave the field out.", file=path)
            fit.solve()
            if not kept:
                kept_lazily = (
                    (field.read(some, rows, columns, member), dates(catalog.hours[some], catalog.calendar))
                    for some in blocks
                    for member in members
                )
            for values, date in kept or kept_lazily:
                fit.add_anomalies(values, date)
            levels = [None if np.isnan(level) else level for level in field.levels.tolist()]
            found[name] = {"units": field.units, "levels": levels, "climatology": fit.finish().to_json()}
        return {"step": catalog.step, "spacing": list(grid.spacing), "fields": found}


class FieldFiles(FieldOptions):
    """Fields on a grid of time, latitude and longitude: NetCDF files, Zarr stores.

    A sample is a neighbourhood: a box of time steps, rows and columns of the map. Its place is a pure function of its
    number. Each part is a range of time, and no neighbourhood crosses the border of a part.

    Axes are found by CF attributes, then by their names. The order of latitudes and the convention of longitudes make
    no difference. Missing values and missing time steps stay missing.
    """

    renames_columns: ClassVar[bool] = True

    files: list[str] = Field(default_factory=list)
    """Files (.nc) or Zarr stores: names or globs. Several files are joined along time, or have different fields."""
    levels: list[float] = Field(default_factory=list)
    """Levels to read, in hPa (default: all)."""

    def absolute_paths(self) -> Self:
        return self.model_copy(update={"files": [locate(name) for name in self.files]})

    def without_files(self) -> dict[str, Any]:
        return {"files": []}

    def open(self, log: Any = None) -> Splits:
        """Open the files, learn the climatology, and divide the time axis."""
        paths = find_stores(self.files)
        if log is not None and len(paths) > 1:
            log(f"scanning {len(paths):,} gridded files")
        names = self._names()
        catalog = Catalog(paths, list(names.values()), self.levels)
        names = names or {name: name for name in catalog.names}
        return self.open_maps(catalog, names, fingerprints(paths), _describe(catalog), log)

    def read(self, files: Sequence[str | Path]) -> Neighbourhoods:
        """Neighbourhoods of other files, with the climatology of the training data.

        They cover the whole map and all times.
        """
        names, learned = self._names(), self.state.get("learned", {})
        catalog = Catalog(find_stores(files), list(names.values()), self.levels)
        names = names or {name: name for name in catalog.names}
        self.check_same_form(catalog, names, learned)
        everything = np.ones(len(catalog.hours), bool)
        boxes = self._boxes(catalog, self._size(catalog), everything, "")
        climate = {name: Climatology.from_json(learned["fields"][name]["climatology"]) for name in names}
        return Neighbourhoods(catalog, boxes, names, climate, _describe(catalog))

    def check_same_form(self, catalog: Catalog, names: Mapping[str, str], learned: Mapping[str, Any]) -> None:
        """Refuse files that differ from the training files.

        Units, levels, time step and grid spacing must be equal.
        """
        path = catalog.paths[0]
        if not learned:
            raise UserError(
                "the climatology of the training data is missing", hint="Read the files with a trained run."
            )
        for name, own in names.items():
            field, about = catalog.fields[own], learned["fields"][name]
            if field.units != about["units"]:
                message = (
                    f"`{own}` in {path} is in {field.units or 'no unit'}, but in training it was in {about['units']}"
                )
                raise UserError(message, hint="Convert the values to the unit of the training.", file=path)
            levels = [level for level in about["levels"] if level is not None]
            if not np.array_equal(field.levels[np.isfinite(field.levels)], levels):
                words = ", ".join(f"{level:g}" for level in levels) or "no levels"
                message = f"`{own}` in {path} has other levels than in training ({words})"
                raise UserError(message, hint="Choose the same levels with data.levels.", file=path, key="data.levels")
        found = np.array([catalog.step, *catalog.grid.spacing])
        asked = np.array([learned["step"], *learned["spacing"]])
        if (np.abs(found - asked) > SPACING_TOLERANCE * np.abs(asked)).any():
            here, there = (
                f"{step:g} h and {down:g} x {aside:g} degrees" for step, down, aside in (found.tolist(), asked.tolist())
            )
            message = f"{path} has steps of {here}, but in training they were {there}"
            raise UserError(message, hint="Interpolate the fields to the steps of the training.", file=path)

    def _names(self) -> dict[str, str]:
        """Names of the columns -> names in the files; empty for all fields."""
        renames: Mapping[str, str] = self.state.get("renames", {})
        return {name: renames.get(name, name) for name in self.state.get("names", ())}


def _name(maps: Maps) -> str:
    """Name of the data for messages: the only file, or `the data`."""
    return str(maps.paths[0]) if isinstance(maps, Catalog) and len(maps.paths) == 1 else "the data"


def _describe(catalog: Catalog) -> list[str]:
    """Notes on the times and the values of files."""
    notes = []
    for name, field in catalog.fields.items():
        if missing := int((field.where[:, 0] < 0).sum()):
            notes.append(
                f"`{name}` has no values at {missing:,} of {len(catalog.hours):,} time steps: they are missing."
            )
    return notes
