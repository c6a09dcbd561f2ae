"""Temperatures and intervals of simulated lattices."""

import numpy as np
import pytest

from sciformer.domains.spins.simulation import IsingLattices
from tests.errors import refuses


def lattices(**changes):
    base = {"size": 4, "lowest": 0.02, "highest": 3.98, "number": 400, "chains": 1, "samples": 1, "cache": ""}
    return IsingLattices(kind="lattices", **{**base, **changes})


def test_random_temperatures_fill_the_range_without_a_gap():
    table = lattices(spacing="random", gap=None).make()
    heat = table["temperature"]
    assert heat.min() > 0.02
    assert heat.max() < 3.98
    np.testing.assert_allclose(np.histogram(heat, 4, (0, 4))[0], 100, atol=35)
    assert len(np.unique(heat)) == 400
    opened = lattices(spacing="random", gap=None, split={"valid": 0.05, "test": 0.7, "by": "chain"}).open()
    assert {part: sum(source.sizes) for part, source in opened.sources.items()} == {
        "train": 100,
        "valid": 20,
        "test": 280,
    }
    assert not np.array_equal(heat, lattices(spacing="random", seed=1).make()["temperature"])


def test_intervals_of_the_temperature():
    table = lattices(number=5, lowest=0.5, highest=3.5).make()
    found = dict(zip(table["temperature"].tolist(), table["interval"].tolist()))
    assert found == {0.5: "below 1", 1.25: "1 to 2", 2.0: "2 to 3", 2.75: "2 to 3", 3.5: "from 3"}
    own = lattices(number=5, lowest=0.5, highest=3.5, intervals=[2.3]).make()["interval"]
    assert own.tolist() == ["below 2.3"] * 3 + ["from 2.3"] * 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"intervals": [2, 1]}, "data.intervals"), ({"gap": (3, 2)}, "data.gap"), ({"gap": (0, 5)}, "data.gap")],
)
def test_refusals(changes, key):
    with refuses(key=key):
        lattices(number=3, **changes).open()


def test_the_name_of_a_cache_is_that_of_earlier_versions():
    assert IsingLattices(kind="lattices").describe() == "lattices-b4e03c9fc7890215"
