"""The mistakes of a first day, each answered with what was expected, what was found, and what to do."""

import pytest
import torch

from sciformer import nn
from sciformer.domains.jets.lorentz_net import LorentzNet
from sciformer.inspection import draw_pattern
from sciformer.nn.attention.cache import Store
from tests.errors import refuses
from tests.nn.parity import shake

X = torch.randn(2, 5, 16)
Q = torch.randn(1, 2, 5, 8)
PACKED = nn.Ragged([5, 5])


def encode(position=None, x=X, at=None, **options):
    return nn.Encoder(16, 1, 4, position=position, **options)(x, at=at)


def attend(sight=None, **options):
    return nn.attend(Q, Q, Q, sight, **options)


def cached(x, cache):
    return nn.Decoder(16, 1, 4)(x, PACKED, cache=cache)


MISTAKES = {
    "lengths negative": (lambda: nn.Ragged([3, -1]), ["lengths", -1]),
    "lengths boolean": (lambda: nn.Ragged(torch.tensor([True])), ["lengths", "torch.bool"]),
    "lengths real": (lambda: nn.Ragged(torch.tensor([1.0, 2.0])), ["lengths", "torch.float32"]),
    "lengths too long": (lambda: nn.Ragged([1, 2], total=2), ["lengths", 2, 3]),
    "tokens of other lengths": (lambda: nn.Ragged([1, 2]).pad(torch.zeros(4, 2)), [3, 4]),
    "position by name": (lambda: nn.Encoder(16, 1, 4, position="rotary"), ["Rotary(head_dim)", "'rotary'"]),
    "pattern by name": (lambda: nn.Encoder(16, 1, 4, pattern="causal"), ["Causal()", "'causal'"]),
    "no heads": (lambda: nn.Encoder(16, 1, 0), ["heads", 0]),
    "no seeds": (lambda: nn.AttentionPool(16, 4, seeds=0), ["seeds", 0]),
    "no widths": (lambda: nn.PairEmbedding(4, ()), ["widths"]),
    "unknown score": (lambda: nn.make_score("aditive", 4), ["'additive'"]),
    "unknown order": (lambda: nn.Block(8, 2, norm_position="posst"), ["'post'"]),
    "unknown order of a conformer": (lambda: nn.Conformer(8, 1, 2, norm_position="posst"), ["'post'"]),
    "unknown extra": (lambda: nn.Block(8, 2, extras=("headscale",)), ["'head_scale'"]),
    "extra by name": (lambda: nn.Block(8, 2, extras="head_scale"), ["extras=('head_scale',)"]),
    "unknown option": (lambda: nn.Block(8, 2, mlp_ration=3), ["'mlp_ratio'"]),
    "unknown activation": (lambda: nn.Block(8, 2, activation="swigul"), ["'swiglu'"]),
    "unknown cell": (lambda: nn.Recurrent(6, kind="gruu"), ["'gru'"]),
    "unknown kernel": (lambda: attend(kernel="spda"), ["'sdpa'"]),
    "rate of one": (lambda: nn.DropPath(1.0), [1.0]),
    "rate below zero": (lambda: nn.DropPath(-0.1), [-0.1]),
    "paths without residual": (lambda: nn.Block(8, 2, residual=False, drop_path=0.1), ["drop_path", "residual"]),
    "scale without residual": (lambda: nn.Block(8, 2, residual=False, extras=("residual_scale",)), ["residual_scale"]),
    "score by name": (lambda: attend(score="dot"), ["str", "ScaledDot()"]),
    "mask as sight": (lambda: attend(torch.ones(1, 5).bool()), ["Tensor", "Sight(valid=mask)"]),
    "widths differ": (lambda: nn.attend(Q, Q[..., :4], Q), ["(1, 2, 5, 8)", "(1, 2, 5, 4)"]),
    "heads do not divide": (lambda: nn.attend(Q[:, :1], Q, Q), ["(1, 1, 5, 8)", "(1, 2, 5, 8)"]),
    "two axes": (lambda: nn.attend(Q[0, 0], Q[0, 0], Q[0, 0]), ["x[None, None]"]),
    "boolean bias": (lambda: attend(nn.Sight(bias=torch.ones(1, 1, 5, 5).bool())), ["bias", "torch.bool"]),
    "bias of two axes": (lambda: attend(nn.Sight(bias=torch.zeros(5, 5))), ["bias", "(5, 5)"]),
    "bias of three axes": (lambda: nn.Encoder(16, 1, 2)(X, bias=torch.zeros(2, 5, 5)), ["bias", "(2, 5, 5)"]),
    "real mask": (lambda: attend(nn.Sight(valid=torch.ones(1, 5))), ["valid", "float32"]),
    "mask of another shape": (lambda: attend(nn.Sight(valid=torch.ones(5, 1).bool())), ["valid", "(1, 5)", "(5, 1)"]),
    "pattern of packed tokens": (lambda: attend(nn.Sight(nn.Documents(PACKED))), ["Documents"]),
    "pattern without an end": (
        lambda: attend(nn.Sight(nn.Strided(2)), kernel="chunked"),
        ["Strided(2)", "'chunked'", "kernel='auto'"],
    ),
    "gradients of flex": (
        lambda: nn.attend(Q.clone().requires_grad_(), Q, Q, kernel="flex"),
        ["'flex'", "kernel='auto'"],
    ),
    "tokens of two axes": (lambda: nn.Attention(12, 6)(torch.randn(2, 12)), ["(B, N, 12)", "(2, 12)"]),
    "tokens of another width": (lambda: nn.Attention(12, 6)(X), ["(B, N, 12)", "(2, 5, 16)"]),
    "gradients in a fixed cache": (lambda: nn.Attention(16, 4)(X, store=Store(9)), ["torch.no_grad()"]),
    "packed tokens and a cache": (lambda: cached(X.flatten(0, 1), nn.Cache(1)), ["cache"]),
    "memory that is not asked": (lambda: nn.Decoder(16, 1, 4)(X, memory=X), ["(2, 5, 16)", "cross=True"]),
    "no memory": (lambda: nn.Decoder(16, 1, 4, cross=True)(X), ["cross=True", "memory"]),
    "no memory of a recurrent decoder": (lambda: nn.RecurrentDecoder(16)(X), ["score=None"]),
    "padded memory": (lambda: nn.Decoder(16, 1, 4, cross=True)(X.flatten(0, 1), PACKED, memory=X), ["Ragged(lengths)"]),
    "memory of another width": (
        lambda: nn.Decoder(16, 1, 4, cross=True, memory_dim=6)(X, memory=X),
        ["width 6", "(2, 5, 16)"],
    ),
    "memory of another batch": (lambda: nn.Attention(16, 4)(X, X[:1]), ["memory", "2 samples", 1]),
    "more keys than places": (lambda: nn.Location(8, 2, length=4)(Q, Q), [4, "length=5"]),
    "coordinates of another length": (
        lambda: encode(nn.Sinusoidal(16), at=torch.zeros(2, 4)),
        ["(5,)", "(2, 5)", "(2, 4)"],
    ),
    "one coordinate a sample": (lambda: encode(nn.Sinusoidal(16), at=torch.zeros(2, 1)), ["(2, 1)"]),
    "no coordinates": (lambda: encode(nn.Sinusoidal(16, axes=2)), ["Sinusoidal", 2, "at=grid((height, width))"]),
    "too many tokens": (lambda: encode(nn.Learned(16, 4)), [4, 5, "at=grid("]),
    "places outside": (lambda: encode(nn.Learned(16, 4), at=torch.arange(5)), ["(4,)", "0 to 4"]),
    "coordinates on other axes": (lambda: encode(nn.Fourier(16, axes=2), at=torch.rand(2, 5, 3)), ["(2, 5, 3)", 2]),
    "learned of another width": (lambda: encode(nn.Learned(8, 5)), ["Learned"]),
    "sinusoidal of another width": (lambda: encode(nn.Sinusoidal(8)), ["Sinusoidal"]),
    "fourier of another width": (lambda: encode(nn.Fourier(8)), ["Fourier"]),
    "rotary of another width": (lambda: encode(nn.Rotary(8)), ["Rotary"]),
    "bias of other heads": (lambda: encode(nn.RelativeBias(3, 2)), ["RelativeBias"]),
    "periods of other heads": (lambda: encode(nn.Rotary(4, periods=(1, 9), heads=2)), ["Rotary", "heads 2"]),
    "periods of shared heads": (
        lambda: encode(nn.Rotary(4, periods=(1, 9), heads=4), kv_heads=2),
        ["kv_heads", "Rotary", 4, 2],
    ),
    "odd waves": (lambda: nn.Sinusoidal(10, axes=2), ["dim", 4, 10]),
    "uneven waves": (lambda: nn.UnpairedSinusoidal(7, axes=2), ["dim", 2, 7]),
    "too many harmonics": (lambda: nn.Modulation(12, longest=1000, harmonics=20_000), [1, 512, 20_000]),
    "no pair to turn": (lambda: nn.Rotary(8, share=0.01), ["share", 0.01]),
    "rotary without attention": (lambda: nn.Recurrent(16, position=nn.Rotary(16)), ["Rotary", "Recurrent"]),
    "bias without attention": (lambda: nn.ConvNet(16, 1, position=nn.RelativeBias(1, 2)), ["RelativeBias", "ConvNet"]),
    "odd width of two ways": (lambda: nn.Recurrent(5, bidirectional=True), [5, "hidden"]),
    "even kernel": (lambda: nn.Conformer(8, 1, 2, width=4), ["kernel", 4]),
    "mixtures of no places": (lambda: nn.Attention(8, 2, compress=3), ["places"]),
    "mixtures in a window": (lambda: encode(pattern=nn.Window(2), compress=3, places=6), ["Window(2)"]),
    "mixtures of the past": (lambda: nn.Decoder(8, 1, 2, compress=3, places=6), ["Causal()"]),
    "mixtures with a bias": (lambda: encode(nn.RelativeBias(4, 3), compress=3, places=6), ["compress", "bias"]),
    "negative window": (lambda: nn.Window(-1), ["window", -1]),
    "negative globals": (lambda: nn.Global(-1), ["global", -1]),
    "no stride": (lambda: nn.Strided(0), ["stride", 0]),
    "sequences of other number": (
        lambda: nn.Documents(PACKED, keys=nn.Ragged([1])),
        ["1 sequences", "2 sequences of queries"],
    ),
    "large patches": (lambda: nn.ResNet2d((64, 64, 1), (1, 1)), [32, 4, 64]),
    "widths without stages": (lambda: nn.ResNet2d((8, 8, 1), (1, 1), (2, 2)), ["4 widths", "2 stages"]),
    "no vectors": (lambda: LorentzNet(16, 4, 1)(X), ["(..., 4)", "tokens.at: vector"]),
    "vectors of two axes": (
        lambda: LorentzNet(16, 4, 1)(X, at=torch.zeros(2, 5, 2)),
        ["(..., 4)", "tokens.at: vector"],
    ),
    "targets of another shape": (
        lambda: nn.Gaussian(torch.zeros(5, 1), torch.ones(5, 1)).loss(torch.zeros(5)),
        ["(5, 1)", "(5,)"],
    ),
    "picture of another size": (lambda: draw_pattern(nn.Documents(nn.Ragged([2, 3])), 6), [5, 6]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name):
    call, mentions = MISTAKES[name]
    with refuses(*mentions):
        call()


def test_what_is_not_a_mistake():
    encoder = nn.Encoder(16, 1, 4, position=nn.Sinusoidal(16)).eval()
    assert torch.equal(encoder(X, at=nn.grid((5,))), encoder(X))  # (N, 1) is one coordinate for each token
    assert torch.equal(encoder(X, at=torch.arange(5)[None]), encoder(X))
    square = nn.Encoder(16, 1, 4, position=nn.Fourier(16, axes=2)).eval()
    x, at = torch.randn(2, 2, 16), torch.rand(2, 2)  # as many samples as tokens as axes
    valid = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(square(x, valid, at=at), square(x, valid, at=at.expand(2, 2, 2)))
    assert nn.Encoder(16, 1, 4, position=nn.Learned(16, (4, 4)))(torch.zeros(0, 16), nn.Ragged([0, 0])).shape == (0, 16)
    assert nn.Ragged([]).total == 0
    net = nn.ConvNet(8, 1, shape=(4, 4), position=nn.Learned(8, (4, 8)))
    assert net(torch.randn(1, 16, 8), shape=(2, 8)).shape[1] == 16
    tail = nn.Ragged([3, 4], total=20)
    layer = nn.Encoder(16, 1, 4, score="location", length=8).eval()
    assert layer(torch.randn(20, 16), tail).isfinite().all()
    q = torch.randn(1, 2, 100, 8)
    both = nn.Documents(nn.Ragged([40, 60])) & nn.Window(3)
    expected = nn.attend(q, q, q, nn.Sight(both), kernel="reference")
    torch.testing.assert_close(nn.attend(q, q, q, nn.Sight(both)), expected)
    assert nn.Location(8, 2)(Q, Q).shape == (1, 2, 5, 5)


def test_coordinates_reach_both_sides_of_an_encoder_decoder():
    model = nn.EncoderDecoder(
        nn.Encoder(16, 1, 4, position=nn.Fourier(16)), nn.Decoder(16, 1, 4, position=nn.Fourier(16), cross=True)
    ).eval()
    at = torch.rand(2, 5)
    base = model(X, X, source_at=at, target_at=at)
    assert not torch.allclose(model(X, X, source_at=at + 1, target_at=at), base)
    assert not torch.allclose(model(X, X, source_at=at, target_at=at + 1), base)


@pytest.mark.parametrize("score", [None, "additive", "scaled_dot"])
def test_a_recurrent_decoder_does_not_read_padding(score):
    decoder = shake(nn.RecurrentDecoder(16, 2, "lstm", score=score)).double()
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
    ragged = nn.Ragged(valid.sum(1))
    packed = decoder(x[valid], ragged, memory=memory)
    torch.testing.assert_close(packed, decoder(x, valid, memory=memory)[valid])


@pytest.mark.parametrize("trunk", [nn.Recurrent, lambda *a, **k: nn.ConvNet(16, 1, **k)], ids=["recurrent", "convnet"])
@pytest.mark.parametrize("position", [lambda: nn.Fourier(16), lambda: nn.Learned(16, 9)], ids=["fourier", "learned"])
def test_nan_coordinates_at_padding_stay_out_of_gradients(trunk, position):
    trunk = trunk(16, position=position())
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
    at = (torch.rand(2, 5) * 8).masked_fill(~valid, torch.nan)
    trunk(X, valid, at=at).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in trunk.parameters())
