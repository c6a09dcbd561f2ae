from functools import lru_cache

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sciformer.domains.spins import lattices
from sciformer.domains.spins.lattices import (
    BOUNDARIES,
    _find_roots,
    _ground_states,
    critical_temperature,
    energy,
    find_bonds,
    metropolis,
    swendsen_wang,
)
from tests.domains.spins.exact import enumerate_states, onsager_energy, onsager_magnetisation
from tests.errors import refuses

exactly = lru_cache(enumerate_states)
CHOICES = {"chains": 8, "samples": 4, "boundary": "periodic", "coupling": 1.0, "seed": 0}
SWEEPS = {"metropolis": metropolis, "swendsen_wang": swendsen_wang}


def start(chains, height, width, seed=0):
    return np.random.default_rng(seed).choice(np.array((-1, 1), np.int8), (chains, height, width))


def stagger(height, width):
    return (1 - 2 * (np.add.outer(np.arange(height), np.arange(width)) % 2)).astype(np.int8)


def ising(size, temperatures, **choices):
    return lattices.ising(size, temperatures, **{**CHOICES, **choices})


def near(values, exact, chains, errors=4.5):
    """The mean over chains lies within several of its standard errors of the exact value; states of a chain depend."""
    means = values.reshape(chains, -1).mean(1)
    error = means.std(ddof=1) / chains**0.5
    assert abs(means.mean() - exact) < errors * error + 1e-12, ((means.mean() - exact) / error, means.mean(), exact)


# Bonds and energy


def test_skewed_neighbours():
    bonds = find_bonds(3, 4, "skewed")
    assert bonds.right.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0]
    assert bonds.below.tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3]
    assert bonds.neighbours[:, 4].tolist() == [5, 8, 3, 0]


def test_energy_by_hand():
    up = np.ones((3, 4), np.int8)
    assert energy(up, "periodic") == energy(up, "skewed") == -2
    assert energy(up, "open") * 12 == pytest.approx(-(3 * 3 + 2 * 4))
    assert energy(up, "antiperiodic") * 12 == pytest.approx(-(24 - 2 * 3))
    one = up.copy()
    one[0, 3] = -1
    assert energy(one, "periodic", 2.5) * 12 == pytest.approx(2.5 * (-24 + 8))
    # Right of the corner (0, 3) is (1, 0) in the skewed lattice and (0, 0) in the periodic one.
    two = one.copy()
    two[1, 0] = -1
    assert energy(two, "skewed") * 12 == pytest.approx(-24 + 12)
    assert energy(two, "periodic") * 12 == pytest.approx(-24 + 16)
    assert energy(np.stack((up, one))).shape == (2,)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_energy_changes_sign_with_the_coupling_and_not_with_the_spins(boundary):
    spins = start(5, 5, 4)
    np.testing.assert_allclose(energy(spins, boundary, -0.7), -0.7 * energy(spins, boundary))
    np.testing.assert_allclose(energy(-spins, boundary), energy(spins, boundary))
    if boundary == "periodic":
        np.testing.assert_allclose(energy(np.roll(spins, (1, 2), (1, 2)), boundary), energy(spins, boundary))
    if boundary == "skewed":
        shifted = np.roll(spins.reshape(5, -1), 3, 1).reshape(spins.shape)
        np.testing.assert_allclose(energy(shifted, boundary), energy(spins, boundary))


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("sides", [(2, 2), (2, 3), (3, 3), (4, 4), (4, 5), (5, 4), (5, 5), (32, 32), (31, 33)])
def test_no_bond_inside_a_colour(sides, boundary):
    bonds = find_bonds(*sides, boundary)
    assert sorted(np.concatenate(bonds.colours)) == list(range(sides[0] * sides[1]))
    for colour in bonds.colours:
        linked = bonds.neighbours[:, colour][bonds.signs[:, colour] != 0]
        assert not np.isin(linked, colour).any()


def test_the_checkerboard_is_used_where_the_lattice_is_bipartite():
    def colours(height, width, boundary):
        return len(find_bonds(height, width, boundary).colours)

    assert colours(4, 6, "periodic") == colours(5, 5, "open") == colours(4, 5, "skewed") == 2
    assert colours(4, 5, "periodic") > 2
    assert colours(4, 4, "skewed") > 2
    checkerboard = find_bonds(4, 6, "periodic").colours[0]
    np.testing.assert_array_equal(np.flatnonzero(stagger(4, 6) == 1), checkerboard)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("density", [0.3, 0.55, 0.8])
