import numpy as np
import pytest

from sciformer.domains.spins.ising_exact import (
    critical_temperature,
    enumerate_states,
    onsager_energy,
    onsager_magnetisation,
)
from tests.errors import refuses


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1.5, (-1.950643, 0.986173, 0.200350)),
        (critical_temperature(), (-1.565624, 0.843861, 0.783267)),
        (3.0, (-1.017070, 0.601291, 0.603135)),
    ],
)
def test_enumeration_gives_the_known_values_of_the_four_by_four_torus(temperature, expected):
    assert tuple(enumerate_states(4, temperature).values()) == pytest.approx(expected, abs=1e-6)


def test_onsager():
    assert critical_temperature() == pytest.approx(2.269185, abs=1e-6)
    temperatures = [1.0, 1.5, 2.0, 2.2, critical_temperature(), 2.5, 3.0, 4.0]
    energies = [-1.99716, -1.951117, -1.745565, -1.546489, -(2**0.5), -1.106079, -0.817310, -0.557272]
    np.testing.assert_allclose(onsager_energy(temperatures), energies, atol=1e-6)
    np.testing.assert_allclose(onsager_magnetisation([1.5, 2.0, 2.2, 2.5]), [0.9865, 0.911319, 0.784755, 0], atol=1e-6)
    np.testing.assert_allclose(onsager_energy([0.01, 1e4]), [-2, -2e-4], rtol=1e-6)
    np.testing.assert_allclose(onsager_magnetisation(0.001), 1)


def test_the_heat_capacity_is_the_slope_of_the_energy():
    below, here, above = (enumerate_states((3, 4), heat, "skewed", -1.5) for heat in (2.499, 2.5, 2.501))
    assert here["heat_capacity"] == pytest.approx((above["energy"] - below["energy"]) / 2e-3, rel=1e-5)


def test_too_many_states():
    with refuses(16, "5 x 5", hint="ising()"):
        enumerate_states(5, 2.0)
