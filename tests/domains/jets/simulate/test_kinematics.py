"""Jets before a detector: momenta add up, masses are exact, what is heavy flies."""

import numpy as np
import pytest

from sciformer.domains.jets.simulate import decays, hadrons, kinematics, shower
from sciformer.domains.jets.simulate.decays import CLASSES, H4Q, HQQL, MASS_H, QCD, TBL, TBQQ, draw_prongs
from sciformer.domains.jets.simulate.systems import shower_particles

LABEL = np.repeat(np.arange(len(CLASSES)), 60)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def mass_of(p):
    return np.sqrt(np.maximum(p[3] ** 2 - p[0] ** 2 - p[1] ** 2 - p[2] ** 2, 0))


def stable(crowd):
    return crowd.take(np.flatnonzero(crowd.kind <= hadrons.LAST_STABLE))


def sums(crowd, n):
    return np.stack([np.bincount(crowd.jet, row.astype(float), n) for row in crowd.p])


def momenta(rng, mass, size=20.0):
    p = size * rng.normal(size=(3, len(mass)))
    return np.concatenate([p, np.sqrt((p**2).sum(0) + mass**2)[None]])


def test_a_boost_keeps_masses_and_undoes_itself(rng):
    mass = np.full(50, 7.0)
    p, frame = momenta(rng, np.full(50, np.sqrt(0.3)), 1), momenta(rng, mass)
    moved = kinematics.boost(p, frame, mass)
    np.testing.assert_allclose(mass_of(moved), np.sqrt(0.3), rtol=1e-6)
    back = frame * np.array([-1, -1, -1, 1])[:, None]
    np.testing.assert_allclose(kinematics.boost(moved, back, mass), p, atol=1e-9)
    rest = np.zeros((4, 50))
    rest[3] = mass
    np.testing.assert_allclose(kinematics.boost(rest, frame, mass), frame, atol=1e-9)


def test_a_decay_has_the_masses_it_was_asked_for(rng):
    mass = rng.uniform(5, 9, 40)
    parent, turn = momenta(rng, mass), kinematics.isotropic_directions(rng, 40, float)
    one, two = kinematics.decay(parent, mass, np.full(40, 1.87), np.full(40, 0.5), turn)
    np.testing.assert_allclose(one + two, parent, atol=1e-9)
    np.testing.assert_allclose(mass_of(one), 1.87, rtol=1e-7)
    np.testing.assert_allclose(mass_of(two), 0.5, rtol=1e-6)


def test_directions_at_right_angles(rng):
    axis = kinematics.isotropic_directions(rng, 200, float)
    one, two = kinematics.transverse_axes(axis)
    for a, b in ((axis, one), (axis, two), (one, two)):
        np.testing.assert_allclose((a * b).sum(0), 0, atol=1e-12)
    np.testing.assert_allclose((one**2).sum(0), 1)


def test_prongs_have_the_mass_of_their_parent(rng):
    prongs = draw_prongs(LABEL, rng)
    there = prongs.flavour != decays.NOTHING
    np.testing.assert_array_equal(there.sum(0), np.array([1, 2, 2, 2, 4, 4, 2, 2, 3, 3])[LABEL])
    total = np.where(there[:, None], prongs.vectors, 0).sum(0)
    np.testing.assert_allclose(total, prongs.parent, atol=1e-9)
    np.testing.assert_allclose(mass_of(total), prongs.mass, atol=1e-4)
    higgs = (LABEL == H4Q) | (LABEL == HQQL)
    assert (prongs.mass[higgs] == MASS_H).all()
    for first, rows, boson in ((0, higgs, 0), (2, higgs, 1), (1, LABEL >= TBQQ, 0)):
        pair = prongs.vectors[first] + prongs.vectors[first + 1]
        np.testing.assert_allclose(mass_of(pair)[rows], prongs.inner[boson, rows], rtol=1e-6)
    assert (prongs.inner[:, higgs].sum(0) < MASS_H).all()
    for name, peak in {"Zqq": 91.2, "Wqq": 80.4, "Tbqq": 172.5}.items():
        assert np.median(prongs.mass[np.array(CLASSES)[LABEL] == name]) == pytest.approx(peak, abs=1.5)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "QCD"])
