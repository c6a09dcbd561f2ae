"""Toy detector: acceptance, resolution, and the jet cone.

    tracks          |eta| < 2.5, pT > 0.5 GeV, efficiency 97 %, pT to 1 %, direction to 0.0005
    photons         pT > 0.4 GeV, energy to 3 % / sqrt(E) and 0.7 %, direction to 0.008
    neutral hadrons pT > 0.4 GeV, energy to 100 % / sqrt(E) and 5 %, direction to 0.025
    d0, dz          tracks only, in mm, to hypot(0.010, 0.080 / pT) and hypot(0.020, 0.120 / pT)

A jet is a cone of radius 0.8 around the summed momentum of the detected particles (experiments use anti-kT). Particles
get the mass of their detected type: charged hadrons the pion mass, neutral hadrons zero. There is no magnetic field, no
calorimeter granularity and no pile-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .decays import JET_RADIUS, TBQQ, Prongs
from .hadrons import ELECTRON, IS_CHARGED, KAON0, MUON, NEUTRINO, NEUTRON, PHOTON, PION, ParticleArray
from .kinematics import TWO_PI, Floats, Rows, draw_normals

MAX_TRACK_ETA, MIN_TRACK_PT, MIN_NEUTRAL_PT, MIN_PARTICLE_PT = 2.5, 0.5, 0.4, 0.1
TRACK_EFFICIENCY = 0.97
MAX_PARENT_DISTANCE = 1.3  # distance from the parent; farther particles are ignored
UNDERLYING_DENSITY, UNDERLYING_DENSITY_TOP = 1.34, 1.65  # particles of the underlying event per unit area
UNDERLYING_PT = 0.569  # GeV, slope of their exponential pT spectrum
TRACKS, HADRONS, PHOTONS, ELECTRONS, MUONS = range(5)  # detected types
DETECTED_TYPES = np.full(16, TRACKS, np.int8)
DETECTED_TYPES[[KAON0, NEUTRON, PHOTON, ELECTRON, MUON]] = HADRONS, HADRONS, PHOTONS, ELECTRONS, MUONS
SQUARED_MASSES = np.array([0.13957, 0, 0, 0.000511, 0.10566], np.float32) ** 2  # GeV^2, by detected type
ANGULAR_RESOLUTIONS = np.array([0.0005, 0.025, 0.008, 0.0005, 0.0005], np.float32)
STOCHASTIC_TERMS = np.array([0, 1.0, 0.03, 0, 0], np.float32) ** 2
CONSTANT_TERMS = np.array([0.01, 0.05, 0.007, 0.01, 0.01], np.float32) ** 2
UNDERLYING_KINDS = np.array([PION] * 11 + [PHOTON] * 7 + [KAON0] * 2, np.int8)  # particle types of the underlying event


@dataclass
class DetectedParticles(Rows):
    """Detected particles: pT, direction, type, charge, impact parameters, jet index."""

    pt: Floats
    eta: Floats
    phi: Floats
    type: Floats
    charge: Floats
    d0: Floats
    dz: Floats
    jet: Floats


def detect_jets(
    crowd: ParticleArray, vertices: Floats, prongs: Prongs, rng: np.random.Generator
) -> tuple[DetectedParticles, Floats]:
    """Detected particles in the cone of each jet, and jet momenta (4, n).

    Azimuths are relative to the parent. The cone axis is the sum of all detected particles near the parent. The
    underlying event is added inside the cone.
    """
    seen, n = smear_particles(_find_detected(crowd, vertices, prongs, rng), rng), len(prongs)
    p = four_vectors(seen)
    axis = jet_momenta(seen, n, p)
    axis = np.stack([np.arcsinh(axis[2] / np.hypot(axis[0], axis[1])), np.arctan2(axis[1], axis[0])])
    axis = axis.astype(np.float32)
    deta, dphi = seen.eta - axis[0].take(seen.jet), seen.phi - axis[1].take(seen.jet)
    rows = np.flatnonzero((deta * deta + dphi * dphi < JET_RADIUS * JET_RADIUS) & (seen.pt > MIN_PARTICLE_PT))
    soft = smear_particles(_underlying_event(axis, prongs.label >= TBQQ, rng), rng)
    soft = soft.take(np.flatnonzero(soft.pt > MIN_PARTICLE_PT))
    momenta = jet_momenta(seen, n, p, rows) + jet_momenta(soft, n, four_vectors(soft))
    return DetectedParticles.join([seen.take(rows), soft]), momenta


def _find_detected(
    crowd: ParticleArray, vertices: Floats, prongs: Prongs, rng: np.random.Generator
) -> DetectedParticles:
    p = crowd.p
    rows = np.flatnonzero((p[0] * p[0] + p[1] * p[1] > MIN_NEUTRAL_PT**2) & (crowd.kind < NEUTRINO) & (p[0] > 0))
    crowd = crowd.take(rows)
    p, jet, charged = crowd.p, crowd.jet, crowd.charge != 0
    squared = p[0] * p[0] + p[1] * p[1]
    pt, phi = np.sqrt(squared), np.arctan2(p[1], p[0])
    rapidity = prongs.rapidity.astype(np.float32)
    cosh, sinh = np.cosh(rapidity), np.sinh(rapidity)
    pz = p[2] * cosh.take(jet) + p[3] * sinh.take(jet)
    eta = np.arcsinh(pz / pt)
    found = leaves_trace(pt, eta, charged, rng)
    deta = eta - rapidity.take(jet)
    found &= deta * deta + phi * phi < MAX_PARENT_DISTANCE * MAX_PARENT_DISTANCE
    d0, dz = np.zeros_like(pt), np.zeros_like(pt)
    away = np.flatnonzero((crowd.vertex > 0) & charged & found)
    x, y, z, t = vertices.take(crowd.vertex[away], 1)
    (px, py), home = p[:2].take(away, 1), jet[away]
    d0[away] = (x * py - y * px) / pt[away]
    dz[away] = z * cosh[home] + t * sinh[home] - (x * px + y * py) / squared[away] * pz[away]
    seen = DetectedParticles(pt, eta, phi, DETECTED_TYPES.take(crowd.kind), crowd.charge, d0, dz, jet)
    return seen.take(np.flatnonzero(found))


def leaves_trace(pt: Floats, eta: Floats, charged: Floats, rng: np.random.Generator) -> Floats:
    """Mask of detected particles: neutral particles, and some charged particles.

    A charged particle is detected with the probability `TRACK_EFFICIENCY` if it is inside the acceptance.
    """
    return ~charged | (pt > MIN_TRACK_PT) & (np.abs(eta) < MAX_TRACK_ETA) & (
        rng.random(len(pt), np.float32) < TRACK_EFFICIENCY
    )


def _underlying_event(axis: Floats, top: Floats, rng: np.random.Generator) -> DetectedParticles:
    """Soft particles, uniform over each cone; their number is negative binomial."""
    n = axis.shape[1]
    density = np.where(top, UNDERLYING_DENSITY_TOP, UNDERLYING_DENSITY)
    count = rng.poisson(density * np.pi * JET_RADIUS**2 / 3.0 * rng.standard_gamma(3.0, n))
    jet = np.repeat(np.arange(n), count)
    total = len(jet)
    drawn = rng.random((3, total), np.float32)
    tail = np.where(drawn[0] > 0.9, np.float32(2 * UNDERLYING_PT), np.float32(UNDERLYING_PT))
    pt = np.float32(MIN_TRACK_PT) - tail * np.log1p(-drawn[0])
    away, angle = np.float32(JET_RADIUS) * np.sqrt(drawn[1]), np.float32(TWO_PI) * drawn[2]
    kind = UNDERLYING_KINDS[rng.integers(0, len(UNDERLYING_KINDS), total)]
    sign = rng.integers(0, 2, total, np.int8) * np.int8(2) - np.int8(1)
    eta = axis[0][jet] + away * np.cos(angle)
    charge = sign * IS_CHARGED[kind] * (np.abs(eta) < MAX_TRACK_ETA)  # outside the tracker they count as neutral
    types = np.where((DETECTED_TYPES[kind] == TRACKS) & (charge == 0), HADRONS, DETECTED_TYPES[kind]).astype(np.int8)
    d0, dz = np.zeros((2, total), np.float32)
    return DetectedParticles(pt, eta, axis[1][jet] + away * np.sin(angle), types, charge.astype(np.int8), d0, dz, jet)


def smear_particles(seen: DetectedParticles, rng: np.random.Generator) -> DetectedParticles:
    """Smear pT, direction and impact parameters by the resolution, in place."""
    n, rows = len(seen), np.flatnonzero(seen.charge)
    noise = draw_normals(rng, n), draw_normals(rng, (n + 1) // 2).reshape(-1)[:n]
    energy = seen.pt * np.cosh(seen.eta)
    width = np.sqrt(STOCHASTIC_TERMS.take(seen.type) / energy + CONSTANT_TERMS.take(seen.type))
    blur = ANGULAR_RESOLUTIONS.take(seen.type)
    for value, error, drawn in zip((seen.d0, seen.dz), impact_errors(seen.pt.take(rows)), draw_normals(rng, len(rows))):
        value[rows] += error * drawn
    width *= noise[1]
    width += 1
    seen.pt = seen.pt * width
    seen.eta = seen.eta + blur * noise[0][0]
    seen.phi = seen.phi + blur * noise[0][1]
    return seen


def impact_errors(pt: Floats) -> tuple[Floats, Floats]:
    """Errors of d0 and dz in mm: hypot(0.010, 0.080 / pT), hypot(0.020, 0.120 / pT)."""
    inverse = 1 / (pt * pt)
    d0, dz = (np.sqrt(np.float32(a * a) + np.float32(b * b) * inverse) for a, b in ((0.010, 0.080), (0.020, 0.120)))
    return d0, dz


def four_vectors(seen: DetectedParticles) -> Floats:
    """Four-vectors (4, n) of detected particles, with the mass of the detected type."""
    made = np.empty((4, len(seen)), np.float32)
    np.multiply(seen.pt, np.cos(seen.phi), out=made[0])
    np.multiply(seen.pt, np.sin(seen.phi), out=made[1])
    np.multiply(seen.pt, np.sinh(seen.eta), out=made[2])
    np.sqrt(seen.pt * seen.pt + made[2] * made[2] + SQUARED_MASSES.take(seen.type), out=made[3])
    return made


def jet_momenta(seen: DetectedParticles, n: int, p: Floats, rows: Floats | None = None) -> Floats:
    """Jet momenta (4, n): sums of the momenta `p` of all particles, or only of `rows`."""
    jet = seen.jet if rows is None else seen.jet.take(rows)
    return np.stack([np.bincount(jet, one if rows is None else one.take(rows), n) for one in p])
