"""Simulated samples: made for a training, or written by `sciformer simulate`.

A simulation is a section of a recipe, registered at the extension point `simulation`. Its fields are the keys under
`data:` of a recipe with `kind: NAME`, and the options of `sciformer simulate NAME`; nothing else defines them.
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

LISTS = "lists"  # of a kept piece: the names of its columns of lists, which all have the same lengths


class Simulation(Data):
    """Samples that are a pure function of the seed and the other keys."""

    noun: ClassVar[str] = "samples"
    """What the samples are called."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of files that samples are written to, the usual one first (default: those of all formats)."""
    recipe_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that matter to a training alone, and are no options of `sciformer simulate`."""
    class_files: ClassVar[Mapping[str, str]] = {}
    """Names of files by class, for `--by-class FOLDER`; empty: there is no such option."""

    number: int = Field(default=20_000, ge=1)
    """Number of samples to train on, or to write (default: 20000)."""
    seed: int = Field(default=0, ge=0)
    """Random seed of the simulation (default: 0)."""

    def check(self) -> None:
        """Refuse values that do not go together, before anything is made."""

    def describe(self) -> str:
        """The options in words, part of the fingerprint; numbers of samples are not."""
        raise NotImplementedError

    def file_size(self) -> int:
        """The number of samples of a file."""
        return self.number

    def tables(self, suffix: str) -> Iterator[Table]:
        """The samples of a file with this ending, in pieces."""
        raise NotImplementedError

    def file_reader(self) -> Data:
        """The reader of other files with samples like these."""
        return Arrays(kind="arrays")

    def files_by_class(self, folder: Path) -> dict[Path, Self]:
        """A section for each class by its file, for simulations with `class_files`."""
        raise NotImplementedError

    def read(self, files: Sequence[str | Path]) -> Source:
        """Samples in .npz files, such as `sciformer simulate` writes, or in others."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        return self.file_reader().read(files)

    def open(self, log: Any = None, write: bool = True) -> Splits:
        """The parts; `write` keeps pieces where the section says."""
        raise NotImplementedError

    def reopen(self, log: Any = None) -> Splits:
        """The same parts; pieces that are made now are not kept."""
        return self.open(log, write=False)


def write_simulation(section: Simulation, path: Path, overwrite: bool = False, show: bool = False) -> int:
    """Write the samples of a simulation to a file; returns their number."""
    section.check()
    check_table(path, section.suffixes, overwrite)
    with ProgressBar(section.file_size(), section.noun, show) as bar, create_table(path, overwrite) as file:
        for table in section.tables(path.suffix):
            file.add(table)
            bar.add(rows_of(table))
    return file.count


