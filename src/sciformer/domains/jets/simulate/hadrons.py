"""Hadronisation: decays of clusters and of b and c hadrons, with their vertices.

All decays are two-body decays with exact kinematics, isotropic at rest. A cluster decays to two hadrons, rho to two
pions, pi0 and eta to two photons. A b hadron decays to a c hadron and a virtual W, a c hadron to a kaon and a virtual
W. The virtual W becomes a lepton and a neutrino, or two clusters. Decay vertices are tracked in mm, in the frame of the
momenta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .kinematics import Floats, Rows, decay, isotropic_directions

PION, KAON, PROTON, KAON0, NEUTRON, PHOTON, ELECTRON, MUON, NEUTRINO = range(9)
PION0, ETA, RHO, RHO0, CLUSTER, D_HADRON, B_HADRON = range(9, 16)
MASSES = np.array(
    [0.1396, 0.4937, 0.9383, 0.4976, 0.9396, 0, 0.000511, 0.1057, 0, 0.135, 0.5479, 0.775, 0.775, 0, 1.87, 5.28],
    np.float32,
)
LAST_STABLE = NEUTRINO  # kinds up to this index are stable
IS_CHARGED = np.isin(np.arange(16), [PION, KAON, PROTON, ELECTRON, MUON, RHO])

# Decay channels of a cluster and their relative rates.
CHANNELS: dict[tuple[int, int], float] = {
    (PION, PION): 18, (PION0, PION0): 3, (PION, PION0): 12, (ETA, PION): 2, (ETA, PION0): 1,
    (RHO, PION): 7.1, (RHO, PION0): 2.7, (RHO0, PION): 8.9, (RHO0, PION0): 2.7, (RHO, RHO): 2.4, (RHO, RHO0): 3.9,
    (KAON, PION): 7, (KAON, PION0): 3, (KAON0, PION): 11.5, (KAON0, PION0): 5.1, (KAON, RHO): 2.7, (KAON0, RHO): 3.4,
    (KAON0, RHO0): 4.5, (KAON, KAON): 3, (KAON0, KAON0): 6.5, (KAON, KAON0): 5.1,
    (PROTON, PROTON): 2, (NEUTRON, NEUTRON): 4.9, (PROTON, NEUTRON): 5.1, (PROTON, PION): 5, (NEUTRON, PION): 7.7,
}  # fmt: skip
LIGHT_CHANNELS: dict[tuple[int, int], float] = {(PION, PION): 5, (PION0, PION0): 2, (PION, PION0): 5}
LOOKUP_SIZE = 4096

LIFETIME_B = 0.455  # mm
# D0, D+, Ds and a baryon, in proportion to their shares.
LIFETIME_D = np.array([0.123] * 11 + [0.312] * 5 + [0.15] * 3 + [0.06])  # mm
LEPTON_SHARES = {B_HADRON: 0.115, D_HADRON: 0.09}  # share of decays to an electron; equal for muons
MIN_SPLIT_MASS = 0.921  # GeV, minimum mass to split a cluster of a heavy decay in two
DALITZ_SHARE = 0.012  # share of pi0 and eta with an electron pair instead of a photon


def _channel_lookup(channels: dict[tuple[int, int], float]) -> Floats:
    """Lookup table (2, LOOKUP_SIZE) of decay channels, in proportion to their rates."""
    stops = np.cumsum(list(channels.values()))
    place = np.searchsorted(stops, (np.arange(LOOKUP_SIZE) + 0.5) / LOOKUP_SIZE * stops[-1])
    return np.array(list(channels), np.int8).T[:, place]


CHANNEL_TABLE, LIGHT_CHANNEL_TABLE = _channel_lookup(CHANNELS), _channel_lookup(LIGHT_CHANNELS)


@dataclass
class ParticleArray(Rows):
    """Particles: momenta (4, n), kind, charge, jet index, vertex index (0: primary)."""

    p: Floats
    kind: Floats
    charge: Floats
    jet: Floats
    vertex: Floats

    def next(self, p: Floats, kind: Floats | int, charge: Floats | int = 0) -> ParticleArray:
        """Make a decay product of each particle, with the same jet and vertex."""
        both = np.empty((2, len(self)), np.int8)
        both[0], both[1] = kind, charge
        return ParticleArray(p, both[0], both[1], self.jet, self.vertex)


def hadronise_clusters(
    clusters: ParticleArray, mass: Floats, heavy: ParticleArray, rng: np.random.Generator
) -> tuple[ParticleArray, Floats]:
    """Decay clusters, b hadrons and c hadrons; return particles and vertices (4, V).

    The particles include decayed particles; particles of a kind up to LAST_STABLE are final.
    """
    vertices = [np.zeros((4, 1), np.float32)]
    crowds, masses, stable = [clusters], [mass], []
    for kind in (B_HADRON, D_HADRON):
        parents = heavy.take(np.flatnonzero(heavy.kind == kind))
        if not len(parents):
            continue
        parents = _decay_vertices(parents, kind, vertices, rng)
        child, virtual, size, leptonic = _weak_decay(parents, kind, rng)
        if kind == B_HADRON:
            heavy = ParticleArray.join([heavy, child])
        else:
            stable.append(child)
        stable += _leptonic_decay(virtual.take(leptonic), size[leptonic], rng)
        others = np.setdiff1d(np.arange(len(size)), leptonic, assume_unique=True)
        pair, sizes = _split_clusters(virtual.take(others), size[others], rng)
        crowds.append(pair)
        masses.append(sizes)
    hadrons = _decay_clusters(ParticleArray.join(crowds), np.concatenate(masses), rng)
    made = [hadrons, *_decay_rho(hadrons.take(np.flatnonzero(hadrons.kind >= RHO)), rng)]
    bright = ParticleArray.join([some.take(np.flatnonzero((some.kind == PION0) | (some.kind == ETA))) for some in made])
    return ParticleArray.join([*made, *_decay_to_photons(bright, rng), *stable]), np.concatenate(vertices, 1)


def _decay_vertices(
    parents: ParticleArray, kind: int, vertices: list[Floats], rng: np.random.Generator
) -> ParticleArray:
    """Append the vertices of decays.

    vertex = production vertex + momentum * proper time / mass
    """
    n = len(parents)
    life = LIFETIME_B if kind == B_HADRON else LIFETIME_D[rng.integers(0, len(LIFETIME_D), n)]
    path = (life * rng.standard_exponential(n) / MASSES[kind]).astype(np.float32)
    first = sum(known.shape[1] for known in vertices)
    came = np.concatenate(vertices, 1).take(parents.vertex, 1)
    vertices.append(came + parents.p * path)
    return replace(parents, vertex=np.arange(first, first + n))


def _weak_decay(
    parents: ParticleArray, kind: int, rng: np.random.Generator
) -> tuple[ParticleArray, ParticleArray, Floats, Floats]:
    """Weak decays B -> D W* and D -> K W*.

    Returns the hadrons, the W*, the masses of the W*, and the rows of leptonic W* decays.
    """
    n = len(parents)
    drawn = rng.random((4, n), np.float32)
    leptonic = drawn[0] < 2 * LEPTON_SHARES[kind]
    if kind == B_HADRON:
        child = np.full(n, D_HADRON, np.int8)
        size = np.where(leptonic, np.sqrt(0.1 + 11 * np.sqrt(drawn[1])), 1.2 + 2.1 * drawn[1])
    else:
        child = np.where(drawn[2] < 0.5, KAON, KAON0).astype(np.int8)
        size = np.where(leptonic, 0.2 + 1.1 * drawn[1], 0.5 + 0.87 * drawn[1])
    own = np.full(n, MASSES[kind])
    a, b = decay(parents.p, own, MASSES[child], size, isotropic_directions(rng, n))
    sign = np.where(drawn[3] < 0.5, 1, -1) * IS_CHARGED[child]
    return parents.next(a, child, sign), parents.next(b, CLUSTER), size, np.flatnonzero(leptonic)


def _leptonic_decay(virtual: ParticleArray, mass: Floats, rng: np.random.Generator) -> list[ParticleArray]:
    n = len(virtual)
    drawn = rng.random((2, n))
    kind = np.where(drawn[0] < 0.5, ELECTRON, MUON).astype(np.int8)
    a, b = decay(virtual.p, mass, MASSES[kind], np.zeros(1, np.float32), isotropic_directions(rng, n))
    return [virtual.next(a, kind, np.where(drawn[1] < 0.5, 1, -1)), virtual.next(b, NEUTRINO)]


def _split_clusters(whole: ParticleArray, mass: Floats, rng: np.random.Generator) -> tuple[ParticleArray, Floats]:
    big, rest = np.flatnonzero(mass > MIN_SPLIT_MASS), np.flatnonzero(mass <= MIN_SPLIT_MASS)
    parents, size = whole.take(big), mass[big]
    drawn = rng.random((2, len(big)), np.float32)
    first = 0.3 + drawn[0] * (0.6 * size - 0.3)
    second = 0.3 + drawn[1] * (size - first - 0.3) * np.float32(0.9)
    a, b = decay(parents.p, size, first, second, isotropic_directions(rng, len(big)))
    pair = ParticleArray.join([parents.next(a, CLUSTER), parents.next(b, CLUSTER), whole.take(rest)])
    return pair, np.concatenate([first, second, mass[rest]])


def _decay_clusters(clusters: ParticleArray, mass: Floats, rng: np.random.Generator) -> ParticleArray:
    """Decay each cluster to two hadrons with a sum of masses below the cluster mass."""
    n = len(clusters)
    drawn = rng.integers(0, LOOKUP_SIZE, (2, n), np.uint16)
    one, two = CHANNEL_TABLE.take(drawn[0], 1)
    heavy = np.flatnonzero(MASSES.take(one) + MASSES.take(two) >= mass)
    one[heavy], two[heavy] = LIGHT_CHANNEL_TABLE[:, drawn[0, heavy]]
    tiny = heavy[mass[heavy] < 2 * MASSES[PION]]
    one[tiny] = two[tiny] = PHOTON
    a, b = decay(clusters.p, mass, MASSES.take(one), MASSES.take(two), isotropic_directions(rng, n))
    sign = ((drawn[1] & 1) << 1).astype(np.int8) - 1
    first, second = sign * IS_CHARGED.take(one), -sign * IS_CHARGED.take(two)
    return ParticleArray.join([clusters.next(a, one, first), clusters.next(b, two, second)])


def _decay_rho(parents: ParticleArray, rng: np.random.Generator) -> list[ParticleArray]:
    n = len(parents)
    charged = parents.kind == RHO
    second = np.where(charged, PION0, PION).astype(np.int8)
    pion = np.full(n, MASSES[PION])
    a, b = decay(parents.p, MASSES[parents.kind], pion, MASSES[second], isotropic_directions(rng, n))
    sign = np.where(charged, parents.charge, 1)
    return [parents.next(a, PION, sign), parents.next(b, second, np.where(charged, 0, -1))]


def _decay_to_photons(parents: ParticleArray, rng: np.random.Generator) -> list[ParticleArray]:
    """Decay pi0 and eta to two photons, rarely to a photon and an electron pair."""
    n = len(parents)
    none = np.zeros(1, np.float32)
    a, b = decay(parents.p, MASSES[parents.kind], none, none, isotropic_directions(rng, n))
    pair = rng.random(n, np.float32) < DALITZ_SHARE
    single, rows = parents.take(np.flatnonzero(~pair)), np.flatnonzero(pair)
    made = [parents.next(b, PHOTON), single.next(a.take(np.flatnonzero(~pair), 1), PHOTON)]
    share, parents, a = rng.random(len(rows), np.float32), parents.take(rows), a.take(rows, 1)
    return [*made, parents.next(a * share, ELECTRON, 1), parents.next(a * (1 - share), ELECTRON, -1)]
