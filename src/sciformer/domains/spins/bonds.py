"""The Ising model on a square lattice: which spins share a bond, and the energy of states.

    E = -J sum_<ij> b_ij s_i s_j,   s_i = +-1,   P(s) ~ exp(-E / T)   (k_B = 1)

The sum runs over the bond of every spin to its right and to the spin below it. The boundary says which those are at the
border, and b_ij is 1 but for the bonds named here:

    periodic      the last column is left of the first, the last row above the first
    skewed        helical: right of the last spin of a row is the first spin of the next row, and right of the very last
                  spin the very first; rows above and below are periodic
    open          no bond across the border (b = 0)
    antiperiodic  periodic, but b = -1 for the bonds from the last column to the first (one direction only, which
                  puts one domain wall into a cold ferromagnet)

A lattice two spins wide and not open has two bonds between the same two spins. Spins are int8 (chains, height, width).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UserError, one_of

Spins = NDArray[np.int8]
Floats = NDArray[np.float64]
Sites = NDArray[np.intp]

BOUNDARIES = ("periodic", "skewed", "open", "antiperiodic")


class Bonds(NamedTuple):
    """The graph of a lattice of N spins, numbered row by row.

    right, below            (N,) the spin at the other end of each spin's two bonds
    right_sign, below_sign  (N,) b of these bonds
    neighbours, signs       (4, N) right, below, left, above, and b; a missing neighbour is the spin itself with b = 0
    colours                 the spins in classes without a bond inside a class, which may be updated at the same time
    """

    right: Sites
    below: Sites
    right_sign: Spins
    below_sign: Spins
    neighbours: Sites
    signs: Spins
    colours: tuple[Sites, ...]


@lru_cache(maxsize=16)
def find_bonds(height: int, width: int, boundary: str) -> Bonds:
    """The bonds and the colours of a lattice, the same for every sweep."""
    one_of("the boundary", boundary, BOUNDARIES)
    count = height * width
    sites = np.arange(count)
    row, column = sites // width, sites % width
    last_column, last_row = column == width - 1, row == height - 1
    right_sign, below_sign = np.ones(count, np.int8), np.ones(count, np.int8)
    right = (sites + 1) % count if boundary == "skewed" else row * width + (column + 1) % width
    below = (sites + width) % count
    left, above = np.empty_like(sites), np.empty_like(sites)
    left[right], above[below] = sites, sites
    if boundary == "open":
        right_sign[last_column], below_sign[last_row] = 0, 0
    elif boundary == "antiperiodic":
        right_sign[last_column] = -1
    neighbours = np.stack((right, below, left, above))
    signs = np.stack((right_sign, below_sign, right_sign[left], below_sign[above]))
    neighbours = np.where(signs == 0, sites, neighbours)
    bonds = Bonds(right, below, right_sign, below_sign, neighbours, signs, _colour(neighbours))
    arrays: tuple[NDArray[Any], ...] = (right, below, right_sign, below_sign, neighbours, signs, *bonds.colours)
    for array in arrays:
        array.setflags(write=False)  # kept by the cache, so shared by all callers
    return bonds


def _colour(neighbours: Sites) -> tuple[Sites, ...]:
    """The first free colour for one spin after another: the checkerboard where the lattice is bipartite.

    It is not bipartite when a periodic side is odd, nor when a skewed lattice has an even width (one step down equals
    `width` steps to the right, a loop of odd length). Three to five colours serve those.
    """
    colour = [-1] * neighbours.shape[1]
    for site, near in enumerate(neighbours.T.tolist()):
        taken = {colour[other] for other in near}
        colour[site] = next(free for free in range(5) if free not in taken)
    found = np.array(colour)
    return tuple(np.flatnonzero(found == which) for which in range(found.max() + 1))


def energy(spins: ArrayLike, boundary: str = "periodic", coupling: float = 1.0) -> Floats:
    """The energy per spin, e = -J / N sum_<ij> b_ij s_i s_j, of spins (..., height, width)."""
    check_coupling(coupling)
    checked = check_spins(spins)
    bonds = find_bonds(*checked.shape[-2:], boundary)
    flat = checked.reshape(*checked.shape[:-2], -1)
    pairs = flat[..., bonds.right] * bonds.right_sign
    pairs += flat[..., bonds.below] * bonds.below_sign
    pairs *= flat
    return -coupling * pairs.mean(-1, dtype=np.float64)


# What a user may have got wrong


def check_spins(spins: ArrayLike) -> Spins:
    """Spins as int8, two sides or more, all of them -1 or 1."""
    found = np.asarray(spins)
    if found.ndim < 2 or min(found.shape[-2:]) < 2:
        raise UserError(f"spins must have the shape (..., height, width), both at least 2, not {found.shape}")
    if not (np.abs(found) == 1).all():
        raise UserError(
            f"spins must be -1 and 1, not values from {found.min()} to {found.max()}",
            hint="For bits take 2 * bits - 1.",
        )
    return found.astype(np.int8, copy=False)


def check_temperatures(temperatures: ArrayLike) -> Floats:
    """Temperatures as float64, all above 0."""
    try:
        heat = np.asarray(temperatures, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"temperatures must be numbers, not {temperatures!r}") from error
    wrong = heat[~((heat > 0) & np.isfinite(heat))]
    if wrong.size:
        raise UserError(
            f"temperatures must be above 0 and finite, not {wrong.flat[0]}",
            hint="T is in units of J / k_B: T_c is 2.269 for J = 1.",
        )
    return heat


def check_coupling(coupling: float) -> None:
    """Refuse a coupling that couples nothing."""
    if not math.isfinite(coupling) or coupling == 0:
        raise UserError(
            f"coupling must be finite and not 0, but is {coupling!r}",
            hint="Take 1 for a ferromagnet, -1 for an antiferromagnet.",
            key="data.coupling",
        )
