"""Hamiltonians as matrices, exact energies against known values, and correlations."""

import itertools

import numpy as np
import pytest

from sciformer.domains.spins.quantum.exact import correlations, correlations_of, diagonal, lowest, matrix, staggered
from sciformer.domains.spins.quantum.hamiltonian import Hamiltonian, bits, heisenberg, images, transverse_ising

# Ground-state energies per spin by independent programs, J1 = 1; h in Pauli matrices.
CHAINS = {(8, 0): -0.45638668, (8, 0.4): -0.38649515, (10, 0.5): -0.375, (12, 0.4): -0.38306460, (14, 0.8): -0.42513078}
SQUARES = {0.0: (-0.70178020, 0.276527), 0.5: (-0.52862021, 0.160152)}
ISING = {(8, 0.5): -1.06363528, (12, 1.0): -1.27688293, (10, 2.0): -2.12712088}


@pytest.mark.parametrize(("size", "j2"), CHAINS)
def test_energies_of_chains(size, j2):
    assert lowest(heisenberg((1, size), j2)).energies[0] / size == pytest.approx(CHAINS[size, j2], abs=2e-8)


@pytest.mark.parametrize("j2", SQUARES)
def test_energy_and_magnetisation_of_the_square(j2):
    own = heisenberg((4, 4), j2)
    found = lowest(own)
    energy, magnetisation = SQUARES[j2]
    assert found.energies[0] / 16 == pytest.approx(energy, abs=2e-8)
    assert staggered(correlations(own, found.keys, found.amplitudes**2)) == pytest.approx(magnetisation, abs=1e-6)


@pytest.mark.parametrize(("size", "field"), ISING)
def test_energies_in_a_transverse_field(size, field):
    assert lowest(transverse_ising((1, size), field)).energies[0] / size == pytest.approx(ISING[size, field], abs=2e-8)
    momenta = 2 * np.pi * (np.arange(size) + 0.5) / size
    free = -np.sqrt(1 + field**2 - 2 * field * np.cos(momenta)).sum() / size
    assert ISING[size, field] == pytest.approx(free, abs=2e-8)


def pauli(own: Hamiltonian) -> np.ndarray:
    """The matrix of a Hamiltonian from products of Pauli matrices; spin 0 is the last factor."""
    up, x, y = np.diag([-1.0, 1.0]), np.array([[0, 1], [1, 0]]), np.array([[0, 1j], [-1j, 0]])

    def product(factors):
        found = np.eye(1)
        for site in reversed(range(own.sites)):
            found = np.kron(found, factors.get(site, np.eye(2)))
        return found

    total = np.zeros((2**own.sites,) * 2, complex)
    for (i, j), zz, exchange in zip(own.bonds.tolist(), own.zz, own.exchange):
        total += zz * product({i: up, j: up}) + exchange / 2 * (product({i: x, j: x}) + product({i: y, j: y}))
    for site in range(own.sites):
        total -= own.field * product({site: x})
    return total.real


@pytest.mark.parametrize("own", [heisenberg((1, 6), 0.3), heisenberg((2, 4), 0.7), transverse_ising((2, 3), 0.6)])
def test_matrices_against_products_of_pauli_matrices(own):
    keys = own.states()
    np.testing.assert_allclose(matrix(own, keys).toarray(), pauli(own)[np.ix_(keys, keys)], atol=1e-12)
    np.testing.assert_allclose(diagonal(own, keys), np.diag(pauli(own))[keys], atol=1e-12)
    assert len(keys) == (64 if own.field else {6: 20, 8: 70}[own.sites])


def test_marshall_signs_change_the_sign_of_exchanges_between_the_sublattices():
    own = heisenberg((1, 6), 0.3)
    keys = own.states()
    sign = (-1.0) ** bits(keys, 6)[:, own.sublattice == 0].sum(1)
    turned = sign[:, None] * matrix(own, keys).toarray() * sign
    masks, elements, _ = own.moves(marshall=True)
    for mask, element in zip(masks.tolist(), elements.tolist()):
        for row, column in itertools.product(range(len(keys)), repeat=2):
            if keys[row] ^ keys[column] == mask:
                assert turned[row, column] == pytest.approx(element)


def test_correlations_by_hand():
    own = heisenberg((4, 4))
    spins = images(own.states()[::997], own.shape)
    found = correlations_of(spins)
    exact = [[(spins * np.roll(spins, (i, j), (1, 2))).mean((1, 2)) / 4 for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(found, np.moveaxis(exact, 2, 0), atol=1e-12)
    sign = 1 - 2 * own.sublattice.reshape(4, 4)
    direct = 3 * ((spins * sign).sum((1, 2)) / 2) ** 2 / 16**2
    np.testing.assert_allclose([staggered(one) for one in found], direct, atol=1e-12)


def test_the_state_of_a_hamiltonian_is_plain_json():
    own = heisenberg((4, 4), 0.5)
    again = Hamiltonian.from_json(own.to_json())
    assert again.shape == own.shape
    np.testing.assert_array_equal(again.bonds, own.bonds)
    np.testing.assert_array_equal(again.exchange, own.exchange)
