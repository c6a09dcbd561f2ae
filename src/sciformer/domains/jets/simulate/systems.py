"""Showers of resonances: shower at rest, rescale to the resonance mass, boost.

A resonance that decays into quarks or gluons showers in its rest frame. Multiplicity and shape then do not depend on
its momentum. The shower conserves momentum but adds energy. Therefore all momenta p of a resonance of mass M are scaled
by the solution k of sum sqrt(k^2 p^2 + m^2) = M, and boosted: the sum is exactly the four-momentum of the resonance. In
a top quark, the W is one of the summed members. Jets without a resonance, and soft jets from elsewhere in the event,
shower in the jet frame without rescaling.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import hadrons
from .decays import BOTTOM, CHARM, ELECTRON, H4Q, HQQL, JET_RADIUS, MUON, QCD, TBL, TBQQ, Prongs
from .hadrons import B_HADRON, CLUSTER, D_HADRON, MASSES, ParticleArray, hadronise_clusters
from .kinematics import Floats, boost
from .shower import FLAVOUR_BITS, shower, split_momentum

MAX_JET_SCALE = 0.572  # starting scale of a jet without a resonance, in units of its pT
MAX_TOP_B_SCALE = 0.859  # starting scale of the b in a top quark, in units of twice its energy
SOFT_JETS, SOFT_JETS_TOP = 0.32, 0.673  # mean number of additional soft jets, in general and with a top quark
MIN_SOFT_PT, MAX_SOFT_PT = 4.0, 250.0  # GeV
SOFT_PT_POWER, SOFT_PT_POWER_TOP = 0.532, 0.315  # exponents of their integrated pT spectrum
# Beta distributions of the momentum fraction of a heavy hadron.
B_FRAGMENTATION, C_FRAGMENTATION = (9.0, 0.982), (4.0, 1.055)
TRANSVERSE_KICK = 0.35  # GeV, transverse momentum in fragmentation
MIN_CLUSTER_MASS, CLUSTER_MASS_SCALE = 0.35, 0.42  # GeV: minimum mass of a cluster, and scale of the excess


class ShowerSystems(NamedTuple):
    """Systems of partons showered together, such as the products of a resonance.

    jet     jet index
    mass    mass of the resonance (0: no rescaling)
    frame   (4, n) momentum of the resonance
    """

    jet: Floats
    mass: Floats
    frame: Floats


class SystemGroup(NamedTuple):
    """Shower systems of one type, with their first partons.

    jet, mass, frame   as in `ShowerSystems`
    partons            momenta (3, n) and flavours of the first partons
    scale              starting scale of the shower
    """

    jet: Floats
    mass: Floats
    frame: Floats
    partons: list[tuple[Floats, Floats]]
    scale: Floats


def shower_particles(prongs: Prongs, rng: np.random.Generator, extra: bool = True) -> tuple[ParticleArray, Floats]:
    """Particles of jets before detection, including neutrinos, and decay vertices.

    Momenta are in the frame of the jet (see decays.py). Decayed particles are included, with kinds above LAST_STABLE.

    extra    whether to add soft jets from elsewhere in the event
    """
    systems, p, tag, scale, tops = _start_systems(prongs, rng, extra)
    p, tag = shower(p, tag, scale, rng)
    p, kind, mass, place = _fragment_partons(p, tag, rng)
    p, energy, (quark, leptonic) = _rescale_momenta(p, mass, place, systems, prongs, tops, kind >= D_HADRON)
    systems.frame[:, quark[0]] = quark[1]
    moving = np.empty((4, len(mass)), np.float32)
    moving[:3], moving[3] = p, energy
    free = systems.mass == 0
    systems.frame[:, free] = np.array([[0], [0], [0], [1]])  # identity: already in the jet frame
    frames, masses = systems.frame.astype(np.float32), np.where(free, 1, systems.mass).astype(np.float32)
    moving = boost(moving, frames.take(place, 1), masses.take(place))
    n = len(mass)
    crowd = ParticleArray(moving, kind, np.zeros(n, np.int8), systems.jet.take(place), np.zeros(n, np.intp))
    soft, heavy = np.flatnonzero(kind == CLUSTER), np.flatnonzero(kind != CLUSTER)
    made, vertices = hadronise_clusters(crowd.take(soft), mass[soft], crowd.take(heavy), rng)
    return ParticleArray.join([made, *_prompt_leptons(prongs, leptonic, rng)]), vertices


def _start_systems(
    prongs: Prongs, rng: np.random.Generator, extra: bool
) -> tuple[ShowerSystems, Floats, Floats, Floats, tuple[Floats, Floats]]:
    """Make the systems of all jets and their first partons.

    Returns systems; momenta, tags and scales of the partons; system indices of top quarks and of their W.
    """
    label, n = prongs.label, len(prongs)
    jets = np.arange(n)
    qcd, four, top = label == QCD, (label == H4Q) | (label == HQQL), label >= TBQQ
    two = ~(qcd | four | top)
    half = prongs.turns[0] * (prongs.mass / 2)
    rows = jets[qcd]
    along = np.zeros((3, len(rows)))
    along[0] = prongs.pt[rows]
    started = [(along, prongs.flavour[0, rows])]
    groups = [SystemGroup(rows, np.zeros(len(rows)), prongs.parent[:, rows], started, MAX_JET_SCALE * along[0])]
    rows = jets[two]
    mass = prongs.mass[rows]
    started = [(sign * half[:, rows], prongs.flavour[side, rows]) for side, sign in enumerate((1, -1))]
    groups.append(SystemGroup(rows, mass, prongs.parent[:, rows], started, mass))
    rows = jets[top]
    mass = prongs.mass[rows]
    length = (mass**2 - prongs.inner[0, rows] ** 2) / (2 * mass)
    started = [(prongs.turns[0][:, rows] * length, prongs.flavour[0, rows])]
    groups.append(SystemGroup(rows, mass, prongs.parent[:, rows], started, MAX_TOP_B_SCALE * 2 * length))
    for boson, kept, first in ((0, four, 0), (1, label == H4Q, 2), (0, label == TBQQ, 1)):
        rows = jets[kept]
        mass = prongs.inner[boson, rows]
        w = prongs.turns[1 + boson][:, rows] * (mass / 2)
        started = [(w, prongs.flavour[first, rows]), (-w, prongs.flavour[first + 1, rows])]
        groups.append(SystemGroup(rows, mass, prongs.bosons[boson][:, rows], started, mass))
    if extra:
        groups.append(_draw_soft_jets(top, rng))
    stops = np.cumsum([len(group.jet) for group in groups])
    systems = ShowerSystems(*(np.concatenate(column, -1) for column in list(zip(*groups))[:3]))
    places = np.split(np.arange(stops[-1], dtype=np.int32), stops[:-1])
    p, tag, scale = [], [], []
    for place, group in zip(places, groups):
        for momenta, flavour in group.partons:
            p.append(momenta)
            tag.append(place << FLAVOUR_BITS | flavour)
            scale.append(group.scale)
    tops = places[2], places[5]
    return systems, np.concatenate(p, 1).astype(np.float32), np.concatenate(tag), np.concatenate(scale), tops


def _draw_soft_jets(top: Floats, rng: np.random.Generator) -> SystemGroup:
    rows = np.repeat(np.arange(len(top)), rng.poisson(np.where(top, SOFT_JETS_TOP, SOFT_JETS)))
    drawn = rng.random((3, len(rows)))
    power = np.where(top[rows], -SOFT_PT_POWER_TOP, -SOFT_PT_POWER)
    pt = (MIN_SOFT_PT**power + drawn[0] * (MAX_SOFT_PT**power - MIN_SOFT_PT**power)) ** (1 / power)
    away, azimuth = (2 * drawn[1:] - 1) * 1.1
    p = np.stack([pt * np.cos(azimuth), pt * np.sin(azimuth), pt * np.sinh(away)])
    zero = np.zeros(len(rows))
    return SystemGroup(rows, zero, np.zeros((4, len(rows))), [(p, zero.astype(np.int8))], pt * JET_RADIUS)


def _fragment_partons(p: Floats, tag: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Fragment partons into clusters and heavy hadrons.

    Returns momenta, kinds, masses and system indices.
    """
    flavour, place = tag & (1 << FLAVOUR_BITS) - 1, (tag >> FLAVOUR_BITS).astype(np.intp)
    kind = np.full(len(tag), CLUSTER, np.int8)
    left, places = [p], [place]
    for quark, hadron, (a, b) in ((BOTTOM, B_HADRON, B_FRAGMENTATION), (CHARM, D_HADRON, C_FRAGMENTATION)):
        rows = np.flatnonzero(flavour == quark)
        kind[rows] = hadron
        share = rng.beta(a, b, len(rows)).astype(np.float32)
        kick = np.float32(TRANSVERSE_KICK) * np.sqrt(rng.standard_exponential(len(rows), np.float32))
        kept, rest = split_momentum(p.take(rows, 1), share, kick, rng.random(len(rows), np.float32))
        p[:, rows] = kept
        left.append(rest)
        places.append(place[rows])
    p, place = np.concatenate(left, 1), np.concatenate(places)
    kind = np.concatenate([kind, np.full(len(place) - len(kind), CLUSTER, np.int8)])
    drawn = rng.random((2, len(place)), np.float32)
    mass = np.float32(MIN_CLUSTER_MASS) - np.float32(CLUSTER_MASS_SCALE) * (np.log1p(-drawn[0]) + np.log1p(-drawn[1]))
    heavy = np.flatnonzero(kind != CLUSTER)
    mass[heavy] = MASSES[kind[heavy]]
    return p, kind, mass, place


