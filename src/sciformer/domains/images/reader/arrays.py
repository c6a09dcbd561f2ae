"""Files with arrays of numbers: NPY, NPZ, HDF5, FITS and the idx files of MNIST, read by rows."""

from __future__ import annotations

import gzip
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.readers.text_parts import MAX_UNPACKED_BYTES
from ....errors import UserError
from ....files.formats.hdf5 import _h5py
from ....files.packages import broken, require

ARRAY_SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".fits", ".fit", ".fz", ".idx")
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}  # of idx files
MAX_ROW_GAP = 64  # rows that are read for nothing rather than begin anew
FITS_STRUCTURE = ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "EXTEND", "PCOUNT", "GCOUNT", "COMMENT", "HISTORY")


class ArrayInfo(NamedTuple):
    """What a file says of an array; one that is `turned` has its first axis stored last."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    turned: bool = False


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by name, of which only shapes and types were read; `header` has single values that belong to all."""

    path: Path
    form: str
    arrays: dict[str, ArrayInfo]
    header: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, rows: Array | None = None) -> Array:
        """An array, or sorted rows of it, in the byte order of this machine; texts as words."""
        found: Array = _with_broken(FORMATS[self.form].read, self.form, self.path, name, rows)
        if found.dtype.kind not in "OS":
            return found.astype(found.dtype.newbyteorder("="), copy=False)
        values = found.ravel().tolist()
        words = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
        return np.array(words).reshape(found.shape)


def _with_broken(call: Callable[..., Any], form: str, path: Path, *rest: Any) -> Any:
    try:
        return call(path, *rest)
    except UserError:
        raise
    except Exception as error:  # damaged files make each library raise a dozen different ones
        raise broken(path, form, error) from error


