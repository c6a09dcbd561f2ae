import itertools
import math

import numpy as np
import pytest
import torch

from sciformer.nn import Attention, Decoder, Encoder, Fourier, Modulation, Rotary, Sinusoidal, UnpairedSinusoidal, Watch
from sciformer.nn.positions import rotate
from tests.errors import refuses
from tests.nn.parity import shake

ZERO = torch.zeros(1, 7, 12).double()
TIMES = torch.tensor([-812.25, -3.5, 0.0, 0.02, 1.0, 77.7, 1432.1]).double()


def test_unpaired_sines_are_those_of_astromer():
    code = UnpairedSinusoidal(12).embed(ZERO, TIMES)
    for i, time in enumerate(TIMES.tolist()):
        for j in range(12):
            angle = time / 10000 ** (2 * j / 12)
            expected = math.sin(angle) if j % 2 == 0 else math.cos(angle)
            assert code[0, i, j].item() == pytest.approx(expected, abs=1e-12)
    assert not torch.allclose(code, Sinusoidal(12).embed(ZERO, TIMES))


def test_on_several_axes_each_has_its_share():
    at = torch.rand(7, 2).double() * 9
    both, one = UnpairedSinusoidal(12, axes=2).code(at), UnpairedSinusoidal(6)
    torch.testing.assert_close(both, torch.cat([one.code(at[:, 0]), one.code(at[:, 1])], -1))
    assert Modulation(12, axes=2).double().embed(ZERO, at).shape == (1, 7, 12)


def test_modulation_scales_and_shifts_by_fourier_series():
    code, x = Modulation(12, longest=300.0, harmonics=4).double(), torch.randn(1, 7, 12).double()
    angle = 2 * math.pi / 300 * TIMES[:, None] * torch.arange(1, 5)
    series = torch.cat([angle.sin(), angle.cos()], -1) @ code.linear.weight.T + code.linear.bias
    scale, shift = series.chunk(2, -1)
    torch.testing.assert_close(code.embed(x, TIMES), x * (1 + scale) + shift)
    torch.testing.assert_close(code.embed(x, TIMES + 300), code.embed(x, TIMES))  # the longest period
    code.embed(x, TIMES).square().sum().backward()
    assert (code.linear.weight.grad != 0).all()


def test_given_periods_are_even_in_their_logarithm():
    periods = np.geomspace(0.05, 1000, 6)
    code = Sinusoidal(12, periods=(0.05, 1000)).code(TIMES)
    for i, period in enumerate(periods):
        torch.testing.assert_close(code[:, 2 * i], (2 * math.pi * TIMES / period).sin(), atol=1e-9, rtol=0)
        torch.testing.assert_close(code[:, 2 * i + 1], (2 * math.pi * TIMES / period).cos(), atol=1e-9, rtol=0)
    found = Fourier(12, features=6, periods=(0.05, 1000)).frequency.detach()
    np.testing.assert_allclose(found[0], 1 / periods, rtol=1e-6)


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_heads_turn_in_periods_of_their_own(pairs):
    rotary, x = Rotary(8, pairs=pairs, periods=(0.05, 1000), heads=3), torch.randn(2, 3, 7, 8).double()
    found, periods = rotate(x, rotary.rotation(TIMES, x.dtype)), np.geomspace(0.05, 1000, 12)
    for head in range(3):
        for i in range(4):
            a, b = (2 * i, 2 * i + 1) if pairs == "neighbours" else (i, i + 4)
            turn = torch.polar(torch.ones(7).double(), 2 * math.pi * TIMES / periods[3 * i + head])
            whole = torch.complex(x[:, head, :, a], x[:, head, :, b]) * turn
            torch.testing.assert_close(found[:, head, :, a], whole.real, atol=1e-9, rtol=0)
            torch.testing.assert_close(found[:, head, :, b], whole.imag, atol=1e-9, rtol=0)


def test_a_share_of_the_head_is_turned():
    x = torch.randn(1, 2, 7, 8).double()
    found = rotate(x, Rotary(8, share=0.5).rotation(TIMES, x.dtype))
    torch.testing.assert_close(found[..., 4:], x[..., 4:])
    torch.testing.assert_close(found[..., :4], rotate(x[..., :4], Rotary(4).rotation(TIMES, x.dtype)))


@pytest.mark.parametrize("heads", [None, 2])
def test_turned_values_are_a_spectrum_about_every_token(heads):
    rotary = Rotary(4, periods=(0.5, 20), heads=heads)
    attention, x = shake(Attention(8, 2, turn_values=True)).double(), torch.randn(1, 7, 8).double()
    watch = Watch()
    found = attention(x, rotation=rotary.rotation(TIMES, x.dtype), watch=watch)
    weights, value = watch.attention["attention"][0], attention.qkv(x)[0, :, 16:].view(7, 2, 2, 2)
    waves = torch.view_as_complex(value.contiguous())  # (N, H, pairs)
    periods = np.geomspace(0.5, 20, 2 * (heads or 1)).reshape(2, -1)  # pair by pair, head by head in turn
    expected = torch.zeros(7, 2, 2, dtype=torch.complex128)
    for head, i, j, pair in itertools.product(range(2), range(7), range(7), range(2)):
        angle = 2 * math.pi * (TIMES[j] - TIMES[i]) / periods[pair, head if heads else 0]
        turn = torch.polar(torch.ones((), dtype=torch.float64), angle)
        expected[i, head, pair] += weights[head, i, j] * waves[j, head, pair] * turn
    expected = attention.out(torch.view_as_real(expected).flatten(1))
    torch.testing.assert_close(found[0], expected)
    torch.testing.assert_close(attention(x, rotation=rotary.rotation(TIMES + 99.5, x.dtype)), found)


def test_turned_values_in_a_cache():
    decoder = shake(Decoder(8, 2, 2, position=Rotary(4), turn_values=True)).double().eval()
    x, cache = torch.randn(2, 6, 8).double(), decoder.cache()
    steps = [decoder(x[:, i : i + 1], cache=cache) for i in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), decoder(x))


def test_mistakes_are_answered():
    with refuses("periods", "(5, 2)"):
        Sinusoidal(12, periods=(5, 2))
    with refuses(1, 512, 20_000):
        Modulation(12, longest=1000, harmonics=20_000)
    with refuses("share", 0.01):
        Rotary(8, share=0.01)
    with refuses("width", 2, 7):
        UnpairedSinusoidal(7, axes=2)
    with refuses("kv_heads", "Rotary", 4, 2):
        Encoder(16, 1, 4, kv_heads=2, position=Rotary(4, periods=(1, 9), heads=4))
    with refuses("Rotary", "heads 4"):
        Encoder(16, 1, 2, position=Rotary(8, periods=(1, 9), heads=4))
