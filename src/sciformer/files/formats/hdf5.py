"""HDF5 files: padded arrays, arrays with named fields, and tables of pandas."""

from __future__ import annotations

import errno
import importlib
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError
from ..limits import check_memory, check_stored
from ..packages import require
from .base import Column, Format, Layout, TablePart, TableWriter
from .padded import LENGTHS, PaddedFile, flat_arrays

BLOCK_PREFIX = "values_block_"
PICKLED_LIST = re.compile(rb"\(lp\d+\n((?:(?:V[^\n\\]*|S'[^'\n\\]*')\np\d+\na)*)\.")
PICKLED_ITEM = re.compile(rb"(?:V([^\n]*)|S'([^'\n]*)')\np\d+\na")
NUMBERED_NAME = re.compile(r"(.+)_(\d+)")
# Columns of the top tagging reference data (Zenodo 2603256):
FOUR_MOMENTUM = ("E", "PX", "PY", "PZ")
MAX_PARTICLES = 200
TRUTH_COLUMNS = ("truthE", "truthPX", "truthPY", "truthPZ")  # optional
LABEL_COLUMNS = ("ttv", "is_signal_new")  # integers; only the last is always present


def h5py_package() -> Any:
    """Import h5py and all installed compression filters."""
    h5py = require("h5py", "HDF5 files")
    with suppress(ImportError):
        importlib.import_module("hdf5plugin")  # registers more compression filters with h5py
    return h5py


def datasets_of(file: Any, path: Path) -> dict[str, Any]:
    """Datasets of an open file by name; unsafe datasets are refused.

    External and soft links are not followed. External storage and virtual datasets are refused, because they can read
    any file of the machine. Unknown compression filters, and datasets far larger than their stored bytes, are refused,
    too.
    """
    h5py, found = h5py_package(), dict(_walk(file, "", set()))
    for name, dataset in found.items():
        if dataset.is_virtual or dataset.external:
            hint = "Copy the data into the file itself, for example with h5repack."
            raise UserError(f"`{name}` of {path} is stored in other files, which are not opened", hint=hint, file=path)
        if dataset.shape is None:
            continue
        size, what = dataset.dtype.itemsize, f"`{name}`"
        check_stored(path, dataset.shape, size, dataset.id.get_storage_size(), what)
        check_memory(path, math.prod(dataset.chunks or dataset.shape[1:]) * size, f"a chunk of {what}")
        plan = dataset.id.get_create_plist()
        for number in range(plan.get_nfilters()):
            code, *_, words = plan.get_filter(number)
            if not h5py.h5z.filter_avail(code):
                unknown = words.decode(errors="replace") or code
                message = f"h5py cannot decompress `{name}` of {path}, compressed with {unknown}"
                hint = "Install more compression filters: pip install hdf5plugin"
                raise UserError(message, hint=hint, file=path)
    return found


