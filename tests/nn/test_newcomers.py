"""The mistakes of a first day, each answered with what was expected, what was found, and what to do."""

import pytest
import torch

from sciformer.inspect import draw_pattern
from sciformer.nn import (
    Attention,
    ConvNet,
    Decoder,
    Documents,
    Encoder,
    EncoderDecoder,
    Fourier,
    Gaussian,
    Learned,
    Location,
    Ragged,
    Recurrent,
    RecurrentDecoder,
    RelativeBias,
    Rotary,
    Sight,
    Sinusoidal,
    Window,
    attend,
    grid,
)
from tests.errors import refuses
from tests.nn.parity import shake

X = torch.randn(2, 5, 16)
Q = torch.randn(1, 2, 5, 8)

MISTAKES = {
    "lengths negative": (lambda: Ragged([3, -1]), ["lengths", -1]),
    "lengths boolean": (lambda: Ragged(torch.tensor([True])), ["lengths", "torch.bool"]),
    "position by name": (lambda: Encoder(16, 1, 4, position="rotary"), ["Rotary(head_dim)", "'rotary'"]),
    "pattern by name": (lambda: Encoder(16, 1, 4, pattern="causal"), ["Causal()", "'causal'"]),
    "no heads": (lambda: Encoder(16, 1, 0), ["heads", 0]),
    "score by name": (lambda: attend(Q, Q, Q, score="dot"), ["str", "ScaledDot()"]),
    "mask as sight": (lambda: attend(Q, Q, Q, torch.ones(1, 5).bool()), ["Tensor", "Sight(valid=mask)"]),
    "widths differ": (lambda: attend(Q, Q[..., :4], Q), ["(1, 2, 5, 8)", "(1, 2, 5, 4)"]),
    "boolean bias": (lambda: attend(Q, Q, Q, Sight(bias=torch.ones(1, 1, 5, 5).bool())), ["bias", "torch.bool"]),
    "bias of three axes": (
        lambda: Encoder(16, 1, 2)(X, torch.ones(2, 5).bool(), bias=torch.zeros(2, 5, 5)),
        ["bias", "(2, 5, 5)"],
    ),
    "memory of another width": (
        lambda: Decoder(16, 1, 4, cross=True, memory_dim=6)(X, memory=X),
        ["width 6", "(2, 5, 16)"],
    ),
    "memory of another batch": (lambda: Attention(16, 4)(X, X[:1]), ["memory", "2 samples", 1]),
    "coordinates of another length": (
        lambda: Encoder(16, 1, 4, position=Sinusoidal(16))(X, at=torch.zeros(2, 4)),
        ["(5,)", "(2, 5)", "(2, 4)"],
    ),
    "one coordinate a sample": (
        lambda: Encoder(16, 1, 4, position=Sinusoidal(16))(X, at=torch.zeros(2, 1)),
        ["(2, 1)"],
    ),
    "rotary without attention": (lambda: Recurrent(16, position=Rotary(16)), ["Rotary", "Recurrent"]),
    "bias without attention": (lambda: ConvNet(16, 1, position=RelativeBias(1, 2)), ["RelativeBias", "ConvNet"]),
    "targets of another shape": (
        lambda: Gaussian(torch.zeros(5, 1), torch.ones(5, 1)).loss(torch.zeros(5)),
        ["(5, 1)", "(5,)"],
    ),
    "picture of another size": (lambda: draw_pattern(Documents(Ragged([2, 3])), 6), [5, 6]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name):
    call, mentions = MISTAKES[name]
    with refuses(*mentions):
        call()


def test_what_is_not_a_mistake():
    encoder = Encoder(16, 1, 4, position=Sinusoidal(16)).eval()
    assert torch.equal(encoder(X, at=grid((5,))), encoder(X))  # (N, 1) is one coordinate for each token
    assert torch.equal(encoder(X, at=torch.arange(5)[None]), encoder(X))
    square = Encoder(16, 1, 4, position=Fourier(16, axes=2)).eval()
    x, at = torch.randn(2, 2, 16), torch.rand(2, 2)  # as many samples as tokens as axes
    valid = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(square(x, valid, at=at), square(x, valid, at=at.expand(2, 2, 2)))
    assert Encoder(16, 1, 4, position=Learned(16, (4, 4)))(torch.zeros(0, 16), Ragged([0, 0])).shape == (0, 16)
    assert Ragged([]).total == 0
    assert ConvNet(8, 1, shape=(4, 4), position=Learned(8, (4, 8)))(torch.randn(1, 16, 8), shape=(2, 8)).shape[1] == 16
    tail = Ragged([3, 4], total=20)
    layer = Encoder(16, 1, 4, score="location", length=8).eval()
    assert layer(torch.randn(20, 16), tail).isfinite().all()
    q = torch.randn(1, 2, 100, 8)
    both = Documents(Ragged([40, 60])) & Window(3)
    torch.testing.assert_close(attend(q, q, q, Sight(both)), attend(q, q, q, Sight(both), kernel="reference"))
    assert Location(8, 2)(Q, Q).shape == (1, 2, 5, 5)


def test_coordinates_reach_both_sides_of_an_encoder_decoder():
    model = EncoderDecoder(
        Encoder(16, 1, 4, position=Fourier(16)), Decoder(16, 1, 4, position=Fourier(16), cross=True)
    ).eval()
    at = torch.rand(2, 5)
    base = model(X, X, source_at=at, target_at=at)
    assert not torch.allclose(model(X, X, source_at=at + 1, target_at=at), base)
    assert not torch.allclose(model(X, X, source_at=at, target_at=at + 1), base)


@pytest.mark.parametrize("score", [None, "additive", "scaled_dot"])
def test_a_recurrent_decoder_does_not_read_padding(score):
    decoder = shake(RecurrentDecoder(16, 2, "lstm", score=score)).double()
    x, memory = X.double(), torch.randn(2, 3, 16).double()
    valid = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]]).bool()
    found = decoder(x.masked_fill(~valid[..., None], torch.nan), valid, memory=memory)
    alone = decoder(x[1:, valid[1]], memory=memory[1:])
    torch.testing.assert_close(found[1, valid[1]], alone[0])
    assert not found[1, ~valid[1]].any()
    found.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in decoder.parameters())
    state = decoder.cache()
    parts = [decoder(x[:, :4], valid[:, :4], memory=memory, cache=state), decoder(x[:, 4:], cache=state)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x, valid, memory=memory))
    ragged = Ragged(valid.sum(1))
    packed = decoder(x[valid], ragged, memory=memory)
    torch.testing.assert_close(packed, decoder(x, valid, memory=memory)[valid])


@pytest.mark.parametrize("trunk", [Recurrent, lambda *a, **k: ConvNet(16, 1, **k)], ids=["recurrent", "convnet"])
@pytest.mark.parametrize("position", [lambda: Fourier(16), lambda: Learned(16, 9)], ids=["fourier", "learned"])
def test_nan_coordinates_at_padding_stay_out_of_gradients(trunk, position):
    trunk = trunk(16, position=position())
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
    at = (torch.rand(2, 5) * 8).masked_fill(~valid, torch.nan)
    trunk(X, valid, at=at).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in trunk.parameters())
