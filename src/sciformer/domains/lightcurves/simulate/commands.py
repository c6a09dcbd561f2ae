"""The commands that simulate light curves and write a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....cli.app import Classes, Overwrite, Quiet
from ....cli.terminal import no_changes

if TYPE_CHECKING:
    pass


def lightcurves(
    out: Path,
    *,
    what: str = "stars",
    number: int = 10_000,
    seed: int = 0,
    classes: Classes = (),
    cadence: str = "survey",
    points: int = 0,
    bands: Classes = (),
    unit: str = "magnitude",
    snr: tuple[float, float] = (8.0, 50.0),
    white: bool = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Light curves and other series: variable stars, supernovae, oscillators, transits, chirps in noise.

    Parameters
    ----------
    out
        The file to write: .parquet or .npz (lists for each curve), or .csv (a row for each observation).
    what
        stars, supernovae, oscillators, transits or signals; stars unless given.
    number
        Curves in all; 10,000 unless given.
    seed
        Another one gives other curves; 0 unless given.
    classes
        Of stars RRAB RRC CEP_F CEP_1O DSCT MIRA SR ED ESD EC ACV DRW CONST; of supernovae Ia Ibc II SLSN; of
        oscillators giant subgiant; of transits none transit; of signals noise signal. All unless given.
    cadence
        Of stars: survey, or asas (as many as 250 points in a row); survey unless given.
    points
        Points of a curve: the median of a survey's, or the number of a regular series.
    bands
        Of supernovae: some of g r i z; all unless given.
    unit
        Of supernovae: magnitude (with upper limits) or flux; magnitude unless given.
    snr
        Of signals: the least and the greatest signal-to-noise ratio; 8 50 unless given.
    white
        Of signals: divide them by the noise at each frequency.
    """
    no_changes("Light curves have options of their own: --what, --number, --seed, --classes.")
    from .files import simulate_curves
    from .lightcurves import Options
    from .supernovae import BANDS

    options = Options(cadence, points, bands or BANDS, unit, snr=snr, white=white)
    simulate_curves(out, what, number, seed, classes, options, overwrite, show=not quiet)
