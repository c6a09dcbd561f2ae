"""Damaged files of every format are read, or refused by one clear error. `make fuzz` runs far more cases."""

import pytest

from tests.fuzz.cases import cases
from tests.fuzz.targets import TARGETS

CASES = 25


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_damage_is_read_or_refused(name, tmp_path):
    found = list(cases(name, tmp_path, seed=0, numbers=range(CASES)))
    for case in found:
        assert case.outcome in ("read", "refused"), f"case {case.number} of {name}: {case.outcome}"
    assert any(case.outcome == "refused" for case in found) == TARGETS[name].needed
