"""Simulated images in files: NPZ, or HDF5 for more than fits into memory; a column each, `image` and what is known."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....data.columns import Array, Table
from ....errors import UserError
from ....files import simulated
from ....files.simulated import Forms, Log, Npz

IMAGES_PER_WRITE = 1024  # images written at a time
SPARE_BYTES = 1 << 20  # bytes on the disk beside those of the images
MakeImages = Callable[[int, int], Table]  # of so many images, from this number on


def simulate_images(
    out: Path,
    what: str,
    make: MakeImages,
    number: int,
    overwrite: bool = False,
    log: Log = print,
    show: bool = False,
) -> None:
    """Make images and write them to a file; `show` tells how far it is."""
    if number < 1:
        raise UserError(f"--number must be 1 or more {what}, not {number}", key="--number")
    simulated.simulate(
        out, what, number, simulated.in_pieces(number, IMAGES_PER_WRITE, make), WRITERS, overwrite, log, show
    )


class _Hdf5:
    """A dataset for each column, which grows."""

    def __init__(self, path: Path, table: Table) -> None:
        self.package, self.path = self.check(), path
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
            raise UserError(
                "the package `h5py` for .h5 is not installed", hint="Install it: pip install h5py, or write .npz."
            ) from error
        return h5py

    def add(self, table: Table) -> None:
        """More images; where there is no room for them, nothing is begun: HDF5 does not survive a full disk."""
        needed = sum(np.asarray(column).nbytes for column in table.values())
        if shutil.disk_usage(self.path.parent).free < needed + SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for name, column in table.items():
            values: Array = column  # type: ignore[assignment]
            kept = self.file[name]
            kept.resize(len(kept) + len(values), axis=0)
            kept[-len(values) :] = values.astype(object) if values.dtype.kind == "U" else values
        self.file.flush()

    def close(self) -> None:
        """Finish the file."""
        self.file.close()

    stop = close


WRITERS: Forms = {".npz": Npz, ".h5": _Hdf5}
