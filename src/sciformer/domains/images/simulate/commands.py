"""The commands that simulate images and write a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ....cli.app import Classes, Overwrite, Quiet
from ....cli.terminal import no_changes

if TYPE_CHECKING:
    from ....data.columns import Table

OutputFile = Annotated[Path, Parameter(help="The file to write: .npz, or .h5 for more than fits into memory.")]
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


def galaxies(
    out: OutputFile,
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
    from . import galaxies
    from .files import simulate_images

    options = galaxies.Options(size, bands, unit, engine)
    galaxies.check_classes(classes)
    options.check()

    def make(count: int, first: int) -> Table:
        return galaxies.galaxies(count, seed, classes, first, options=options)

    simulate_images(out, "galaxies", make, number, overwrite, show=not quiet)


def lenses(
    out: OutputFile,
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
    from . import lenses
    from .files import simulate_images

    options = lenses.Options(size, bands, unit, not dark)
    options.check()

    def make(count: int, first: int) -> Table:
        return lenses.lenses(count, seed, first, options=options)

    simulate_images(out, "lenses", make, number, overwrite, show=not quiet)


def cues(
    out: OutputFile,
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
    from . import cues
    from .files import simulate_images

    options = cues.Options(size, agree)
    cues.check_classes(classes)
    options.check()

    def make(count: int, first: int) -> Table:
        return cues.cues(count, seed, classes, first, options=options)

    simulate_images(out, "images", make, number, overwrite, show=not quiet)
