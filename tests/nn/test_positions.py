import itertools
import math

import numpy as np
import pytest
import torch

from sciformer import nn

ZERO = torch.zeros(1, 7, 12).double()
TIMES = torch.tensor([-812.25, -3.5, 0.0, 0.02, 1.0, 77.7, 1432.1]).double()


@pytest.mark.parametrize(("code", "width"), [(nn.Sinusoidal, 2), (nn.UnpairedSinusoidal, 1)])
def test_sines_and_cosines_take_turns(code, width):
    """Two numbers share a frequency in the paper, none do in ASTROMER."""
    found = code(12).embed(ZERO, TIMES)
    for (i, time), j in itertools.product(enumerate(TIMES.tolist()), range(12)):
        angle = time / 10000 ** (2 * (j // width) / 12)
        assert found[0, i, j].item() == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-12)


def test_sinusoidal_takes_real_times_in_double_precision():
    # A float32 cannot tell two times of this size a minute apart; the difference must survive.
    time = 60_000.0 + torch.tensor([0.0, 1 / 1440], dtype=torch.float64)
    code = nn.Sinusoidal(12).embed(torch.zeros(1, 2, 12), time)
    assert (code[0, 1, 0] - code[0, 0, 0]).abs().item() == pytest.approx(
        abs(math.sin(60_000 + 1 / 1440) - math.sin(60_000)), abs=1e-7
    )


@pytest.mark.parametrize("code", [nn.Sinusoidal, nn.UnpairedSinusoidal])
def test_on_several_axes_each_has_its_share(code):
    assert nn.grid((3, 4)).tolist()[:5] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]
    for at in (nn.grid((3, 4)), torch.rand(7, 2).double() * 9):
        line = code(6)
        torch.testing.assert_close(code(12, axes=2).code(at), torch.cat([line.code(at[:, 0]), line.code(at[:, 1])], -1))
    assert nn.Modulation(12, axes=2).double().embed(ZERO, at).shape == (1, 7, 12)


def test_modulation_scales_and_shifts_by_fourier_series():
    code, x = nn.Modulation(12, longest=300.0, harmonics=4).double(), torch.randn(1, 7, 12).double()
    angle = 2 * math.pi / 300 * TIMES[:, None] * torch.arange(1, 5)
    series = torch.cat([angle.sin(), angle.cos()], -1) @ code.linear.weight.T + code.linear.bias
    scale, shift = series.chunk(2, -1)
    torch.testing.assert_close(code.embed(x, TIMES), x * (1 + scale) + shift)
    torch.testing.assert_close(code.embed(x, TIMES + 300), code.embed(x, TIMES))  # the longest period
    code.embed(x, TIMES).square().sum().backward()
    assert (code.linear.weight.grad != 0).all()


def test_given_periods_are_even_in_their_logarithm():
    periods = np.geomspace(0.05, 1000, 6)
    code = nn.Sinusoidal(12, periods=(0.05, 1000)).code(TIMES)
    for i, period in enumerate(periods):
        torch.testing.assert_close(code[:, 2 * i], (2 * math.pi * TIMES / period).sin(), atol=1e-9, rtol=0)
        torch.testing.assert_close(code[:, 2 * i + 1], (2 * math.pi * TIMES / period).cos(), atol=1e-9, rtol=0)
    found = nn.Fourier(12, features=6, periods=(0.05, 1000)).frequency.detach()
    np.testing.assert_allclose(found[0], 1 / periods, rtol=1e-6)


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
@pytest.mark.parametrize("heads", [None, 3])
def test_rotary_is_its_definition(heads, pairs):
    """Turns of exp(2 pi i p / period), with periods of their own for heads."""
    given = {} if heads is None else {"periods": (0.05, 1000), "heads": heads}
    periods = 2 * math.pi * 10000 ** (np.arange(4) / 4) if heads is None else np.geomspace(0.05, 1000, 12)
    x = torch.randn(2, 3, 7, 8).double()
    found = nn.rotate(x, nn.Rotary(8, pairs=pairs, **given).rotation(TIMES, x.dtype))
    for head, i in itertools.product(range(3), range(4)):
        a, b = (2 * i, 2 * i + 1) if pairs == "neighbours" else (i, i + 4)
        period = periods[i if heads is None else 3 * i + head]
        turn = torch.polar(torch.ones(7).double(), 2 * math.pi * TIMES / period)
        whole = torch.complex(x[:, head, :, a], x[:, head, :, b]) * turn
        torch.testing.assert_close(torch.complex(found[:, head, :, a], found[:, head, :, b]), whole, atol=1e-9, rtol=0)


