"""The commands that simulate jets and write a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....cli.app import Classes, Quiet
from ....cli.terminal import no_changes

if TYPE_CHECKING:
    pass


def jets(
    out: Path | None = None,
    *,
    by_class: Path | None = None,
    number: int = 100_000,
    seed: int = 0,
    classes: Classes = (),
    engine: str = "builtin",
    overwrite: bool = False,
    quiet: Quiet = False,
) -> None:
    """Jets of the ten classes of JetClass, with the names of its branches.

    Parameters
    ----------
    out
        The file to write: .root (a tree named `tree`), .parquet or .npz.
    by_class
        In place of a file: a folder for HToBB_000.root and so on, a file for each class.
    number
        Jets in all; 100,000 unless given.
    seed
        Another one gives other jets; 0 unless given.
    classes
        Of QCD Hbb Hcc Hgg H4q Hqql Zqq Wqq Tbqq Tbl; all unless given.
    engine
        builtin: a fast toy, some 20,000 in a second; pythia: Pythia 8 and FastJet, if you have installed them, some
        40 in a second.
    overwrite
        Replace files that are there already.
    """
    no_changes("Jets have options of their own: --number, --seed, --classes.")
    from .files import simulate_jets

    simulate_jets(out, number, seed, classes, by_class, engine, overwrite, show=not quiet)
