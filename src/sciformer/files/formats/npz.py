"""NumPy files: the arrays of an .npz or .npy file; pickled objects are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Table
from ...errors import UserError
from ..atomic import atomic_write, make_folder
from ..packages import broken
from .base import Format, Layout, TableWriter
from .padded import PaddedFile, flat_arrays


def write_arrays(path: Path, columns: Mapping[str, Any], advice: str, packed: bool = False) -> None:
    """Write columns atomically to an .npz file; `packed` compresses it."""
    make_folder(path.parent, advice)
    with atomic_write(path, advice) as partial, partial.open("wb") as file:
        (np.savez_compressed if packed else np.savez)(file, allow_pickle=False, **columns)


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the arrays of an .npz or .npy file; pickled objects are refused."""
    if path.suffix not in (".npz", ".npy"):
        message = f"the suffix of {path} is not .npz or .npy"
        raise UserError(message, hint="Write a file with numpy.savez(path, image=..., label=...).", file=path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except Exception as error:  # NumPy raises many different exceptions for damaged files
        if "pickle" in str(error).lower():
            message = f"{path} has pickled Python objects, which can run code"
            raise UserError(message, hint="Save plain arrays of numbers or strings.", file=path) from error
        raise broken(path, "NumPy", error) from error


class NPZFile(PaddedFile):
    """Arrays of an .npz file, read into memory."""

    form = "NPZ"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.fill(read_arrays(path))


class NPZWriter(TableWriter):
    """Writer of a compressed array per column; keeps all data in memory until `close`."""

    tabular = False

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.parts = path, {name: [column[:0]] for name, column in flat_arrays(table).items()}

    def add(self, table: Table) -> None:
        for name, column in flat_arrays(table).items():
            self.parts[name].append(column)

    def close(self, about: Mapping[str, Array]) -> None:
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        columns = {name: column.astype(str) if column.dtype.kind == "O" else column for name, column in joined.items()}
        with self.path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **columns, **about)

    def stop(self) -> None:
        self.parts.clear()


NPZ = Format("NPZ", (".npz",), writer=NPZWriter, reader=NPZFile, magic=(b"PK\x03\x04",))
