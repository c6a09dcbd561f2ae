import torch

from sciformer.nn import ConvNet, Sinusoidal, grid
from tests.nn.parity import shake


def reach(net, shape, at):
    """Which tokens of a grid the output at one place depends on."""
    x = torch.randn(1, shape[0] * shape[1], 8).double().requires_grad_()
    net(x)[0, at].sum().backward()
    return (x.grad.abs().sum(-1) > 0).view(shape)


def test_on_a_grid_a_token_sees_a_square_that_grows_with_depth():
    net = shake(ConvNet(8, 1, 3, shape=(9, 10))).double()
    seen = reach(net, (9, 10), 4 * 10 + 5)
    expected = torch.zeros(9, 10, dtype=torch.bool)
    expected[2:7, 3:8] = True
    assert torch.equal(seen, expected)


def test_on_a_line_dilation_widens_the_view():
    net = shake(ConvNet(8, 2, 3, dilation_growth=3)).double()
    seen = reach(net, (1, 40), 20)[0].nonzero().flatten()
    assert (seen.min().item(), seen.max().item()) == (20 - 8, 20 + 8)


def test_the_block_is_its_equation():
    net = shake(ConvNet(8, 1, 3)).double()
    x = torch.randn(2, 6, 8).double()
    block, y = net.blocks[0], x
    for norm, conv in zip(block.norms, block.convs):
        y = conv(torch.nn.functional.gelu(norm(y)).transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(net(x), net.norm(x + y))


def test_a_grid_may_change_its_size_and_hide_cells():
    net = shake(ConvNet(8, 2, 3, shape=(4, 4), position=Sinusoidal(8, axes=2))).double()
    x = torch.randn(1, 12, 8).double()
    assert net(x, shape=(3, 4), at=grid((3, 4))).shape == (1, 12, 8)
    # Cells hidden at the edge are as good as a smaller grid.
    valid = torch.ones(1, 4, 4, dtype=torch.bool)
    valid[:, 3] = False
    wide = torch.cat([x, torch.randn(1, 4, 8).double()], 1)
    found = net(wide, valid.flatten(1), at=grid((4, 4)))
    torch.testing.assert_close(found[:, :12], net(x, shape=(3, 4), at=grid((3, 4))))
