"""Simulated light curves and other series, made where they are needed."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from ....data.columns import Lists, Table
from ....data.readers.simulation import Simulation
from ....data.source import Data
from .lightcurves import CLASSES, VERSION, Options, check_classes, lightcurves


class LightCurves(Simulation):
    """Series that are simulated: `time` (days), `value`, and what there is of `error`, `band`, `limit` and `clean`.

    A curve has an `id`, a `label`, and what is known of it: `period`, `amplitude`, `redshift`, `logg`, `snr`, `depth`.
    They are made piece by piece when they are asked for, the same ones each time, thousands in a second on one core;
    what they are, and what they are not, says `sciformer.domains.lightcurves.simulate.lightcurves`.
    """

    what: Literal["stars", "supernovae", "oscillators", "transits", "signals"] = "stars"
    """stars: variable stars in one band; supernovae: of four types, in several bands; oscillators: solar-like ones, for
    log g; transits: with a planet or none; signals: chirps in coloured noise, or the noise alone."""
    classes: list[str] = Field(default_factory=list)
    """Classes of curves, alike often; all of `what` unless given."""
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
    chunk_size: int | None = Field(default=None, ge=16)
    """Curves made at a time (default: 4096, but 512 of regular series, which are long); a training keeps several such
    chunks in memory, and mixes some of them."""

    def samples_per_chunk(self) -> int:
        """Curves of a piece; fewer of those that are long."""
        return self.chunk_size or (4096 if self.what in ("stars", "supernovae") else 512)

    @property
    def options(self) -> Options:
        """How curves are seen."""
        own = (self.cadence, self.points, tuple(self.bands), self.unit, self.gaps, self.snr, self.white)
        return Options(*own)

    def check(self) -> None:
        """Classes and options."""
        check_classes(self.what, self.classes)
        self.options.check(self.what)

    def make(self, count: int, first: int, part: str) -> Table:
        """Curves of a part."""
        return lightcurves(count, self.what, self.seed, self.classes, first, part, self.options)

    def describe(self) -> str:
        """Classes and options."""
        kinds = ", ".join(self.classes or CLASSES[self.what])
        return f"{self.what} of {kinds}; seed {self.seed}, version {VERSION}, {self.options}"

    def cache_prefix(self) -> str:
        """Version, seed, and a digest of the options."""
        told = f"{self.options} {check_classes(self.what, self.classes)}"
        return f"{self.what}-{VERSION}-{self.seed}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def select_columns(self, table: Table) -> Table:
        """Lists that nobody asked for are left out; numbers of curves are few, and stay."""
        if not self.state:
            return table
        names = {*self.state["names"], *self.state["truth"], *self.state["wishes"]}
        return {name: one for name, one in table.items() if not isinstance(one, Lists) or name in names}

    def file_reader(self) -> Data:
        """Curves of any form."""
        from ....data.readers.series.reader import SeriesFiles

        found = SeriesFiles(kind="series")
        return found.want(**self.state) if self.state else found
