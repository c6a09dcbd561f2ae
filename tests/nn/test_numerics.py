"""Half precision, large numbers, and values that others use as minus infinity."""

import pytest
import torch

from sciformer.nn import Attention, Fourier, MeanPool, Ragged, Rotary, Sight, ValueHead, Watch, attend, weigh
from sciformer.nn.attention.scores import ScaledDot


def test_the_reference_scales_before_half_precision_overflows():
    q = torch.full((1, 1, 2, 64), 100.0, dtype=torch.float16)
    k = torch.cat([q[:, :, :1], -q[:, :, :1]], 2)
    weights = weigh(q, k, Sight(), ScaledDot())
    assert weights.tolist() == [[[[1, 0], [1, 0]]]]


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_the_lowest_number_as_a_bias_hides_too(kernel):
    q = torch.randn(1, 1, 1, 8)
    v = torch.arange(4.0).view(1, 1, 4, 1).expand(-1, -1, -1, 8)
    valid = torch.tensor([[True, True, False, False]])
    dense = torch.tensor([0, 1, 1, 1]).view(1, 1, 1, 4) * torch.finfo(torch.float32).min
    out = attend(q, torch.randn(1, 1, 4, 8), v, Sight(valid=valid, bias=dense), kernel=kernel)
    torch.testing.assert_close(out, torch.zeros_like(out))
    dense = torch.full((1, 1, 1, 4), torch.finfo(torch.float32).min)
    out = attend(0 * q, torch.randn(1, 1, 4, 8), v, Sight(valid=valid, bias=dense), kernel=kernel)
    torch.testing.assert_close(out, torch.full_like(out, 0.5))  # two keys are left, and they are alike


def test_long_means_do_not_overflow():
    x = torch.ones(70_000, 1, dtype=torch.float16)
    assert MeanPool()(x[None]).item() == MeanPool()(x, Ragged([70_000])).item() == 1
    assert MeanPool()(x[None], torch.ones(1, 70_000, dtype=torch.bool)).dtype == torch.float16


def test_coordinates_are_not_rounded_under_autocast():
    code, at = Fourier(16, features=8), torch.linspace(0, 500, 40)[None, :, None]
    x = torch.zeros(1, 40, 16)
    with torch.autocast("cpu", torch.float16):
        rounded = code.embed(x, at)
    assert (rounded - code.embed(x, at)).abs().max() < 0.01


def test_coordinates_in_double_precision_stay_so():
    code = Fourier(16, features=8).double().float()
    x, late = torch.zeros(1, 2, 16), torch.tensor([[60_000.0, 60_000.001]], dtype=torch.float64)
    exact = code.double().embed(x.double(), late[..., None])
    found = code.float().embed(x, late[..., None])
    torch.testing.assert_close(found, exact.float(), atol=1e-4, rtol=0)


def test_rotation_happens_in_single_precision_at_least():
    cos, sin, _ = Rotary(8).rotation(torch.arange(5), torch.float16)
    assert cos.dtype == sin.dtype == torch.float32


def test_deviations_are_single_precision():
    head = ValueHead(4).half()
    assert head(torch.zeros(2, 4, dtype=torch.float16)).std.dtype == torch.float32


@pytest.mark.parametrize("side", ["query_norm", "key_norm"])
def test_both_norms_act_in_cross_attention(side):
    layer = Attention(16, 2, qk_norm="layer").double()
    x, memory, watch = torch.randn(1, 3, 16).double(), torch.randn(1, 4, 16).double(), Watch()
    layer(x, memory, watch=watch.at("before"))
    with torch.no_grad():
        getattr(layer, side).weight.mul_(3)
    layer(x, memory, watch=watch.at("after"))
    assert not torch.allclose(watch.attention["before"], watch.attention["after"])