def _unpacked(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def open_arrays(path: Path) -> ArrayFile:
    """A file of any of these formats, told by how it begins."""
    try:
        with _unpacked(path) as file:
            begin = file.read(16)
    except (OSError, EOFError, zlib.error) as error:
        raise broken(path, "gzip", error) from error
    form = next((form for form, known in FORMATS.items() if known.magic and begin.startswith(known.magic)), "")
    if len(begin) >= 8 and begin[:2] == b"\0\0" and begin[2] in IDX_TYPES and 1 <= begin[3] <= 4:
        form = "idx"
    if not form:
        with path.open("rb") as file:
            begin = file.read(12)
        raise UserError(f"{path} is not an NPY, NPZ, HDF5, FITS or idx file: it begins with {begin!r}", file=path)
    found: ArrayFile = _with_broken(FORMATS[form].open, form, path)
    return found


def _read_row_blocks(array: Any, rows: Array | None) -> Array:
    """Rows of anything that can be sliced, neighbours and what is between close ones at once."""
    if rows is None:
        return np.asarray(array[...])
    runs = [run for run in np.split(rows, np.flatnonzero(np.diff(rows) > MAX_ROW_GAP) + 1) if len(run)]
    parts = [np.asarray(array[int(run[0]) : int(run[-1]) + 1])[run - run[0]] for run in runs]
    return np.concatenate(parts) if len(parts) != 1 else parts[0]


def _check_length(path: Path, needed: int, there: int) -> None:
    if there < needed:
        hint = "Was it cut off? Fetch or write it again."
        raise UserError(f"{path} must have {needed:,} bytes of numbers, not {there:,}", hint=hint, file=path)


# NumPy


def _npy_header(file: IO[bytes], path: Path) -> ArrayInfo:
    """The shape and type of an array in the form of NumPy; what is pickled is refused."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, turned, dtype = read(file)
    if dtype.hasobject:
        raise UserError(f"{path} must have plain numbers or strings, not Python objects, which can run code", file=path)
    return ArrayInfo(shape, dtype, turned)


def _open_npy(path: Path) -> ArrayFile:
    with path.open("rb") as file:
        found = _npy_header(file, path)
        _check_length(path, int(np.prod(found.shape)) * found.dtype.itemsize, path.stat().st_size - file.tell())
    return ArrayFile(path, "NPY", {"array": found})


def _read_npy(path: Path, name: str, rows: Array | None) -> Array:
    return _read_row_blocks(np.load(path, mmap_mode="r", allow_pickle=False), rows)


def _open_npz(path: Path) -> ArrayFile:
    arrays = {}
    with zipfile.ZipFile(path) as whole:
        for name in whole.namelist():
            if name.endswith(".npy"):
                with whole.open(name) as file:
                    arrays[name.removesuffix(".npy")] = _npy_header(file, path)
    return ArrayFile(path, "NPZ", arrays)


def _read_npz(path: Path, name: str, rows: Array | None) -> Array:
    """Rows of what is not packed are read alone."""
    with zipfile.ZipFile(path) as whole, whole.open(f"{name}.npy") as file:
        stored, listed = _npy_header(file, path), whole.getinfo(f"{name}.npy")
        begins = file.tell()
    plain = listed.compress_type == zipfile.ZIP_STORED and not stored.turned
    if not plain or not np.prod(stored.shape):
        found = _load_npz_array(path, name, path.stat().st_mtime_ns)
        return found if rows is None else found[rows]
    with path.open("rb") as file:
        file.seek(listed.header_offset)
        names, extra = struct.unpack("<26xHH", file.read(30))
    begins += listed.header_offset + 30 + names + extra
    return _read_row_blocks(np.memmap(path, stored.dtype, "r", begins, stored.shape), rows)


@lru_cache(maxsize=1)
def _load_npz_array(path: Path, name: str, changed: int) -> Array:
    """An array of an NPZ file is unpacked whole, and kept for the next rows of it."""
    with np.load(path, allow_pickle=False) as found:
        return np.asarray(found[name])


# HDF5


def _open_hdf5(path: Path) -> ArrayFile:
    h5py = _h5py()
    arrays: dict[str, ArrayInfo] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.names is None and item.shape:
            arrays[name] = ArrayInfo(item.shape, item.dtype)

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return ArrayFile(path, "HDF5", arrays)


def _read_hdf5(path: Path, name: str, rows: Array | None) -> Array:
    with _h5py().File(path, "r") as file:  # opened here: handles do not survive a fork
        return _read_row_blocks(file[name], rows)


# FITS


@contextmanager
def _open_hdus(path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on cards that are not quite as the standard has them
        with require("astropy.io.fits", "FITS files").open(path, memmap=False, lazy_load_hdus=False) as hdus:
            yield hdus


def _open_fits(path: Path) -> ArrayFile:
    arrays: dict[str, ArrayInfo] = {}
    header: dict[str, Any] = {}
    with _open_hdus(path) as hdus:
        for number, hdu in enumerate(hdus):
            cards = {k: v for k, v in hdu.header.items() if k and not k.startswith(FITS_STRUCTURE)}
            header |= {k: v for k, v in cards.items() if k not in header}
            if hdu.is_image and hdu.shape and np.prod(hdu.shape):
                name = hdu.name if hdu.name and hdu.name != "PRIMARY" else str(number)
                arrays[name] = ArrayInfo(tuple(hdu.shape), np.dtype(fits_dtype(hdu.header)))
            elif not hdu.is_image and hdu.columns is not None:
                for column in hdu.columns:
                    kind = hdu.columns.dtype[column.name]
                    shape = (int(hdu.header["NAXIS2"]), *_cell_shape(column.dim, kind.shape))
                    arrays.setdefault(column.name, ArrayInfo(shape, kind.base))
    return ArrayFile(path, "FITS", arrays, header)


def fits_dtype(header: Any) -> str:
    """The type that the pixels of a FITS image have when they are read."""
    bits = int(header.get("ZBITPIX", header["BITPIX"]))
    if bits < 0 or "BLANK" in header or header.get("BSCALE", 1) != 1:
        return "f8" if bits == -64 else "f4"
    shift = header.get("BZERO", 0)
    if shift:
        return f"u{bits // 8}" if bits > 8 and shift == 1 << (bits - 1) else "f4"
    return f"{'u' if bits == 8 else 'i'}{bits // 8}"


def _cell_shape(dim: str | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a cell of a table: as its dimensions are given, last axis first."""
    return tuple(int(side) for side in dim.strip("() ").split(","))[::-1] if dim and len(shape) < 2 else shape


def _read_fits(path: Path, name: str, rows: Array | None) -> Array:
    with _open_hdus(path) as hdus:
        for number, hdu in enumerate(hdus):
            if hdu.is_image and hdu.shape and name in (hdu.name, str(number)):
                whole = rows is None or len(hdu.shape) < 3
                found = np.asarray(hdu.data) if whole else _read_row_blocks(hdu.section, rows)
                return found.astype(fits_dtype(hdu.header), copy=False)
            if not hdu.is_image and hdu.columns is not None and name in hdu.columns.names:
                column = np.asarray(hdu.data[name])
                return column if rows is None else column[rows]
    raise UserError(f"{path} has no image or column {name!r}", file=path)


# idx


def _open_idx(path: Path) -> ArrayFile:
    with _unpacked(path) as file:
        _, _, code, axes = file.read(4)
        shape = tuple(int(side) for side in np.frombuffer(file.read(4 * axes), ">u4"))
    return ArrayFile(path, "idx", {"array": ArrayInfo(shape, np.dtype(IDX_TYPES[code]))})


def _read_idx(path: Path, name: str, rows: Array | None) -> Array:
    found = _load_idx_array(path, path.stat().st_mtime_ns)
    return found if rows is None else found[rows]


@lru_cache(maxsize=2)
def _load_idx_array(path: Path, changed: int) -> Array:
    """The array of an idx file, unpacked up to what its header says."""
    stored = _open_idx(path).arrays["array"]
    needed = int(np.prod(stored.shape, dtype=np.int64)) * stored.dtype.itemsize
    if needed > MAX_UNPACKED_BYTES:
        most = f"{MAX_UNPACKED_BYTES >> 30} GiB"
        raise UserError(f"{path} must have at most {most}, not the {needed:,} bytes that its header says", file=path)
    with _unpacked(path) as file:
        file.read(4 + 4 * len(stored.shape))
        raw = file.read(needed)
    _check_length(path, needed, len(raw))
    return np.frombuffer(raw, stored.dtype).reshape(stored.shape)


class ArrayFormat(NamedTuple):
    """How files of a format begin, and how they are opened and read."""

    magic: bytes
    open: Callable[[Path], ArrayFile]
    read: Callable[[Path, str, Array | None], Array]


FORMATS = {
    "NPY": ArrayFormat(b"\x93NUMPY", _open_npy, _read_npy),
    "NPZ": ArrayFormat(b"PK\x03\x04", _open_npz, _read_npz),
    "HDF5": ArrayFormat(b"\x89HDF", _open_hdf5, _read_hdf5),
    "FITS": ArrayFormat(b"SIMPLE  =", _open_fits, _read_fits),
    "idx": ArrayFormat(b"", _open_idx, _read_idx),
}
