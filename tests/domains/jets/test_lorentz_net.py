"""Boosts and rotations change four-vectors, and nothing that comes of them."""

import math

import pytest
import torch

from sciformer.domains.jets.lorentz_net import LorentzNet, TokenPairs, minkowski_product, signed_log
from sciformer.nn import Layout, MeanPool, Ragged
from tests.nn.parity import shake


def boost(axis, rapidity):
    made = torch.eye(4).double()
    made[0, 0] = made[axis, axis] = math.cosh(rapidity)
    made[0, axis] = made[axis, 0] = math.sinh(rapidity)
    return made


def rotation(a, b, angle):
    made = torch.eye(4).double()
    made[a, a] = made[b, b] = math.cos(angle)
    made[a, b], made[b, a] = -math.sin(angle), math.sin(angle)
    return made


FRAMES = {
    "boost along z": boost(3, 1.3),
    "boost along x": boost(1, -0.8),
    "rotation about z": rotation(1, 2, 0.7),
    "rotation and boosts": boost(2, 0.9) @ rotation(1, 3, 2.1) @ boost(1, -0.4) @ rotation(2, 3, -1.2),
    "mirror": torch.diag(torch.tensor([1.0, -1, 1, 1]).double()),
}


def momenta(count):
    p = 20 * torch.randn(count, 3).double()
    return torch.cat([(p.square().sum(-1, keepdim=True) + 0.02).sqrt(), p], -1)


@pytest.fixture
def net():
    torch.manual_seed(0)
    made = shake(LorentzNet(3, 8, 3)).double().eval()
    with torch.no_grad():  # so that four-vectors move far, and the order of blocks matters
        for block in made.blocks[:-1]:
            block.push[2].weight.mul_(30)
    return made


@pytest.mark.parametrize("name", FRAMES)
def test_no_frame_changes_what_comes_out(net, name):
    frame, ragged = FRAMES[name], Ragged([7, 1, 0, 12])
    at, s = momenta(20), torch.randn(20, 3).double()
    metric = torch.diag(torch.tensor([1.0, -1, -1, -1]).double())
    torch.testing.assert_close(frame.T @ metric @ frame, metric)
    expected, found = net(s, ragged, at=at), net(s, ragged, at=at @ frame.T)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    pooled = MeanPool()(expected, ragged)
    torch.testing.assert_close(MeanPool()(found, ragged), pooled, rtol=1e-8, atol=1e-8)
    assert not torch.allclose(net(s, ragged, at=1.1 * at), expected, rtol=1e-4)  # another energy is another jet


def test_a_block_is_its_equation(net):
    torch.manual_seed(3)
    block, x = net.blocks[0], momenta(4)
    h, s, layout = torch.randn(4, 8).double(), torch.randn(4, 4).double(), Layout(x[None], None)
    found, moved = block(h, x, s, TokenPairs(layout), layout)
    for i in range(4):
        sums, push = torch.zeros(8).double(), torch.zeros(4).double()
        for j in (j for j in range(4) if j != i):
            apart = x[i] - x[j]
            seen = signed_log(torch.stack([minkowski_product(apart, apart), minkowski_product(x[i], x[j])]))
            y = block.pair_norm(block.pair(torch.cat([h[i], h[j], seen]))[None])[0].relu()
            m = block.message(y).relu()
            m = m * block.gate(m).sigmoid()
            sums, push = sums + m, push + apart * block.push(m) / 3
        y = block.token_norm(block.token(torch.cat([h[i], sums, s[i]]))[None])[0].relu()
        torch.testing.assert_close(found[i], h[i] + block.out(y))
        torch.testing.assert_close(moved[i], x[i] + 5e-3 * push)


@pytest.mark.parametrize(("lengths", "total"), [([7, 1, 0, 12, 2], None), ([3, 5], 12), ([1, 0, 1], 4)])
@pytest.mark.parametrize("padded", [False, True])
def test_moments_are_those_of_all_real_pairs(lengths, total, padded):
    torch.manual_seed(1)
    ragged = Ragged(lengths, total)
    x = torch.zeros(ragged.total, 1).double()
    layout = Layout(ragged.pad(x).as_subclass(Other), ragged.valid) if padded else Layout(x, ragged)
    pairs, frame = TokenPairs(layout), torch.randn(6, 2).double()
    assert pairs.packed is not padded
    a, b = (5 + torch.randn(layout.total, 6).double().requires_grad_() for _ in range(2))
    symmetric = torch.rand(layout.total, 2).double()
    left, right = pairs.pair_values(symmetric, symmetric)
    seen = left + right
    mean, variance, count = pairs.moments(a, b, seen, frame)
    first, second = pairs.pair_values(a, b)
    rows = first + second + seen @ frame.T
    rows = rows if pairs.real is None else rows[pairs.real.flatten()]
    assert int(count) == len(rows) == sum(n * (n - 1) for n in lengths)
    if not len(rows):
        assert not mean.any()
        assert not variance.any()
        return
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(variance, rows.var(0, unbiased=False))
    found = torch.autograd.grad((mean + variance).sum(), [a, b], retain_graph=True)
    expected = torch.autograd.grad((rows.mean(0) + rows.var(0, unbiased=False)).sum(), [a, b])
    torch.testing.assert_close(found, expected)


class Other(torch.Tensor):
    """A tensor whose shapes may not depend on values, as on a GPU."""


def test_in_training_a_block_normalises_over_its_pairs():
    torch.manual_seed(2)
    block, plain = (LorentzNet(3, 8, 2).double().blocks[0] for _ in range(2))
    plain.load_state_dict(block.state_dict())
    ragged, x = Ragged([4, 6]), momenta(10)
    h, s, layout = torch.randn(10, 8).double(), torch.randn(10, 4).double(), Layout(torch.zeros(10, 1), ragged)
    pairs = TokenPairs(layout)
    found, _ = block(h, x, s, pairs, layout)
    a, b = x[pairs.left], x[pairs.right]
    seen = signed_log(torch.stack([minkowski_product(a - b, a - b), minkowski_product(a, b)], -1))
    m = plain.pair_norm(plain.pair(torch.cat([h[pairs.left], h[pairs.right], seen], -1))).relu()
    m = plain.message(m).relu()
    m = m * plain.gate(m).sigmoid()
    y = plain.token(torch.cat([h, torch.zeros(10, 8).double().index_add(0, pairs.left, m), s], -1))
    expected = h + plain.out(plain.token_norm(y).relu())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(block.pair_norm.running_mean, plain.pair_norm.running_mean)
    torch.testing.assert_close(block.pair_norm.running_var, plain.pair_norm.running_var)
    for made in (found, expected):
        made.square().sum().backward()
    for (name, mine), its in zip(block.named_parameters(), plain.parameters()):
        if its.grad is not None and "token.bias" not in name:  # in front of a norm: no effect, but for rounding
            torch.testing.assert_close(mine.grad, its.grad, msg=name)
