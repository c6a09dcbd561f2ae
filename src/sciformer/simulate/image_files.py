"""Simulated images in files: NPZ, or HDF5 for more than fits into memory; a column each, `image` and what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data.source import Array, Table
from ..errors import UserError
from ..terminal import Meter
from . import jet_files
from .jet_files import Say

PIECE = 1024  # images written at a time
Make = Callable[[int, int], Table]  # of so many images, from this number on


def simulate_images(
    out: Path,
    what: str,
    make: Make,
    number: int,
    overwrite: bool = False,
    say: Say = print,
    show: bool = False,
) -> None:
    """Make images and write them to a file; `show` tells how far it is."""
    if number < 1:
        raise UserError(f"--number of 1 or more {what}", f"{number}")
    jet_files.check_file(out, overwrite, FORMS)
    with Meter(number, show) as meter:
        done = jet_files.write(out, jet_files.metered(_tables(number, make), meter), overwrite, FORMS)
    say(f"wrote {done:,} {what} to {out}")


def _tables(number: int, make: Make) -> Iterator[Table]:
    for first in range(0, number, PIECE):
        yield make(min(PIECE, number - first), first)


class _Hdf5:
    """A dataset for each column, which grows."""

    def __init__(self, path: Path, table: Table) -> None:
        self.package = self.check()
        self.file = self.package.File(path, "w")
        for name, column in table.items():
            assert isinstance(column, np.ndarray)
            kind = self.package.string_dtype() if column.dtype.kind == "U" else column.dtype
            rest = column.shape[1:]
            self.file.create_dataset(name, (0, *rest), kind, maxshape=(None, *rest), chunks=(64, *rest))

    @staticmethod
    def check() -> Any:
        """The package h5py."""
        try:
            import h5py  # type: ignore[import-untyped]
        except ImportError as error:
            advice = "Install it: pip install h5py, or write .npz."
            raise UserError("the package `h5py` for .h5", "none installed", advice) from error
        return h5py

    def add(self, table: Table) -> None:
        """More images."""
        for name, column in table.items():
            values: Array = column  # type: ignore[assignment]
            kept = self.file[name]
            kept.resize(len(kept) + len(values), axis=0)
            kept[-len(values) :] = values.astype(object) if values.dtype.kind == "U" else values

    def close(self) -> None:
        """Finish the file."""
        self.file.close()

    stop = close


FORMS: dict[str, Any] = {".npz": jet_files.FORMS[".npz"], ".h5": _Hdf5}
