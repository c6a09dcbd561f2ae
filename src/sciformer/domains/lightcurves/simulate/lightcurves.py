"""Light curves and other series made from nothing, thousands in a second on one core.

    table = lightcurves(100_000, "stars", seed=1)              # columns time, value, error, clean, label, period ...
    table = lightcurves(1000, "stars", first=5_000_000)        # 5,000,000 to 5,000,999 of the same endless sequence
    table = lightcurves(1000, "signals", snr=(15.0, 15.0))     # chirps of SNR 15, and as many of noise alone

    stars         variable stars of 12 classes and constant ones, cadence of a survey or of ASAS (stars.py)
    supernovae    Ia, Ibc, II and SLSN in several bands, with upper limits and redshift (supernovae.py)
    oscillators   solar-like oscillators with known log g, a regular series (oscillators.py)
    transits      regular series of stars with a transiting planet, or none (transits.py)
    signals       massive black hole binaries in the noise of a space-based detector, or noise alone (chirps.py)

Times are days. `clean` is the truth without noise. What they are not: a survey. There is no crowding, no colour of
stars, no systematic error of an instrument; ranges are round. Train on them to learn, to test, to pretrain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from ....data.columns import Array, Lists, select
from ....data.readers.sequence import (
    SEQUENCES,
    check_range,
    class_numbers,
    draw_chunk_classes,
    sample_names,
    sample_sequence,
)
from ....errors import UserError, one_of
from . import chirps, oscillators, stars, supernovae, transits
from .cadence import CADENCES

VERSION = 1  # of what is made; another one makes other curves
CLASSES = {
    "stars": stars.CLASSES,
    "supernovae": supernovae.CLASSES,
    "oscillators": oscillators.CLASSES,
    "transits": transits.CLASSES,
    "signals": chirps.CLASSES,
}
CURVE_KINDS = tuple(CLASSES)
CURVES_PER_CHUNK = {
    "stars": 1024,
    "supernovae": 1024,
    "oscillators": 128,
    "transits": 256,
    "signals": 128,
}  # made at a time
OPTIONS_BY_KIND = {
    "stars": ("cadence", "points"),
    "supernovae": ("bands", "unit"),
    "oscillators": ("points", "gaps"),
    "transits": ("points", "gaps"),
    "signals": ("points", "snr", "white"),
}


@dataclass(frozen=True)
class Options:
    """How curves are seen; each of `OPTIONS_BY_KIND` by some kinds alone."""

    cadence: str = "survey"
    points: int = 0
    bands: tuple[str, ...] = supernovae.BANDS
    unit: str = "magnitude"
    gaps: bool = True
    snr: tuple[float, float] = (8.0, 50.0)
    white: bool = False

    def check(self, what: str) -> None:
        """Refuse what makes no sense, and what would be passed over."""
        one_of("the cadence", self.cadence, CADENCES)
        one_of("the unit", self.unit, supernovae.UNITS)
        for field in fields(self):
            if getattr(self, field.name) != field.default and field.name not in OPTIONS_BY_KIND[what]:
                raise UserError(
                    f"`{field.name}` does nothing with {what}, which use only {' and '.join(OPTIONS_BY_KIND[what])}"
                )
        if self.points and not 32 <= self.points <= 65536:
            raise UserError(f"points must be from 32 to 65,536, or 0 for the usual number, not {self.points}")
        if not self.bands or len(set(self.bands)) < len(self.bands):
            raise UserError(
                f"each of the bands must be named once, not {', '.join(self.bands)}"
                if self.bands
                else "bands must not be empty"
            )
        for band in self.bands:
            one_of("a band", band, supernovae.BANDS)
        low, high = self.snr
        if not 0 < low <= high < 1e4:
            raise UserError(f"snr must be a range above 0 and below 10,000, the smaller first, not {low} to {high}")


def lightcurves(
    number: int,
    what: str = "stars",
    seed: int = 0,
    classes: Sequence[str] = (),
    first: int = 0,
    part: str = "file",
    options: Options | None = None,
    **more: object,
) -> dict[str, Array | Lists]:
    """The curves first, first + 1, ... of a sequence of rounds, each with every class once, in random order.

    A pure function of its arguments, whatever is asked for in one go; parts of the same seed have no curve in common.
    Options are given as such, or by name: `cadence="asas"`. Other processors may round the last bit otherwise.
    """
    check_range("curves", number, seed, first, part, "1 curve or more")
    key, kinds = (seed, SEQUENCES.index(part)), tuple(check_classes(what, classes))
    wanted = options or Options(**more)  # type: ignore[arg-type]
    wanted.check(what)
    made = sample_sequence(
        number, first, CURVES_PER_CHUNK[what], lambda index: make_chunk(what, key, index, kinds, wanted)
    )
    return {"id": sample_names(part, seed, first, number), **made}


def check_classes(what: str, classes: Sequence[str]) -> list[int]:
    """The numbers of some classes of a kind of curves; all unless some are named."""
    one_of("what to simulate", what, CURVE_KINDS)
    return list(class_numbers(what, classes, CLASSES[what]))


@lru_cache(maxsize=1)
def make_chunk(
    what: str, seed: tuple[int, int], index: int, classes: tuple[int, ...], options: Options
) -> dict[str, Array | Lists]:
    """Some hundred curves, the same for the same arguments, in random order of the classes."""
    rng, label = draw_chunk_classes((VERSION, CURVE_KINDS.index(what), *seed, index), classes, CURVES_PER_CHUNK[what])
    if what == "stars":  # made class by class, then mixed
        order = np.argsort(label, kind="stable")
        made = stars.stars(label[order], rng, options.cadence, options.points)
        made = select(made, np.argsort(order))
    elif what == "supernovae":
        made = supernovae.supernovae(label, rng, options.bands, options.unit)
    elif what == "oscillators":
        made = oscillators.oscillators(label, rng, options.points, options.gaps)
    elif what == "transits":
        made = transits.transits(label, rng, options.points, options.gaps)
    else:
        made = chirps.signals(label, rng, options.points, options.snr, options.white)
    return made | {"label": np.array(CLASSES[what])[label]}
