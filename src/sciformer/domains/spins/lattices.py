"""Ising model on a square lattice: Markov chains at many temperatures at once.

    E = -J sum_<ij> b_ij s_i s_j,   s_i = +-1,   P(s) ~ exp(-E / T)   (k_B = 1)

The sum is over the bonds of every spin to its right neighbour and its lower neighbour. The boundary condition defines
the neighbours at the border. b_ij is 1 unless stated otherwise:

    periodic      the last column is left of the first, the last row above the first
    skewed        helical: the right neighbour of the last spin of a row is the first spin of the next row; the right
                  neighbour of the very last spin is the very first spin; rows above and below are periodic
    open          no bond across the border (b = 0)
    antiperiodic  periodic, but b = -1 for the bonds from the last column to the first. This is in one direction only;
                  it puts one domain wall into a cold ferromagnet

A lattice of width 2 that is not open has two bonds between the same two spins. Spins are int8 (chains, height, width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UserError, one_of

Spins = NDArray[np.int8]
Floats = NDArray[np.float64]
Sites = NDArray[np.intp]

BOUNDARIES = ("periodic", "skewed", "open", "antiperiodic")

# Updates before the first state and between states: enough for T from 1 to 4 and sizes up to 64. For frustrated
# lattices they are enough up to size 32: domain walls of larger lattices need more updates to roughen.
WARM_UP, UPDATES_BETWEEN_STATES = 30, 8
METROPOLIS_SWEEPS = 3  # Metropolis sweeps after each cluster sweep, for less than a fifth of its cost


def critical_temperature() -> float:
    """T_c = 2 / ln(1 + sqrt 2) of the infinite square lattice with J = 1."""
    return 2 / math.log1p(math.sqrt(2))


class Bonds(NamedTuple):
    """Graph of a lattice of N spins, numbered row by row.

    right, below            (N,) index of the right and the lower neighbour
    right_sign, below_sign  (N,) b of these bonds
    neighbours, signs       (4, N) index and b of the neighbours right, below, left and above; a missing neighbour is
                            the spin itself with b = 0
    colours                 sets of spins; spins of one set share no bond and may be updated in parallel
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
    """Bonds of a lattice: neighbours of each site, and signs; results are cached."""
    one_of("the boundary", boundary, BOUNDARIES)
    count = height * width
    sites = np.arange(count)
    row, column = np.divmod(sites, width)
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
    arrays, colours = (right, below, right_sign, below_sign, neighbours, signs), _colour(neighbours)
    for array in (*arrays, *colours):
        array.setflags(write=False)  # shared by all callers through the cache
    return Bonds(*arrays, colours)


def _colour(neighbours: Sites) -> tuple[Sites, ...]:
    """Greedy colouring of the spins; a checkerboard if the lattice is bipartite.

    The lattice is not bipartite if a periodic side is odd, or if a skewed lattice has an even width: one step down
    equals `width` steps to the right, so a loop of odd length closes. It then needs three to five colours.
    """
    colour = [-1] * neighbours.shape[1]
    for site, near in enumerate(neighbours.T.tolist()):
        taken = {colour[other] for other in near}
        colour[site] = next(free for free in range(5) if free not in taken)
    found = np.array(colour)
    return tuple(np.flatnonzero(found == which) for which in range(found.max() + 1))


def energy(spins: Spins, boundary: str = "periodic", coupling: float = 1.0) -> Floats:
    """Energy per spin e = -J / N sum_<ij> b_ij s_i s_j of spins (..., height, width)."""
    bonds = find_bonds(*spins.shape[-2:], boundary)
    flat = spins.reshape(*spins.shape[:-2], -1)
    pairs = flat[..., bonds.right] * bonds.right_sign
    pairs += flat[..., bonds.below] * bonds.below_sign
    pairs *= flat
    return -coupling * pairs.mean(-1, dtype=np.float64)


# Markov chains


def metropolis(
    spins: Spins, temperatures: Floats, rng: np.random.Generator, boundary: str = "periodic", coupling: float = 1.0
) -> Spins:
    """Metropolis sweep: flip each spin once with probability min(1, exp(-dE / T)).

    dE = 2 J k with k = s_i sum_j b_ij s_j. Sets of spins of the same colour are updated one after another. Spins of one
    colour share no bond, so a parallel update equals a sequential update.

    spins         (chains, height, width) of +-1
    temperatures  (chains,)
    """
    bonds, state = find_bonds(*spins.shape[1:], boundary), _sites_first(spins)
    # Odd k requires an odd number of neighbours, as at open borders.
    steps = (1, 2, 3, 4) if boundary == "open" else (2, 4)
    thresholds = [_threshold(np.exp(-2 * abs(coupling) * step / temperatures)) for step in steps]
    sign = np.int8(math.copysign(1, coupling))
    for colour in bonds.colours:
        own = state[colour]
        field = np.zeros_like(own)
        for neighbours, signs in zip(bonds.neighbours[:, colour], bonds.signs[:, colour] * sign):
            near = state[neighbours]
            near *= signs[:, None]
            field += near
        field *= own
        # One random number per spin: flips with k up to `highest` are accepted.
        number = _random_bits(rng, own.shape)
        highest = np.zeros_like(own)
        for threshold in thresholds:
            highest += number < threshold
        if boundary != "open":
            highest *= np.int8(2)
        flips = (field <= highest).view(np.int8)
        flips *= np.int8(-2)
        flips += np.int8(1)
        own *= flips
        state[colour] = own
    return _chains_first(state, spins.shape)


