"""Detection of the things (objects) of a scene from its pixels.

Matching pursuit (Mallat and Zhang, IEEE Trans. Signal Process. 41, 1993): find the thing (shape, colour, size, place)
with the smallest relative mismatch, subtract it from the picture, and repeat until no thing fits:

    mismatch = sum over the mask and a border around it of (picture - thing)^2 / sum of thing^2

where the background counts as zero. The border tells a small disc from the inside of a large disc. Things that do not
touch do not disturb each other, so pictures of `rendering` are read exactly. Noise, blur and wrong colours of generated
pictures are tolerated within limits.

The correlations with all masks are computed once, by Fourier transforms. The change of these
correlations by the subtraction of a thing is known in advance.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ....errors import UserError
from .captions import group_things
from .placement import MIN_GAP
from .rendering import GROUND, PALETTE, box_of, templates
from .things import COLOURS, SHAPES, SIZES, Kind, Thing

MAX_MISMATCH = 0.5  # of a thing that is read
BORDER = MIN_GAP  # pixels around a mask that must be background
MAX_READ = 16  # things read from a picture
LIGHT = PALETTE - GROUND  # colours, relative to the background


def read_things(picture: Array) -> list[Thing]:
    """Things of a picture (H, W, 3) of 8 bits, in the order of their names."""
    side = picture.shape[0]
    if picture.shape != (side, side, 3):
        raise UserError(f"a picture of a scene must have the shape (side, side, 3), not {picture.shape}")
    made, known = templates(side), _prepared(side)
    rest, reach, things = picture.astype(np.float32) - GROUND, made.reach, list[Thing]()
    matched = _correlate(np.tensordot(LIGHT, rest, (1, 2))[:, None], known.masks)  # (C, M, H, W): at the centre
    while len(things) < MAX_READ:
        mismatch = (_correlate((rest**2).sum(-1), known.borders) - 2 * matched) / known.energy[..., None, None] + 1
        mismatch[:, ~known.within] = np.inf
        best = int(mismatch.argmin())
        if mismatch.flat[best] > MAX_MISMATCH:
            break
        colour, mask, y, x = (int(index) for index in np.unravel_index(best, mismatch.shape))
        kind = Kind(SHAPES[mask // len(SIZES)], [*COLOURS][colour], SIZES[mask % len(SIZES)])
        things.append(Thing(kind, x, y, box_of(kind, x, y, side)))
        here, part = _window(x, y, reach, side)
        rest[here] -= known.flat[mask][part][..., None] * LIGHT[colour]
        here, part = _window(x, y, 2 * reach, side)
        shared = (LIGHT @ LIGHT[colour])[:, None, None, None]
        matched[(..., *here)] -= shared * known.products[(mask, slice(None), *part)]
    return [thing for some in group_things(things).values() for thing in some]


class _Known(NamedTuple):
    """Precomputed arrays of the M masks (shapes times sizes), for one picture size.

    A mask has P x P pixels, a picture H x W pixels. Things have C colours.

    flat       (M, P, P) masks
    energy     (C, M) squared light of each thing
    masks      spectra of the masks
    borders    spectra of the pixels of the masks and their borders
    products   (M, M, 2 P - 1, 2 P - 1) correlations of all pairs of masks
    within     (M, H, W) True at centres for which the mask lies within the picture
    """

    flat: Array
    energy: Array
    masks: Array
    borders: Array
    products: Array
    within: Array


@lru_cache(maxsize=2)
def _prepared(side: int) -> _Known:
    made = templates(side)
    flat = made.mask.reshape(-1, *made.mask.shape[2:])
    wide = np.pad(flat > 0, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    steps = range(-BORDER, BORDER + 1)
    border = np.any([np.roll(wide, (down, across), (1, 2)) for down in steps for across in steps], axis=0)
    size = -(-(side + wide.shape[-1]) // 16) * 16  # sizes with small prime factors are fast
    span = 2 * flat.shape[1] - 1
    own = np.fft.rfft2(flat, (span, span))
    products = np.fft.fftshift(np.fft.irfft2(own[:, None] * own.conj(), (span, span)), (2, 3))
    boxes = made.boxes.reshape(-1, 4)[:, :, None, None]
    y, x = np.indices((side, side))
    left, top = x + boxes[:, 0], y + boxes[:, 1]
    within = (left >= 0) & (top >= 0) & (left + boxes[:, 2] <= side) & (top + boxes[:, 3] <= side)
    energy = (LIGHT**2).sum(1)[:, None] * (flat**2).sum((1, 2))
    spectra = (_spectra(flat, size), _spectra(border, size))
    return _Known(flat, energy, *spectra, products.astype(np.float32), within)


def _spectra(masks: Array, size: int) -> Array:
    """Conjugate spectra of masks (M, P, P) around their centres, padded to `size`."""
    padded = np.zeros((len(masks), size, size), np.float32)
    padded[:, : masks.shape[1], : masks.shape[2]] = masks
    middle = masks.shape[1] // 2
    return np.fft.rfft2(np.roll(padded, (-middle, -middle), (1, 2))).conj().astype(np.complex64)


def _correlate(images: Array, spectra: Array) -> Array:
    """Correlate images (..., H, W) with all masks, at each pixel."""
    size, side = spectra.shape[1], images.shape[-1]
    found: Array = np.fft.irfft2(np.fft.rfft2(images, (size, size)) * spectra, (size, size))[..., :side, :side]
    return found.astype(np.float32)


def _window(x: int, y: int, reach: int, side: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Slices of the square of half-width `reach` at (x, y), clipped to the picture.

    The first pair of slices selects pixels of the picture, the second pair the same pixels of the square.
    """
    low, high = (max(0, y - reach), max(0, x - reach)), (min(side, y + reach + 1), min(side, x + reach + 1))
    here = slice(low[0], high[0]), slice(low[1], high[1])
    part = slice(low[0] - y + reach, high[0] - y + reach), slice(low[1] - x + reach, high[1] - x + reach)
    return here, part
