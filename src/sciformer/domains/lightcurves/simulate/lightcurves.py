"""Simulated light curves and other series, thousands per second on one core.

    table = LightCurves(seed=1).make(100_000)                  # columns time, value, error, clean, label, period ...
    table = LightCurves().make(1000, first=5_000_000)          # 5,000,000 to 5,000,999 of the same endless sequence
    table = LightCurves(what="signals", snr=(15.0, 15.0)).make(1000)     # half chirps of SNR 15, half noise

    stars         variable stars of 12 classes and constant stars, with the cadence of a survey or of ASAS (stars.py)
    supernovae    Ia, Ibc, II and SLSN in several bands, with upper limits and redshift (supernovae.py)
    oscillators   solar-like oscillators with known log g, a regular series (oscillators.py)
    transits      regular series of stars with or without a transiting planet (transits.py)
    signals       massive black hole binaries in the noise of a space-based detector, or noise alone (chirps.py)

Times are in days. `clean` holds the values without noise. The simulation does not replace a survey: it has no crowding,
no colours of stars, no systematic errors, and round parameter ranges. Use it for learning, testing and pretraining.
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
    """Simulated series with `time` (days) and `value`.

    Depending on `what`, there are `error`, `band`, `limit` and `clean`, and for each curve an `id`, a `label` and known
    properties: `period`, `amplitude`, `redshift`, `logg`, `snr`, `depth`. Details are in
    `sciformer.domains.lightcurves.simulate.lightcurves`.
    """

    noun: ClassVar[str] = "curves"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".csv", ".npz")

    what: CurveKind = "stars"
    """Kind of series (default: stars). stars: variable stars in one band; supernovae: four types in several bands;
    oscillators: solar-like oscillators, for log g; transits: with or without a planet; signals: chirps in coloured
    noise, or noise alone."""
    classes: list[str] = Field(default_factory=list)
    """Classes to simulate, equally often (default: all classes of `what`)."""
    cadence: Literal["survey", "asas"] = "survey"
    """Cadence of stars (default: survey). survey: 3 to 8 years, a median of 120 points, errors that grow with
    magnitude; asas: at most 250 points, errors of about 0.036 mag and extra scatter, as in ASAS."""
    points: int = Field(default=0, ge=0)
    """Points per curve. survey: median (default: 120); asas: maximum (default: 250); regular series: number
    including the gaps, whose points are removed later (default: 4,000 for oscillators, 1,200 for transits, 4,096 for
    signals). 0 means these defaults."""
    bands: list[str] = Field(default_factory=lambda: list(supernovae.BANDS))
    """Bands of supernovae (default: g, r, i, z)."""
    unit: Literal["magnitude", "flux"] = "magnitude"
    """Unit of supernova values (default: magnitude). magnitude: values with upper limits; flux: values in microjansky,
    which may be negative, and a column `clean` of values without noise."""
    gaps: bool = True
    """Whether the regular series of oscillators and transits have gaps of some days (default: true)."""
    snr: tuple[float, float] = (8.0, 50.0)
    """Range of the signal-to-noise ratio of signals, for a matched filter (default: 8 to 50)."""
    white: bool = False
    """Whiten signals: divide them by the noise spectrum, so that the noise is white with variance 1 (default:
    false)."""
    chunk_size: int | None = Field(default=None, ge=16)
    """Curves per chunk (default: 4096 for stars and supernovae, 512 for regular series). Training keeps and shuffles
    several chunks in memory."""

    def chunk_rows(self) -> int:
        return CURVES_PER_CHUNK[self.what]

    def class_names(self) -> tuple[str, ...]:
        return CLASSES[self.what]

    def chunk_key(self) -> tuple[int, ...]:
        return self.version, CURVE_KINDS.index(self.what)

    def samples_per_chunk(self) -> int:
        return self.chunk_size or (4096 if self.what in ("stars", "supernovae") else 512)

    def check(self) -> None:
        """Refuse invalid values, and options without an effect."""
        super().check()
        for name in OPTIONS:
            default = type(self).model_fields[name].get_default(call_default_factory=True, validated_data={})
            if getattr(self, name) != default and name not in OPTIONS_BY_KIND[self.what]:
                used = " and ".join(OPTIONS_BY_KIND[self.what])
                message = f"`{name}` has no effect on {self.what}: {self.what} use only {used}"
                raise UserError(message, key=f"data.{name}")
        if self.points and not 32 <= self.points <= 65536:
            message = f"points must be from 32 to 65,536, or 0 for the default, not {self.points}"
            raise UserError(message, key="data.points")
        if not self.bands or len(set(self.bands)) < len(self.bands):
            named = f"bands has duplicates: {', '.join(self.bands)}"
            raise UserError(named if self.bands else "bands must not be empty", key="data.bands")
        for band in self.bands:
            one_of("bands", band, supernovae.BANDS, key="data.bands")
        low, high = self.snr
        if not 0 < low <= high < 1e4:
            message = f"snr must be a range LOW HIGH with 0 < LOW <= HIGH < 10,000, not {low} to {high}"
            raise UserError(message, key="data.snr")

    def _options(self) -> str:
        """Keys as text, for fingerprints and for the names of cached chunks."""
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
