"""Rows of array files: NPY, NPZ, HDF5, FITS and the idx files of MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ....data.columns import Array
from ....errors import UserError
from ....files.formats.base import as_text
from ....files.formats.hdf5 import datasets_of, h5py_package
from ....files.formats.npz import check_member, check_zip, npy_header
from ....files.in_memory import MemoryFile
from ....files.limits import check_memory
from ....files.packages import reading, require

ARRAY_SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".fits", ".fit", ".fz", ".idx")
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}  # type codes of idx files
MAX_GZIP_RATIO = 1032  # largest compression ratio of gzip
MEMORY = "memory"  # form of a table in memory
MAX_ROW_GAP = 64  # read over gaps up to this many rows instead of starting a new read
FITS_STRUCTURE = ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "EXTEND", "PCOUNT", "GCOUNT", "COMMENT", "HISTORY")


class ArrayInfo(NamedTuple):
    """Shape and dtype of an array, from the file header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class StoredArray(NamedTuple):
    """Array in an open file; slice the result of `load` by rows."""

    info: ArrayInfo
    load: Callable[[], Any]


Contents = tuple[dict[str, StoredArray], dict[str, Any]]
"""Arrays of an open file by name, and the values of its header."""


@dataclass(frozen=True)
class ArrayFile:
    """File with arrays: their names, shapes and dtypes, and keywords of the header."""

    path: Path
    form: str
    arrays: dict[str, ArrayInfo]
    header: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, rows: Array | None = None) -> Array:
        """Read an array or some of its rows.

        rows   sorted row numbers (default: all)

        Numbers are converted to native byte order, bytes to text.
        """
        return self.get_all([name], rows)[name]

    def get_all(self, names: Sequence[str], rows: Array | None = None) -> dict[str, Array]:
        """Read several arrays like `get`, opening the file only once."""
        with _contents(self.path, self.form) as (arrays, _):  # opened for each read: handles do not survive a fork
            return {name: _native(_read_row_blocks(arrays[name].load(), rows)) for name in names}


def _native(found: Array) -> Array:
    if found.dtype.kind == "O" and found.size and isinstance(found[0], np.ndarray):
        return found  # images of different shapes
    if found.dtype.kind not in "OS":
        return found.astype(found.dtype.newbyteorder("="), copy=False)
    return as_text(found.ravel()).astype(str).reshape(found.shape)


def open_arrays(path: Path) -> ArrayFile:
    """Open a file with arrays; its format is detected from its first bytes."""
    if isinstance(path, MemoryFile):
        with _contents(path, MEMORY) as (arrays, _):
            return ArrayFile(path, MEMORY, {name: stored.info for name, stored in arrays.items()})
    with reading(path, "gzip"), _unpacked(path) as file:
        begin = file.read(16)
    form = next((form for form, (magic, _) in FORMATS.items() if magic and begin.startswith(magic)), "")
    if len(begin) >= 8 and begin[:2] == b"\0\0" and begin[2] in IDX_TYPES and 1 <= begin[3] <= 4:
        form = "idx"
    if not form:
        with path.open("rb") as file:
            begin = file.read(12)
        raise UserError(f"{path} is not an NPY, NPZ, HDF5, FITS or idx file: it begins with {begin!r}", file=path)
    with _contents(path, form) as (arrays, header):
        return ArrayFile(path, form, {name: stored.info for name, stored in arrays.items()}, header)


@contextmanager
def _contents(path: Path, form: str) -> Iterator[Contents]:
    if isinstance(path, MemoryFile):
        yield {name: _stored(one) for name, one in path.columns.items() if isinstance(one, np.ndarray)}, {}
        return
    with reading(path, form), FORMATS[form][1](path) as found:
        yield found


