"""ROOT files: trees of numbers and of lists of numbers, read basket by basket."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Table
from ...errors import UserError, nearest
from ..packages import require
from .base import Column, Format, Layout, TableFile, TablePart, TableWriter, as_text
from .padded import column

TREES = ("TTree", "TNtuple", "TNtupleD", "TChain")
TUPLES = ("ROOT::RNTuple", "ROOT::Experimental::RNTuple")
MAX_THREADS = 4  # threads for decompression


def _uproot() -> Any:
    uproot = require("uproot", "ROOT files")
    unpacker: Any = getattr(uproot.compression, "_decompress_ZLIB", None)  # uproot.ZLIB.library only affects writing
    if getattr(unpacker, "library", "") == "zlib" and importlib.util.find_spec("isal"):
        unpacker.library = "isal"  # twice as fast
    return uproot


class RootFile(TableFile):
    """A TTree or RNTuple of a ROOT file."""

    form = "ROOT"

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        uproot = _uproot()
        self.file = uproot.open(path, handler=uproot.MemmapSource, array_cache=None, object_cache=None)
        end, size = int(self.file.file.fEND), path.stat().st_size
        if size < end:  # incomplete, though some columns may be readable
            message = f"{path} is incomplete: it has {size:,} bytes, but its header says {end:,}"
            raise UserError(message, hint="Download or write it again.", file=path)
        self.tree = self.file[self._name()]
        self.rows = int(self.tree.num_entries)
        self.split = hasattr(self.tree, "branches")  # a TTree, read basket by basket
        (self._branches if self.split else self._fields)()

    def _name(self) -> str:
        """Name of the tree to read: `layout.tree`, or the only tree of the file."""
        kinds = self.file.classnames(recursive=True, cycle=False)
        names = [name for name, kind in kinds.items() if kind in TREES or kind in TUPLES]
        if self.layout.tree:
            if self.layout.tree not in names:
                message = f"{self.path} has no tree `{self.layout.tree}`: its trees are "
                hint = nearest(self.layout.tree, names)
                raise self.error(message + (", ".join(names[:8]) or "none"), hint=hint, key="data.tree")
            return self.layout.tree
        if not names:
            held = f": it has {', '.join(list(kinds)[:4])}" if kinds else ": it is empty"
            raise self.error(f"{self.path} has no tree{held}")
        if len(names) > 1:
            message = f"{self.path} has {len(names)} trees: {', '.join(names[:8])}"
            raise self.error(message, hint="Choose a tree with --data.tree NAME.", key="data.tree")
        return names[0]

    def _branches(self) -> None:
        self.branch: dict[str, Any] = {}
        for full, branch in self.tree.iteritems():
            kind, last = self._kind(branch), full.rpartition("/")[2]
            name = last if last not in self.branch else full.replace("/", ".")
            if kind:
                self.columns[name], self.branch[name] = kind, branch
            else:
                self.others[name] = f"{branch.typename}"
        lists = [self.branch[name] for name, kind in self.columns.items() if kind == "list"]
        some = lists or list(self.branch.values())
        self.edges = np.asarray(some[0].entry_offsets if some else [0, self.rows], np.int64)

    def _kind(self, branch: Any) -> str:
        """Type of a branch: `list` or `value` for each event, or "" for other types."""
        try:
            meaning = branch.interpretation
        except Exception:  # uproot cannot interpret every class
            return ""
        if type(meaning).__name__ == "AsJagged":
            return "list" if _plain(meaning.content) and not meaning.content.inner_shape else ""
        return "value" if _plain(meaning) and len(meaning.inner_shape) < 2 else ""

    def _fields(self) -> None:
        for name in self.tree.keys():  # noqa: SIM118 (it is no mapping)
            if "." in name or name not in self.tree:
                continue
            form = str(self.tree[name].typename)
            inner = form.removeprefix("std::vector<").removesuffix(">") if form.startswith("std::vector<") else form
            if inner in NUMBERS:
                self.columns[name] = "value" if inner == form else "list"
            else:
                self.others[name] = form
        self.edges = np.array([*(one.num_first_entry for one in self.tree.cluster_summaries), self.rows], np.int64)

    def get(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        if self.split:
            return dict(zip(names, _map(lambda name: self._safely(name, start, stop), names)))
        table = self.tree.arrays(filter_name=list(names), entry_start=start, entry_stop=stop, array_cache=None)
        return {name: column(table[name], name) for name in names}

    def _safely(self, name: str, start: int, stop: int) -> Column:
        try:
            return self._column(self.branch[name], start, stop)
        except Exception as error:  # uproot raises many different exceptions here
            words = " ".join(str(error).split()) or type(error).__name__
            message = f"entries {start} to {stop - 1} of `{name}` in {self.path} cannot be read: {words[:200]}"
            raise self.error(message, hint="The file may be incomplete: download or write it again.") from error

    def _column(self, branch: Any, start: int, stop: int) -> Column:
        """Read numbers directly from the baskets, faster than through uproot."""
        meaning, offsets = branch.interpretation, branch.entry_offsets
        listed = type(meaning).__name__ == "AsJagged"
        inner = meaning.content if listed else meaning
        if type(inner).__name__ != "AsDtype":
            return self._slowly(branch, start, stop)
        values: list[Array] = []
        lengths: list[Array] = []
        for number in range(branch.num_baskets):
            first, last = offsets[number], offsets[number + 1]
            if last <= start or first >= stop:
                continue
            low, high = max(start, first) - first, min(stop, last) - first
            basket = branch.basket(number)
            if not listed:
                form = np.dtype(inner.from_dtype)
                values.append(basket.data.view(form.base).reshape(-1, *form.shape)[low:high])
                continue
            places = basket.byte_offsets
            if places is None:  # the counts are in another branch
                return self._slowly(branch, start, stop)
            raw, sizes = basket.data[places[low] : places[high]], np.diff(places[low : high + 1])
            if meaning.header_bytes:
                raw = _headless(raw, places[low:high] - places[low], meaning.header_bytes)
            if ((sizes - meaning.header_bytes) % inner.from_dtype.itemsize).any():
                return self._slowly(branch, start, stop)
            values.append(raw.view(inner.from_dtype))
            lengths.append((sizes - meaning.header_bytes) // inner.from_dtype.itemsize)
        native = np.dtype(inner.to_dtype).base.newbyteorder("=")
        flat = np.concatenate(values, dtype=native, casting="unsafe") if values else np.empty(0, native)
        return Lists(flat, np.concatenate([*lengths, np.zeros(0, np.int64)]).astype(np.int64)) if listed else flat

    def _slowly(self, branch: Any, start: int, stop: int) -> Column:
        return column(branch.array(entry_start=start, entry_stop=stop, library="ak", array_cache=None), branch.name)


NUMBERS = {"bool", "float", "double", "char"} | {
    f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def _plain(meaning: Any) -> bool:
    if type(meaning).__name__ not in ("AsDtype", "AsDouble32", "AsFloat16"):
        return False
    form = np.dtype(meaning.to_dtype)
    return form.fields is None and form.base.kind in "biuf"


def _headless(raw: Array, starts: Array, header: int) -> Array:
    width = 2 if header % 2 == 0 and len(raw) % 2 == 0 and not (starts % 2).any() else 1
    words = raw.view(np.uint16 if width == 2 else np.uint8)
    kept = np.ones(len(words), bool)
    kept[(starts[:, None] // width + np.arange(header // width)).reshape(-1)] = False
    return words[kept].view(np.uint8)


def _map(work: Any, items: Sequence[Any]) -> list[Any]:
    """Apply `work` to each item in threads; in a worker process, one after the other."""
    count = min(MAX_THREADS, os.cpu_count() or 1, len(items))
    if count < 2 or parent_process() is not None:
        return [work(item) for item in items]
    with ThreadPoolExecutor(count, "unpack") as pool:
        return list(pool.map(work, items))


TREE_NAME = "tree"


class RootWriter(TableWriter):
    """TTree writer; branch names have only letters, digits and underscores.

    Lists with a common name prefix and equal lengths, such as `part_px` and `part_py`, share one counter, `npart`.
    """

    def __init__(self, path: Path, table: Table) -> None:
        self.awkward = require("awkward", "ROOT files")
        self.branches = branch_names(table)
        self.groups = self._counted_together(table)
        rows = self._rows(table)
        self.types = {name: self._type(column) for name, column in rows.items()}
        self.handle = path.open("wb+")
        self.file = _uproot().recreate(self.handle)
        self.tree = self.file.mktree(TREE_NAME, self.types)

    def _counted_together(self, table: Table) -> dict[str, list[str]]:
        """Names of columns of lists with a common counter, by name prefix."""
        lengths = {name: column.lengths for name, column in table.items() if isinstance(column, Lists)}
        found: dict[str, list[str]] = {}
        for name in lengths:
            found.setdefault(self.branches[name].partition("_")[0], []).append(name)
        return {
            before: names
            for before, names in found.items()
            if before not in ("", *self.branches.values())
            and all(np.array_equal(lengths[names[0]], lengths[name]) for name in names)
        }

    def _rows(self, table: Table) -> dict[str, Any]:
        """Values of each branch, by name; lists with a common counter become records."""
        rows = {branch: self._column(name, table[name]) for name, branch in self.branches.items()}
        for before, names in self.groups.items():
            fields = {self.branches[name].removeprefix(f"{before}_"): rows.pop(self.branches[name]) for name in names}
            rows[before] = self.awkward.zip(fields)
        return rows

    def _column(self, name: str, column: Column) -> Any:
        if not isinstance(column, Lists):
            return as_text(column)
        if column.values.dtype.kind not in "biuf":
            raise UserError(f"a ROOT file cannot hold the lists of strings in `{name}`", hint="Write .parquet.")
        return self.awkward.unflatten(column.values, column.lengths)

    def _type(self, column: Any) -> Any:
        if not isinstance(column, np.ndarray):
            return column.type
        return "string" if column.dtype.kind in "OU" else np.dtype((column.dtype, column.shape[1:]))

    def add(self, table: Table) -> None:
        rows = self._rows(table)
        for name, kind in self.types.items():
            if isinstance(kind, str):
                rows[name] = self.awkward.Array(rows[name].tolist())
            elif isinstance(kind, np.dtype):
                rows[name] = rows[name].astype(kind.base)
        self.tree.extend(rows)

    def close(self, about: Mapping[str, Array]) -> None:
        self.file.close()
        self.handle.close()

    def stop(self) -> None:
        self.handle.close()

    @classmethod
    def read_part(cls, part: TablePart) -> tuple[Iterable[Table], dict[str, Array]]:
        def values(branch: Any, start: int, stop: int) -> Column:
            array = branch.array(entry_start=start, entry_stop=stop, array_cache=None)
            match type(branch.interpretation).__name__:
                case "AsStrings":
                    return np.array(array.to_list(), object)
                case "AsJagged":
                    return column(array, branch.name)
            return np.asarray(array)

        def tables() -> Iterator[Table]:
            branches = branch_names(part.columns)
            with _uproot().open(part.path) as file:
                tree = file[TREE_NAME]
                for stop, count in zip(accumulate(part.rows), part.rows):
                    yield {name: values(tree[branch], stop - count, stop) for name, branch in branches.items()}

        return tables(), {}


def branch_names(names: Iterable[str]) -> dict[str, str]:
    """Branch name for each column name, valid in ROOT and unique."""
    made: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
        again = sum(plain == other or other.startswith(f"{plain}__") for other in made.values())
        made[name] = f"{plain}__{again + 1}" if again else plain
    return made


ROOT = Format("ROOT", (".root",), ("uproot", "awkward"), writer=RootWriter, reader=RootFile, magic=(b"root",))
