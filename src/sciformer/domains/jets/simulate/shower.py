"""Parton shower: angular-ordered branchings, for all partons of all jets at once.

A parton of flavour a branches at the scale q with momentum fraction x of the softer product, at the rate

    d ln q^2  dx  alpha_s(k) / 2 pi  P_a(x),        k = x (1 - x) q,    k > K

    q -> q g   P = 4/3 (1 + (1 - x)^2) / x
    g -> g g   P = 6 (1 - x) / x + 3 x (1 - x)
    g -> q q   P = 5/2 (x^2 + (1 - x)^2),        charm and bottom if k exceeds their mass

and its products continue from the scales x q and (1 - x) q. With q = E times the angle, this is angular ordering. k is
the momentum transverse to the parent. Momentum is conserved at every branching; energy is restored when a resonance is
rescaled (systems.py). With t = ln(q / K) and the rate bounded by the largest alpha_s and 2 C / x, the next t' solves
t'^2 = t^2 + ln(r) pi / (alpha C); the veto algorithm corrects the excess without tables or integrals.
"""

from __future__ import annotations

import numpy as np

from .decays import BOTTOM, CHARM, GLUON, LIGHT
from .kinematics import TWO_PI, Floats, transverse_axes

MIN_KT = 0.442  # GeV, K: the minimum transverse momentum
LAMBDA, FREEZING_SCALE = 0.322, 0.446  # GeV
ALPHA_S_FACTOR = 12 * np.pi / 23  # alpha_s = ALPHA_S_FACTOR / ln((k^2 + FREEZING_SCALE^2) / LAMBDA^2)
QUARK_MASSES = {CHARM: 1.5, BOTTOM: 4.8}  # GeV
DEAD_CONE_SCALES = {CHARM: 8.8, BOTTOM: 17.6}  # GeV, below which a heavy quark does not radiate

MAX_ALPHA_S = ALPHA_S_FACTOR / np.log((MIN_KT**2 + FREEZING_SCALE**2) / LAMBDA**2)
COLOUR_FACTORS = np.array([3, 4 / 3, 4 / 3, 4 / 3], np.float32)  # by flavour
SCALE_STEPS = np.array(np.pi / (MAX_ALPHA_S * COLOUR_FACTORS), np.float32)
MIN_LOG_SCALES = np.array([0, 0, *(np.log(scale / MIN_KT) ** 2 for scale in DEAD_CONE_SCALES.values())], np.float32)
FLAVOUR_BITS = 3  # bits of the flavour in a tag; the upper bits are the index of the system


def shower(p: Floats, tag: Floats, scale: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Shower partons (3, n) from their starting scales; return final partons and tags.

    A tag is `system << FLAVOUR_BITS | flavour`; products inherit the index of the system.
    """
    t = np.log(np.maximum(scale, MIN_KT) / MIN_KT).astype(np.float32)
    ends = [(p[:, :0], tag[:0])]
    while len(t):
        p, tag, t = _descend(p, tag, t, rng, ends)
        p, tag, t = _branch(p, tag, t, rng)
    return np.concatenate([p for p, _ in ends], 1), np.concatenate([tag for _, tag in ends])


def _descend(
    p: Floats, tag: Floats, t: Floats, rng: np.random.Generator, ends: list[tuple[Floats, Floats]]
) -> tuple[Floats, Floats, Floats]:
    """Evolve each parton to the scale of its next branching.

    Partons without a further branching are appended to `ends`. The other partons are returned with their tags and
    scales.
    """
    flavour = tag & (1 << FLAVOUR_BITS) - 1
    drawn = rng.random(len(t), np.float32)
    squared = t * t + SCALE_STEPS.take(flavour) * np.log1p(-drawn)
    going = squared > MIN_LOG_SCALES.take(flavour)
    rest = np.flatnonzero(~going)
    ends.append((p.take(rest, 1), tag.take(rest)))
    kept = np.flatnonzero(going)
    return p.take(kept, 1), tag.take(kept), np.sqrt(squared.take(kept))


def _branch(p: Floats, tag: Floats, t: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Branch partons at their scales by the veto algorithm.

    Returns partons, tags and scales after the branching.
    """
    drawn = rng.random((3, len(t)), np.float32)
    gluon = (tag & (1 << FLAVOUR_BITS) - 1) == GLUON
    lost = t * drawn[0]
    x = np.exp(-lost)
    y = 1 - x
    kick = np.float32(MIN_KT) * np.exp(t - lost) * y
    strength = np.float32(ALPHA_S_FACTOR / MAX_ALPHA_S) / np.log(
        (kick * kick + np.float32(FREEZING_SCALE**2)) * np.float32(LAMBDA**-2)
    )
    strength *= kick > MIN_KT
    emits = np.where(gluon, y * (1 + 0.5 * x * x), 0.5 + 0.5 * y * y)
    drawn[1] -= strength * emits
    pairs = np.flatnonzero(gluon & (drawn[1] >= 0) & (drawn[1] < strength * (x * (x * x + y * y)) * np.float32(5 / 12)))
    taken = drawn[1] < 0
    taken[pairs] = True
    rows, others = np.flatnonzero(taken), np.flatnonzero(~taken)
    soft = tag[rows] & ~((1 << FLAVOUR_BITS) - 1)  # flavour 0: a gluon
    hard = tag[rows]
    if len(pairs):
        where = np.searchsorted(rows, pairs)
        soft[where] |= _draw_pair_flavours(kick[pairs], rng)
        hard[where] = soft[where]
    x, t_kept = x[rows], t[rows]
    one, two = split_momentum(p.take(rows, 1), x, kick[rows], drawn[2, rows])
    with np.errstate(divide="ignore"):
        later = [t[others], t_kept - lost[rows], t_kept + np.log(y[rows])]
    return (
        np.concatenate([p.take(others, 1), one, two], 1),
        np.concatenate([tag[others], soft, hard]),
        np.maximum(np.concatenate(later), 0),
    )


def _draw_pair_flavours(kick: Floats, rng: np.random.Generator) -> Floats:
    """Draw the quark flavours of g -> q q.

    Charm and bottom have 20 % each if the transverse momentum exceeds the quark mass; otherwise the quarks are light.
    """
    drawn = rng.random(len(kick))
    light = np.where((drawn < 0.4) & (drawn >= 0.2) & (kick > QUARK_MASSES[CHARM]), CHARM, LIGHT)
    return np.where((drawn < 0.2) & (kick > QUARK_MASSES[BOTTOM]), BOTTOM, light)


def split_momentum(p: Floats, x: Floats, kick: Floats, turn: Floats) -> tuple[Floats, Floats]:
    """Split p into x p + k and (1 - x) p - k, with k perpendicular to p."""
    length = np.sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2])
    one, other = transverse_axes(p / length)
    angle = np.float32(TWO_PI) * turn
    one *= kick * np.cos(angle)
    other *= kick * np.sin(angle)
    one += other
    one += x * p
    return one, p - one