def _walk(group: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each dataset below a group, and the dataset.

    `visititems` of h5py would do the same, but never ends for some damaged groups.
    """
    h5py = h5py_package()
    for name in list(group):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(item, h5py.Group):
            yield from _walk(item, f"{prefix}{name}/", seen)
        elif isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}", item


class HDF5File(PaddedFile):
    """Datasets of an HDF5 file, or the columns of a pandas table in it."""

    form = "HDF5"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.file = h5py_package().File(path, "r")
        self.frame: list[tuple[Any, Any, list[str]]] = []  # dataset, field, column names
        found = datasets_of(self.file, path)
        if frames := self._frames(found):
            self._table(frames, found)
        else:
            self.fill({name.replace("/", "."): dataset for name, dataset in found.items()})

    def _frames(self, found: dict[str, Any]) -> list[str]:
        keys = [name.rpartition("/")[0] for name in found if name.rpartition("/")[2] in ("table", "axis0")]
        return [key for key in keys if b"frame" in _bytes(self.file[key].attrs.get("pandas_type", b""))] if keys else []

    def _table(self, keys: list[str], found: dict[str, Any]) -> None:
        if self.layout.tree:
            keys = [key for key in keys if key == self.layout.tree.strip("/")]
        if len(keys) != 1:
            known = f"has {len(keys)} tables: {', '.join(keys)}" if keys else f"has no table `{self.layout.tree}`"
            raise self.error(f"{self.path} {known}", hint="Choose a table with --data.tree NAME.", key="data.tree")
        (key,) = keys
        if f"{key}/table" in found:
            table = found[f"{key}/table"]
            self.rows = int(table.shape[0])
            for field in table.dtype.names:
                if field != "index":
                    self.frame.append((table, field, self._names(table, field)))
        else:
            for name in sorted(name for name in found if re.fullmatch(rf"{re.escape(key)}/block\d+_values", name)):
                items = found[name.replace("_values", "_items")][:]
                self.frame.append((found[name], None, [_bytes(item).decode() for item in items]))
            self.rows = int(found[f"{key}/axis1"].shape[0])
        self._columns()
        self.edges = np.append(np.arange(0, self.rows, (self.frame[0][0].chunks or (1024,))[0]), self.rows)

    def _names(self, table: Any, field: str) -> list[str]:
        """Column names of a block of a pandas table, read without unpickling.

        pandas stores the names as a pickle. A pickled list of strings is parsed as text. The columns of the top tagging
        reference data are known from the shape of the block.
        """
        shape = table.dtype[field].shape
        width = shape[0] if shape else 1
        if not field.startswith(BLOCK_PREFIX):
            return [field] if width == 1 else [f"{field}_{number}" for number in range(width)]
        written = _bytes(table.attrs.get(f"{field}_kind", b""))
        if (listed := PICKLED_LIST.fullmatch(written)) is not None:
            words = [(one or two).decode("utf-8", "replace") for one, two in PICKLED_ITEM.findall(listed[1])]
            if len(words) == width and len(set(words)) == width:
                return words
        kind, numbers = table.dtype[field].base.kind, len(FOUR_MOMENTUM) * MAX_PARTICLES
        if kind == "f" and width in (numbers, numbers + len(TRUTH_COLUMNS)):
            return [f"{name}_{number}" for number in range(MAX_PARTICLES) for name in FOUR_MOMENTUM] + list(
                TRUTH_COLUMNS[: width - numbers]
            )
        if kind in "iu" and width in (1, len(LABEL_COLUMNS)):
            return list(LABEL_COLUMNS[-width:])
        stored = f"the names of the {width} columns of type {table.dtype[field].base} in {field}"
        message = f"{self.path} stores {stored} as a pickle, which is unsafe to read"
        raise self.error(message, hint="Write the table again with format='fixed', or as Parquet.")

    def _columns(self) -> None:
        """Sort columns into single values and zero-padded lists (NAME_0, NAME_1, ...)."""
        self.lists: dict[str, list[tuple[int, int]]] = {}  # column -> block and index of each entry
        self.single: dict[str, tuple[int, int]] = {}
        numbered: dict[str, dict[int, tuple[int, int]]] = {}
        for block, (dataset, field, names) in enumerate(self.frame):
            form = (dataset.dtype[field] if field else dataset.dtype).base
            for place, name in enumerate(names):
                if form.kind not in "biuf":
                    self.others[name] = f"{form}"
                    continue
                self.single[name] = (block, place)
                if match := NUMBERED_NAME.fullmatch(name):
                    numbered.setdefault(match[1], {})[int(match[2])] = (block, place)
        for name, places in numbered.items():
            if len(places) > 1 and sorted(places) == list(range(len(places))) and name not in self.single:
                self.lists[name] = [places[number] for number in range(len(places))]
                for number in places:
                    self.single.pop(f"{name}_{number}", None)
        self.columns = {**dict.fromkeys(self.lists, "list"), **dict.fromkeys(self.single, "value")}

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        if not self.frame:
            return super().get(names, start, stop)

        @cache
        def numbers(block: int) -> Array:
            dataset, field, _ = self.frame[block]
            part = dataset[start:stop][field] if field else dataset[start:stop]
            return np.asarray(part[:, None] if part.ndim == 1 else part)

        def list_values(name: str) -> Array:
            places = self.lists[name]
            if len({block for block, _ in places}) == 1:
                return numbers(places[0][0])[:, [place for _, place in places]]
            return np.stack([numbers(block)[:, place] for block, place in places], 1)

        @cache
        def real(width: int) -> tuple[Array, Array]:
            """Mask (rows, width) of the nonzero entries, and their number in each row."""
            alike = [name for name, places in self.lists.items() if len(places) == width]
            some = np.any([list_values(name) != 0 for name in alike], 0)
            return some, some.sum(1).astype(np.int64)

        table: dict[str, Column] = {}
        for name in names:
            if name in self.single:
                block, place = self.single[name]
                table[name] = np.ascontiguousarray(numbers(block)[:, place])
            else:
                some, lengths = real(len(self.lists[name]))
                table[name] = Lists(list_values(name)[some], lengths)
        return table


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, (bytes, np.bytes_)) else b""


SPARE_BYTES = 1 << 20  # bytes to keep free on the disk


class HDF5Writer(TableWriter):
    """HDF5 writer: a growing dataset per column, and NAME_lengths for lists."""

    tabular = False

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.text = path, h5py_package().string_dtype()
        self.file = h5py_package().File(path, "w")
        for name, column in flat_arrays(table).items():
            kind = self.text if column.dtype.kind in "OU" else column.dtype
            rest = column.shape[1:]
            self.file.create_dataset(name, (0, *rest), kind, maxshape=(None, *rest), chunks=(64, *rest))

    def add(self, table: Table) -> None:
        """Append a table, unless the disk is nearly full (this would damage the file)."""
        columns = flat_arrays(table)
        if shutil.disk_usage(self.path.parent).free < sum(column.nbytes for column in columns.values()) + SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for name, column in columns.items():
            dataset = self.file[name]
            dataset.resize(len(dataset) + len(column), axis=0)
            dataset[len(dataset) - len(column) :] = column.astype(object) if column.dtype.kind == "U" else column
        self.file.flush()

    def close(self, about: Mapping[str, Array]) -> None:
        for name, column in about.items():
            self.file[name] = column.astype(object) if column.dtype.kind == "U" else column
        self.file.close()

    @classmethod
    def read_part(cls, part: TablePart) -> tuple[Iterable[Table], dict[str, Array]]:
        def values(name: str, rows: slice = slice(None)) -> Array:
            return np.asarray((file[name].asstr() if file[name].dtype.kind == "O" else file[name])[rows])

        def tables() -> Iterator[Table]:
            places = dict.fromkeys(lists, 0)
            ends = accumulate(part.rows)
            with file:
                for end, count in zip(ends, part.rows):
                    rows = slice(end - count, end)
                    table: dict[str, Column] = {}
                    for name in part.columns:
                        if name in lists:
                            lengths = values(f"{name}{LENGTHS}", rows)
                            stop = places[name] + int(lengths.sum())
                            table[name] = Lists(values(name, slice(places[name], stop)), lengths)
                            places[name] = stop
                        else:
                            table[name] = values(name, rows)
                    yield table

        file = h5py_package().File(part.path, "r")
        lists = [name for name in part.columns if f"{name}{LENGTHS}" in {*file} - {*part.columns}]
        return tables(), {name: values(name) for name in part.about}


HDF5 = Format("HDF5", (".h5", ".hdf5"), ("h5py",), writer=HDF5Writer, reader=HDF5File, magic=(b"\x89HDF",))
