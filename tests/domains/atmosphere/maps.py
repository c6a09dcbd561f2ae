"""Small maps as NetCDF files and Zarr stores, in every order that files come in."""

import warnings

import numpy as np
import xarray

TIME = {"units": "hours since 2020-01-30", "calendar": "standard", "standard_name": "time"}
NORTH = {"units": "degrees_north", "standard_name": "latitude"}
EAST = {"units": "degrees_east", "standard_name": "longitude"}


def values(times=60, rows=8, columns=12, seed=0, **_):
    """A daily cycle, a slope and noise (times, rows, columns)."""
    rng = np.random.default_rng(seed)
    daily = 3 * np.sin(2 * np.pi * np.arange(times) / 24)[:, None, None]
    return (280 + daily + np.arange(rows)[:, None] + rng.normal(size=(times, rows, columns))).astype(np.float32)


def dataset(names=("t",), times=60, rows=8, columns=12, west=-6.0, spacing=1.0, step=1, calendar="standard", seed=0):
    """Maps of several fields, with latitudes from south to north."""
    coordinates = {
        "time": ("time", step * np.arange(times), {**TIME, "calendar": calendar}),
        "latitude": ("latitude", 50.0 + spacing * np.arange(rows), NORTH),
        "longitude": ("longitude", west + spacing * np.arange(columns), EAST),
    }
    axes = ("time", "latitude", "longitude")
    fields = {
        name: (axes, values(times, rows, columns, seed + number), {"units": "K"}) for number, name in enumerate(names)
    }
    return xarray.Dataset(fields, coordinates)


def write(found, path, **encoding):
    """Write a dataset as NetCDF, or as a Zarr store if the suffix is .zarr."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".zarr":
            found.to_zarr(path, consolidated=False, encoding=dict.fromkeys(found, encoding) if encoding else None)
        else:
            found.to_netcdf(path, engine="netcdf4", encoding=dict.fromkeys(found, encoding) if encoding else None)
    return str(path)
