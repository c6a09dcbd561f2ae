"""Images of galaxies of eight classes, made from nothing, more than a thousand in a second on one core.

    table = galaxies(10_000, seed=1)               # columns image (n, 64, 64, 3) of 8 bits, label, snr, radius ...
    table = galaxies(1000, first=5_000_000)        # the galaxies 5,000,000 to 5,000,999 of the same endless sequence
    table = galaxies(1000, unit="flux")            # in deviations of the sky's noise, single precision

The classes are those of arXiv 2110.01024 (Lin et al.), after the questions of Galaxy Zoo 2: `round`, `between` and
`cigar`-shaped smooth ones, `edge_on` disks, `barred` and `unbarred` spirals, `irregular` ones and a `merger`. They
overlap, as there: axis ratios of smooth classes share their tails, arms may be weak, and noise hides much of what is
faint, so that no answer is right for all. Stars and other galaxies in the field belong to no class.

What it is: Sersic bulges and exponential disks with the textbook's arms, bars, dust and tails (galaxy_parts.py) behind
a point-spread function of two Gaussians and the noise of a sky and of light itself (optics.py). What it is not: a
survey. There is no redshift, no history of star formation, no artefact of a camera; ranges are round numbers. Train
on it to learn, to test, to pretrain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import (
    SEQUENCES,
    check_range,
    class_numbers,
    draw_chunk_classes,
    log_uniform,
    sample_names,
    sample_sequence,
)
from ....errors import one_of
from .arrays import Floats
from .morphology import CLASSES as CLASSES
from .morphology import MAKERS, OLD_STAR_COLOURS, DrawProfile, LightMaps
from .optics import (
    FIELD_SIDE,
    add_noise,
    band_fluxes,
    blur,
    check_view,
    render_blurred_blobs,
    signal_to_noise,
    to_picture,
)
from .sersic import sersic

VERSION = 1  # of what is made; another one makes other galaxies
GALAXIES_PER_CHUNK = (
    128  # galaxies made at a time; what is random in them is a function of the seed, the options and their number
)
MIN_SNR, MAX_SNR = 20.0, 400.0  # the range of signal-to-noise ratios
SEEING_RANGE = (0.7, 1.5)  # the deviation of the blur
STARS_PER_FIELD, GALAXIES_PER_FIELD = 0.4, 0.6  # in a field, on average


def _galsim() -> DrawProfile:
    from .galsim import load_galsim

    return load_galsim()


ENGINES: dict[str, Callable[[], DrawProfile]] = {"builtin": lambda: sersic, "galsim": _galsim}  # who draws smooth parts


class Options(NamedTuple):
    """How galaxies are seen."""

    size: int = 64
    bands: int = 3
    unit: str = "picture"
    engine: str = "builtin"

    def check(self) -> None:
        """Refuse what makes no sense."""
        check_view(self.size, self.bands, self.unit)
        one_of("the engine", self.engine, ENGINES)
        ENGINES[self.engine]()


def galaxies(
    number: int,
    seed: int = 0,
    classes: Sequence[str] = (),
    first: int = 0,
    part: str = "file",
    options: Options | None = None,
    **more: object,
) -> dict[str, Array]:
    """The galaxies first, first + 1, ... of a sequence of rounds, each with every class once, in random order.

    A pure function of its arguments, whatever is asked for in one go; parts of the same seed have no galaxy in common.
    Options are given as such, or by name: `size=32`. Other processors may round the last bit otherwise.
    """
    check_range("galaxies", number, seed, first, part)
    kinds, wanted = check_classes(classes), options or Options(**more)  # type: ignore[arg-type]
    wanted.check()
    made = sample_sequence(
        number, first, GALAXIES_PER_CHUNK, lambda index: make_chunk((seed, SEQUENCES.index(part)), index, kinds, wanted)
    )
    return {"id": sample_names(part, seed, first, number), **made}


def draw_labels(number: int, seed: int = 0, classes: Sequence[str] = (), first: int = 0, part: str = "file") -> Array:
    """The classes of these galaxies, which are drawn before their images are made."""
    key, kinds = (VERSION, seed, SEQUENCES.index(part)), check_classes(classes)
    found = sample_sequence(
        number,
        first,
        GALAXIES_PER_CHUNK,
        lambda index: {"label": draw_chunk_classes((*key, index), kinds, GALAXIES_PER_CHUNK)[1]},
    )
    return np.array(CLASSES)[found["label"]]


def check_classes(classes: Sequence[str]) -> tuple[int, ...]:
    """The numbers of some classes; all unless some are named."""
    return class_numbers("galaxies", classes, CLASSES)


@lru_cache(maxsize=1)
def make_chunk(seed: tuple[int, int], index: int, classes: tuple[int, ...], options: Options) -> dict[str, Array]:
    """GALAXIES_PER_CHUNK galaxies, the same for the same arguments."""
    rng, label = draw_chunk_classes((VERSION, *seed, index), classes, GALAXIES_PER_CHUNK)
    draw = ENGINES[options.engine]()
    light = np.zeros((GALAXIES_PER_CHUNK, options.bands, options.size, options.size), np.float32)
    truth = {name: np.zeros(GALAXIES_PER_CHUNK, np.float32) for name in ("radius", "axis_ratio", "angle")}
    for kind in dict.fromkeys(classes):
        rows = np.flatnonzero(label == kind)
        made = MAKERS[CLASSES[kind]](len(rows), options.size, rng, draw)
        light[rows] = render_bands(made, options.bands)
        for name, values in zip(truth, (made.radius, made.ratio, made.angle % np.pi)):
            truth[name][rows] = values
    seeing = rng.uniform(*SEEING_RANGE, GALAXIES_PER_CHUNK)
    snr = log_uniform(rng, GALAXIES_PER_CHUNK, MIN_SNR, MAX_SNR)
    light = blur(light, seeing)
    light *= (snr / signal_to_noise(light)).astype(np.float32)[:, None, None, None]
    light += render_neighbours(seeing, options, rng)
    seen = add_noise(light, rng).transpose(0, 2, 3, 1)
    image = to_picture(seen) if options.unit == "picture" else np.ascontiguousarray(seen)
    return {
        "image": np.ascontiguousarray(image),
        "label": np.array(CLASSES)[label],
        "snr": snr.astype(np.float32),
        "seeing": seeing.astype(np.float32),
        **truth,
    }


def render_bands(made: LightMaps, bands: int) -> Floats:
    """Light (n, C, H, W) in every band, behind its dust, which takes more of the blue."""
    light = sum(band_fluxes(colour, bands)[:, :, None, None] * map[:, None] for map, colour in made.maps)
    assert isinstance(light, np.ndarray)
    if made.dust is not None:
        more = np.linspace(0.7, 1.3, bands).astype(np.float32)[None, :, None, None] if bands > 1 else np.float32(1)
        light *= np.exp(-more * made.dust[:, None])
    return light


def render_neighbours(seeing: Array, options: Options, rng: np.random.Generator) -> Floats:
    """Stars and small galaxies anywhere in the fields (n, C, H, W), in deviations of the sky."""
    n, most = len(seeing), 3
    there = np.arange(2 * most) % most < np.repeat(
        rng.poisson((STARS_PER_FIELD, GALAXIES_PER_FIELD), (n, 2)), most, axis=1
    )
    width = np.where(np.arange(2 * most) < most, 0, rng.uniform(0.8, 2.2, (n, 2 * most)))
    x, y = rng.uniform(-FIELD_SIDE / 2, FIELD_SIDE / 2, (2, n, 2 * most))
    flux = log_uniform(rng, 2 * most * n, 20, 800) * there.ravel()
    tint = band_fluxes(rng.uniform(-0.2, OLD_STAR_COLOURS[1], len(flux)), options.bands) * flux[:, None]
    return render_blurred_blobs(options.size, x, y, width, tint.reshape(n, -1, options.bands).swapaxes(1, 2), seeing)
