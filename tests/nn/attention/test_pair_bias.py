import pytest
import torch
from torch.testing import assert_close

from sciformer.nn import Attention, BatchNorm, Documents, Encoder, PairBias, PairEmbedding, Ragged, Sight, Triangle
from sciformer.nn.attention.pair_bias import unravel
from tests.errors import refuses


def biased(lengths, heads=4, total=None, seed=0):
    """A bias of random numbers, and the same as a square for each sequence."""
    ragged = Ragged(lengths, total)
    triangle = Triangle(ragged)
    values = torch.randn(len(triangle), heads, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return PairBias(values, triangle.starts, ragged), triangle


def test_pairs_lie_row_by_row():
    ragged = Ragged([3, 0, 1, 2])
    triangle = Triangle(ragged)
    assert triangle.rows.tolist() == [0, 1, 1, 2, 2, 2, 3, 4, 5, 5]
    assert triangle.columns.tolist() == [0, 0, 1, 0, 1, 2, 3, 4, 4, 5]
    assert triangle.starts.tolist() == [0, 6, 6, 7]
    assert triangle.inside.all()
    assert ragged.pairs == 10


def test_a_run_may_have_more_places_than_pairs():
    triangle = Triangle(Ragged([2, 1], total=5, pairs=9))
    assert triangle.inside.tolist() == [True] * 4 + [False] * 5
    assert triangle.rows.max() < 5
    assert len(Triangle(Ragged([]))) == 0


def test_large_triangles_are_unravelled_exactly():
    i = torch.tensor([0, 1, 2, 4095, 40_000, 3_000_000])
    for j in (torch.zeros_like(i), i, i // 2):
        row, column = unravel(i * (i + 1) // 2 + j)
        assert row.tolist() == i.tolist()
        assert column.tolist() == j.tolist()


@pytest.mark.parametrize("total", [None, 9])
def test_dense_and_flat_hold_the_same_numbers(total):
    bias, triangle = biased([3, 0, 1, 2], total=total)
    dense, flat = bias.dense(), bias.flat()
    assert dense.shape == (4, 4, 3, 3)
    assert_close(dense, dense.transpose(2, 3))
    ragged = bias.ragged
    for place in range(10):
        i, j = int(triangle.rows[place]), int(triangle.columns[place])
        sample, row, column = int(ragged.sample[i]), int(ragged.position[i]), int(ragged.position[j])
        assert_close(dense[sample, :, row, column], bias.values[place])
        assert_close(flat[0, :, i, j], bias.values[place])
    assert (flat != 0).sum() == (dense != 0).sum()


def test_a_token_in_front_has_no_bias():
    bias, _ = biased([3, 0, 2])
    longer = bias.after().dense()
    assert_close(longer[:, :, 1:, 1:], bias.dense())
    assert not longer[:, :, 0].any()
    assert bias.after().ragged.lengths.tolist() == [4, 1, 3]


@pytest.mark.parametrize("kernel", ["reference", "sdpa", "chunked", "auto"])
def test_every_kernel_takes_a_bias_of_pairs(kernel):
    lengths = [4, 0, 1, 6]
    bias, _ = biased(lengths)
    bias.values.requires_grad_()
    ragged = bias.ragged
    x = torch.randn(ragged.total, 16, dtype=torch.float64)
    attention = Attention(16, 4, kernel=kernel).double()
    packed = attention(x[None], sight=Sight(Documents(ragged), bias=bias))[0]
    attention.kernel = "reference"
    dense = attention(ragged.pad(x), sight=Sight(valid=ragged.valid, bias=bias.dense()))
    assert_close(packed, ragged.flatten(dense))
    grads = [torch.autograd.grad(y.square().sum(), bias.values)[0] for y in (packed, ragged.flatten(dense))]
    assert_close(grads[0], grads[1])
    assert (grads[0] == 0).all(1).tolist() == [place == 10 for place in range(32)]  # one token sees itself alone


def test_a_trunk_takes_a_bias_of_pairs():
    bias, _ = biased([5, 0, 17, 1, 33, 0, 30, 29, 12, 3], total=134)
    ragged, trunk = bias.ragged, Encoder(16, 2, 4).double()
    x, weights = torch.randn(ragged.total, 16, dtype=torch.float64), [bias.values.requires_grad_(), *trunk.parameters()]
    packed = trunk(x, ragged, bias=bias)
    padded = ragged.flatten(trunk(ragged.pad(x), ragged.valid, bias=bias.dense()))
    assert_close(packed, padded)
    for mine, other in zip(*(torch.autograd.grad(out.square().sum(), weights) for out in (packed, padded))):
        assert_close(mine, other)
    with refuses("PairBias", "Documents", ragged):
        trunk(ragged.pad(x), ragged.valid, bias=bias)
    with refuses("PairBias", "4 heads", "2 heads"):
        trunk(x, ragged, bias=PairBias(bias.values[:, :2], bias.starts, ragged))


def test_batch_norm_is_that_of_torch():
    ours, theirs = BatchNorm(5), torch.nn.BatchNorm1d(5)
    for _ in range(3):
        x = torch.randn(40, 5) * 3 + 1
        assert_close(ours(x), theirs(x))
        assert_close(ours(x.view(8, 5, 5)).view(40, 5), theirs(x))
        assert_close((ours.running_mean, ours.running_var), (theirs.running_mean, theirs.running_var))
    ours.eval(), theirs.eval()
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_that_are_not_real_count_in_no_mean(dtype):
    """Also where they hold nonsense."""
    padded, packed = BatchNorm(3), BatchNorm(3)
    real = torch.rand(6, 7) < 0.6
    x = torch.randn(6, 7, 3)
    poisoned = x.masked_fill(~real[..., None], torch.nan).to(dtype).requires_grad_()
    y = padded(poisoned, real)
    assert y.dtype == dtype
    close = {"atol": 0.05, "rtol": 0.05} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    assert_close(y[real].float(), packed(x[real]), **close)
    assert_close((padded.running_mean, padded.running_var), (packed.running_mean, packed.running_var), **close)
    y[real].square().sum().backward()
    assert torch.isfinite(poisoned.grad).all()


@pytest.mark.parametrize("count", [0, 1])
def test_batch_norm_of_no_row_or_one_is_finite(count):
    norm, real = BatchNorm(3), torch.arange(4) < count
    y = norm(torch.randn(4, 3), real)
    assert torch.isfinite(y).all()
    assert torch.isfinite(norm.running_var).all()
    if not count:
        assert norm.running_mean.tolist() == [0, 0, 0]
        assert norm.running_var.tolist() == [1, 1, 1]
    assert torch.isfinite(BatchNorm(3)(torch.randn(count, 3))).all()


def test_a_pair_embedding_has_the_layers_it_is_told():
    made = PairEmbedding(4, (64, 64, 64, 8))
    assert sum(weight.numel() for weight in made.parameters()) == 9_568
    u = torch.randn(50, 4)
    assert made(u).min() >= -0.171  # gelu
    open_ended = PairEmbedding(4, (64, 8), last=False, bias=False)
    assert open_ended(u).min() < -0.5
