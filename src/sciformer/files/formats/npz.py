"""NumPy files: the arrays of an .npz or .npy file; pickled objects are refused."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...data.columns import Array, Table
from ...errors import UserError
from ..atomic import atomic_write, make_folder
from ..limits import check_memory
from ..packages import reading
from .base import Format, Layout, TablePart, TableWriter
from .padded import PaddedFile, flat_arrays

MAX_STRING_CHARACTERS = 1000


def write_arrays(path: Path, columns: Mapping[str, Any], advice: str, packed: bool = False) -> None:
    """Write columns atomically to an .npz file; `packed` compresses the file."""
    make_folder(path.parent, advice)
    with atomic_write(path, advice) as partial, partial.open("wb") as file:
        (np.savez_compressed if packed else np.savez)(file, allow_pickle=False, **columns)


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the arrays of an .npz or .npy file; pickled objects are refused."""
    if path.suffix not in (".npz", ".npy"):
        message = f"the suffix of {path} is not .npz or .npy"
        raise UserError(message, hint="Write a file with numpy.savez(path, image=..., label=...).", file=path)
    with reading(path, "NumPy"), path.open("rb") as file:
        try:
            if zipfile.is_zipfile(file):
                check_zip(path)
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            return {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        except ValueError as error:
            if "pickle" not in str(error).lower():
                raise
            message = f"{path} has pickled Python objects, which can run code"
            raise UserError(message, hint="Save plain arrays of numbers or strings.", file=path) from error


def check_zip(path: Path) -> None:
    """Refuse an .npz file if its arrays exceed the memory or their stored bytes."""
    with zipfile.ZipFile(path) as whole:
        members = [member for member in whole.infolist() if member.filename.endswith(".npy")]
        check_memory(path, sum(member.file_size for member in members), "unpacking all arrays")
        for member in members:
            with whole.open(member) as file:
                shape, _, dtype = npy_header(file, path)
            check_member(path, member, shape, dtype)


def check_member(path: Path, member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an array of an .npz file with fewer bytes than its header says."""
    claimed, name = math.prod(shape) * dtype.itemsize, member.filename.removesuffix(".npy")
    if claimed > member.file_size:
        stored = f"{claimed:,} bytes according to its header, but {member.file_size:,} bytes are stored"
        message = f"the array `{name}` of {path} has {stored}"
        raise UserError(message, hint="The file may be damaged: download or write it again.", file=path)


def npy_header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and dtype from an NPY header; pickled objects are refused."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        message, hint = f"{path} has pickled Python objects, which can run code", "Save numbers or strings."
        raise UserError(message, hint=hint, file=path)
    return shape, fortran, dtype


class NPZFile(PaddedFile):
    """Arrays of an .npz file, read into memory."""

    form = "NPZ"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.fill(read_arrays(path))


class NPZWriter(TableWriter):
    """NPZ writer: a compressed array for each column, kept in memory until `close`.

    The strings of an array have equal width; strings above 1,000 characters are cut there and end with «…».
    """

    tabular = False

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.parts = path, {name: [column[:0]] for name, column in flat_arrays(table).items()}

    def add(self, table: Table) -> None:
        for name, column in flat_arrays(table).items():
            self.parts[name].append(column)

    def close(self, about: Mapping[str, Array]) -> None:
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        columns = {
            name: _fixed_width(column) if column.dtype.kind == "O" else column for name, column in joined.items()
        }
        with self.path.open("wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, column in (columns | {**about}).items():  # numpy.savez cannot write a column named `file`
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, column, allow_pickle=False)

    def stop(self) -> None:
        self.parts.clear()

    @classmethod
    def read_part(cls, part: TablePart) -> tuple[Iterable[Table], dict[str, Array]]:
        arrays = read_arrays(part.path)
        about = {name: arrays.pop(name) for name in part.about}
        return [arrays], about


def _fixed_width(texts: Array) -> Array:
    """Convert to an array of strings of equal width, at most `MAX_STRING_CHARACTERS`."""
    size = MAX_STRING_CHARACTERS
    return np.array([text if len(text) <= size else f"{text[: size - 1]}…" for text in texts.tolist()], str)


NPZ = Format("NPZ", (".npz",), writer=NPZWriter, reader=NPZFile, magic=(b"PK\x03\x04",))
