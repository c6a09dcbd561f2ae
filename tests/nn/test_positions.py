import math

import pytest
import torch

from sciformer.nn import Encoder, Fourier, Learned, Position, RelativeBias, Rotary, Sinusoidal, grid
from sciformer.nn.positions import rotate
from tests.errors import refuses

ZERO = torch.zeros(1, 7, 12).double()


def test_sinusoidal_is_the_formula_of_the_paper():
    code = Sinusoidal(12).embed(ZERO, torch.arange(7))
    for p in range(7):
        for i in range(6):
            angle = p / 10000 ** (2 * i / 12)
            assert code[0, p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-15)
            assert code[0, p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-15)


def test_sinusoidal_takes_real_times_in_double_precision():
    # A float32 cannot tell two times of this size a minute apart; the difference must survive.
    time = 60_000.0 + torch.tensor([0.0, 1 / 1440], dtype=torch.float64)
    code = Sinusoidal(12).embed(torch.zeros(1, 2, 12), time)
    assert (code[0, 1, 0] - code[0, 0, 0]).abs().item() == pytest.approx(
        abs(math.sin(60_000 + 1 / 1440) - math.sin(60_000)), abs=1e-7
    )


def test_on_a_grid_each_axis_has_its_share():
    at = grid((3, 4))
    assert at.tolist()[:5] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]
    flat, line = Sinusoidal(12, axes=2).code(at), Sinusoidal(6).code(torch.arange(4))
    torch.testing.assert_close(flat[:, :6], line[at[:, 0]])
    torch.testing.assert_close(flat[:, 6:], line[at[:, 1]])


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_rotary_is_its_definition(pairs):
    rotary, x = Rotary(8, pairs=pairs), torch.randn(2, 3, 5, 8).double()
    found = rotate(x, rotary.rotation(torch.arange(5), x.dtype))
    for p in range(5):
        turn = torch.zeros(8, 8).double()
        for i in range(4):
            a, b = (2 * i, 2 * i + 1) if pairs == "neighbours" else (i, i + 4)
            angle = p / 10000 ** (2 * i / 8)
            turn[a, a] = turn[b, b] = math.cos(angle)
            turn[b, a], turn[a, b] = math.sin(angle), -math.sin(angle)
        torch.testing.assert_close(found[:, :, p], x[:, :, p] @ turn.T, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("axes", [1, 2])
def test_rotary_knows_distances_alone(axes):
    rotary = Rotary(8, axes=axes)
    q, k = torch.randn(1, 1, 6, 8).double(), torch.randn(1, 1, 6, 8).double()
    at = torch.rand(6, axes).double() * 10 if axes > 1 else torch.rand(6).double() * 10

    def scores(shift):
        turn = rotary.rotation(at + shift, q.dtype)
        return rotate(q, turn) @ rotate(k, turn).mT

    torch.testing.assert_close(scores(0.0), scores(123.4), atol=1e-10, rtol=1e-10)
    assert not torch.allclose(scores(0.0), q @ k.mT)


def test_learned_codes_interpolate_to_other_sizes():
    learned = Learned(12, (4, 6)).double()
    whole = learned.embed(torch.zeros(1, 24, 12).double(), learned.place(24, 0, torch.device("cpu")))
    torch.testing.assert_close(whole[0], learned.table)
    same = learned.code(grid((4, 6), span=(4, 6)))
    torch.testing.assert_close(same, learned.table)
    # Twice as fine: the same as torch's bilinear resize, which repeats the edge.
    image = learned.table.T.reshape(1, 12, 4, 6)
    resized = torch.nn.functional.interpolate(image, (8, 12), mode="bilinear", align_corners=False)
    fine = learned.code(grid((8, 12), span=(4, 6)).double().clamp(min=0))
    torch.testing.assert_close(fine, resized[0].flatten(1).T, atol=1e-6, rtol=1e-6)


def test_fourier_is_its_equation_and_reaches_every_frequency():
    code, at = Fourier(12, axes=3, features=5).double(), torch.randn(2, 7, 3).double()
    angle = 2 * math.pi * at @ code.frequency
    expected = torch.cat([angle.sin(), angle.cos()], -1) @ code.linear.weight.T + code.linear.bias
    found = code.embed(ZERO.expand(2, -1, -1), at)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    assert (code.frequency.grad != 0).all()


@pytest.mark.parametrize("axes", [1, 2])
def test_relative_bias_is_a_table_of_offsets(axes):
    relative = RelativeBias(3, span=2, axes=axes)
    torch.nn.init.normal_(relative.table)
    at = torch.arange(6) if axes == 1 else grid((2, 3))
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
    for position in (Sinusoidal(16), Rotary(8), Fourier(16), Learned(16, 6)):
        encoder = Encoder(16, 1, 2, position=position).eval()
        assert not torch.allclose(encoder(x, at=at), encoder(x, at=at.flip(1)), atol=1e-6)
    nowhere = Encoder(16, 1, 2).eval()
    assert torch.equal(nowhere(x, at=at), nowhere(x))


def test_mistakes_are_answered():
    with refuses("Sinusoidal", 2, hint="at=grid((height, width))"):
        Encoder(16, 1, 2, position=Sinusoidal(16, axes=2))(torch.randn(1, 6, 16))
    with refuses(5, 6, hint="at=grid("):
        Encoder(16, 1, 2, position=Learned(16, 5))(torch.randn(1, 6, 16))
    with refuses("(5,)", "0 to 5"):
        Encoder(16, 1, 2, position=Learned(16, 5))(torch.randn(1, 6, 16), at=torch.arange(6))
    with refuses("(1, 6, 3)", 2):
        Encoder(16, 1, 2, position=Fourier(16, axes=2))(torch.randn(1, 6, 16), at=torch.rand(1, 6, 3))
    for position in (Learned(8, 5), Sinusoidal(8), Fourier(8), Rotary(4), RelativeBias(3, 2)):
        with refuses(type(position).__name__):
            Encoder(16, 1, 2, position=position)
    with refuses("width", 4, 10):
        Sinusoidal(10, axes=2)
    with refuses("head width", 2, 7):
        Rotary(7)
    assert torch.equal(Position().embed(ZERO, torch.arange(7)), ZERO)