class SimulatedTable(Simulation):
    """Samples that are made all at once and divided by `split`."""

    recipe_keys: ClassVar[tuple[str, ...]] = ("split",)

    split: Split = Split()
    """Fractions of the samples for validation and test (default: 0.1 and 0.1)."""

    def make(self) -> Table:
        """Make all samples."""
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
    """Samples of endless sequences, one for each part, made in chunks by number."""

    version: ClassVar[int] = 1
    """Version of the samples: another one makes other samples of the same seed."""
    rows_per_chunk: ClassVar[int] = 1024
    """Samples of a chunk, the unit of the random numbers: another value makes other samples."""
    known_classes: ClassVar[tuple[str, ...]] = ()
    """The classes that there are, of which the key `classes` chooses some; empty: samples have no class."""
    rows_per_write: ClassVar[int] = 4096
    names_samples: ClassVar[bool] = True
    """Whether samples have a column `id`."""
    recipe_keys: ClassVar[tuple[str, ...]] = ("valid", "test", "chunk_size", "cache")

    valid: int | None = Field(default=None, ge=0)
    """Number of validation samples (default: a tenth of `number`)."""
    test: int | None = Field(default=None, ge=0)
    """Number of test samples (default: a tenth of `number`)."""
    chunk_size: int | None = Field(default=None, ge=16)
    """Number of samples simulated at a time (default: 4096). A training keeps several chunks in memory and mixes some
    of them."""
    cache: str = ""
    """Folder in which simulated chunks are stored for the next run (default: none; chunks are simulated again)."""

    def __hash__(self) -> int:
        return hash(self.describe())

    # What a simulation defines

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        """A chunk of samples of these classes, by number (none: an empty array)."""
        raise NotImplementedError

    def chunk_rows(self) -> int:
        """Samples of a chunk."""
        return self.rows_per_chunk

    def class_names(self) -> tuple[str, ...]:
        """The classes that there are."""
        return self.known_classes

    def chunk_key(self) -> tuple[int, ...]:
        """The beginning of the random key of all chunks."""
        return (self.version,)

    def describe(self) -> str:
        hidden = {"kind", "number", *SimulatedSequence.recipe_keys}
        options = ", ".join(f"{name} {value}" for name, value in self.model_dump(exclude=hidden).items())
        return f"{type(self).__name__.lower()}, version {self.version}: {options}"

    def cache_prefix(self) -> str:
        """The beginning of the names of pieces that are kept: others for other samples."""
        return f"{type(self).__name__.lower()}-{hashlib.sha256(self.describe().encode()).hexdigest()[:12]}"

    def samples_per_chunk(self) -> int:
        """Samples of a piece."""
        return self.chunk_size or 4096

    def stays_in_memory(self, count: int) -> bool:
        """Whether so many samples stay in memory once they are made."""
        return False

    def select_columns(self, table: Table) -> Table:
        """The columns to keep: all but lists that were not asked for."""
        names = {*self.state["names"], *self.state["truth"], *self.state["wishes"]} if self.state else {*table}
        return {name: one for name, one in table.items() if not isinstance(one, Lists) or name in names}

    def known_column(self, name: str, count: int, part: str) -> Array | None:
        """A column of the first samples of a part, where it is known before they are made."""
        return self.draw_labels(count, 0, part) if name == "label" and self.class_names() else None

    # What follows from it

    def class_numbers(self) -> tuple[int, ...]:
        """The numbers of the classes that were chosen."""
        known = self.class_names()
        return class_numbers(self.noun, getattr(self, "classes", ()), known) if known else ()

    def check(self) -> None:
        self.class_numbers()

    def make(self, count: int, first: int = 0, part: str = "file") -> Table:
        """The samples first, first + 1, ... of a part.

        They come in rounds of all classes, each once, in random order. A pure function of the section and these
        numbers, whatever is asked for in one go; parts of the same seed have no sample in common. Other processors may
        round the last bit of a number otherwise.
        """
        if count < 1 or first < 0:
            raise UserError(f"the count of {self.noun} must be 1 or more, and first 0 or more, not {count} and {first}")
        one_of(f"a part of the {self.noun}", part, SEQUENCES)
        self.check()
        made = sample_sequence(count, first, self.chunk_rows(), lambda index: kept_chunk(self, part, index))
        if not self.names_samples:
            return made
        return {"id": np.array([f"{part}-{self.seed}-{i}" for i in range(first, first + count)]), **made}

    def draw_chunk(self, part: str, index: int) -> tuple[np.random.Generator, Array]:
        """The random numbers of a chunk, and the classes of its samples."""
        classes = self.class_numbers()
        rng = chunk_rng(*self.chunk_key(), self.seed, SEQUENCES.index(part), index, *classes)
        return rng, shuffled_rounds(rng, classes, self.chunk_rows()) if classes else np.zeros(0, np.int64)

    def draw_labels(self, count: int, first: int = 0, part: str = "file") -> Array:
        """The classes of samples, which are drawn before the samples are made."""
        size = self.chunk_rows()
        found = sample_sequence(count, first, size, lambda index: {"label": self.draw_chunk(part, index)[1]})
        return np.array(self.class_names())[found["label"]]

    def counts(self) -> dict[str, int]:
        """Samples of each part."""
        tenth = max(1, self.number // 10)
        others = {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        return {"train": self.number, **others}

    def tables(self, suffix: str) -> Iterator[Table]:
        for first in range(0, self.number, self.rows_per_write):
            yield self.make(min(self.rows_per_write, self.number - first), first)

    def files_by_class(self, folder: Path) -> dict[Path, Self]:
        """A section for each class by its file in a folder, with its share of the samples."""
        names = [self.class_names()[number] for number in self.class_numbers()]
        if self.number < len(names):
            raise UserError(
                f"number must be {len(names)} or more, one for each class, not {self.number}", key="data.number"
            )
        counts = np.bincount(np.arange(self.number) % len(names)).tolist()
        return {
            folder / self.class_files[name]: self.model_copy(update={"number": count, "classes": [name]})
            for name, count in zip(names, counts)
        }

    def open(self, log: Any = None, write: bool = True) -> Splits:
        self.check()
        counts = self.counts()
        sources: dict[str, Source] = {
            part: SimulatedPart(self, part, count, write) for part, count in counts.items() if count
        }
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        return Splits(sources, {"simulation": f"{self.describe()}; {sizes}"})


@lru_cache(maxsize=1)
def kept_chunk(section: SimulatedSequence, part: str, index: int) -> Table:
    """A chunk of samples; the last one is kept, for pieces may end inside it."""
    rng, label = section.draw_chunk(part, index)
    made = section.make_chunk(rng, label, part)
    return {**made, "label": np.array(section.class_names())[label]} if len(label) else made


class SimulatedPart:
    """The samples of a part, in pieces."""

    def __init__(self, section: SimulatedSequence, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        whole, rest = divmod(count, section.samples_per_chunk())
        self.sizes = [section.samples_per_chunk()] * whole + ([rest] if rest else [])
        self.in_memory: dict[int, Table] | None = {} if section.stays_in_memory(count) else None

    def load(self, piece: int) -> Table:
        """Make a piece, or find it where it was kept."""
        if self.in_memory is None:
            return self._load(piece)
        if piece not in self.in_memory:
            self.in_memory[piece] = self._load(piece)
        return self.in_memory[piece]

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        return None if lists else self.section.known_column(name, sum(self.sizes), self.part)

    def _load(self, piece: int) -> Table:
        own, first, count = self.section, piece * self.section.samples_per_chunk(), self.sizes[piece]
        path = Path(own.cache) / f"{own.cache_prefix()}-{self.part}-{first}-{count}.npz" if own.cache else None
        return own.select_columns(load_or_make(path, lambda: own.make(count, first, self.part), self.write))


def load_or_make(path: Path | None, make: Callable[[], Table], write: bool = True, packed: bool = False) -> Table:
    """A table from a file (default: no file); made where the file is missing or damaged.

    write    whether a table that was made is written to the file
    packed   whether the file is compressed, which takes less room and more time
    """
    if path is not None and path.exists():
        with suppress(UserError):
            return _unpacked(read_arrays(path), path)
    table = make()
    if path is not None and write:
        write_arrays(path, _packed(table), "Name another place with data.cache, or none.", packed)
    return table


def _packed(table: Table) -> dict[str, Array]:
    """Plain arrays of a piece: of lists the values, and their lengths once."""
    columns = {name: column.values if isinstance(column, Lists) else column for name, column in table.items()}
    lists = {name: column.lengths for name, column in table.items() if isinstance(column, Lists)}
    return columns | ({LENGTHS: next(iter(lists.values())), LISTS: np.array(list(lists))} if lists else {})


def _unpacked(columns: dict[str, Array], path: Path) -> Table:
    if LENGTHS not in columns:
        return columns
    if LISTS not in columns:
        raise UserError(f"{path} lacks the names of its columns of lists", file=path)
    lengths, lists = columns.pop(LENGTHS), set(columns.pop(LISTS).tolist())
    return {name: Lists(value, lengths) if name in lists else value for name, value in columns.items()}
