import torch

from sciformer.nn.grids import Grid
from sciformer.nn.positions import grid
from tests.errors import refuses


def test_a_full_grid_is_only_reshaped():
    x = torch.randn(2, 6, 3)
    for at in (None, grid((2, 3))):
        full = Grid.of((2, 3), 6, None, None, at, training=True)
        assert full.real is None
        assert full.lay(x).data_ptr() == x.data_ptr()
        torch.testing.assert_close(full.lay(x), x.view(2, 2, 3, 3), rtol=0, atol=0)
        torch.testing.assert_close(full.pick(full.lay(x)), x, rtol=0, atol=0)
    spread = grid((2, 3), (4, 4)).expand(2, 6, 2)  # another grid, whose tokens lie row by row
    other = Grid.of((4, 4), 6, None, grid((2, 3)).expand(2, 6, 2), spread, training=False)
    assert other.shape == (2, 3)
    assert other.real is None


def test_tokens_that_were_taken_out_leave_holes():
    at, x = grid((2, 3))[[0, 2, 5]], torch.randn(2, 3, 4)
    holes = Grid.of((2, 3), 3, None, None, at, training=False)
    y = holes.lay(x)
    torch.testing.assert_close(y.flatten(1, 2)[:, [0, 2, 5]], x, rtol=0, atol=0)
    assert not y.flatten(1, 2)[:, [1, 3, 4]].any()
    torch.testing.assert_close(holes.pick(y), x, rtol=0, atol=0)
    sizes = [Grid.of((3, 4), 3, None, at, None, training).shape for training in (True, False)]
    assert sizes == [(3, 4), (2, 3)]  # in training the device is not asked for a size


def test_a_grid_without_places():
    valid = torch.tensor([[True] * 6, [False] * 6])
    filled = Grid((2, 3), 6, valid)
    assert filled.real is not None
    assert filled.real.shape == (2, 2, 3)
    assert not filled.lay(torch.ones(2, 6, 1))[1].any()
    with refuses("2 x 3", 6, 5):
        Grid((2, 3), 5)
