"""The verb that makes data: simulate, with a verb of its own for each simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ..errors import one_of
from ..terminal import CHANGES, no_changes
from .app import Quiet, app

if TYPE_CHECKING:
    from ..data.source import Table

Classes = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Images = Annotated[Path, Parameter(help="The file to write: .npz, or .h5 for more than fits into memory.")]
Number = Annotated[int, Parameter(name="--number", help="Images in all; 10,000 unless given.")]
Size = Annotated[int, Parameter(name="--size", help="Pixels on a side; 64 unless given.")]
Unit = Annotated[
    str,
    Parameter(
        name="--unit",
        help="picture: 8 bits, compressed where it is bright; flux: in deviations of the sky's noise; picture unless "
        "given.",
    ),
]
Overwrite = Annotated[bool, Parameter(name="--overwrite", help="Replace a file that is there already.")]


simulator = App(name="simulate", help="Simulate data and write them to a file.", sort_key=11, help_epilogue="")
app.command(simulator)


@simulator.default
def simulate(
    what: Annotated[str, Parameter(show=False)],
    /,
    *more: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
) -> None:
    """Simulate data and write them to a file."""
    one_of("what to simulate", what, ["cues", "galaxies", "jets", "lattices", "lenses", "lightcurves"])


@simulator.command(help_epilogue="Keys: `sciformer recipes spins/ising-vit` lists them under `data`.")
def lattices(out: Path) -> None:
    """States of the 2-D Ising model, with the keys of the reader: `--data.size 16 --data.number 20`.

    Parameters
    ----------
    out
        The file to write, .npz.
    """
    from ..shelf import simulate_to

    simulate_to("lattices", out, dict(CHANGES))


@simulator.command(help_epilogue="")
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
    from ..simulate.jet_files import simulate_jets

    simulate_jets(out, number, seed, classes, by_class, engine, overwrite, show=not quiet)


@simulator.command(help_epilogue="")
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
    from ..simulate.curve_files import simulate_curves
    from ..simulate.lightcurves import Options
    from ..simulate.supernovae import BANDS

    options = Options(cadence, points, bands or BANDS, unit, snr=snr, white=white)
    simulate_curves(out, what, number, seed, classes, options, overwrite, show=not quiet)


@simulator.command(help_epilogue="")
def galaxies(
    out: Images,
    *,
    number: Number = 10_000,
    seed: int = 0,
    classes: Classes = (),
    size: Size = 64,
    bands: int = 3,
    unit: Unit = "picture",
    engine: str = "builtin",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Images of galaxies of eight classes of form.

    Parameters
    ----------
    seed
        Another one gives other galaxies; 0 unless given.
    classes
        Of round between cigar edge_on barred unbarred irregular merger; all unless given.
    bands
        Channels, from red to blue; 3 unless given.
    engine
        Who draws smooth parts: builtin, or galsim, if you have installed it, much slower.
    """
    no_changes("Galaxies have options of their own: --number, --seed, --classes, --size.")
    from ..simulate import galaxies as made
    from ..simulate.image_files import simulate_images

    options = made.Options(size, bands, unit, engine)
    made.check_classes(classes)
    options.check()

    def make(count: int, first: int) -> Table:
        return made.galaxies(count, seed, classes, first, options=options)

    simulate_images(out, "galaxies", make, number, overwrite, show=not quiet)


@simulator.command(help_epilogue="")
def lenses(
    out: Images,
    *,
    number: Number = 10_000,
    seed: int = 0,
    size: Size = 64,
    bands: int = 1,
    unit: Unit = "picture",
    dark: bool = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Images of gravitational lenses, with their Einstein radius, slope, ellipticity, centre and shear.

    Parameters
    ----------
    seed
        Another one gives other lenses; 0 unless given.
    bands
        Channels, from red to blue; 1 unless given.
    dark
        Without the light of the lens, as if it had been subtracted.
    """
    no_changes("Lenses have options of their own: --number, --seed, --size.")
    from ..simulate import lenses as made
    from ..simulate.image_files import simulate_images

    options = made.Options(size, bands, unit, not dark)
    options.check()

    def make(count: int, first: int) -> Table:
        return made.lenses(count, seed, first, options=options)

    simulate_images(out, "lenses", make, number, overwrite, show=not quiet)


@simulator.command(help_epilogue="")
def cues(
    out: Images,
    *,
    number: Number = 10_000,
    seed: int = 0,
    classes: Classes = (),
    size: Size = 64,
    agree: float = 1.0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Images of shapes filled with textures, which agree or do not.

    Parameters
    ----------
    seed
        Another one gives other images; 0 unless given.
    classes
        Of disk square triangle star cross ring crescent bar; all unless given.
    agree
        Share of images whose texture is that of their shape; 1 unless given.
    """
    no_changes("They have options of their own: --number, --seed, --classes, --size, --agree.")
    from ..simulate import cues as made
    from ..simulate.image_files import simulate_images

    options = made.Options(size, agree)
    made.check_classes(classes)
    options.check()

    def make(count: int, first: int) -> Table:
        return made.cues(count, seed, classes, first, options=options)

    simulate_images(out, "images", make, number, overwrite, show=not quiet)
