import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.nn import Attention, Causal, Rotary, Sight, Watch, Window
from sciformer.nn.attention.cache import Store
from tests.nn.parity import CLOSE, assert_close, copy_attention, shake

TIMES = torch.tensor([-812.25, -3.5, 0.0, 0.02, 1.0, 77.7, 1432.1]).double()


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_parity_with_torch_multihead_attention(dtype, bias, kernel):
    theirs = shake(nn.MultiheadAttention(24, 4, bias=bias, batch_first=True, dtype=dtype))
    ours = Attention(24, 4, bias=bias, kernel=kernel).to(dtype)
    copy_attention(ours, theirs)
    x, memory = torch.randn(3, 7, 24, dtype=dtype), torch.randn(3, 5, 24, dtype=dtype)
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 0, 0, 0, 0]]).bool()
    dense = torch.randn(3, 4, 7, 5, dtype=dtype)
    watch = Watch()
    found = ours(x, memory, Sight(valid=valid, bias=dense), watch=watch)
    hidden = torch.zeros(3, 1, 1, 5, dtype=dtype).masked_fill(~valid[:, None, None], -torch.inf)
    expected, weights = theirs(x, memory, memory, attn_mask=(dense + hidden).flatten(0, 1), average_attn_weights=False)
    assert_close(found, expected)
    assert_close(watch.attention["attention"], weights)
    causal = nn.Transformer.generate_square_subsequent_mask(7, dtype=dtype)
    assert_close(ours(x, sight=Sight(Causal())), theirs(x, x, x, attn_mask=causal)[0])


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_shared_heads_equal_repeated_heads(kv_heads, kernel):
    shared = shake(Attention(24, 6, kv_heads=kv_heads, qk_norm="layer", kernel=kernel).double())
    whole = Attention(24, 6, qk_norm="layer").double()
    state = shared.state_dict()
    for name in ("weight", "bias"):
        q, k, v = state[f"qkv.{name}"].split(shared.widths)
        k, v = (x.unflatten(0, (kv_heads, 4)).repeat_interleave(6 // kv_heads, 0).flatten(0, 1) for x in (k, v))
        state[f"qkv.{name}"] = torch.cat([q, k, v])
    whole.load_state_dict(state)
    x, valid = torch.randn(2, 9, 24).double(), torch.rand(2, 9) > 0.3
    assert_close(shared(x, sight=Sight(Causal(), valid)), whole(x, sight=Sight(Causal(), valid)))
    assert shared.qkv.weight.shape[0] == 24 + 2 * 4 * kv_heads


def test_qk_norm_bounds_the_scores():
    layer = Attention(16, 2, qk_norm="layer").double()
    x = 1e4 * torch.randn(1, 6, 16).double()
    watch = Watch()
    layer(x, watch=watch)
    # |q||k| / sqrt(E) <= sqrt(E) for normalised heads, so no weight can be below exp(-2 sqrt(E)) / N.
    assert watch.attention["attention"].min() > torch.exp(torch.tensor(-2 * 8**0.5)) / 6


def test_watching_does_not_change_the_output_and_names_the_kernel():
    layer = Attention(16, 2)
    x = torch.randn(1, 300, 16)
    for pattern, kernel in [(Causal(), "sdpa"), (Window(8), "chunked")]:
        watch = Watch()
        assert torch.equal(layer(x, sight=Sight(pattern)), layer(x, sight=Sight(pattern), watch=watch))
        assert watch.kernels == {"attention": kernel}
        weights = watch.attention["attention"]
        assert weights.shape == (1, 2, 300, 300)
        assert not weights[..., ~pattern.mask(300, 300)].any()


def test_reference_weights_can_be_asked_for_gradients():
    layer, watch = Attention(16, 2, kernel="reference"), Watch()
    out = layer(torch.randn(2, 4, 16), watch=watch)
    (gradient,) = torch.autograd.grad(out.square().sum(), watch.attention["attention"])
    assert gradient.abs().sum() > 0


def test_memory_is_projected_once():
    layer, store = Attention(12, 4), Store(None)
    x, memory = torch.randn(2, 3, 12), torch.randn(2, 5, 12)
    first = layer(x, memory, store=store)
    kept = store.memory[0]
    assert torch.equal(layer(x, memory, store=store), first)
    assert store.memory[0] is kept


def test_head_scale_can_silence_a_head():
    layer = Attention(12, 3, head_scale=True)
    x = torch.randn(2, 5, 12)
    with torch.no_grad():
        layer.scale.zero_()
    torch.testing.assert_close(layer(x), layer.out.bias.expand(2, 5, -1))


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
