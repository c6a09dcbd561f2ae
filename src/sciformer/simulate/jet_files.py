"""Jets in files: ROOT as JetClass has them, Parquet or NPZ, written table by table and there when they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.readers.arrays import LENGTHS
from ..data.source import Array, Lists, Table, rows_of
from ..errors import UserError, one_of
from ..terminal import Meter
from .decays import CLASSES
from .jets import check_classes, jets

ENGINES = ("builtin", "pythia")
FILES = {  # of JetClass, by class
    "QCD": "ZJetsToNuNu", "Hbb": "HToBB", "Hcc": "HToCC", "Hgg": "HToGG", "H4q": "HToWW4Q", "Hqql": "HToWW2Q1L",
    "Zqq": "ZToQQ", "Wqq": "WToQQ", "Tbqq": "TTBar", "Tbl": "TTBarLep",
}  # fmt: skip
PIECE = 8192  # jets written at a time
TREE, GROUP, LABEL = "tree", "part", "label"
Say = Callable[[str], None]


def make(number: int, seed: int, classes: Sequence[str], engine: str) -> Iterator[Table]:
    """Tables of jets from one of the engines."""
    one_of("the engine", engine, ENGINES)
    if engine == "pythia":
        from .pythia import pythia_jets

        yield from pythia_jets(number, seed, classes)
        return
    for first in range(0, number, PIECE):
        yield jets(min(PIECE, number - first), seed, classes, first)


def simulate_jets(
    out: Path | None = None,
    number: int = 100_000,
    seed: int = 0,
    classes: Sequence[str] = CLASSES,
    by_class: Path | None = None,
    engine: str = "builtin",
    overwrite: bool = False,
    say: Say = print,
    show: bool = False,
) -> None:
    """Make jets and write them to a file, or to a folder with a file for each class; `show` tells how far it is."""
    classes = list(classes) or list(CLASSES)
    check_classes(classes)
    one_of("the engine", engine, ENGINES)
    if number < 1:
        raise UserError("--number of 1 jet or more", f"{number}")
    if seed < 0:
        raise UserError("--seed of 0 or more", f"{seed}")
    if (out is None) == (by_class is None):
        raise UserError(
            "a file to write, --out jets.root, or a folder, --by-class FOLDER", "both" if out else "neither"
        )
    if out is not None:
        plans = {out: (number, classes)}
    else:
        assert by_class is not None
        if number < len(classes):
            raise UserError(f"--number of {len(classes)} jets or more, one for each class", f"{number}")
        counts = np.bincount(np.arange(number) % len(classes))
        plans = {by_class / f"{FILES[name]}_000.root": (int(n), [name]) for name, n in zip(classes, counts)}
    for path in plans:
        check_file(path, overwrite)
    if engine == "pythia":
        from .pythia import load

        load()
    for path, (count, kinds) in plans.items():
        with Meter(count, show) as meter:
            done = write(path, metered(make(count, seed, kinds, engine), meter), overwrite)
        say(f"wrote {done:,} jets to {path}")


def metered(tables: Iterable[Table], meter: Meter) -> Iterator[Table]:
    """Tables as they come, told to a meter."""
    for table in tables:
        yield table
        meter.add(rows_of(table))


def check_file(path: Path, overwrite: bool, forms: Mapping[str, Any] | None = None) -> None:
    """Refuse what cannot be written in one of the `forms`, those of jets unless given, before the work."""
    forms = forms or FORMS
    if path.suffix not in forms:
        known = ", ".join(forms)
        raise UserError(f"a file named {known}", str(path), f"Call it {path.with_suffix(next(iter(forms)))}")
    if path.is_dir():
        raise UserError(f"to write {path}", "a folder of that name", "Name another place with --out.")
    if path.exists() and not overwrite:
        raise UserError(f"no file at {path} yet", "one", "Name another, or replace it with --overwrite.")
    forms[path.suffix].check()


def write(path: Path, tables: Iterable[Table], overwrite: bool = False, forms: Mapping[str, Any] | None = None) -> int:
    """Tables of jets (or others, in `forms` of their own) as one file; returns how many."""
    from ..shelf import make_folder

    check_file(path, overwrite, forms)
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count, form = 0, None
    try:
        for table in tables:
            form = form or (forms or FORMS)[path.suffix](partial, table)
            form.add(table)
            count += rows_of(table)
        assert form is not None
        form.close()
        form = None
        partial.replace(path)
    except OSError as error:
        why = f"{error.strerror or error}"
        raise UserError(f"room for {path}", why, "Free some space, or name another place.") from error
    finally:
        if form is not None:
            form.stop()
        partial.unlink(missing_ok=True)
    return count


class _Root:
    """A TTree with lists of one length each, counted once (`npart`); the class stands in label_QCD ... alone."""

    def __init__(self, path: Path, table: Table) -> None:
        uproot, self.awkward = self.check()
        self.handle = path.open("wb+")
        self.file = uproot.recreate(self.handle)
        self.tree = self.file.mktree(
            TREE, {name: one.type if name == GROUP else one.dtype for name, one in self._rows(table).items()}
        )

    @staticmethod
    def check() -> tuple[Any, Any]:
        """Uproot and awkward."""
        try:
            import awkward  # type: ignore[import-untyped]
            import uproot  # type: ignore[import-untyped]
        except ImportError as error:
            advice = "Install them: pip install 'sciformer[jets]', or write .npz."
            raise UserError("the packages `uproot` and `awkward` for .root", "none installed", advice) from error
        return uproot, awkward

    def _rows(self, table: Table) -> dict[str, Any]:
        lists = {name.removeprefix(f"{GROUP}_"): one for name, one in table.items() if isinstance(one, Lists)}
        fields = {name: self.awkward.unflatten(one.values, one.lengths) for name, one in lists.items()}
        rest = {name: one for name, one in table.items() if not isinstance(one, Lists) and name != LABEL}
        return {GROUP: self.awkward.zip(fields), **rest}

    def add(self, table: Table) -> None:
        """More jets."""
        self.tree.extend(self._rows(table))

    def close(self) -> None:
        """Finish the file."""
        self.file.close()
        self.handle.close()

    def stop(self) -> None:
        """Leave it."""
        self.handle.close()


class _Parquet:
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
            advice = "Install it: pip install pyarrow, or write .npz."
            raise UserError("the package `pyarrow` for .parquet", "none installed", advice) from error
        return pyarrow

    def _rows(self, table: Table) -> Any:
        return self.arrow.table({name: self._column(one) for name, one in table.items()})

    def _column(self, column: Array | Lists) -> Any:
        if not isinstance(column, Lists):
            return self.arrow.array(column)
        stops = np.concatenate([[0], column.lengths.cumsum()]).astype(np.int32)
        return self.arrow.ListArray.from_arrays(stops, column.values)

    def add(self, table: Table) -> None:
        """More jets."""
        self.writer.write_table(self._rows(table))

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()

    stop = close


class _Npz:
    """Values end to end and their numbers in NAME_lengths; all are kept in memory until the end."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.parts = path, dict[str, list[Array]]()

    @staticmethod
    def check() -> None:
        """Nothing is needed."""

    def add(self, table: Table) -> None:
        """More jets."""
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


FORMS: dict[str, Any] = {".root": _Root, ".parquet": _Parquet, ".npz": _Npz}
