"""Simulated jets in files: ROOT as JetClass has them, Parquet or NPZ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....data.columns import Lists, Table
from ....errors import UserError, one_of
from ....files import simulated
from ....files.simulated import Forms, Log, Npz, Parquet
from .decays import CLASSES
from .jets import check_classes, jets

ENGINES = ("builtin", "pythia")
JETCLASS_FILES = {  # of JetClass, by class
    "QCD": "ZJetsToNuNu", "Hbb": "HToBB", "Hcc": "HToCC", "Hgg": "HToGG", "H4q": "HToWW4Q", "Hqql": "HToWW2Q1L",
    "Zqq": "ZToQQ", "Wqq": "WToQQ", "Tbqq": "TTBar", "Tbl": "TTBarLep",
}  # fmt: skip
JETS_PER_WRITE = 8192  # jets written at a time
TREE_NAME, GROUP_NAME, LABEL_NAME = "tree", "part", "label"


def make_tables(number: int, seed: int, classes: Sequence[str], engine: str) -> Iterator[Table]:
    """Tables of jets from one of the engines."""
    one_of("the engine", engine, ENGINES)
    if engine == "pythia":
        from .pythia import pythia_jets

        yield from pythia_jets(number, seed, classes)
        return
    yield from simulated.in_pieces(number, JETS_PER_WRITE, lambda count, first: jets(count, seed, classes, first))


def simulate_jets(
    out: Path | None = None,
    number: int = 100_000,
    seed: int = 0,
    classes: Sequence[str] = CLASSES,
    by_class: Path | None = None,
    engine: str = "builtin",
    overwrite: bool = False,
    log: Log = print,
    show: bool = False,
) -> None:
    """Make jets and write them to a file, or to a folder with a file for each class; `show` tells how far it is."""
    classes = list(classes) or list(CLASSES)
    check_classes(classes)
    one_of("the engine", engine, ENGINES)
    simulated.check_numbers(number, seed, "jet")
    if (out is None) == (by_class is None):
        raise UserError(
            "--out and --by-class cannot be given together" if out else "there is no place to write the jets",
            hint="Name a file, --out jets.root, or a folder, --by-class FOLDER.",
            key="--out",
        )
    if out is not None:
        plans = {out: (number, classes)}
    else:
        assert by_class is not None
        if number < len(classes):
            raise UserError(
                f"--number must be {len(classes)} jets or more, one for each class, not {number}", key="--number"
            )
        counts = np.bincount(np.arange(number) % len(classes))
        plans = {by_class / f"{JETCLASS_FILES[name]}_000.root": (int(n), [name]) for name, n in zip(classes, counts)}
    for path in plans:
        simulated.check_file(path, WRITERS, overwrite)
    if engine == "pythia":
        from .pythia import load_pythia

        load_pythia()
    for path, (count, kinds) in plans.items():
        simulated.simulate(path, "jets", count, make_tables(count, seed, kinds, engine), WRITERS, overwrite, log, show)


def write_tables(path: Path, tables: Iterable[Table], overwrite: bool = False, forms: Forms | None = None) -> int:
    """Tables of jets (or others, in `forms` of their own) as one file; returns how many."""
    return simulated.write(path, tables, forms or WRITERS, overwrite)


class _Root:
    """A TTree with lists of one length each, counted once (`npart`); the class stands in label_QCD ... alone."""

    def __init__(self, path: Path, table: Table) -> None:
        uproot, self.awkward = self.check()
        self.handle = path.open("wb+")
        self.file = uproot.recreate(self.handle)
        self.tree = self.file.mktree(
            TREE_NAME, {name: one.type if name == GROUP_NAME else one.dtype for name, one in self._rows(table).items()}
        )

    @staticmethod
    def check() -> tuple[Any, Any]:
        """Uproot and awkward."""
        try:
            import awkward  # type: ignore[import-untyped]
            import uproot  # type: ignore[import-untyped]
        except ImportError as error:
            raise UserError(
                "the packages `uproot` and `awkward` for .root are not both installed",
                hint="Install them: pip install 'sciformer[jets]', or write .npz.",
            ) from error
        return uproot, awkward

    def _rows(self, table: Table) -> dict[str, Any]:
        lists = {name.removeprefix(f"{GROUP_NAME}_"): one for name, one in table.items() if isinstance(one, Lists)}
        fields = {name: self.awkward.unflatten(one.values, one.lengths) for name, one in lists.items()}
        rest = {name: one for name, one in table.items() if not isinstance(one, Lists) and name != LABEL_NAME}
        return {GROUP_NAME: self.awkward.zip(fields), **rest}

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


WRITERS: Forms = {".root": _Root, ".parquet": Parquet, ".npz": Npz}
