"""Simulated curves in files: Parquet with a row for each curve, NPZ, or CSV with a row for each observation."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ....data.columns import Array, Lists, Table
from ....files import simulated
from ....files.simulated import Forms, Log, Npz, Parquet
from .lightcurves import Options, check_classes, lightcurves

CURVES_PER_WRITE = 4096  # curves written at a time


def make_tables(number: int, what: str, seed: int, classes: Sequence[str], options: Options) -> Iterator[Table]:
    """Tables of curves."""
    return simulated.in_pieces(
        number, CURVES_PER_WRITE, lambda count, first: lightcurves(count, what, seed, classes, first, options=options)
    )


def simulate_curves(
    out: Path,
    what: str = "stars",
    number: int = 10_000,
    seed: int = 0,
    classes: Sequence[str] = (),
    options: Options | None = None,
    overwrite: bool = False,
    log: Log = print,
    show: bool = False,
) -> None:
    """Make curves and write them to a file; `show` tells how far it is."""
    check_classes(what, classes)
    options = options or Options()
    options.check(what)
    simulated.check_numbers(number, seed, "curve")
    simulated.simulate(
        out, "curves", number, make_tables(number, what, seed, classes, options), WRITERS, overwrite, log, show
    )


class _Csv:
    """A row for each observation; what belongs to a curve is repeated in each of its rows."""

    def __init__(self, path: Path, table: Table) -> None:
        self.file = path.open("w", newline="", encoding="utf-8")
        self.writer, self.names = csv.writer(self.file), list(table)
        self.writer.writerow(self.names)

    @staticmethod
    def check() -> None:
        """Nothing is needed."""

    def add(self, table: Table) -> None:
        """More curves."""
        lengths = next(column.lengths for column in table.values() if isinstance(column, Lists))
        self.writer.writerows(zip(*(_shortest_words(table[name], lengths) for name in self.names)))

    def close(self) -> None:
        """Finish the file."""
        self.file.close()

    stop = close


def _shortest_words(column: Array | Lists, lengths: Array) -> list[str]:
    """The shortest words for the numbers of a column, one for each observation."""
    if isinstance(column, Lists):
        found: list[str] = np.asarray(column.values).astype(str).tolist()
        return found
    words: list[str] = np.repeat(np.asarray(column).astype(str), lengths).tolist()
    return words


WRITERS: Forms = {".parquet": Parquet, ".csv": _Csv, ".npz": Npz}
