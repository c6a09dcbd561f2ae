"""Trunks of tokens without an order, or with a batch norm: what they promise beyond test_trunks.py."""

import copy

import pytest
import torch
import torch.nn.functional as F

from sciformer.domains.jets.lorentz_net import LorentzNet
from sciformer.nn import DeepSets, EdgeConvNet, PointCloudTransformer, Ragged, ResNet, SumPool
from tests.nn.parity import shake

TRUNKS = {
    "deep_sets": lambda: DeepSets(5, [8, 7]),
    "resnet": lambda: ResNet(5, [4, 6, 8]),
    "resnet of three stages": lambda: ResNet(5, [4, 6, 6, 7]),
    "edge_conv": lambda: EdgeConvNet(5, [8, 7], 4),
    "edge_conv of one width": lambda: EdgeConvNet(5, [5, 5], 4),
    "edge_conv of many neighbours": lambda: EdgeConvNet(5, [8, 7], 30),
    "point_cloud_transformer": lambda: PointCloudTransformer(5, 7, 2, [8, 6], 4),
    "lorentz_net": lambda: LorentzNet(5, 8, 2),
}
LENGTHS = torch.tensor([5, 0, 12, 1, 2, 17])


@pytest.fixture(params=TRUNKS)
def trunk(request):
    torch.manual_seed(2)
    made = shake(TRUNKS[request.param]()).double()
    for name, buffer in made.named_buffers():
        buffer.copy_(torch.rand(buffer.shape) + (0.5 if name.endswith("var") else -0.5))
    return made


@pytest.fixture
def ragged():
    return Ragged(LENGTHS)


def made_for(trunk, count):
    """Tokens with coordinates of two axes; for `lorentz_net`, with momenta of mass 0.5 and more."""
    x, p = torch.randn(count, 5).double(), torch.randn(count, 3).double()
    lorentz = isinstance(trunk, LorentzNet)
    return x, torch.cat([(p.square().sum(-1, keepdim=True) + 0.25).sqrt(), p], -1) if lorentz else p[:, :2]


@pytest.fixture
def tokens(trunk):
    return made_for(trunk, int(LENGTHS.sum()))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("training", [True, False])
def test_layouts_give_the_same_results_statistics_and_gradients(trunk, ragged, tokens, training):
    x, at = tokens
    wide, where = (F.pad(ragged.pad(part), (0, 0, 0, 4), value=torch.nan) for part in tokens)
    valid = F.pad(ragged.valid, (0, 4))
    order = torch.argsort(torch.rand(valid.shape[1]))  # with holes between the tokens
    tail = Ragged(LENGTHS, total=ragged.total + 3)
    ways = {
        "packed": lambda made: made(x, ragged, at=at),
        "padded": lambda made: ragged.flatten(made(ragged.pad(x), ragged.valid, at=ragged.pad(at))),
        "wider": lambda made: ragged.flatten(made(wide, valid, at=where)[:, :-4]),
        "with a tail": lambda made: made(
            F.pad(x, (0, 0, 0, 3), value=torch.nan), tail, at=F.pad(at, (0, 0, 0, 3), value=torch.nan)
        )[:-3],
        "packed, of fixed shape": lambda made: traced(
            made, F.pad(x, (0, 0, 0, 3)), Ragged(LENGTHS, ragged.total + 3, 20, 300), F.pad(at, (0, 0, 0, 3))
        )[:-3],
        "of fixed shape": lambda made: ragged.flatten(traced(made, wide, valid, where)[:, :-4]),
    }
    if not isinstance(trunk, ResNet):
        ways["with holes"] = lambda made: ragged.flatten(
            made(wide[:, order], valid[:, order], at=where[:, order])[:, torch.argsort(order)][:, :-4]
        )
    found = {}
    for name, way in ways.items():
        made = copy.deepcopy(trunk).train(training)
        y = way(made)
        y.square().sum().backward()
        found[name] = [y, *made.buffers(), *(weight.grad for weight in made.parameters())]
    for name, values in found.items():
        assert all(value.isfinite().all() for value in values), name
        for value, expected in zip(values, found["packed"]):
            close(value, expected)


def traced(made, x, valid, at):
    """As a compiler sees it: no shape depends on a value."""
    torch._dynamo.reset()
    return torch.compile(made, backend="eager", fullgraph=True, dynamic=False)(x, valid, at=at)


def test_a_permutation_of_tokens_permutes_what_comes_out(trunk, tokens):
    if isinstance(trunk, ResNet):
        pytest.skip("a line of tokens has an order")
    x, at = tokens
    order = torch.randperm(len(x))
    trunk.eval()
    y, z = trunk(x[None], at=at[None])[0], trunk(x[None, order], at=at[None, order])[0]
    close(z, y[order])
    close(SumPool()(z[None]), SumPool()(y[None]))


def test_in_evaluation_company_changes_nothing(trunk, ragged, tokens):
    x, at = tokens
    trunk.eval()
    together = trunk(ragged.pad(x), ragged.valid, at=ragged.pad(at))
    for i, (end, length) in enumerate(zip(ragged.ends, LENGTHS)):
        rows = slice(end - length, end)
        close(trunk(x[None, rows], at=at[None, rows])[0], together[i, :length])


def test_samples_of_no_and_one_token(trunk):
    for lengths in ([0], [1], [0, 1, 0], [0, 0], []):
        (x, at), some = made_for(trunk, sum(lengths)), Ragged(lengths)
        for mode in (True, False):
            for y in (trunk.train(mode)(x, some, at=at), trunk(some.pad(x), some.valid, at=some.pad(at))):
                assert y.shape[-1] == trunk.dim
                assert y.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in trunk.buffers())


def test_a_step_of_training_reaches_every_weight(trunk, ragged, tokens):
    x, at = tokens
    x.requires_grad_()
    trunk.eval()  # in training a bias in front of a batch norm has no effect
    trunk(x, ragged, at=at).square().sum().backward()
    for name, weight in [("x", x), *trunk.named_parameters()]:
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().sum() > 0, name


def test_a_convolution_sees_its_neighbourhood_and_groups_of_tokens_share_an_answer():
    net = ResNet(3, [4, 4, 4, 4]).double().eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.abs_()  # so that nothing is cut off on the way
    x = torch.rand(1, 80, 3).double().requires_grad_()
    y = net(x)
    for first in (0, 8, 76):
        assert (y[0, first : first + 4] == y[0, first]).all()
    assert (y[0, 0] != y[0, 4]).any()
    (gradient,) = torch.autograd.grad(y[0, 42].sum(), x)
    seen = gradient[0].abs().sum(-1).nonzero().flatten()
    reach = 1 + 4 + (1 + 2 * 3) + (2 + 4 * 3)  # stem, a stage, a stage of stride 2, one of stride 4
    assert (seen.min().item(), seen.max().item()) == (40 - reach, 40 + reach)
