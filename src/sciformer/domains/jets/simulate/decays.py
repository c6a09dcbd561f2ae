"""Hard process of a jet: a resonance and its decay into two to four prongs.

A jet is simulated in its own frame: the parent moves along the first axis, perpendicular to the beam (third axis). A
boost along the beam and a rotation around it then give the direction in the detector; both preserve distances between
particles. `Prongs` holds the random masses and the decay directions in rest frames. All arrays are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .kinematics import (
    TWO_PI,
    Floats,
    Rows,
    boost,
    decay,
    decay_momentum,
    direction_vectors,
    isotropic_directions,
    transverse_axes,
)

CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
QCD, HBB, HCC, HGG, H4Q, HQQL, ZQQ, WQQ, TBQQ, TBL = range(10)
GLUON, LIGHT, CHARM, BOTTOM, ELECTRON, MUON, NEUTRINO, NOTHING = range(8)  # type of a prong
MASS_W, WIDTH_W, MASS_Z, WIDTH_Z, MASS_H, MASS_T, WIDTH_T = 80.4, 2.1, 91.19, 2.5, 125.0, 172.5, 1.4
JET_RADIUS = 0.8
GLUON_SHARE = 0.242  # share of QCD jets that begin with a gluon; the rest begin with a quark
Z_CHARM_SHARE, Z_BOTTOM_SHARE = 0.172, 0.216  # shares of hadronic Z decays
# By class: slopes of the exponential pT spectrum of the parent, its lower ends (GeV), deviations of the rapidity.
PT_SLOPES = np.array([121.6, 118.5, 124.8, 130.8, 138.9, 133.7, 136, 128.8, 115.3, 113.5])
MIN_PARENT_PT = np.array([482.0, 486, 480, 480, 480, 505, 480, 480, 482, 515])
RAPIDITY_SPREADS = np.array([0.95, 1.03, 1.08, 1.01, 1.04, 0.98, 1.09, 1.53, 0.88, 0.89])
MAX_PARENT_PT = 1150.0
MIN_VIRTUAL_W_MASS = 8.0  # GeV


@dataclass
class Prongs(Rows):
    """Random decays of n jets.

    flavour    (4, n) types of the prongs, NOTHING for missing prongs
    vectors    (4, 4, n) momenta of the prongs
    inner      (2, n) masses of the W bosons
    turns      (3, 3, n) decay directions in the rest frames of the parent and of both W bosons
    bosons     (2, 4, n) momenta of the W bosons

    Two prongs come from the parent. Of three prongs, the first is the b quark of a top quark. Of four prongs, the first
    two come from the first W, the last two from the second W.
    """

    label: Floats
    pt: Floats
    rapidity: Floats
    azimuth: Floats
    mass: Floats
    inner: Floats
    turns: Floats
    bosons: Floats
    flavour: Floats
    vectors: Floats

    @property
    def parent(self) -> Floats:
        """Momenta (4, n) of the decaying particles, in the frame of the jet."""
        made = np.zeros((4, len(self)))
        made[0], made[3] = self.pt, np.hypot(self.pt, self.mass)
        return made

    @property
    def visible(self) -> Floats:
        return self.flavour < NEUTRINO

    def within_radius(self, axis: Floats) -> Floats:
        """Mask of jets with all visible prongs within JET_RADIUS of an axis (4, n)."""
        px, py, pz = self.vectors[:, 0], self.vectors[:, 1], self.vectors[:, 2]
        with np.errstate(all="ignore"):
            rapidity, azimuth = np.arcsinh(pz / np.hypot(px, py)), np.arctan2(py, px) - np.arctan2(axis[1], axis[0])
        azimuth = (azimuth + np.pi) % TWO_PI - np.pi
        distance = np.hypot(rapidity - np.arcsinh(axis[2] / np.hypot(axis[0], axis[1])), azimuth)
        return np.all((distance < JET_RADIUS) | ~self.visible, axis=0)

    def first_product(self, boson: int, rows: Floats, frame: Floats) -> Floats:
        """Momenta of the first decay product (massless) of W bosons with momenta `frame`.

        boson   0 or 1: first or second W
        rows    jets with this W
        """
        mass = self.inner[boson, rows]
        inside = np.concatenate([self.turns[1 + boson][:, rows] * mass / 2, mass[None] / 2])
        return boost(inside, frame, mass)


def draw_prongs(label: Floats, rng: np.random.Generator) -> Prongs:
    """Draw decays of jets of the classes `label` (indices of CLASSES), without cuts."""
    n = len(label)
    made = Prongs(
        label,
        pt=_draw_falling_pt(rng.random(n), MIN_PARENT_PT[label], PT_SLOPES[label]),
        rapidity=RAPIDITY_SPREADS[label] * rng.standard_normal(n),
        azimuth=TWO_PI * rng.random(n) - np.pi,
        mass=np.zeros(n),
        inner=np.zeros((2, n)),
        turns=np.stack([isotropic_directions(rng, n, np.float64) for _ in range(3)]),
        bosons=np.zeros((2, 4, n)),
        flavour=np.full((4, n), NOTHING, np.int8),
        vectors=np.zeros((4, 4, n)),
    )
    _draw_masses(made, rng)
    _polarise(made, rng)
    _draw_flavours(made, rng)
    _compute_momenta(made)
    return made


def _draw_falling_pt(drawn: Floats, least: Floats, slope: Floats) -> Floats:
    return least - slope * np.log1p(-drawn * -np.expm1((least - MAX_PARENT_PT) / slope))


def _draw_breit_wigner(drawn: Floats, mass: float, width: float, reach: float = 15.0) -> Floats:
    edge = np.arctan(2 * reach)
    return mass + 0.5 * width * np.tan(edge * (2 * drawn - 1))


@lru_cache(maxsize=1)
def _virtual_w_shares() -> tuple[Floats, Floats]:
    """Cumulative distribution of the mass of the virtual W in H -> WW*.

    Returns the distribution and the masses, scaled to 0 to 1.
    """
    grid = np.linspace(MIN_VIRTUAL_W_MASS, MASS_H - MASS_W, 400)
    q = decay_momentum(np.full_like(grid, MASS_H), np.full_like(grid, MASS_W), grid)
    matrix = q * (q**2 + 3 * (MASS_W * grid / MASS_H) ** 2)
    share = 2 * grid * matrix / ((grid**2 - MASS_W**2) ** 2 + (MASS_W * WIDTH_W) ** 2)
    total = np.cumsum(share)
    return total / total[-1], (grid - MIN_VIRTUAL_W_MASS) / (grid[-1] - MIN_VIRTUAL_W_MASS)


def _draw_masses(made: Prongs, rng: np.random.Generator) -> None:
    label, drawn = made.label, rng.random((3, len(made)))
    higgs, top = (label >= HBB) & (label <= HQQL), label >= TBQQ
    made.mass[higgs] = MASS_H
    for kind, mass, width in ((label == WQQ, MASS_W, WIDTH_W), (label == ZQQ, MASS_Z, WIDTH_Z), (top, MASS_T, WIDTH_T)):
        made.mass[kind] = _draw_breit_wigner(drawn[0, kind], mass, width)
    made.inner[0, top] = _draw_breit_wigner(drawn[1, top], MASS_W, WIDTH_W)
    pair = (label == H4Q) | (label == HQQL)
    made.inner[0, pair] = _draw_breit_wigner(drawn[1, pair], MASS_W, WIDTH_W, 10)
    room = MASS_H - made.inner[0, pair] - MIN_VIRTUAL_W_MASS
    made.inner[1, pair] = MIN_VIRTUAL_W_MASS + room * np.interp(drawn[2, pair], *_virtual_w_shares())
    # Random order of the real and the virtual W.
    swap = np.flatnonzero(pair)[rng.random(pair.sum()) < 0.5]
    made.inner[:, swap] = made.inner[::-1, swap]


@lru_cache(maxsize=2)
def _decay_cosine_shares(kind: str) -> tuple[Floats, Floats]:
    """Cumulative distribution of the cosine c of the decay angle.

    The density of transverse bosons is 1 + c^2. W bosons from top quarks are 70 % longitudinal and 30 % left-handed.
    """
    c = np.linspace(-1, 1, 401)
    share = 1 + c**2 if kind == "transverse" else 0.7 * 1.5 * (1 - c**2) / 2 + 0.3 * 0.375 * (1 - c) ** 2
    total = np.concatenate([[0], np.cumsum((share[1:] + share[:-1]) / 2)])
    return total / total[-1], c


def _polarise(made: Prongs, rng: np.random.Generator) -> None:
    """Draw decay angles of polarised bosons: W, Z, and W from top quarks."""
    boson = np.flatnonzero((made.label == WQQ) | (made.label == ZQQ))
    drawn = rng.random((2, len(boson)))
    cosine = np.interp(drawn[0], *_decay_cosine_shares("transverse"))
    made.turns[0][:, boson] = direction_vectors(cosine, TWO_PI * drawn[1])
    top = np.flatnonzero(made.label >= TBQQ)
    drawn = rng.random((2, len(top)))
    local = direction_vectors(np.interp(drawn[0], *_decay_cosine_shares("top")), TWO_PI * drawn[1])
    axis = -made.turns[0][:, top]  # the W recoils against the b
    one, other = transverse_axes(axis)
    made.turns[1][:, top] = local[0] * axis + local[1] * one + local[2] * other


def _draw_flavours(made: Prongs, rng: np.random.Generator) -> None:
    label, flavour, n = made.label, made.flavour, len(made)
    drawn = rng.random((3, n))
    strange = np.where(drawn[:2] < 0.5, CHARM, LIGHT)  # W -> cs as often as ud
    lepton = np.where(drawn[2] < 0.5, ELECTRON, MUON)
    sea = np.where(drawn[1] < 0.05, BOTTOM, np.where(drawn[1] < 0.13, CHARM, LIGHT))  # quarks produced with a Z boson
    flavour[0, label == QCD] = np.where(drawn[0] < GLUON_SHARE, GLUON, sea)[label == QCD]
    for kind, prong in ((HBB, BOTTOM), (HCC, CHARM), (HGG, GLUON)):
        flavour[:2, label == kind] = prong
    z = np.where(drawn[0] < Z_BOTTOM_SHARE, BOTTOM, np.where(drawn[0] < Z_BOTTOM_SHARE + Z_CHARM_SHARE, CHARM, LIGHT))
    flavour[:2, label == ZQQ] = z[label == ZQQ]
    flavour[0, label == WQQ], flavour[1, label == WQQ] = strange[0, label == WQQ], LIGHT
    for kind in (H4Q, HQQL):
        rows = label == kind
        flavour[0, rows], flavour[1, rows] = strange[0, rows], LIGHT
        flavour[2, rows] = strange[1, rows] if kind == H4Q else lepton[rows]
        flavour[3, rows] = LIGHT if kind == H4Q else NEUTRINO
    flavour[0, label >= TBQQ] = BOTTOM
    flavour[1, label == TBQQ], flavour[2, label == TBQQ] = strange[0, label == TBQQ], LIGHT
    flavour[1, label == TBL], flavour[2, label == TBL] = lepton[label == TBL], NEUTRINO


def _compute_momenta(made: Prongs) -> None:
    label, parent = made.label, made.parent
    made.vectors[0][:, label == QCD] = parent[:, label == QCD]
    two = np.flatnonzero(((label >= HBB) & (label <= HGG)) | (label == ZQQ) | (label == WQQ))
    four, three = np.flatnonzero((label == H4Q) | (label == HQQL)), np.flatnonzero(label >= TBQQ)
    none = np.zeros(1)
    for rows, masses, parts in (
        (two, (none, none), made.vectors[:2]),
        (three, (none, made.inner[0, three]), (made.vectors[0], made.bosons[0])),
        (four, made.inner[:, four], made.bosons),
    ):
        both = decay(parent[:, rows], made.mass[rows], masses[0], masses[1], made.turns[0][:, rows])
        for part, momenta in zip(parts, both):
            part[:, rows] = momenta
    for rows, boson, place in ((three, 0, 1), (four, 0, 0), (four, 1, 2)):
        frame = made.bosons[boson][:, rows]
        made.vectors[place][:, rows] = made.first_product(boson, rows, frame)
        made.vectors[place + 1][:, rows] = frame - made.vectors[place][:, rows]
