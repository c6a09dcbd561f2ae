"""Guessed recipes for fields in NetCDF files and Zarr stores."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page
from .reader.axes import describe_time
from .reader.files import Catalog, find_stores
from .reader.reader import FieldFiles

SIZES: guess.Sizes = {0: (64, 3, 4), 1000: (128, 4, 8), 20_000: (256, 6, 8)}
BATCHES = {0: 8, 300: 16, 20_000: 32}
EPOCHS = 30
HOURS = 36.0  # of a neighbourhood, as in AtmoRep
MIN_STEPS, MAX_SHARE = 4, 0.05  # time steps of a neighbourhood: at least, and as a share of all
MAX_ROWS, MAX_COLUMNS = 64, 128
SHARE = 0.1  # of the time axis in the parts valid and test
CUBE_STEPS, ROW_CUBES, COLUMN_CUBES = 3, 4, 6  # time steps of a cube, and cubes along rows and columns
MAX_FIELDS = 8
SUFFIXES = (".nc", ".nc4", ".zarr")


def guess_fields(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of masked modelling for fields."""
    section = given.section(FieldFiles, {"kind": "fields"}, files=names)
    catalog = Catalog(paths, (), section.levels)
    fields = _fields(catalog, given)
    count, (height, width) = len(catalog.hours), catalog.grid.shape
    steps = max(MIN_STEPS, min(round(HOURS / catalog.step), int(MAX_SHARE * count)))
    if steps > count // 3:
        message = f"the files have {count} time steps, which are too few for three parts of {MIN_STEPS} or more"
        raise UserError(message, hint="Add files of other times.", key="data.files")
    duration = CUBE_STEPS if steps >= 2 * CUBE_STEPS else 1
    steps = steps // duration * duration
    rows, columns = min(height, MAX_ROWS), min(width, MAX_COLUMNS)
    cube = (duration, _side(rows, ROW_CUBES), _side(columns, COLUMN_CUBES))
    whole = (rows, columns) == (height, width)
    share = max(SHARE, math.ceil(100 * (steps + 1) / count) / 100)  # so that a neighbourhood fits into a part
    keys: dict[str, Any] = {"neighbourhood": (steps, rows, columns), "valid": share, "test": share}
    boxes = FieldFiles(kind="fields", files=names, **keys).training_boxes(catalog)
    samples = len(boxes)
    words = f"{steps} time steps of {catalog.step:g} h; {'the whole map' if whole else 'a part of the map'}"
    first, last = (describe_time(hour, catalog.calendar) for hour in catalog.hours[[0, -1]])
    several = len(fields) > 1
    notes = [
        f"Found: {count:,} time steps of {catalog.step:g} h, {first} to {last}, on {height} x {width} cells"
        + (" around the globe." if catalog.grid.periodic else "."),
        *(f"Field `{name}`: {_describe(catalog, name)}." for name in fields),
        *([f"Other fields: {', '.join(rest)}."] if (rest := [n for n in catalog.names if n not in fields]) else []),
    ]
    found = [
        Found("data.kind", "fields"),
        Found("data.files", [str(name) for name in names], "relative to the folder in which you train"),
        Found("data.neighbourhood", [steps, rows, columns], words),
        Found("data.valid", share, "fraction of the time axis, or [first day, last day]; selects the best model"),
        Found("data.test", share, "for the final evaluation"),
        *(found for name in fields for found in _tokens(f"tokens.{name}." if several else "tokens.", name, cube)),
        Found("model.kind", "multistream" if several else "encoder", "reads all fields together" if several else ""),
        *guess.model(samples, "neighbourhoods", SIZES),
        Found("model.position", "learned" if several else "rotary", "" if several else "compares times and places"),
        Found("objective.kind", "masked", "hidden cubes are predicted; a forecast is another mask"),
        Found("objective.mask_ratio", [0.1, 0.7], "smallest and largest fraction of hidden cubes"),
        Found("objective.every_stream", True if several else None, "cubes of all fields are hidden"),
        *guess.training(samples, EPOCHS, BATCHES, "loss", ("valid", "test")),
    ]
    return Page("masked cubes", paths, f"{samples:,} neighbourhoods", notes, "atmosphere/cubes", found)


def _fields(catalog: Catalog, given: Given) -> list[str]:
    """Fields to read: `tokens.field` if given, else the first fields of the files."""
    asked = given.get("tokens.field")
    if asked is not None:
        if asked not in catalog.names:
            there = ", ".join(catalog.names)
            raise UserError(f"the files have no field `{asked}`; the fields are {there}", key="tokens.field")
        return [asked]
    return catalog.names[:MAX_FIELDS]


def _tokens(prefix: str, name: str, cube: tuple[int, int, int]) -> list[Found]:
    return [
        Found(f"{prefix}kind", "cubes", "a token is a box of time steps, rows and columns"),
        Found(f"{prefix}field", name),
        Found(f"{prefix}cube", list(cube), "time steps, rows, columns"),
        Found(f"{prefix}loss", "crps", "several predictions (members) of each value; squared: a single prediction"),
    ]


def _side(length: int, count: int) -> int:
    """Side of a cube, for about `count` cubes along an axis.

    A divisor of the length of the axis is preferred, if there is a divisor near this side.
    """
    best = max(1, round(length / count))
    near = [side for side in range(max(1, best - 3), best + 4) if length % side == 0]
    return min(near, key=lambda side: abs(side - best)) if near else best


def _describe(catalog: Catalog, name: str) -> str:
    field = catalog.fields[name]
    words = [field.units or "no unit"]
    levels = [f"{level:g}" for level in field.levels if level == level]
    words += [f"levels {', '.join(levels)} hPa"] if levels else []
    words += [f"{field.members} members"] if field.members > 1 else []
    if missing := int((field.where[:, 0] < 0).sum()):
        words.append(f"missing at {missing:,} steps")
    return "; ".join(words)


def is_gridded(name: str) -> bool:
    """Whether a name has the suffix of a NetCDF file or a Zarr store."""
    return Path(name).suffix.lower() in SUFFIXES


ATMOSPHERE = guess.Guess(guess_fields, find=find_stores, recognises=is_gridded)
