import pytest
import torch

from sciformer import nn
from tests.errors import refuses
from tests.nn.parity import shake
from tests.objectives.examples import learn

POOLS = {
    "mean": nn.MeanPool,
    "max": nn.MaxPool,
    "first": nn.FirstPool,
    "last": nn.LastPool,
    "last of both ways": lambda: nn.LastPool(bidirectional=True),
    "class attention": lambda: nn.ClassAttention(16, 4, raw_query=True),
    "attention": lambda: nn.AttentionPool(16, 4),
    "attention with seeds": lambda: nn.AttentionPool(16, 4, seeds=3),
    "lstm": lambda: nn.RecurrentPool(16, "lstm"),
    "gru": lambda: nn.RecurrentPool(16, "gru", depth=1),
}
SETS = ("mean", "max", "class attention", "attention", "attention with seeds")
LENGTHS = torch.tensor([5, 0, 9, 1])


@pytest.fixture(params=POOLS)
def pool(request):
    return shake(POOLS[request.param]()).double().eval()


def test_layout_padding_and_company_change_nothing(pool):
    ragged = nn.Ragged(LENGTHS)
    x = torch.randn(15, 16).double()
    packed = pool(x, ragged)
    assert packed.isfinite().all()
    padded = ragged.pad(x).masked_fill(~ragged.valid[..., None], torch.nan)
    torch.testing.assert_close(pool(padded, ragged.valid), packed)
    for i, (end, length) in enumerate(zip(ragged.ends, LENGTHS)):
        torch.testing.assert_close(pool(x[None, end - length : end])[0], packed[i])
    tail = nn.Ragged(LENGTHS, total=17)
    torch.testing.assert_close(pool(torch.cat([x, x[:2] * 1e3]), tail), packed)


def test_the_mean_of_blocks_is_its_equation_and_padding_stays_out():
    pool, ragged = shake(nn.BlockPool(3)).double(), nn.Ragged(LENGTHS)
    states = [torch.randn(15, 16).double() for _ in range(3)]
    found = pool(states, ragged)
    weight = pool.weight.softmax(0)
    for i, (end, length) in enumerate(zip(ragged.ends, LENGTHS)):
        means = [state[end - length : end].sum(0) / max(1, length) for state in states]
        torch.testing.assert_close(found[i], sum(w * mean for w, mean in zip(weight, means)))
    padded = [ragged.pad(state).masked_fill(~ragged.valid[..., None], torch.nan) for state in states]
    torch.testing.assert_close(pool(padded, ragged.valid), found)
    tail = [torch.cat([state, torch.full((2, 16), 1e9).double()]) for state in states]
    torch.testing.assert_close(pool(tail, nn.Ragged(LENGTHS, total=17)), found)
    found.square().sum().backward()
    assert (pool.weight.grad != 0).all()
    with refuses("3 hidden states", 2):
        pool(states[:2], ragged)


@pytest.mark.parametrize("name", SETS)
def test_pools_of_sets_do_not_know_the_order(name):
    pool, x = shake(POOLS[name]()).double().eval(), torch.randn(2, 7, 16).double()
    valid, order = torch.rand(2, 7) > 0.3, torch.randperm(7)
    torch.testing.assert_close(pool(x[:, order], valid[:, order]), pool(x, valid))


def test_mean_is_over_the_real_tokens():
    x, valid = torch.arange(12.0).view(1, 6, 2), torch.tensor([[1, 0, 1, 0, 0, 0]]).bool()
    assert nn.MeanPool()(x, valid).tolist() == [[2.0, 3.0]]
    assert nn.MeanPool()(x, ~valid & valid).tolist() == [[0.0, 0.0]]


def test_max_is_over_the_real_tokens_and_their_gradient_goes_to_the_largest():
    x = torch.tensor([[[-3.0, 2], [-1, 1], [9, 9]], [[7, 7], [7, 7], [7, 7]]], requires_grad=True)
    valid = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    y = nn.MaxPool()(x, valid)
    assert y.tolist() == [[-1.0, 2.0], [0.0, 0.0]]
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [[[0, 1], [1, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]]
    assert nn.MaxPool()(x[:, :0]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("at", [None, "shared", "each", "axes"])
def test_the_class_token_leads_in_both_layouts(at):
    token, ragged = nn.ClassToken(16).double(), nn.Ragged(LENGTHS)
    position = nn.Sinusoidal(16, axes=2) if at == "axes" else nn.Sinusoidal(16)
    encoder = shake(nn.Encoder(16, 1, 4, position=position)).double().eval()
    x = torch.randn(15, 16).double()
    places = {
        None: None,
        "shared": ragged.position + 1,
        "each": torch.rand(15).double() * 9,
        "axes": torch.rand(15, 2).double() * 9,
    }[at]
    y, longer, placed = token.prepend(x, ragged, places)
    packed = token(encoder(y, longer, at=placed), longer)
    assert torch.equal(longer.lengths, LENGTHS + 1)
    dense_places = None if places is None else ragged.pad(places)
    if at == "shared":
        dense_places = torch.arange(1, 10)
    y, valid, placed = token.prepend(ragged.pad(x), ragged.valid, dense_places)
    assert y.shape == (4, 10, 16)
    padded = token(encoder(y, valid, at=placed), valid)
    torch.testing.assert_close(packed, padded)
    packed.sum().backward()
    assert token.token.grad.abs().sum() > 0


def test_a_class_token_before_nothing():
    token, empty = nn.ClassToken(16), nn.Ragged(torch.tensor([0, 0]))
    y, longer, at = token.prepend(torch.zeros(0, 16), empty, torch.zeros(0))
    assert torch.equal(y, token.token.expand(2, -1))
    assert longer.lengths.tolist() == [1, 1]
    assert at.tolist() == [0, 0]


def test_pools_can_be_watched():
    watch = nn.Watch()
    x = torch.randn(2, 5, 16)
    nn.ClassAttention(16, 4)(x, watch=watch)
    assert {name: tuple(w.shape) for name, w in watch.attention.items()} == {
        "blocks.0.attention": (2, 4, 1, 6),
        "blocks.1.attention": (2, 4, 1, 6),
    }
    nn.AttentionPool(16, 4, seeds=3)(x, watch=watch)
    assert watch.attention["attention"].shape == (2, 4, 3, 5)


def test_gradients_reach_every_parameter(pool):
    x = torch.randn(3, 5, 16).double().requires_grad_()
    pool(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in [x, *pool.parameters()])


def test_value_loss_is_the_gaussian_likelihood_and_finds_its_deviation():
    head, y, target = nn.ValueHead(1), torch.ones(4000, 1), 3 + 2 * torch.randn(4000, 1)
    value = head(y)
    expected = -torch.distributions.Normal(value.mean, value.std).log_prob(target)
    torch.testing.assert_close(value.loss(target), expected)
    assert (nn.ValueHead(1)(torch.full((1, 1), -1e4)).std >= 1e-3).all()
    learn(head, lambda: head(y).loss(target).mean(), 400, 0.05)
    found = head(y[:1])
    assert found.mean.item() == pytest.approx(target.mean().item(), abs=0.02)
    assert found.std.item() == pytest.approx(target.std().item(), abs=0.02)