def test_clusters_are_the_connected_components(boundary, density):
    height, width, chains = 9, 12, 6
    bonds = find_bonds(height, width, boundary)
    generator = np.random.default_rng(3)
    right, below = generator.random((2, height * width, chains)) < density
    roots = _find_roots(right, below, bonds, width)
    for chain in range(chains):
        joined = [np.flatnonzero(some[:, chain]) for some in (right, below)]
        first, second = np.concatenate(joined), np.concatenate([bonds.right[joined[0]], bonds.below[joined[1]]])
        graph = coo_array((np.ones(len(first)), (first, second)), (height * width, height * width))
        count, label = connected_components(graph, directed=False)
        pairs = set(zip(label, roots[:, chain].tolist()))
        assert len(pairs) == count == len(set(roots[:, chain].tolist()))
        assert all(root % chains == chain for _, root in pairs)


# Against what is exact


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1.5, (-1.950643, 0.986173, 0.200350)),
        (critical_temperature(), (-1.565624, 0.843861, 0.783267)),
        (3.0, (-1.017070, 0.601291, 0.603135)),
    ],
)
def test_enumeration_gives_the_known_values_of_the_four_by_four_torus(temperature, expected):
    assert enumerate_states(4, 4, temperature) == pytest.approx(expected, abs=1e-6)


CASES = [((4, 4), coupling) for coupling in (1.0, -1.0)] + [((3, 5), -1.3)]


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize(("sides", "coupling"), CASES)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_sweep_against_enumeration(boundary, sides, coupling, sweep):
    temperatures, chains, generator = [1.5, 2.3, 3.5], 200, np.random.default_rng(0)
    # Clusters alone are slow in small frustrated lattices, where they hold all spins; single flips cost little.
    warm_up, samples = (80, 30) if sweep is metropolis else (50, 10)
    heat, states = np.repeat(temperatures, chains), []
    spins = _ground_states(generator, len(heat), *sides, boundary, coupling)
    for number in range(warm_up + samples):
        spins = sweep(spins, heat, generator, boundary, coupling)
        states += [spins] if number >= warm_up else []
    found = np.stack(states, 1).reshape(len(temperatures), -1, *sides)
    for temperature, here in zip(temperatures, found):
        mean, magnetisation, capacity = exactly(*sides, temperature, boundary, coupling)
        energies = energy(here, boundary, coupling)
        near(energies, mean, chains)
        near(np.abs(here.mean((1, 2))), magnetisation, chains)
        near((energies - mean) ** 2 * sides[0] * sides[1] / temperature**2, capacity, chains)


@pytest.mark.parametrize(
    ("sweep", "temperatures", "chains", "warm_up", "sweeps"),
    [(metropolis, (1.5, 3.0, 4.0), 48, 50, 500), (swendsen_wang, (1.0, 1.5), 96, 14, 40)],
)
def test_a_sweep_keeps_the_energy_to_a_thousandth(sweep, temperatures, chains, warm_up, sweeps):
    heat, generator = np.repeat(temperatures, chains), np.random.default_rng(1)
    spins, energies = np.ones((len(heat), 32, 32), np.int8), np.zeros(len(heat))
    for number in range(warm_up + sweeps):
        spins = sweep(spins, heat, generator)
        if number >= warm_up:
            energies += energy(spins) / sweeps
    for temperature, found in zip(temperatures, energies.reshape(-1, chains)):
        assert found.mean() == pytest.approx(onsager_energy(temperature), abs=1e-3)
        near(found, onsager_energy(temperature), chains)


def test_defaults_reach_equilibrium_at_every_temperature():
    temperatures = [1.0, 1.6, 2.0, 2.7, 3.2, 4.0]  # at 32 the size shows between 2.2 and 2.6
    found = ising(32, temperatures, chains=16)
    for temperature in temperatures:
        here = found["temperature"] == temperature
        # Of so few states the fluctuation is better taken from the exact heat capacity, <e^2> - <e>^2 = T^2 C / N.
        below, above = onsager_energy([temperature - 1e-3, temperature + 1e-3])
        error = temperature * ((above - below) / 2e-3 / (32 * 32 * here.sum())) ** 0.5
        assert abs(found["energy"][here].mean() - onsager_energy(temperature)) < 4.5 * error
        if temperature < 2.2:
            near(np.abs(found["magnetisation"][here]), onsager_magnetisation(temperature), 16)
    cold = found["magnetisation"][found["temperature"] == 1.0]
    assert np.abs(cold).min() > 0.98  # no stripes
    assert 0.1 < (cold > 0).mean() < 0.9  # both signs