def swendsen_wang(
    spins: Spins, temperatures: Floats, rng: np.random.Generator, boundary: str = "periodic", coupling: float = 1.0
) -> Spins:
    """Swendsen-Wang sweep (Phys. Rev. Lett. 58, 86): flip each cluster at random.

    A satisfied bond, J b_ij s_i s_j > 0, joins its two spins into a cluster with probability 1 - exp(-2 |J| / T); an
    unsatisfied bond never joins its spins. Each cluster is flipped with probability 1/2. This is valid for bonds of
    either sign, so also for antiferromagnets and frustrated boundaries.

    spins         (chains, height, width) of +-1
    temperatures  (chains,)
    """
    bonds, state = find_bonds(*spins.shape[1:], boundary), _sites_first(spins)
    threshold = _threshold(-np.expm1(-2 * abs(coupling) / temperatures))
    sign = np.int8(math.copysign(1, coupling))

    def join(other: Sites, signs: Spins) -> NDArray[np.bool_]:
        pairs = state[other]
        pairs *= state
        joined = pairs == (signs * sign)[:, None]
        joined &= _random_bits(rng, state.shape) < threshold
        return joined

    right, below = join(bonds.right, bonds.right_sign), join(bonds.below, bonds.below_sign)
    roots = _find_roots(right, below, bonds, spins.shape[-1])
    flips = rng.integers(0, 256, (state.size + 7) // 8, dtype=np.uint8)
    flips = np.unpackbits(flips, count=state.size).view(np.int8)
    flips *= np.int8(-2)
    flips += np.int8(1)
    state *= flips.take(roots)
    return _chains_first(state, spins.shape)


def _find_roots(right: NDArray[np.bool_], below: NDArray[np.bool_], bonds: Bonds, width: int) -> Sites:
    """Root (N, chains) of each spin: the same index for all spins of a cluster.

    right, below   (N, chains) whether the bond of a spin to its right or lower neighbour is joined

    Runs of joined spins in a row follow from a cumulative maximum. Then each round attaches larger roots to smaller
    roots and shortens the paths (pointer jumping), until all joined bonds connect spins of the same root.
    """
    count, chains = right.shape
    parent = np.arange(count * chains)
    starts = parent.copy().reshape(-1, width, chains)
    starts[:, 1:][right.reshape(starts.shape)[:, :-1]] = 0
    run = np.maximum.accumulate(starts, axis=1).reshape(count, chains)

    # Skip a lower bond if the previous one in the row already joins the same two runs.
    spared = (below & right & right[bonds.below]).reshape(starts.shape)
    needed = below.copy()
    needed.reshape(starts.shape)[:, 1:] &= ~spared[:, :-1]
    border = np.arange(width - 1, count, width)
    first = np.concatenate((run[needed], run[border][right[border]]))
    second = np.concatenate((run[bonds.below][needed], run[bonds.right[border]][right[border]]))
    while (apart := first != second).any():
        first, second = first[apart], second[apart]
        large, small = np.maximum(first, second), np.minimum(first, second)
        parent[large] = small  # a root with several new parents keeps one of them; the next round handles the rest
        while not np.array_equal(parent[large], higher := parent[parent[large]]):
            parent[large] = higher
        first, second = parent[large], parent[small]
    roots = parent[run]
    while not np.array_equal(roots, higher := parent[roots]):
        roots = higher
    return roots


def ising(
    size: int | tuple[int, int],
    temperatures: Sequence[float] | Floats,
    *,
    chains: int,
    samples: int,
    boundary: str,
    coupling: float,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Sample equilibrium states of the 2-D Ising model from independent Markov chains.

    size          width of a square lattice, or (height, width)
    temperatures  T in units of J / k_B where J = 1; `chains` independent chains run at each T
    samples       number of states kept from each chain, UPDATES_BETWEEN_STATES apart, after WARM_UP updates
    coupling      J: positive for a ferromagnet, negative for an antiferromagnet

    An update is one cluster sweep (Swendsen-Wang) and three Metropolis sweeps. Cluster sweeps avoid critical slowing
    down near T_c and flip ordered lattices below it. Metropolis sweeps move the domain walls of frustrated lattices
    (antiperiodic, or an antiferromagnet whose checkerboard does not close), which cluster sweeps hardly move.

    A chain starts in a ground state with a random sign and, if frustrated, a domain wall at a random position. A random
    start would freeze cold chains into stripes or winding walls, which these updates do not remove.

    The same arguments give the same states. All chains share one random generator, so the states of a chain depend on
    the number of chains. (A generator for each chain would take longer than the sweeps.)

    Returns n = temperatures x chains x samples states, in this order: `spins` int8 (n, height, width) of +-1, and of
    shape (n,) `temperature`, `chain` (index of the Markov chain; split data by it, since states of a chain are
    correlated), `energy` and `magnetisation` per spin.
    """
    height, width = (size, size) if isinstance(size, int) else size
    check_coupling(coupling)
    heat = check_temperatures(temperatures).repeat(chains)
    rng = np.random.default_rng(seed)
    spins = _ground_states(rng, len(heat), height, width, boundary, coupling)
    kept = np.empty((len(heat), samples, height, width), np.int8)
    for done in range(1, WARM_UP + samples * UPDATES_BETWEEN_STATES + 1):
        spins = swendsen_wang(spins, heat, rng, boundary, coupling)
        for _ in range(METROPOLIS_SWEEPS):
            spins = metropolis(spins, heat, rng, boundary, coupling)
        sample, rest = divmod(done - WARM_UP, UPDATES_BETWEEN_STATES)
        if sample > 0 and rest == 0:
            kept[:, sample - 1] = spins
    states = kept.reshape(-1, height, width)
    return {
        "spins": states,
        "temperature": heat.repeat(samples),
        "chain": np.arange(len(heat)).repeat(samples),
        "energy": energy(states, boundary, coupling),
        "magnetisation": states.mean((1, 2), dtype=np.float64),
    }


def _ground_states(
    rng: np.random.Generator, chains: int, height: int, width: int, boundary: str, coupling: float
) -> Spins:
    """Ground states with random signs: uniform, or a checkerboard if J < 0.

    If the bonds across a border are unsatisfied, there is a domain wall at the border. Flipping the spins before a
    random column (or row) moves the wall to a random position.
    """
    bonds = find_bonds(height, width, boundary)
    row, column = np.divmod(np.arange(height * width), width)
    pattern = 1 - 2 * ((row + column) % 2) if coupling < 0 else np.ones_like(row)
    spins = pattern * rng.choice((-1, 1), (chains, 1))
    for place, length, other, sign in (
        (column, width, bonds.right, bonds.right_sign),
        (row, height, bonds.below, bonds.below_sign),
    ):
        border = place == length - 1
        if (coupling * sign * pattern * pattern[other])[border].mean() < 0:
            spins[place < rng.integers(0, length, (chains, 1))] *= -1
    return spins.astype(np.int8).reshape(chains, height, width)


def _random_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Random 32-bit integers, drawn as 64-bit integers in half the time."""
    count = math.prod(shape)
    return rng.integers(0, 2**64, (count + 1) // 2, np.uint64).view(np.uint32)[:count].reshape(shape)


def _threshold(probability: Floats) -> NDArray[np.uint32]:
    """Integer thresholds t with P(random 32-bit integer < t) = `probability`."""
    return np.minimum(np.rint(probability * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _sites_first(spins: Spins) -> Spins:
    """Copy spins (chains, height, width) to (N, chains), for fast access by site."""
    return np.moveaxis(spins, 0, -1).copy(order="C").reshape(-1, len(spins))


def _chains_first(state: Spins, shape: tuple[int, ...]) -> Spins:
    return np.moveaxis(state.reshape(*shape[1:], shape[0]), -1, 0)


# Checks of arguments


def check_temperatures(temperatures: ArrayLike) -> Floats:
    """Convert temperatures to float64; refuse zero, negative and non-finite values."""
    heat = np.asarray(temperatures, np.float64)
    wrong = heat[~((heat > 0) & np.isfinite(heat))]
    if wrong.size:
        raise UserError(
            f"temperatures must be positive and finite, but found {wrong.flat[0]}",
            hint="T is in units of J / k_B: T_c is 2.269 for J = 1.",
        )
    return heat


def check_coupling(coupling: float) -> None:
    """Refuse a coupling of 0, NaN or infinity."""
    if not math.isfinite(coupling) or coupling == 0:
        raise UserError(
            f"data.coupling must be finite and not 0, but is {coupling!r}",
            hint="Use 1 for a ferromagnet, -1 for an antiferromagnet.",
            key="data.coupling",
        )
