"""Losses of an ensemble against their formulas."""

import pytest
import torch

from sciformer.nn.losses import MIN_SPREAD, fair_crps, statistical_loss


def test_the_fair_crps_is_its_double_sum():
    members, target = torch.randn(7, 3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    pairs = (members[:, None] - members).abs().sum((0, 1))
    torch.testing.assert_close(fair_crps(members, target), (members - target).abs().mean(0) - pairs / (2 * 7 * 6))
    torch.testing.assert_close(fair_crps(members[:1], target), (members[0] - target).abs())


def test_the_fair_crps_has_the_same_mean_for_any_number_of_members():
    torch.manual_seed(0)
    truth = torch.randn(200_000)
    scores = [fair_crps(torch.randn(count, 200_000), truth).mean().item() for count in (2, 8)]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert scores[1] == pytest.approx(torch.pi**-0.5, abs=0.01)  # of N(0, 1) for draws from N(0, 1)


def test_the_statistical_loss_is_its_formula_and_finite_without_spread():
    members, target = torch.randn(5, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    mean, std = members.mean(0), (members.var(0) + MIN_SPREAD**2).sqrt()
    outside = (1 - torch.exp(-((target - mean) ** 2) / (2 * std**2))) ** 2
    expected = ((members - target) ** 2).mean(0) + outside + std.sqrt()
    torch.testing.assert_close(statistical_loss(members, target), expected)
    same = torch.zeros(4, 2, requires_grad=True)
    loss = statistical_loss(same, torch.zeros(2)).sum()
    loss.backward()
    assert loss.isfinite()
    assert same.grad.isfinite().all()


@pytest.mark.parametrize("loss", [fair_crps, statistical_loss])
def test_both_are_lowest_for_members_around_the_truth(loss):
    torch.manual_seed(0)
    truth = torch.randn(50_000)

    def mean(shift, scale):
        return loss(shift + scale * torch.randn(16, 50_000), truth).mean()

    assert mean(0, 1) < mean(1, 1)
    assert mean(0, 1) < mean(0, 4)
    assert fair_crps(torch.randn(16, 50_000), truth).mean() < fair_crps(0.2 * torch.randn(16, 50_000), truth).mean()