def test_a_cold_frustrated_lattice_holds_one_straight_wall_anywhere():
    for boundary, coupling, pattern in (("antiperiodic", 1.0, np.ones((32, 32))), ("skewed", -1.0, stagger(32, 32))):
        found = ising(32, [1.0], chains=40, boundary=boundary, coupling=coupling)
        # A wall wound otherwise is at least 64 spins longer, which raises e by 0.125.
        assert found["energy"].max() < -1.86
        assert found["energy"].mean() == pytest.approx(-1.9188, abs=3e-3)  # of long chains, of both boundaries
        # The share of spins on one side of the wall is uniform in -1 .. 1, with a second moment of a third.
        share = (found["spins"] * pattern).mean((1, 2)).reshape(40, -1)
        near(share**2, 1 / 3, 40)
        near(share, 0, 40)


# Symmetries that hold for every random number


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
def test_an_antiferromagnet_is_a_staggered_ferromagnet(sweep):
    def run(spins, boundary, coupling):
        return sweep(spins, np.full(7, 2.0), np.random.default_rng(5), boundary, coupling)

    for boundary, sides in (("periodic", (6, 4)), ("open", (5, 7)), ("antiperiodic", (4, 6))):
        spins, sign = start(7, *sides), stagger(*sides)
        np.testing.assert_array_equal(run(spins * sign, boundary, -1.0), run(spins, boundary, 1.0) * sign)
    # With an odd width the border turns the staggered pattern round.
    spins, sign = start(7, 4, 5), stagger(4, 5)
    np.testing.assert_array_equal(run(spins * sign, "periodic", -1.0), run(spins, "antiperiodic", 1.0) * sign)


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_only_the_ratio_of_coupling_and_temperature_counts(sweep, boundary):
    spins = start(4, 6, 5)
    one = sweep(spins, np.full(4, 1.7), np.random.default_rng(0), boundary, 1.0)
    two = sweep(spins, np.full(4, 3.4), np.random.default_rng(0), boundary, 2.0)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(sweep(-spins, np.full(4, 1.7), np.random.default_rng(0), boundary, 1.0), -one)


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
def test_every_chain_has_its_own_temperature(sweep):
    generator = np.random.default_rng(0)
    heat = np.tile([0.05, 1e6], 16)
    spins = np.ones((32, 8, 8), np.int8)
    before = spins.copy()
    after = sweep(spins, heat, generator)
    np.testing.assert_array_equal(spins, before)
    assert after.dtype == np.int8
    assert after.shape == spins.shape
    assert (np.abs(after[::2].mean((1, 2))) == 1).all()
    assert (after[1::2] == -1).mean() > 0.4


# The interface


def test_what_is_returned():
    found = ising((6, 4), [1.5, 3.0], chains=3, samples=5)
    kinds = {"temperature": "float64", "chain": "int64", "energy": "float64", "magnetisation": "float64"}
    expected = {"spins": ("int8", (30, 6, 4))} | {name: (kind, (30,)) for name, kind in kinds.items()}
    assert {name: (array.dtype.name, array.shape) for name, array in found.items()} == expected
    assert set(np.unique(found["spins"])) == {-1, 1}
    assert found["chain"].tolist() == np.arange(6).repeat(5).tolist()
    assert found["temperature"].tolist() == [1.5] * 15 + [3.0] * 15
    np.testing.assert_allclose(found["energy"], energy(found["spins"]))
    np.testing.assert_allclose(found["magnetisation"], found["spins"].mean((1, 2)))


def test_the_seed_decides_and_samples_are_fresh():
    first, again, other = (ising(8, [3.0], chains=4, seed=seed)["spins"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.3
    assert len({state.tobytes() for state in first}) == len(first)


def test_samples_of_one_chain_are_nearly_independent_at_the_critical_temperature():
    chains = 150
    found = ising(16, [critical_temperature()], chains=chains, samples=2)
    for values in (found["energy"], np.abs(found["magnetisation"])):
        assert abs(np.corrcoef(values.reshape(chains, 2).T)[0, 1]) < 0.3


@pytest.mark.parametrize(
    ("arguments", "mentions", "hint"),
    [
        ({"temperatures": [2.0, 0.0]}, ("temperatures", 0.0), ""),
        ({"temperatures": [float("nan")]}, ("temperatures", "nan"), ""),
        ({"temperatures": [float("inf")]}, ("temperatures", "inf"), ""),
        ({"boundary": "periodical"}, ("boundary", "periodical"), "'periodic'"),
        ({"coupling": 0}, ("coupling", 0), "antiferromagnet"),
        ({"coupling": float("nan")}, ("coupling", "nan"), ""),
    ],
)
def test_mistakes_are_answered(arguments, mentions, hint):
    with refuses(*mentions, hint=hint):
        ising(**({"size": 4, "temperatures": [2.0]} | arguments))
