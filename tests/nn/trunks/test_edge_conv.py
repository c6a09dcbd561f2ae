"""Nearest neighbours, EdgeConv and the attention of points against their definitions, token by token."""

import pytest
import torch
import torch.nn.functional as F

from sciformer.nn import EdgeConv, EdgeConvNet, Layout, PointCloudTransformer, Watch
from sciformer.nn.trunks.edge_conv import nearest
from sciformer.nn.trunks.point_cloud_transformer import OffsetAttention
from tests.nn.parity import shake


def naive_nearest(at, valid, count, itself):
    """For each real token a list of the places of its nearest, nearest first."""
    found = []
    for i in range(len(at)):
        others = [j for j in range(len(at)) if valid[j] and (itself or j != i)]
        found.append(sorted(others, key=lambda j: (j != i, float((at[i] - at[j]).norm())))[:count])
    return found


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 7])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_nearest(axes, count, itself):
    torch.manual_seed(0)
    at, valid = torch.randn(3, 9, axes).double(), torch.rand(3, 9) > 0.3
    valid[2] = False
    place, there = nearest(at.masked_fill(~valid[..., None], torch.nan), valid, count, itself)
    assert place.shape == there.shape == (3, 9, count)
    for b in range(3):
        expected = naive_nearest(at[b], valid[b], count, itself)
        for i in range(9):
            if valid[b, i]:
                assert place[b, i][there[b, i]].tolist() == expected[i]
    assert not there[2].any()


def test_points_at_the_same_place_are_neighbours_and_none_is_its_own():
    at = torch.zeros(1, 5, 2)
    place, there = nearest(at, None, 4)
    assert there.all()
    assert all(sorted(place[0, i].tolist()) == [j for j in range(5) if j != i] for i in range(5))
    assert (nearest(at, None, 1, itself=True)[0][0, :, 0] == torch.arange(5)).all()


def test_close_points_far_from_the_origin_keep_their_order():
    near = torch.tensor([0.0, 1e-3, 3e-3, 6e-3, 1e-2])
    at = torch.stack([3 + near, torch.zeros(5)], -1)[None]
    assert nearest(at, None, 4)[0][0, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("inputs", "shortcut", "bias"), [(5, True, False), (6, True, True), (5, False, True)])
def test_a_block_is_its_equation(inputs, shortcut, bias):
    torch.manual_seed(1)
    block = shake(EdgeConv(inputs, 6, 4, shortcut=shortcut, bias=bias, layers=2)).double().eval()
    n = 3  # fewer than neighbours: the others are zeros
    x, at = torch.randn(1, n, inputs).double(), torch.randn(1, n, 2).double()
    layout = Layout(x, None)
    found = block(layout.flat(x), layout.flat(at), layout)

    def step(layer, norm, y):
        return F.relu((layer(y) - norm.running_mean) / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias)

    for i in range(n):
        others = [x[0, j] for j in range(n) if j != i] + [torch.zeros(inputs).double()] * 2
        total = torch.zeros(6).double()
        for other in others:
            y = torch.cat([x[0, i], other - x[0, i]])
            for layer, norm in zip(block.layers, block.norms):
                y = step(layer, norm, y)
            total += y / 4
        if shortcut and inputs != 6:
            norm = block.change_norm
            own = (block.change(x[0, i]) - norm.running_mean) / (norm.running_var + 1e-5).sqrt()
            total = F.relu(own * norm.weight + norm.bias + total)
        elif shortcut:
            total = F.relu(x[0, i] + total)
        torch.testing.assert_close(found[i], total)


def test_later_blocks_look_where_earlier_ones_brought_the_tokens():
    torch.manual_seed(0)
    net = shake(EdgeConvNet(3, [8, 8], 2)).double().eval()
    x = torch.randn(1, 12, 3).double()
    a, b = torch.randn(1, 12, 2).double(), torch.randn(1, 12, 2).double()
    assert not torch.allclose(net(x, at=a), net(x, at=b))
    torch.testing.assert_close(net(x, at=a), net(x, at=7 * a + 2))
    torch.testing.assert_close(net(x), net(x, at=net.input_norm(x)))


def test_attention_of_points_is_its_equation():
    torch.manual_seed(0)
    layer = shake(OffsetAttention(8)).double().eval()
    x = torch.randn(1, 5, 8).double()
    layout, watch = Layout(x, None), Watch()
    found = layer(x[0], layout, watch)
    q, k, v = layer.qkv_norm(layer.qkv(x[0])).split([2, 2, 8], -1)
    shared = (q @ k.T).softmax(-1)
    weights = (shared / (shared.sum(0) + 1e-9)).T
    torch.testing.assert_close(watch.attention["attention"][0, 0], weights)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5).double())
    expected = x[0] + F.relu(layer.out_norm(layer.out(x[0] - weights @ v)))
    torch.testing.assert_close(found, expected)


def test_points_show_their_attention():
    net, watch, valid = PointCloudTransformer(5, 6, 2, [8, 4], 3).eval(), Watch(), torch.ones(2, 7, dtype=torch.bool)
    valid[1, 3:] = False
    net(torch.randn(2, 7, 5), valid, watch=watch)
    assert list(watch.attention) == ["blocks.2.attention", "blocks.3.attention"]
    for weights in watch.attention.values():
        sums = weights.sum(-1)[:, 0]
        torch.testing.assert_close(sums, valid[:, : sums.shape[1]].float())
        assert not weights[1, 0, :, 3:].any()
