"""Light curves and other series made from nothing, thousands in a second on one core.

    table = LightCurves(seed=1).make(100_000)                  # columns time, value, error, clean, label, period ...
    table = LightCurves().make(1000, first=5_000_000)          # 5,000,000 to 5,000,999 of the same endless sequence
    table = LightCurves(what="signals", snr=(15.0, 15.0)).make(1000)     # chirps of SNR 15, and as many of noise alone

    stars         variable stars of 12 classes and constant ones, cadence of a survey or of ASAS (stars.py)
    supernovae    Ia, Ibc, II and SLSN in several bands, with upper limits and redshift (supernovae.py)
    oscillators   solar-like oscillators with known log g, a regular series (oscillators.py)
    transits      regular series of stars with a transiting planet, or none (transits.py)
    signals       massive black hole binaries in the noise of a space-based detector, or noise alone (chirps.py)

Times are days. `clean` is the truth without noise. What they are not: a survey. There is no crowding, no colour of
stars, no systematic error of an instrument; ranges are round. Train on them to learn, to test, to pretrain.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar, Literal, get_args

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....data.readers.series.reader import SeriesFiles
from ....data.readers.simulation import SimulatedSequence
from ....data.source import Data
from ....errors import UserError, one_of
from . import chirps, oscillators, stars, supernovae, transits

CurveKind = Literal["stars", "supernovae", "oscillators", "transits", "signals"]
CURVE_KINDS: tuple[CurveKind, ...] = get_args(CurveKind)
MODULES = dict(zip(CURVE_KINDS, (stars, supernovae, oscillators, transits, chirps)))
CLASSES = {what: module.CLASSES for what, module in MODULES.items()}
CURVES_PER_CHUNK = {"stars": 1024, "supernovae": 1024, "oscillators": 128, "transits": 256, "signals": 128}
OPTIONS_BY_KIND = {
    "stars": ("cadence", "points"),
    "supernovae": ("bands", "unit"),
    "oscillators": ("points", "gaps"),
    "transits": ("points", "gaps"),
    "signals": ("points", "snr", "white"),
}
OPTIONS = ("cadence", "points", "bands", "unit", "gaps", "snr", "white")


class LightCurves(SimulatedSequence):
    """Series that are simulated: `time` (days), `value`, and what there is of `error`, `band`, `limit` and `clean`.

    A curve has an `id`, a `label`, and what is known of it: `period`, `amplitude`, `redshift`, `logg`, `snr`, `depth`.
    Thousands are made in a second on one core; `sciformer.domains.lightcurves.simulate.lightcurves` describes them.
    """

    noun: ClassVar[str] = "curves"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".csv", ".npz")

    what: CurveKind = "stars"
    """stars: variable stars in one band; supernovae: of four types, in several bands; oscillators: solar-like ones, for
    log g; transits: with a planet or none; signals: chirps in coloured noise, or the noise alone."""
    classes: list[str] = Field(default_factory=list)
    """Classes of curves, alike often (default: all of `what`)."""
    cadence: Literal["survey", "asas"] = "survey"
    """Of stars. survey: 3 to 8 years, a median of 120 points, errors that grow with magnitude; asas: as many as 250
    points in a row with errors of about 0.036 mag and a scatter of their own, as in ASAS."""
    points: int = Field(default=0, ge=0)
    """Points of a curve: the median of a survey's stars, the most in the manner of ASAS, the number before gaps of a
    regular series. 0: 120, 250; 4,000 of oscillators, 1,200 of transits, 4,096 of signals."""
    bands: list[str] = Field(default_factory=lambda: list(supernovae.BANDS))
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

    def chunk_rows(self) -> int:
        return CURVES_PER_CHUNK[self.what]

    def class_names(self) -> tuple[str, ...]:
        return CLASSES[self.what]

    def chunk_key(self) -> tuple[int, ...]:
        return self.version, CURVE_KINDS.index(self.what)

    def samples_per_chunk(self) -> int:
        return self.chunk_size or (4096 if self.what in ("stars", "supernovae") else 512)

    def check(self) -> None:
        """Refuse values that make no sense, and options that would do nothing."""
        super().check()
        for name in OPTIONS:
            default = type(self).model_fields[name].get_default(call_default_factory=True, validated_data={})
            if getattr(self, name) != default and name not in OPTIONS_BY_KIND[self.what]:
                used = " and ".join(OPTIONS_BY_KIND[self.what])
                raise UserError(f"`{name}` does nothing with {self.what}, which use only {used}", key=f"data.{name}")
        if self.points and not 32 <= self.points <= 65536:
            message = f"points must be from 32 to 65,536, or 0 for the usual number, not {self.points}"
            raise UserError(message, key="data.points")
        if not self.bands or len(set(self.bands)) < len(self.bands):
            named = f"each of the bands must be named once, not {', '.join(self.bands)}"
            raise UserError(named if self.bands else "bands must not be empty", key="data.bands")
        for band in self.bands:
            one_of("a band", band, supernovae.BANDS, key="data.bands")
        low, high = self.snr
        if not 0 < low <= high < 1e4:
            message = f"snr must be a range above 0 and below 10,000, the smaller first, not {low} to {high}"
            raise UserError(message, key="data.snr")

    def _options(self) -> str:
        """The options in the words that fingerprints and names of kept pieces have had from the first."""
        values = {name: getattr(self, name) for name in OPTIONS} | {"bands": tuple(self.bands)}
        return f"Options({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def describe(self) -> str:
        kinds = ", ".join(self.classes or CLASSES[self.what])
        return f"{self.what} of {kinds}; seed {self.seed}, version {self.version}, {self._options()}"

    def cache_prefix(self) -> str:
        told = f"{self._options()} {list(self.class_numbers())}"
        return f"{self.what}-{self.version}-{self.seed}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        options = {name: getattr(self, name) for name in OPTIONS_BY_KIND[self.what]}
        return getattr(MODULES[self.what], self.what)(label, rng, **options)

    def file_reader(self) -> Data:
        found = SeriesFiles(kind="series")
        return found.want(**self.state) if self.state else found
