"""The residual network of images, against the same written plainly."""

import copy

import pytest
import torch
import torch.nn.functional as F

from sciformer.nn import Ragged, ResNet2d, Watch, grid
from tests.nn.parity import shake


def plain(net, images):
    """The published network on images (B, channels, height, width), at patches of 32 pixels."""

    def layer(part, x, stride, padding, active=True):
        y = F.conv2d(x, part.conv.weight, None, stride, padding)
        norm = part.norm
        y = F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=1e-5)
        return y.relu() if active else y

    x = F.max_pool2d(layer(net.stem, images, 2, 3), 3, 2, 1)
    for i, block in enumerate(net.blocks):
        stride = 2 if i in (1, 2, 3) else 1
        if len(block.layers) == 2:
            y = layer(block.layers[1], layer(block.layers[0], x, stride, 1), 1, 1, False)
        else:
            y = layer(block.layers[1], layer(block.layers[0], x, 1, 0), stride, 1)
            y = layer(block.layers[2], y, 1, 0, False)
        x = (y + (x if block.change is None else layer(block.change, x, stride, 0, False))).relu()
    return x


@pytest.mark.parametrize("bottleneck", [False, True])
def test_it_is_the_published_one(bottleneck):
    net = shake(ResNet2d((32, 32, 3), (2, 3), (1, 1, 1, 1), (4, 5, 6, 7), bottleneck)).double().eval()
    images = torch.randn(2, 3, 64, 96).double()
    patches = images.unfold(2, 32, 32).unfold(3, 32, 32).permute(0, 2, 3, 4, 5, 1).reshape(2, 6, -1)
    expected = plain(net, images).flatten(2).mT
    torch.testing.assert_close(net(patches), expected)
    order, all_there = torch.randperm(6), torch.ones(2, 6, dtype=torch.bool)
    found = net(patches[:, order], all_there, cell=grid((2, 3))[order].expand(2, 6, 2))
    torch.testing.assert_close(found, expected[:, order])


@pytest.mark.parametrize(("side", "strides"), [(32, (2, 2, 8)), (16, (2, 1, 8)), (8, (1, 1, 8)), (2, (1, 1, 2))])
def test_strides_make_the_side_of_a_patch(side, strides):
    net = ResNet2d((side, side, 1), (2, 2), widths=(4, 4, 4, 4))
    later = [block.stride[0] for block in net.blocks if block.stride != (1, 1)]
    assert (net.stem.conv.stride[0], net.pool[0], 2 ** len(later)) == strides
    assert net.stem.conv.kernel_size[0] == (7 if strides[0] == 2 else 3)
    assert net(torch.randn(3, 4, side * side)).shape == (3, 4, 4)


def test_sides_may_differ():
    net = shake(ResNet2d((4, 8, 2), (3, 2), (1, 1, 1, 1), (4, 4, 4, 4))).eval()
    assert net(torch.randn(2, 6, 64)).shape == (2, 6, 4)


@pytest.mark.parametrize("side", [1, 4, 16])
def test_padding_and_company_change_nothing(side):
    net = shake(ResNet2d((side, side, 2), (3, 4), (1, 1, 1), (4, 5, 6))).double().eval()
    cells = [grid(shape) for shape in ((3, 4), (1, 2), (0, 0), (2, 2))]
    ragged = Ragged([len(cell) for cell in cells])
    x, cell = torch.randn(ragged.total, 2 * side * side).double(), torch.cat(cells)
    padded, valid = ragged.pad(x), ragged.valid
    expected = net(padded, valid, cell=ragged.pad(cell))
    torch.testing.assert_close(net(x, ragged, cell=cell), ragged.flatten(expected))
    poisoned = padded.masked_fill(~valid[..., None], torch.nan)
    torch.testing.assert_close(net(poisoned, valid, cell=ragged.pad(cell)), expected)
    alone = net(x[None, 14:], cell=cells[3][None])
    torch.testing.assert_close(alone[0], expected[3, :4])
    other = copy.deepcopy(net).train()
    first = net.train()(padded, valid, cell=ragged.pad(cell))
    torch.testing.assert_close(other(x, ragged, cell=cell), ragged.flatten(first))
    for one, same in zip(net.buffers(), other.buffers()):
        torch.testing.assert_close(one, same)
    first.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in net.parameters())


def test_it_can_be_watched_and_compiled():
    net = ResNet2d((4, 4, 1), (2, 2), (1, 1, 1), (4, 5, 6)).eval()
    x, watch = torch.randn(2, 4, 16), Watch()
    assert torch.equal(net(x, watch=watch), net(x))
    assert {name: tuple(state.shape) for name, state in watch.hidden.items()} == {
        "input": (2, 4, 16),
        "blocks.0": (2, 4, 4),
        "blocks.1": (2, 4, 5),
        "blocks.2": (2, 4, 6),
    }
    torch.testing.assert_close(torch.compile(net, backend="eager", fullgraph=True)(x), net(x))
    assert net(torch.zeros(2, 0, 16)).shape == (2, 0, 6)
    assert net(torch.zeros(0, 16), Ragged([0, 0])).shape == (0, 6)
    one = ResNet2d((1, 1, 1), (1, 1), (1,), (4,))  # a single pixel has no deviation
    assert one(torch.randn(1, 1, 1)).isfinite().all()
