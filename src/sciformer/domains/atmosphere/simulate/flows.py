"""Simulated fields for training without files, and as NetCDF files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.readers.simulation import Simulation
from ....data.source import Data, Source, Splits
from ....errors import UserError
from ....files.atomic import atomic_write, check_name, check_new, check_writable
from ....files.packages import require
from ..reader.axes import EPOCH, Grid
from ..reader.files import FieldInMemory, MapsInMemory
from ..reader.reader import FieldFiles, FieldOptions
from .sphere import Flow

FIRST = 438_288.0  # hours from 1970 to 2020-01-01
UNITS = {"temperature": "K", "eastward_wind": "m s-1", "northward_wind": "m s-1"}
VERSION = 1


class Flows(FieldOptions, Simulation):
    """Simulated temperature and wind on a sphere, with a daily cycle.

    The wind carries the temperature (advection), and the temperature diffuses. The fields are `temperature`,
    `eastward_wind` and `northward_wind`, hour by hour from 2020-01-01. The grid goes around the globe.
    """

    noun: ClassVar[str] = "hours"
    suffixes: ClassVar[tuple[str, ...]] = (".nc",)
    recipe_keys: ClassVar[tuple[str, ...]] = tuple(FieldOptions.model_fields)[1:]

    number: int = Field(default=1000, ge=1, le=10**6)
    """Number of hours to train on, or to write (default: 1,000)."""
    rows: int = Field(default=32, ge=4, le=1024)
    """Number of latitudes (default: 32)."""
    columns: int = Field(default=64, ge=4, le=2048)
    """Number of longitudes, an even number (default: 64)."""
    wind: float = Field(default=1.0, ge=0, le=10)
    """Factor of the wind speed; 0 means no wind (default: 1)."""
    diffusion: float = Field(default=0.02, ge=0, le=0.25)
    """Share of the temperature of a cell that each neighbour gets in an hour (default: 0.02)."""

    def check(self) -> None:
        if self.columns % 2:
            raise UserError(f"data.columns must be even, not {self.columns}", key="data.columns")

    def describe(self) -> str:
        own = self.model_dump(include={"number", "seed", "rows", "columns", "wind", "diffusion"})
        return f"flows, version {VERSION}: " + ", ".join(f"{name} {value}" for name, value in own.items())

    def make(self) -> dict[str, Array]:
        """Maps (hours, rows, columns) by name of the field, and their coordinates.

        The coordinates are `hours`, `latitude` and `longitude`.
        """
        self.check()
        return _maps(self.number, self.rows, self.columns, self.seed, self.wind, self.diffusion)

    def maps(self) -> MapsInMemory:
        """The simulated fields on their grid."""
        table = self.make()
        names = self.state.get("names") or list(UNITS)
        if strange := [name for name in names if name not in UNITS]:
            message = f"the simulation has no field `{strange[0]}`; its fields are {', '.join(UNITS)}"
            raise UserError(message, key="data.kind")
        latitude, longitude = table["latitude"], table["longitude"]
        grid = Grid(latitude, longitude, np.arange(self.rows), np.arange(self.columns), periodic=True)
        fields = {name: FieldInMemory(table[name][None, None], np.array([np.nan]), UNITS[name]) for name in names}
        return MapsInMemory(fields, grid, table["hours"], 1.0)

    def open(self, log: Any = None, write: bool = True) -> Splits:
        if log is not None:
            log(f"simulating {self.number:,} hours of {self.rows} x {self.columns} cells")
        maps = self.maps()
        return self.open_maps(maps, {name: name for name in maps.fields}, {"simulation": self.describe()}, [], log)

    def file_reader(self) -> Data:
        keys = {key: getattr(self, key) for key in FieldOptions.model_fields if key not in ("kind", "number", "seed")}
        found = FieldFiles(kind="fields", **{key: keys[key] for key in keys if key in FieldFiles.model_fields})
        found.state.update(self.state)
        return found

    def read(self, files: Sequence[str | Path]) -> Source:
        """Neighbourhoods of NetCDF files."""
        return self.file_reader().read(files)

    def check_file(self, path: Path, overwrite: bool = False) -> None:
        check_name(path, self.suffixes)
        check_new(path, overwrite)
        check_writable(path)

    def write(self, path: Path, overwrite: bool = False, show: bool = False) -> int:
        """Write the maps to a NetCDF file."""
        xarray = require("xarray", "NetCDF files")
        require("netCDF4", "NetCDF files")
        table = self.make()
        axes = {
            "time": ("time", table["hours"], {"units": EPOCH, "calendar": "standard", "standard_name": "time"}),
            "latitude": ("latitude", table["latitude"], {"units": "degrees_north", "standard_name": "latitude"}),
            "longitude": ("longitude", table["longitude"], {"units": "degrees_east", "standard_name": "longitude"}),
        }
        dims = ("time", "latitude", "longitude")
        fields = {name: (dims, table[name], {"units": unit}) for name, unit in UNITS.items()}
        made = xarray.Dataset(fields, axes, {"Conventions": "CF-1.7", "title": self.describe()})
        with atomic_write(path) as partial:
            made.to_netcdf(partial, engine="netcdf4", format="NETCDF4")
        return self.number


@lru_cache(maxsize=1)
def _maps(number: int, rows: int, columns: int, seed: int, wind: float, diffusion: float) -> dict[str, Array]:
    flow = Flow(rows, columns, seed, wind, diffusion)
    place = {"latitude": flow.sphere.latitude, "longitude": flow.sphere.longitude}
    return {"hours": FIRST + np.arange(number), **place, **flow.run(number)}