def _rescale_momenta(
    p: Floats,
    mass: Floats,
    place: Floats,
    systems: ShowerSystems,
    prongs: Prongs,
    tops: tuple[Floats, Floats],
    heavy: Floats,
) -> tuple[Floats, Floats, tuple[tuple[Floats, Floats], tuple[Floats, Floats]]]:
    """Scale the momenta of each system, in its rest frame, to the mass of the system.

    Returns the momenta and energies of the particles, and the boosted W bosons of the top quarks as two pairs:
    (systems, momenta) of the hadronic W, then (jets, momenta) of the leptonic W.
    """
    count = len(systems.mass)
    rows = np.flatnonzero(prongs.label >= TBQQ)
    squared = (p * p).sum(0, dtype=np.float64)
    inner, away = prongs.inner[0, rows], (prongs.mass[rows] ** 2 - prongs.inner[0, rows] ** 2) / (2 * prongs.mass[rows])
    members, at = np.concatenate([squared, away**2]), np.concatenate([place, tops[0]])
    # Limit cluster masses to 70 % of the mass left by heavy hadrons and the W.
    fixed = np.bincount(at, np.concatenate([mass * heavy, inner]), count)
    light = np.bincount(place, mass * ~heavy, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(systems.mass > 0, np.minimum(1, 0.7 * (systems.mass - fixed) / light), 1.0)
    mass *= np.where(heavy, 1, shrink[place])
    masses = np.concatenate([mass, inner]).astype(np.float64) ** 2
    k = np.ones(count)
    bound = systems.mass > 0
    for _ in range(5):
        energy = np.sqrt(k[at] ** 2 * members + masses)
        slope = np.bincount(at, members / energy, count) * k
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (np.bincount(at, energy, count) - systems.mass) / slope
        k = np.where(bound, np.maximum(k - step, 0.1 * k), 1.0)
    energy = np.sqrt(k[at] ** 2 * members + masses)
    frames = systems.frame[:, tops[0]]
    away = -prongs.turns[0][:, rows] * (away * k[tops[0]])
    flown = boost(np.concatenate([away, np.hypot(np.sqrt((away**2).sum(0)), inner)[None]]), frames, prongs.mass[rows])
    leptonic = prongs.label[rows] == TBL
    quarks = tops[1], flown[:, ~leptonic]
    return p * k[place].astype(np.float32), energy[: len(place)], (quarks, (rows[leptonic], flown[:, leptonic]))


def _prompt_leptons(prongs: Prongs, leptonic: tuple[Floats, Floats], rng: np.random.Generator) -> list[ParticleArray]:
    higgs = np.flatnonzero(prongs.label == HQQL)
    made = []
    for rows, boson, frame, first in ((higgs, 1, prongs.bosons[1][:, higgs], 2), (leptonic[0], 0, leptonic[1], 1)):
        charged, flavour = prongs.first_product(boson, rows, frame), prongs.flavour[first, rows]
        assert np.isin(flavour, (ELECTRON, MUON)).all()
        kind = np.where(flavour == MUON, hadrons.MUON, hadrons.ELECTRON).astype(np.int8)
        sign = np.where(rng.random(len(rows)) < 0.5, 1, -1).astype(np.int8)
        lepton = ParticleArray(charged.astype(np.float32), kind, sign, rows, np.zeros(len(rows), np.intp))
        made += [lepton, lepton.next((frame - charged).astype(np.float32), hadrons.NEUTRINO)]
    return made
