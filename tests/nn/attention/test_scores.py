import pytest
import torch

from sciformer.nn import SCORES, Additive, Content, Dot, General, Location, ScaledDot
from sciformer.nn.trunks.recurrent_decoder import RecurrentDecoder
from sciformer.nn.watch import Watch
from tests.nn.parity import shake

Q, K = torch.randn(2, 3, 4, 5).double(), torch.randn(2, 3, 6, 5).double()


def by_loop(function, q=Q, k=K):
    out = torch.zeros(2, 3, 4, 6).double()
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        out[b, h, i, j] = function(q[b, h, i], k[b, h, j], h, j)
    return out


def test_each_score_is_its_equation():
    content, general = shake(Content(5, 3).double()), shake(General(5, 3).double())
    additive, location = shake(Additive(5, 3).double()), shake(Location(5, 3, length=9).double())
    equations = {
        Dot(): lambda q, k, h, j: q @ k,
        ScaledDot(): lambda q, k, h, j: q @ k / 5**0.5,
        content: lambda q, k, h, j: content.sharpness[h, 0, 0] * q @ k / (q.norm() * k.norm()),
        general: lambda q, k, h, j: q @ general.weight[h] @ k,
        additive: lambda q, k, h, j: (
            additive.vector[h, 0, 0]
            @ torch.tanh(torch.cat([additive.query_weight[h], additive.key_weight[h]]).T @ torch.cat([q, k]))
        ),
        location: lambda q, k, h, j: location.weight[h, j] @ q,
    }
    assert len(equations) == len(SCORES) == 6
    for score, equation in equations.items():
        torch.testing.assert_close(score(Q, K), by_loop(equation), atol=1e-12, rtol=1e-12)


def test_content_starts_as_the_cosine_and_general_as_the_dot_product():
    cosine = torch.nn.functional.cosine_similarity(Q[..., :, None, :], K[..., None, :, :], dim=-1)
    torch.testing.assert_close(Content(5, 3).double()(Q, K), cosine)
    torch.testing.assert_close(General(5, 3).double()(Q, K), Dot()(Q, K))


def test_content_of_a_zero_query_has_a_bounded_gradient():
    q = torch.zeros(1, 1, 1, 5, requires_grad=True)
    Content(5)(q, K[:1, :1].float()).sum().backward()
    assert q.grad.abs().max() < 1e4


def test_location_ignores_what_the_keys_say():
    score = Location(5, 3, length=6).double()
    assert torch.equal(score(Q, K), score(Q, torch.randn_like(K)))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_in_a_recurrent_decoder(name):
    decoder = shake(RecurrentDecoder(6, kind="lstm", score=name, memory_dim=4).double())
    x, memory = torch.randn(2, 5, 6).double(), torch.randn(2, 7, 4).double()
    valid = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1, 1]]).bool()
    watch = Watch()
    out = decoder(x, memory=memory, memory_valid=valid, watch=watch)
    weights = watch.attention["attention"]
    assert weights.shape == (2, 1, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 5).double())
    assert not weights.masked_select(~valid[:, None, None]).any()
    torch.testing.assert_close(out, decoder(x, memory=memory, memory_valid=valid))  # watched equals unwatched
    out.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in decoder.parameters())
