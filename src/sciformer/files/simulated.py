"""Simulated samples in files, written table by table and there when they are complete: Parquet, NPZ, others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..cli.terminal import ProgressMeter
from ..data.columns import Array, Lists, Table, rows_of
from ..data.readers.arrays import LENGTHS
from ..errors import UserError
from .atomic import atomic_write, check_name, make_folder

Log = Callable[[str], None]


class Form(Protocol):
    """How tables are written: opened for tables like the first one, which are then added."""

    def __init__(self, path: Path, table: Table) -> None: ...

    @staticmethod
    def check() -> Any:
        """Refuse where a package is missing."""

    def add(self, table: Table) -> None:
        """More samples."""

    def close(self) -> None:
        """Finish the file."""

    def stop(self) -> None:
        """Leave it, unfinished."""


Forms = Mapping[str, type[Form]]


def in_pieces(number: int, size: int, make: Callable[[int, int], Table]) -> Iterator[Table]:
    """Tables of `size` samples at most, made by their number and the first of them."""
    for first in range(0, number, size):
        yield make(min(size, number - first), first)


def simulate(
    path: Path, what: str, number: int, tables: Iterable[Table], forms: Forms, overwrite: bool, log: Log, show: bool
) -> None:
    """Write tables of `number` samples to a file; `show` tells how far it is."""
    check_file(path, forms, overwrite)
    with ProgressMeter(number, show) as meter:
        done = write(path, metered(tables, meter), forms, overwrite)
    log(f"wrote {done:,} {what} to {path}")


def metered(tables: Iterable[Table], meter: ProgressMeter) -> Iterator[Table]:
    """Tables as they come, told to a meter."""
    for table in tables:
        yield table
        meter.add(rows_of(table))


def check_numbers(number: int, seed: int, one: str) -> None:
    """Refuse numbers that make no sense; `one` is what a sample is called."""
    if number < 1:
        raise UserError(f"--number must be 1 {one} or more, not {number}", key="--number")
    if seed < 0:
        raise UserError(f"--seed must be 0 or more, not {seed}", key="--seed")


def check_file(path: Path, forms: Forms, overwrite: bool) -> None:
    """Refuse what cannot be written, before the work."""
    check_name(path, list(forms))
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already", hint="Name another file, or replace it with --overwrite.", file=path)
    forms[path.suffix].check()


def write(path: Path, tables: Iterable[Table], forms: Forms, overwrite: bool = False) -> int:
    """Tables as one file; returns how many samples they have."""
    check_file(path, forms, overwrite)
    make_folder(path.parent)
    count, form = 0, None
    with atomic_write(path, "Free some space, or name another place.") as partial:
        try:
            for table in tables:
                form = form or forms[path.suffix](partial, table)
                form.add(table)
                count += rows_of(table)
            assert form is not None
            form.close()
            form = None
        finally:
            if form is not None:
                form.stop()
    return count


class Parquet:
    """A row for each sample, with lists."""

    def __init__(self, path: Path, table: Table) -> None:
        self.arrow = self.check()
        import pyarrow.parquet  # type: ignore[import-untyped]

        self.writer = pyarrow.parquet.ParquetWriter(path, self._rows(table).schema)

    @staticmethod
    def check() -> Any:
        """Pyarrow."""
        try:
            import pyarrow
        except ImportError as error:
            raise UserError(
                "the package `pyarrow` for .parquet is not installed",
                hint="Install it: pip install pyarrow, or write .npz.",
            ) from error
        return pyarrow

    def _rows(self, table: Table) -> Any:
        return self.arrow.table({name: self._column(one) for name, one in table.items()})

    def _column(self, column: Array | Lists) -> Any:
        if not isinstance(column, Lists):
            return self.arrow.array(column)
        stops = np.concatenate([[0], column.lengths.cumsum()]).astype(np.int32)
        return self.arrow.ListArray.from_arrays(stops, column.values)

    def add(self, table: Table) -> None:
        """More samples."""
        self.writer.write_table(self._rows(table))

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()

    stop = close


class Npz:
    """Values end to end and their numbers in NAME_lengths; all are kept in memory until the end."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.parts = path, dict[str, list[Array]]()

    @staticmethod
    def check() -> None:
        """Nothing is needed."""

    def add(self, table: Table) -> None:
        """More samples."""
        for name, column in table.items():
            if isinstance(column, Lists):
                self.parts.setdefault(f"{name}{LENGTHS}", []).append(column.lengths)
            self.parts.setdefault(name, []).append(column.values if isinstance(column, Lists) else column)

    def close(self) -> None:
        """Write the file."""
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        with self.path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **joined)

    def stop(self) -> None:
        """Leave it."""
