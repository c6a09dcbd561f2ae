"""Base classes of simulations, for training and for `sciformer simulate`.

A simulation is a section of a recipe, registered at the extension point `simulation`. Its fields are the keys under
`data:` of a recipe with `kind: NAME`, and also the options of `sciformer simulate NAME`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from ...errors import UserError, one_of
from ...files.formats.npz import read_arrays, write_arrays
from ...files.formats.padded import LENGTHS
from ...files.tables import check_table, create_table
from ...progress import ProgressBar
from ..columns import Array, Lists, Table, rows_of
from ..source import Chosen, Data, Memory, Source, Splits
from ..split import Split
from .arrays import Arrays
from .sequence import SEQUENCES, chunk_rng, class_numbers, sample_sequence, shuffled_rounds

LISTS = "lists"  # array of a cached piece: names of its list columns, which share their lengths


class Simulation(Data):
    """Base class of simulations; samples are a pure function of the keys."""

    noun: ClassVar[str] = "samples"
    """Plural noun for the samples, in messages."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of output files, the usual suffix first (default: all formats)."""
    recipe_keys: ClassVar[tuple[str, ...]] = ()
    """Keys only for training, which are not options of `sciformer simulate`."""
    class_files: ClassVar[Mapping[str, str]] = {}
    """File name of each class, for `--by-class FOLDER` (default: none, so that the option does not exist)."""

    number: int = Field(default=20_000, ge=1, le=10**10)
    """Number of samples to train on, or to write (default: 20,000)."""
    seed: int = Field(default=0, ge=0)
    """Random seed of the samples (default: 0)."""

    def check(self) -> None:
        """Refuse contradictory keys, before the simulation starts."""

    def describe(self) -> str:
        """Options as a string for the fingerprint; the sizes of the parts are left out."""
        raise NotImplementedError

    def file_size(self) -> int:
        """Number of samples to write to a file."""
        return self.number

    def tables(self, suffix: str) -> Iterator[Table]:
        """Yield tables of samples for a file with this suffix."""
        raise NotImplementedError

    def check_file(self, path: Path, overwrite: bool = False) -> None:
        """Refuse a file that cannot be written."""
        check_table(path, self.suffixes, overwrite)

    def write(self, path: Path, overwrite: bool = False, show: bool = False) -> int:
        """Write the samples to a file; return their number."""
        with ProgressBar(self.file_size(), self.noun, show) as bar, create_table(path, overwrite) as file:
            for table in self.tables(path.suffix):
                file.add(table)
                bar.add(rows_of(table))
        return file.count

    def file_reader(self) -> Data:
        """Reader of files with the same columns as the simulation."""
        return Arrays(kind="arrays")

    def files_by_class(self, folder: Path) -> dict[Path, Self]:
        """Output file of each class, and a section for this class alone."""
        raise NotImplementedError

    def read(self, files: Sequence[str | Path]) -> Source:
        """Samples of .npz files; `file_reader` reads other formats."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        return self.file_reader().read(files)

    def table_reader(self) -> Data:
        return self.file_reader()

    def with_columns(self, columns: Mapping[str, str]) -> Any:
        """Reader of files with renamed columns; without `columns` the simulation itself."""
        return self.file_reader().with_columns(columns) if columns else self

    def open(self, log: Any = None, write: bool = True) -> Splits:
        """Simulate the parts; if `write`, also write pieces to the cache."""
        raise NotImplementedError

    def reopen(self, log: Any = None) -> Splits:
        """Like `open`, but without writing to the cache."""
        return self.open(log, write=False)


def write_simulation(section: Simulation, path: Path, overwrite: bool = False, show: bool = False) -> int:
    """Simulate samples and write them to a file; return their number."""
    section.check()
    section.check_file(path, overwrite)
    return section.write(path, overwrite, show)


class SimulatedTable(Simulation):
    """Base class: simulate all samples at once, then divide them by `split`."""

    recipe_keys: ClassVar[tuple[str, ...]] = ("split",)

    split: Split = Split()
    """Split of the samples into train, valid and test."""

    def make(self) -> Table:
        """Simulate all samples, as a table."""
        raise NotImplementedError

    def tables(self, suffix: str) -> Iterator[Table]:
        yield self.make()

    def open(self, log: Any = None, write: bool = True) -> Splits:
        self.check()
        table = self.make()
        whole, rows = Memory(table), self.split.of_table(table, rows_of(table))
        sources: dict[str, Source] = {part: Chosen(whole, kept) for part, kept in rows.items()}
        return Splits(sources, {"simulation": self.describe()})


class SimulatedSequence(Simulation):
    """Base class of simulations of endless sequences, in numbered chunks."""

    version: ClassVar[int] = 1
    """Version of the simulation; a new version gives other samples for the same seed."""
    rows_per_chunk: ClassVar[int] = 1024
    """Samples per chunk. Each chunk has its own random generator, so another value gives other samples."""
    known_classes: ClassVar[tuple[str, ...]] = ()
    """All classes that the key `classes` can select; empty for samples without classes."""
    rows_per_write: ClassVar[int] = 4096
    further_parts: ClassVar[tuple[str, ...]] = ()
    """Parts besides train, valid and test, each with its own sequence; `counts` has their sizes."""
    names_samples: ClassVar[bool] = True
    """Whether the samples have a column `id`."""
    recipe_keys: ClassVar[tuple[str, ...]] = ("valid", "test", "chunk_size", "cache")

    valid: int | None = Field(default=None, ge=0)
    """Number of validation samples, to choose the best model (default: a tenth of `number`)."""
    test: int | None = Field(default=None, ge=0)
    """Number of test samples, for the final evaluation (default: a tenth of `number`)."""
    chunk_size: int | None = Field(default=None, ge=16)
    """Samples per piece; training shuffles across several pieces (default: 4,096, or set by the simulation)."""
    cache: str = ""
    """Folder that caches simulated pieces for later runs (default: no cache)."""

    def __hash__(self) -> int:
        return hash(self.describe())

    # To be defined by a simulation

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        """Simulate a chunk of samples with class numbers `label` (n,), if any."""
        raise NotImplementedError

    def chunk_rows(self) -> int:
        """Number of samples in a chunk."""
        return self.rows_per_chunk

    def class_names(self) -> tuple[str, ...]:
        """Names of all classes."""
        return self.known_classes

    def chunk_key(self) -> tuple[int, ...]:
        """First integers of the random key of every chunk."""
        return (self.version,)

    def describe(self) -> str:
        hidden = {"kind", "number", *SimulatedSequence.recipe_keys}
        options = ", ".join(f"{name} {value}" for name, value in self.model_dump(exclude=hidden).items())
        return f"{type(self).__name__.lower()}, version {self.version}: {options}"

    def cache_prefix(self) -> str:
        """Prefix of the names of cached pieces, with a hash of the options."""
        return f"{type(self).__name__.lower()}-{hashlib.sha256(self.describe().encode()).hexdigest()[:12]}"

    def samples_per_chunk(self) -> int:
        """Number of samples in a piece."""
        return self.chunk_size or 4096

    def stays_in_memory(self, count: int) -> bool:
        """Whether a part of `count` samples stays in memory after the simulation."""
        return False

    def select_columns(self, table: Table) -> Table:
        """Drop columns of lists not used by the recipe."""
        names = {*self.state["names"], *self.state["truth"], *self.state["wishes"]} if self.state else {*table}
        return {name: one for name, one in table.items() if not isinstance(one, Lists) or name in names}

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """First `count` values of a column if known without simulating; else None."""
        return self.draw_labels(count, 0, part) if name == "label" and self.class_names() else None

    # Derived

    def class_numbers(self) -> tuple[int, ...]:
        """Indices of the selected classes."""
        known = self.class_names()
        return class_numbers(self.noun, getattr(self, "classes", ()), known) if known else ()

    def check(self) -> None:
        self.class_numbers()

    def make(self, count: int, first: int = 0, part: str = "file") -> Table:
        """Samples first .. first + count - 1 of a part.

        Each round has every class once, in random order. The samples are a pure function of the section and their
        numbers; parts of the same seed share no sample. The last bit may differ between processors.
        """
        if count < 1 or first < 0:
            raise UserError(f"`count` must be at least 1 and `first` at least 0, not {count} and {first}")
        one_of(f"a part of the {self.noun}", part, self.sequences())
        self.check()
        made = sample_sequence(count, first, self.chunk_rows(), lambda index: kept_chunk(self, part, index))
        if not self.names_samples:
            return made
        return {"id": np.array([f"{part}-{self.seed}-{i}" for i in range(first, first + count)]), **made}

    def sequences(self) -> tuple[str, ...]:
        """Names of the independent sequences of a seed."""
        return (*SEQUENCES, *self.further_parts)

    def draw_chunk(self, part: str, index: int) -> tuple[np.random.Generator, Array]:
        """Random generator of a chunk, and the class numbers of its samples."""
        classes = self.class_numbers()
        rng = chunk_rng(*self.chunk_key(), self.seed, self.sequences().index(part), index, *classes)
        return rng, shuffled_rounds(rng, classes, self.chunk_rows()) if classes else np.zeros(0, np.int64)

    def draw_labels(self, count: int, first: int = 0, part: str = "file") -> Array:
        """Class numbers of samples, drawn without simulating the samples."""
        size = self.chunk_rows()
        found = sample_sequence(count, first, size, lambda index: {"label": self.draw_chunk(part, index)[1]})
        return np.array(self.class_names())[found["label"]]

    def counts(self) -> dict[str, int]:
        """Number of samples in each part."""
        tenth = max(1, self.number // 10)
        others = {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        return {"train": self.number, **others}

    def tables(self, suffix: str) -> Iterator[Table]:
        for first in range(0, self.number, self.rows_per_write):
            yield self.make(min(self.rows_per_write, self.number - first), first)

    def files_by_class(self, folder: Path) -> dict[Path, Self]:
        """Output file of each class, and a section for its share of the samples."""
        names = [self.class_names()[number] for number in self.class_numbers()]
        if self.number < len(names):
            message = f"number must be at least {len(names)}, one for each class, not {self.number}"
            raise UserError(message, key="data.number")
        counts = np.bincount(np.arange(self.number) % len(names)).tolist()
        return {
            folder / self.class_files[name]: self.model_copy(update={"number": count, "classes": [name]})
            for name, count in zip(names, counts)
        }

    def open(self, log: Any = None, write: bool = True) -> Splits:
        self.check()
        counts = self.counts()
        sources = {part: SimulatedPart(self, part, count, write) for part, count in counts.items() if count}
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        return Splits(dict[str, Source](sources), {"simulation": f"{self.describe()}; {sizes}"})


@lru_cache(maxsize=1)
def kept_chunk(section: SimulatedSequence, part: str, index: int) -> Table:
    """Simulate a chunk; cache the latest chunk, because pieces may end inside it."""
    rng, label = section.draw_chunk(part, index)
    made = section.make_chunk(rng, label, part)
    return {**made, "label": np.array(section.class_names())[label]} if len(label) else made


class SimulatedPart:
    """Source of the samples of a part, in pieces."""

    def __init__(self, section: SimulatedSequence, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        whole, rest = divmod(count, section.samples_per_chunk())
        self.sizes = [section.samples_per_chunk()] * whole + ([rest] if rest else [])
        self.stays_in_memory, self.in_memory = section.stays_in_memory(count), dict[int, Table]()

    def load(self, piece: int) -> Table:
        """Simulate a piece, or read it from the cache."""
        if piece in self.in_memory:
            return self.in_memory[piece]
        own, first, count = self.section, piece * self.section.samples_per_chunk(), self.sizes[piece]
        path = Path(own.cache) / f"{own.cache_prefix()}-{self.part}-{first}-{count}.npz" if own.cache else None
        table = own.select_columns(load_or_make(path, lambda: own.make(count, first, self.part), self.write))
        if self.stays_in_memory:
            self.in_memory[piece] = table
        return table

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        return None if lists else self.section.known_column(name, sum(self.sizes), self.part)


def load_or_make(path: Path | None, make: Callable[[], Table], write: bool = True, packed: bool = False) -> Table:
    """Read a table from a file, or make it if the file is missing or damaged.

    write    whether to write a new table to the file
    packed   whether to compress the file (smaller, slower)
    """
    if path is not None and path.exists():
        with suppress(UserError):
            return _from_arrays(read_arrays(path), path)
    table = make()
    if path is not None and write:
        write_arrays(path, _to_arrays(table), "Choose another folder with data.cache, or none.", packed)
    return table


def _to_arrays(table: Table) -> dict[str, Array]:
    """Arrays to store for a table; lists as flat values, with their common lengths."""
    columns = {name: column.values if isinstance(column, Lists) else column for name, column in table.items()}
    lists = {name: column.lengths for name, column in table.items() if isinstance(column, Lists)}
    return columns | ({LENGTHS: next(iter(lists.values())), LISTS: np.array(list(lists))} if lists else {})


def _from_arrays(columns: dict[str, Array], path: Path) -> Table:
    if LENGTHS not in columns:
        return columns
    if LISTS not in columns:
        message = f"{path} is not a complete cache file: the array `{LISTS}` is missing"
        raise UserError(message, hint="Delete the file; its samples are simulated again.", file=path)
    lengths, lists = columns.pop(LENGTHS), set(columns.pop(LISTS).tolist())
    return {name: Lists(value, lengths) if name in lists else value for name, value in columns.items()}
