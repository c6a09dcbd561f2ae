import numpy as np
import pytest

from sciformer.domains.spins.lattices import BOUNDARIES, energy, find_bonds
from tests.domains.spins.states import stagger, start
from tests.errors import refuses


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


def test_mistakes_in_spins_are_answered():
    with refuses("from 0.0 to 0.0", hint="2 * bits - 1"):
        energy(np.zeros((4, 4)))
    with refuses("height, width", (2,)):
        energy([1, -1])
