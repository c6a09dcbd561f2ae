"""Guidance is a linear combination of two predictions."""

import pytest
import torch

from sciformer.generation.guidance import check_guidance, guide
from sciformer.objectives.diffusion import Diffusion
from sciformer.objectives.next_token import NextToken
from tests.errors import refuses


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 3.0])
def test_it_is_a_linear_combination(weight):
    given, without = torch.randn(3, 7), torch.randn(3, 7)
    found = guide(torch.cat([given, without]), weight)
    torch.testing.assert_close(found, weight * given + (1 - weight) * without)


def test_a_weight_needs_a_training_without_conditions():
    plain, both = (Diffusion(kind="diffusion", condition_dropout=share) for share in (0.0, 0.1))
    assert check_guidance(plain, None) == check_guidance(plain, 1.0) == 1
    assert check_guidance(both, 2.5) == 2.5
    assert check_guidance(both.model_copy(update={"guidance": 1.5}), None) == 1.5
    for objective in (plain, NextToken(kind="next_token")):
        with refuses("2", "condition_dropout", key="objective.condition_dropout"):
            check_guidance(objective, 2.0)
    for wrong in (-1.0, float("inf"), float("nan")):
        with refuses(key="--guidance"):
            check_guidance(both, wrong)