def test_a_share_of_the_head_is_turned():
    x = torch.randn(1, 2, 7, 8).double()
    found = nn.rotate(x, nn.Rotary(8, share=0.5).rotation(TIMES, x.dtype))
    torch.testing.assert_close(found[..., 4:], x[..., 4:])
    torch.testing.assert_close(found[..., :4], nn.rotate(x[..., :4], nn.Rotary(4).rotation(TIMES, x.dtype)))


@pytest.mark.parametrize("axes", [1, 2])
def test_rotary_knows_distances_alone(axes):
    rotary = nn.Rotary(8, axes=axes)
    q, k = torch.randn(1, 1, 6, 8).double(), torch.randn(1, 1, 6, 8).double()
    at = torch.rand(6, axes).double() * 10 if axes > 1 else torch.rand(6).double() * 10

    def scores(shift):
        turn = rotary.rotation(at + shift, q.dtype)
        return nn.rotate(q, turn) @ nn.rotate(k, turn).mT

    torch.testing.assert_close(scores(0.0), scores(123.4), atol=1e-10, rtol=1e-10)
    assert not torch.allclose(scores(0.0), q @ k.mT)


def test_learned_codes_interpolate_to_other_sizes():
    learned = nn.Learned(12, (4, 6)).double()
    whole = learned.embed(torch.zeros(1, 24, 12).double(), learned.place(24, 0, torch.device("cpu")))
    torch.testing.assert_close(whole[0], learned.table)
    same = learned.code(nn.grid((4, 6), span=(4, 6)))
    torch.testing.assert_close(same, learned.table)
    # Twice as fine: the same as torch's bilinear resize, which repeats the edge.
    image = learned.table.T.reshape(1, 12, 4, 6)
    resized = torch.nn.functional.interpolate(image, (8, 12), mode="bilinear", align_corners=False)
    fine = learned.code(nn.grid((8, 12), span=(4, 6)).double().clamp(min=0))
    torch.testing.assert_close(fine, resized[0].flatten(1).T, atol=1e-6, rtol=1e-6)


def test_fourier_is_its_equation_and_reaches_every_frequency():
    code, at = nn.Fourier(12, axes=3, features=5).double(), torch.randn(2, 7, 3).double()
    angle = 2 * math.pi * at @ code.frequency
    expected = torch.cat([angle.sin(), angle.cos()], -1) @ code.linear.weight.T + code.linear.bias
    found = code.embed(ZERO.expand(2, -1, -1), at)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    assert (code.frequency.grad != 0).all()


@pytest.mark.parametrize("axes", [1, 2])
def test_relative_bias_is_a_table_of_offsets(axes):
    relative = nn.RelativeBias(3, span=2, axes=axes)
    torch.nn.init.normal_(relative.table)
    at = torch.arange(6) if axes == 1 else nn.grid((2, 3))
    bias = relative.bias(at, at)
    assert bias.shape == (1, 3, 6, 6)
    places = at[:, None] if axes == 1 else at
    for i in range(6):
        for j in range(6):
            index = 0
            for axis in range(axes):
                index = index * 5 + int((places[j] - places[i]).clamp(-2, 2)[axis]) + 2
            assert torch.equal(bias[0, :, i, j], relative.table[index])
    batched = relative.bias(at.expand(4, *at.shape), at.expand(4, *at.shape))
    assert torch.equal(batched, bias.expand(4, -1, -1, -1))


def test_coordinates_change_what_the_encoder_says():
    x = torch.randn(2, 6, 16)
    at = torch.rand(2, 6)
    for position in (nn.Sinusoidal(16), nn.Rotary(8), nn.Fourier(16), nn.Learned(16, 6)):
        encoder = nn.Encoder(16, 1, 2, position=position).eval()
        assert not torch.allclose(encoder(x, at=at), encoder(x, at=at.flip(1)), atol=1e-6)
    nowhere = nn.Encoder(16, 1, 2).eval()
    assert torch.equal(nowhere(x, at=at), nowhere(x))
