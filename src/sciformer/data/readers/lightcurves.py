"""Simulated light curves and other series, made where they are needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from ...errors import UserError
from ...simulate.lightcurves import CLASSES, VERSION, Options, check_classes, lightcurves
from ..source import Array, Data, Lists, Source, Splits, Table
from .arrays import LENGTHS, Arrays, read_arrays


class LightCurves(Data):
    """Series that are simulated: `time` (days), `value`, and what there is of `error`, `band`, `limit` and `clean`.

    A curve has an `id`, a `label`, and what is known of it: `period`, `amplitude`, `redshift`, `logg`, `snr`, `depth`.
    They are made piece by piece when they are asked for, the same ones each time, thousands in a second on one core;
    what they are, and what they are not, says `sciformer.simulate.lightcurves`.
    """

    what: Literal["stars", "supernovae", "oscillators", "transits", "signals"] = "stars"
    """stars: variable stars in one band; supernovae: of four types, in several bands; oscillators: solar-like ones, for
    log g; transits: with a planet or none; signals: chirps in coloured noise, or the noise alone."""
    number: int = Field(default=20_000, ge=1)
    """Curves to train on."""
    valid: int | None = Field(default=None, ge=0)
    """Curves to choose the best model with; a tenth of `number` unless given."""
    test: int | None = Field(default=None, ge=0)
    """Curves for the final judgement; a tenth of `number` unless given."""
    classes: list[str] = Field(default_factory=list)
    """Classes of curves, alike often; all of `what` unless given."""
    seed: int = Field(default=0, ge=0)
    """Another one gives other curves. Those of train, valid and test always differ."""
    cadence: Literal["survey", "asas"] = "survey"
    """Of stars. survey: 3 to 8 years, a median of 120 points, errors that grow with magnitude; asas: as many as 250
    points in a row with errors of about 0.036 mag and a scatter of their own, as in ASAS."""
    points: int = Field(default=0, ge=0)
    """Points of a curve: the median of a survey's stars, the most in the manner of ASAS, the number before gaps of a
    regular series. Unless given 120, 250; 4,000 of oscillators, 1,200 of transits, 4,096 of signals."""
    bands: list[str] = Field(default_factory=lambda: ["g", "r", "i", "z"])
    """Of supernovae."""
    unit: Literal["magnitude", "flux"] = "magnitude"
    """Of supernovae: magnitudes, with upper limits; or fluxes in microjansky, which may be negative, with `clean`."""
    gaps: bool = True
    """Whether some days are missing in the regular series of oscillators and transits."""
    snr: tuple[float, float] = (8.0, 50.0)
    """Of signals: the least and the greatest signal-to-noise ratio, of an optimal filter."""
    white: bool = False
    """Of signals: divide series by the noise at each frequency, so that the noise has variance 1 and no colour."""
    piece: int | None = Field(default=None, ge=16)
    """Curves made at a time; a training keeps several such pieces in memory, and mixes some of them. Unless given
    4,096, but 512 of regular series, which are long."""
    cache: str = ""
    """Folder where pieces are kept for the next time; empty: nowhere, they are made again."""

    def want(
        self,
        names: Collection[str],
        truth: Collection[str] = (),
        wishes: Collection[str] = (),
        positive: Collection[str] = (),
    ) -> Self:
        """The same section, told which columns are of use."""
        twin = self.fresh()
        twin.state.update(names=list(names), truth=list(truth), wishes=list(wishes))
        return twin

    @property
    def size(self) -> int:
        """Curves of a piece."""
        return self.piece or (4096 if self.what in ("stars", "supernovae") else 512)

    @property
    def options(self) -> Options:
        """How curves are seen."""
        own = (self.cadence, self.points, tuple(self.bands), self.unit, self.gaps, self.snr, self.white)
        return Options(*own)

    def open(self, say: Any = None, write: bool = True) -> Splits:
        """Nothing is made yet."""
        check_classes(self.what, self.classes)
        self.options.check(self.what)
        tenth = max(1, self.number // 10)
        counts = {"train": self.number}
        counts |= {part: tenth if (n := getattr(self, part)) is None else n for part in ("valid", "test")}
        sources: dict[str, Source] = {
            part: Simulated(self, part, count, write) for part, count in counts.items() if count
        }
        kinds = ", ".join(self.classes or CLASSES[self.what])
        sizes = ", ".join(f"{count} {part}" for part, count in counts.items())
        told = f"{self.what} of {kinds}; seed {self.seed}, version {VERSION}, {self.options}; {sizes}"
        return Splits(sources, {"simulation": told})

    def reopen(self, say: Any = None) -> Splits:
        """The same; what is made now is not kept."""
        return self.open(say, write=False)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Curves in files, such as `sciformer simulate lightcurves` writes, or others."""
        if files and all(str(name).endswith(".npz") for name in files):
            return Arrays(kind="arrays").read(files)
        from .curves import Curves

        plain = Curves(kind="curves")
        if "names" in self.state:
            plain = plain.want(self.state["names"], self.state["truth"], self.state["wishes"])
        return plain.read(files)


class Simulated:
    """The curves of a part, in pieces."""

    def __init__(self, section: LightCurves, part: str, count: int, write: bool) -> None:
        self.section, self.part, self.write = section, part, write
        told = section.state
        self.names = {*told["names"], *told["truth"], *told["wishes"]} if told else None
        whole, rest = divmod(count, section.size)
        self.sizes = [section.size] * whole + ([rest] if rest else [])

    def load(self, piece: int) -> Table:
        """Make a piece, or read it where it was kept."""
        path = self._path(piece)
        if path is not None and path.exists():
            with suppress(UserError):  # a damaged file is made again
                return self._wanted(_with_lists(read_arrays(path)))
        own = self.section
        first = piece * own.size
        table = lightcurves(self.sizes[piece], own.what, own.seed, own.classes, first, self.part, own.options)
        if path is not None and self.write:
            _keep(path, table)
        return self._wanted(table)

    def _wanted(self, table: Table) -> Table:
        """Lists that nobody asked for are left out; numbers of curves are few, and stay."""
        if self.names is None:
            return table
        return {name: one for name, one in table.items() if not isinstance(one, Lists) or name in self.names}

    def _path(self, piece: int) -> Path | None:
        own = self.section
        if not own.cache:
            return None
        told = f"{own.options} {check_classes(own.what, own.classes)}"
        mark = hashlib.sha256(told.encode()).hexdigest()[:12]
        name = f"{own.what}-{VERSION}-{own.seed}-{mark}-{self.part}-{piece * own.size}-{self.sizes[piece]}.npz"
        return Path(own.cache) / name


def _with_lists(columns: dict[str, Array]) -> Table:
    """The way back from a kept file; all lists of a curve have the same length."""
    lengths, lists = columns.pop(LENGTHS), set(columns.pop("lists").tolist())
    return {name: Lists(value, lengths) if name in lists else value for name, value in columns.items()}


def _keep(path: Path, table: Table) -> None:
    """A piece for the next time, whole or not at all."""
    columns = {name: column.values if isinstance(column, Lists) else column for name, column in table.items()}
    columns[LENGTHS] = next(column.lengths for column in table.values() if isinstance(column, Lists))
    columns["lists"] = np.array([name for name, column in table.items() if isinstance(column, Lists)])
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"room for {path}", f"{error}", "Name another place with data.cache, or none.") from error