def test_all_particles_together_are_the_resonance(name, rng):
    label = np.full(150, CLASSES.index(name))
    prongs = draw_prongs(label, rng)
    crowd = stable(shower_particles(prongs, rng, extra=False)[0])
    total = sums(crowd, len(label))
    np.testing.assert_allclose(total, prongs.parent, rtol=1e-5, atol=5e-3)
    np.testing.assert_allclose(mass_of(total), prongs.mass, rtol=2e-4)
    known = hadrons.MASSES[crowd.kind]
    shell = np.sqrt((crowd.p[:3].astype(float) ** 2).sum(0) + known**2)
    np.testing.assert_allclose(crowd.p[3], shell, rtol=1e-3, atol=1e-3)
    neutrinos = np.bincount(crowd.jet, crowd.kind == hadrons.NEUTRINO, len(label))
    assert (neutrinos >= 1).all() == (label[0] in (HQQL, TBL))


def test_a_jet_without_resonance_keeps_its_momentum(rng):
    prongs = draw_prongs(np.full(200, QCD), rng)
    total = sums(stable(shower_particles(prongs, rng, extra=False)[0]), 200)
    np.testing.assert_allclose(total[:3], prongs.parent[:3], rtol=1e-5, atol=5e-3)
    assert 5 < np.median(mass_of(total)) < 200  # made by the shower


def showered(flavour, rng, count=300, energy=60.0):
    p = np.zeros((3, count), np.float32)
    p[1] = energy
    tag = (np.arange(count, dtype=np.int32) << shower.FLAVOUR_BITS) | np.int32(flavour)
    return shower.shower(p, tag, np.full(count, 2 * energy), rng)


def test_branchings_conserve_momentum_and_gluons_branch_more(rng):
    counts = {}
    for flavour in (decays.GLUON, decays.LIGHT, decays.BOTTOM):
        p, tag = showered(flavour, rng)
        place = tag >> shower.FLAVOUR_BITS
        total = np.stack([np.bincount(place, row.astype(float), 300) for row in p])
        np.testing.assert_allclose(total, np.array([0, 60, 0])[:, None] * np.ones(300), atol=1e-3)
        counts[flavour] = len(tag) / 300
        if flavour != decays.GLUON:  # a quark stays one
            assert (np.bincount(place, (tag & 7) == flavour, 300) >= 1).all()
    gluon, light, bottom = counts.values()
    assert gluon > 1.5 * light > 1.5 * bottom > 1.5


def along_axis(momentum, mass, kind):
    """Neutral particles along the first axis, one in each jet."""
    zero = np.zeros(len(mass))
    p = np.stack([zero + momentum, zero, zero, np.hypot(momentum, mass)]).astype(np.float32)
    kind, charge, vertex = np.int8(zero + kind), np.int8(zero), np.int32(zero)
    return hadrons.ParticleArray(p, kind, charge, np.arange(len(mass), dtype=np.int32), vertex)


def test_heavy_hadrons_fly_their_lifetime(rng):
    count = 4000
    heavy = along_axis(50, np.full(count, hadrons.MASSES[hadrons.B_HADRON]), hadrons.B_HADRON)
    none = heavy.take(np.arange(0))
    made, vertices = hadrons.hadronise_clusters(none, np.zeros(0, np.float32), heavy, rng)
    made = stable(made)
    np.testing.assert_allclose(sums(made, count), heavy.p, rtol=1e-4, atol=1e-2)
    first = vertices[0, 1 : count + 1]
    assert first.mean() == pytest.approx(hadrons.LIFETIME_B * 50 / hadrons.MASSES[hadrons.B_HADRON], rel=0.06)
    np.testing.assert_array_equal(vertices[1:3, 1 : count + 1], 0)
    assert (vertices[0, count + 1 :] > 0).mean() > 0.99  # and on with the c hadron
    charged = np.bincount(made.jet, made.charge != 0, count).mean()
    assert 3.5 < charged < 6.5
    leptons = np.bincount(made.jet, made.kind == hadrons.MUON, count).mean()
    assert 0.15 < leptons < 0.3


def test_charge_is_balanced_in_decays_of_clusters(rng):
    mass = rng.uniform(0.1, 3, 3000).astype(np.float32)
    clusters = along_axis(5, mass, hadrons.CLUSTER)
    made = stable(hadrons.hadronise_clusters(clusters, mass, clusters.take(np.arange(0)), rng)[0])
    np.testing.assert_allclose(sums(made, 3000), clusters.p, rtol=1e-4, atol=1e-3)
    assert np.abs(np.bincount(made.jet, made.charge, 3000)).max() <= 1
    assert {hadrons.PION, hadrons.KAON, hadrons.PROTON, hadrons.PHOTON} < set(made.kind.tolist())
