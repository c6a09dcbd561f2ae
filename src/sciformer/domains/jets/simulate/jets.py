"""Jets of the ten classes of JetClass, made from nothing, some twenty thousand in a second on one core.

    table = jets(100_000, seed=1)           # columns part_px ... label, as a file of JetClass gives them
    table = jets(1000, first=5_000_000)     # the jets 5,000,000 to 5,000,999 of the same endless sequence

What it is: a toy with the right anatomy. Resonances decay with exact kinematics into two, three or four prongs
(decays.py); partons branch at ever smaller angles (shower.py); resonances keep their four-momentum (systems.py);
clusters become hadrons, photons and leptons, b and c hadrons fly before they decay (hadrons.py); a toy detector smears
and misses (detector.py). Some twenty constants were fitted (benchmarks/jets_fit.py), so that multiplicities, masses,
shares of momentum, of charge and of types, and displaced tracks of each class come near those of Pythia 8 jets behind
the same toy detector: the training part of those in benchmarks/jets.py, not what is kept for its test.
benchmarks/jets_generator.py prints how near they are.

What it is not: a prediction. There is no matrix element, no colour connection between jets, no interference, no spin
beyond the decay angles of W and Z; hadrons come from clusters of one parton, charge and strangeness are balanced
inside a cluster only; the underlying event is flat; the cone replaces anti-kT. `jet_sdmass` is the mass of what is left
when thin regions are cut away (`groomed_masses`), not a soft drop mass. Train on it to learn, to test, to pretrain;
measure physics on a real generator (`sciformer simulate jets --engine pythia`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ....data.columns import Array, Lists
from ....data.readers.sequence import SEQUENCES, check_range, draw_chunk_classes, sample_sequence
from ....errors import UserError, one_of
from .decays import CLASSES, JET_RADIUS, Prongs, draw_prongs
from .detector import DetectedParticles, detect_jets, four_vectors, impact_errors, jet_momenta, join_detected
from .kinematics import TWO_PI, Floats
from .systems import shower_particles

VERSION = 2  # of what is made; another one makes other jets
JETS_PER_CHUNK = (
    2048  # jets made at a time; what is random in them is a function of the seed, the classes and their number
)
MAX_PARTICLES = 128  # particles of a jet
MIN_PT, MAX_PT, MAX_ETA = 500.0, 1000.0, 2.0  # GeV and |eta| of a jet
CANDIDATES_PER_JET = np.array(
    [1.27, 1.74, 1.66, 1.48, 1.78, 3.0, 1.5, 1.52, 2.05, 3.35]
)  # candidates for a jet that is kept
GROOMING_CELLS, MIN_CELL_PT_SHARE = (
    12,
    0.05,
)  # of `groomed_masses`: cells on a side, and the share of pT that nine of them must have
ROW_BITS = 20  # bits of a number of a particle when they are sorted
PARTICLE_COLUMNS = ("px", "py", "pz", "energy", "deta", "dphi", "d0val", "d0err", "dzval", "dzerr", "charge")
TYPE_FLAGS = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
JET_COLUMNS = ("jet_pt", "jet_eta", "jet_phi", "jet_energy", "jet_nparticles", "jet_sdmass")
BRANCHES = (
    *(f"part_{name}" for name in PARTICLE_COLUMNS + TYPE_FLAGS),
    *JET_COLUMNS,
    *(f"label_{name}" for name in CLASSES),
)


def jets(
    number: int, seed: int = 0, classes: Sequence[str] = CLASSES, first: int = 0, part: str = "file"
) -> dict[str, Array | Lists]:
    """The jets first, first + 1, ... of a sequence of rounds, each with every class once, in random order.

    A pure function of its arguments, whatever is asked for in one go; parts of the same seed have no jet in common.
    Other processors may round the last bit of a number otherwise.
    """
    check_range("jets", number, seed, first, part, "1 jet or more")
    key, numbers = (seed, SEQUENCES.index(part)), tuple(check_classes(classes))
    return sample_sequence(number, first, JETS_PER_CHUNK, lambda index: make_chunk(key, index, numbers))


def draw_labels(
    number: int, seed: int = 0, classes: Sequence[str] = CLASSES, first: int = 0, part: str = "file"
) -> Array:
    """The classes of these jets, which are drawn before the jets are made."""
    key, kinds = (VERSION, seed, SEQUENCES.index(part)), check_classes(classes)
    found = sample_sequence(
        number,
        first,
        JETS_PER_CHUNK,
        lambda index: {"label": draw_chunk_classes((*key, index), kinds, JETS_PER_CHUNK)[1]},
    )
    return np.array(CLASSES)[found["label"]]


def check_classes(classes: Sequence[str]) -> list[int]:
    """The numbers of some classes."""
    if not len(classes):
        raise UserError("there are no classes of jets", hint=f"Choose some of {', '.join(CLASSES)}.")
    for name in classes:
        one_of("a class of jets", name, CLASSES)
    if len(set(classes)) < len(classes):
        raise UserError(f"each class of jets must be named once, not {', '.join(classes)}")
    return [CLASSES.index(name) for name in classes]


@lru_cache(maxsize=1)
def make_chunk(seed: tuple[int, int], index: int, classes: tuple[int, ...]) -> dict[str, Array | Lists]:
    """JETS_PER_CHUNK jets, the same for the same arguments."""
    rng, wanted = draw_chunk_classes((VERSION, *seed, index), classes, JETS_PER_CHUNK)
    slots = [np.flatnonzero(wanted == number) for number in range(len(CLASSES))]  # places still to be filled
    found, azimuth, momenta = [], np.empty(JETS_PER_CHUNK), np.empty((4, JETS_PER_CHUNK))
    while any(map(len, slots)):
        tries = [int(len(free) * more) + 8 if len(free) else 0 for free, more in zip(slots, CANDIDATES_PER_JET)]
        prongs = draw_prongs(np.repeat(np.arange(len(CLASSES)), tries), rng)
        prongs = prongs.take(np.flatnonzero(_may_pass_cuts(prongs)))
        crowd, vertices = shower_particles(prongs, rng)
        seen, sums = detect_jets(crowd, vertices, prongs, rng)
        place = np.full(len(prongs), -1)
        good = _passes_cuts(prongs, sums)
        for number, free in enumerate(slots):
            rows = np.flatnonzero(good & (prongs.label == number))[: len(free)]
            place[rows], slots[number] = free[: len(rows)], free[len(rows) :]
        rows = np.flatnonzero(place >= 0)
        azimuth[place[rows]], momenta[:, place[rows]] = prongs.azimuth[rows], sums[:, rows]
        seen.phi += prongs.azimuth.astype(np.float32).take(seen.jet)
        seen.jet = place.take(seen.jet)
        found.append(seen)
    return jet_columns(join_detected(found), momenta, azimuth, wanted)


def _may_pass_cuts(prongs: Prongs) -> Floats:
    """Candidates that may pass the cuts, by their prongs alone."""
    seen = np.where(prongs.visible[:, None], prongs.vectors[:, :2], 0).sum(0)
    pt = np.hypot(seen[0], seen[1])
    return prongs.together() & (np.abs(prongs.rapidity) < MAX_ETA + 0.05) & (pt > MIN_PT - 15) & (pt < MAX_PT + 100)


def _passes_cuts(prongs: Prongs, momenta: Floats) -> Floats:
    """Which jets pass the cuts: pT, direction, and all prongs that can be seen within the radius."""
    pt = np.hypot(momenta[0], momenta[1])
    eta = np.arcsinh(momenta[2] / pt)
    local = momenta.copy()  # in the frame of the prongs, but for the mass
    local[2] = pt * np.sinh(eta - prongs.rapidity)
    inside = ((prongs.distance(local) < JET_RADIUS) | ~prongs.visible).all(0)
    return inside & (pt >= MIN_PT) & (pt <= MAX_PT) & (np.abs(eta) < MAX_ETA)


def jet_columns(seen: DetectedParticles, momenta: Floats, azimuth: Floats, label: Floats) -> dict[str, Array | Lists]:
    """The columns of jets with these momenta (4, n) and classes (n,), the hardest particles of each first.

    Azimuths of the momenta are counted from `azimuth` (n,), those of the particles are not. A jet of -1 is none.
    """
    lengths = np.bincount(seen.jet + 1, minlength=len(label) + 1)
    order = _hardest_first(seen)[lengths[0] :]  # the others have jet -1
    lengths = lengths[1:]
    if lengths.max() > MAX_PARTICLES:
        order = order[np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths) < MAX_PARTICLES]
        lengths = np.minimum(lengths, MAX_PARTICLES)
    seen = seen.take(order)
    pt = np.hypot(momenta[0], momenta[1])
    eta = np.arcsinh(momenta[2] / pt)
    phi = np.remainder(np.arctan2(momenta[1], momenta[0]) + azimuth + np.pi, TWO_PI) - np.pi
    p, charged = four_vectors(seen), seen.charge != 0
    sign = np.where(eta < 0, -1, 1).astype(np.float32)
    deta = sign.take(seen.jet) * (seen.eta - eta.astype(np.float32).take(seen.jet))
    dphi = seen.phi - phi.astype(np.float32).take(seen.jet)
    dphi -= np.float32(TWO_PI) * np.rint(dphi / np.float32(TWO_PI))
    error = [np.where(charged, one, 0) for one in impact_errors(seen.pt)]
    values = [*p, deta, dphi, seen.d0, error[0], seen.dz, error[1], seen.charge.astype(np.float32)]
    made: dict[str, Array | Lists] = {
        f"part_{name}": Lists(column, lengths) for name, column in zip(PARTICLE_COLUMNS, values)
    }
    made |= {
        f"part_{name}": Lists((seen.type == number).astype(np.int32), lengths) for number, name in enumerate(TYPE_FLAGS)
    }
    mass = groomed_masses(seen, p, deta, dphi, len(label))
    jet = (pt, eta, phi, momenta[3], lengths, mass)
    made |= {name: np.asarray(column, np.float32) for name, column in zip(JET_COLUMNS, jet)}
    made |= {
        f"label_{name}": (label == number).astype(np.float32 if name == "QCD" else np.int32)
        for number, name in enumerate(CLASSES)
    }
    return made | {"label": np.array(CLASSES)[label]}


def _hardest_first(seen: DetectedParticles) -> Floats:
    """Rows by jet, and by falling pT in it; to sort whole numbers takes a seventh of the time of to sort rows."""
    assert len(seen) < 1 << ROW_BITS
    hard = seen.pt.astype(np.float32).view(np.uint32)  # as whole numbers, positive floats have the same order
    key = (seen.jet + 1).astype(np.uint64) << np.uint64(31 + ROW_BITS)
    key |= (np.uint32(0x7FFFFFFF) - hard).astype(np.uint64) << np.uint64(ROW_BITS)
    key |= np.arange(len(seen), dtype=np.uint64)
    key.sort()
    return (key & np.uint64((1 << ROW_BITS) - 1)).astype(np.intp)


def groomed_masses(seen: DetectedParticles, p: Floats, deta: Floats, dphi: Floats, n: int) -> Floats:
    """The masses of jets without their thin regions: particles in cells around which nine hold little of the pT."""
    width = np.float32(GROOMING_CELLS / (2 * JET_RADIUS))
    wide = GROOMING_CELLS + 2  # with a border, so that neighbours are neighbours in memory
    inside = [
        np.clip((x * width + GROOMING_CELLS / 2).astype(np.int32), 0, GROOMING_CELLS - 1) + 1 for x in (deta, dphi)
    ]
    cell = (seen.jet * wide + inside[0]) * wide + inside[1]
    grid = np.bincount(cell, seen.pt, n * wide * wide).astype(np.float32)
    for step in (1, wide):
        near = grid.copy()
        near[step:] += grid[:-step]
        near[:-step] += grid[step:]
        grid = near
    whole = np.bincount(seen.jet, seen.pt, n).astype(np.float32)
    kept = np.flatnonzero(grid.take(cell) > np.float32(MIN_CELL_PT_SHARE) * whole.take(seen.jet))
    x, y, z, e = jet_momenta(seen, n, p, kept)
    return np.sqrt(np.maximum(e * e - x * x - y * y - z * z, 0))