def _unpacked(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _stored(array: Any) -> StoredArray:
    return StoredArray(ArrayInfo(tuple(array.shape), array.dtype), lambda: array)


def _read_row_blocks(array: Any, rows: Array | None) -> Array:
    """Read sorted rows of an array, neighbouring rows in one slice."""
    if rows is None:
        return np.asarray(array[...])
    runs = [run for run in np.split(rows, np.flatnonzero(np.diff(rows) > MAX_ROW_GAP) + 1) if len(run)]
    parts = [np.asarray(array[int(run[0]) : int(run[-1]) + 1])[run - run[0]] for run in runs]
    return np.concatenate(parts) if len(parts) != 1 else parts[0]


# NumPy


@contextmanager
def _npy(path: Path) -> Iterator[Contents]:
    with path.open("rb") as file:
        npy_header(file, path)
    yield {"array": _stored(np.load(path, mmap_mode="r", allow_pickle=False))}, {}


@contextmanager
def _npz(path: Path) -> Iterator[Contents]:
    """Open an NPZ file; memory-map uncompressed arrays, to read single rows."""
    found = {}
    with zipfile.ZipFile(path) as whole, path.open("rb") as raw:
        for listed in whole.infolist():
            name = listed.filename.removesuffix(".npy")
            if name == listed.filename:
                continue
            with whole.open(listed) as file:
                shape, fortran, dtype = npy_header(file, path)
                begins = file.tell()
            check_member(path, listed, shape, dtype)
            if listed.compress_type == zipfile.ZIP_STORED and np.prod(shape):
                raw.seek(listed.header_offset)
                begins += listed.header_offset + 30 + sum(struct.unpack("<26xHH", raw.read(30)))
                found[name] = _stored(np.memmap(path, dtype, "r", begins, shape, "F" if fortran else "C"))
            else:
                load = partial(_load_npz_array, path, name, path.stat().st_mtime_ns)
                found[name] = StoredArray(ArrayInfo(shape, dtype), load)
    yield found, {}


@lru_cache(maxsize=1)
def _load_npz_array(path: Path, name: str, changed: int) -> Array:
    """Decompress an array of an NPZ file, and cache it for later reads.

    changed   modification time of the file; a changed file is read again
    """
    check_zip(path)
    with np.load(path, allow_pickle=False) as found:
        return np.asarray(found[name])


@contextmanager
def _hdf5(path: Path) -> Iterator[Contents]:
    with h5py_package().File(path, "r") as file:
        plain = {name: item for name, item in datasets_of(file, path).items() if item.dtype.names is None}
        yield {name: _stored(item) for name, item in plain.items() if item.shape}, {}


# FITS


@contextmanager
def _fits(path: Path) -> Iterator[Contents]:
    found: dict[str, StoredArray] = {}
    header: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about header cards that violate the standard
        with require("astropy.io.fits", "FITS files").open(path, memmap=False, lazy_load_hdus=False) as hdus:
            for number, hdu in enumerate(hdus):
                cards = {k: v for k, v in hdu.header.items() if k and not k.startswith(FITS_STRUCTURE)}
                header |= {k: v for k, v in cards.items() if k not in header}
                if not hdu.is_image and hdu.columns is not None:
                    for column in hdu.columns:
                        found.setdefault(column.name, _fits_column(hdu, column))
                elif hdu.is_image and hdu.shape and np.prod(hdu.shape):
                    name = hdu.name if hdu.name and hdu.name != "PRIMARY" else str(number)
                    info = ArrayInfo(tuple(hdu.shape), np.dtype(fits_dtype(hdu.header)))
                    found[name] = StoredArray(info, partial(getattr, hdu, "section"))
            yield found, header


def _fits_column(hdu: Any, column: Any) -> StoredArray:
    kind = hdu.columns.dtype[column.name]
    shape = kind.shape
    if column.dim and len(shape) < 2:  # TDIM gives the last axis first
        shape = tuple(int(side) for side in column.dim.strip("() ").split(","))[::-1]
    info = ArrayInfo((int(hdu.header["NAXIS2"]), *shape), kind.base)
    return StoredArray(info, lambda: np.asarray(hdu.data[column.name]))


def fits_dtype(header: Any) -> str:
    """Dtype of the pixels of a FITS image after scaling."""
    bits = int(header.get("ZBITPIX", header["BITPIX"]))
    if bits < 0 or "BLANK" in header or header.get("BSCALE", 1) != 1:
        return "f8" if bits == -64 else "f4"
    shift = header.get("BZERO", 0)
    if shift:
        return f"u{bits // 8}" if bits > 8 and shift == 1 << (bits - 1) else "f4"
    return f"{'u' if bits == 8 else 'i'}{bits // 8}"


# idx


@contextmanager
def _idx(path: Path) -> Iterator[Contents]:
    with _unpacked(path) as file:
        _, _, code, axes = file.read(4)
        shape = tuple(int(side) for side in np.frombuffer(file.read(4 * axes), ">u4"))
    info = ArrayInfo(shape, np.dtype(IDX_TYPES[code]))
    size, needed = path.stat().st_size, math.prod(shape) * info.dtype.itemsize
    if not needed or needed > size * (MAX_GZIP_RATIO if path.suffix == ".gz" else 1):
        hint = "Download or write the file again."
        message = f"the header of {path} declares {needed:,} bytes of data, but the file has {size:,} bytes"
        raise UserError(message, hint=hint, file=path)
    yield {"array": StoredArray(info, partial(_load_idx_array, path, info, path.stat().st_mtime_ns))}, {}


@lru_cache(maxsize=2)
def _load_idx_array(path: Path, info: ArrayInfo, changed: int) -> Array:
    """Read the array of an idx file; ignore bytes beyond the size in the header.

    changed   modification time of the file; a changed file is read again
    """
    needed = int(np.prod(info.shape, dtype=np.int64)) * info.dtype.itemsize
    check_memory(path, needed, "the array")
    with _unpacked(path) as file:
        file.read(4 + 4 * len(info.shape))
        raw = file.read(needed)
    if len(raw) < needed:
        hint = "Download or write the file again."
        raise UserError(f"{path} is incomplete: it has {len(raw):,} of {needed:,} bytes", hint=hint, file=path)
    return np.frombuffer(raw, info.dtype).reshape(info.shape)


FORMATS: dict[str, tuple[bytes, Callable[[Path], AbstractContextManager[Contents]]]] = {  # magic bytes and opener
    "NPY": (b"\x93NUMPY", _npy),
    "NPZ": (b"PK\x03\x04", _npz),
    "HDF5": (b"\x89HDF", _hdf5),
    "FITS": (b"SIMPLE  =", _fits),
    "idx": (b"", _idx),
}
