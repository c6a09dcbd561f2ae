"""What surrounds the Triton program of a decoding step, with plain PyTorch in its place. On CUDA: tests/gpu."""

import sys
from types import SimpleNamespace

import pytest
import torch

from sciformer.nn import Causal, Decoder, RelativeBias, Rotary, Sight, Watch, Window, attend, rotate
from sciformer.nn.attention.kernels import decode_step, request
from tests.nn.parity import shake


def launch(qkv, cos, sin, halves, keys, values, valid, start, scale, back):
    """The definition: rotate, store, attend."""
    (kv_heads, width), place = (keys.shape[1], keys.shape[3]), int(start)
    q, k, v = qkv.unflatten(-1, (-1, width)).transpose(1, 2).tensor_split((-2 * kv_heads, -kv_heads), 1)
    if cos is not None:
        q, k = rotate(q, (cos, sin, halves)), rotate(k, (cos, sin, halves))
    keys[:, :, place], values[:, :, place] = k[:, :, 0], v[:, :, 0]
    pattern = Causal() if back < 0 else Causal() & Window(back)
    assert scale == width**-0.5
    return attend(q, keys, values, Sight(pattern, valid, start=place), kernel="reference").contiguous()


@pytest.fixture
def calls(monkeypatch):
    """How often the program was launched."""
    made = []
    stand_in = SimpleNamespace(launch=lambda *inputs: made.append(1) or launch(*inputs))
    monkeypatch.setitem(sys.modules, "sciformer.nn.attention.kernels.decode_step_triton", stand_in)
    monkeypatch.setattr(request, "HAS_TRITON", True)
    monkeypatch.setattr(request, "TRITON_INTERPRETED", True)
    return made


@pytest.mark.parametrize("pattern", [None, Window(3)], ids=repr)
@pytest.mark.parametrize("position", [None, Rotary(4), Rotary(4, pairs="halves")], ids=repr)
@torch.no_grad()
def test_steps_with_a_fixed_cache_equal_one_pass(calls, position, pattern):
    decoder = shake(Decoder(16, 2, 4, kv_heads=2, position=position, pattern=pattern)).eval()
    x, cache, watch = torch.randn(2, 9, 16), decoder.cache(12), Watch()
    parts = [decoder(x[:, :4], cache=cache)]
    assert not calls
    parts += [decoder(x[:, i : i + 1], cache=cache) for i in range(4, 8)]
    assert len(calls) == 2 * 4
    parts.append(
        decoder(x[:, 8:], cache=cache, watch=watch)
    )  # weights are of all keys, which the program does not show
    assert len(calls) == 2 * 4
    assert set(watch.kernels.values()) == {"sdpa"}
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_what_it_leaves_to_others(calls):
    for options, capacity, dtype in (
        ({}, None, torch.float32),
        ({}, 4, torch.float64),
        ({"qk_norm": "rms"}, 4, torch.float32),
        ({"score": "general"}, 4, torch.float32),
        ({"position": RelativeBias(4, 3)}, 4, torch.float32),
    ):
        decoder = Decoder(16, 1, 4, **options).to(dtype).eval()
        decoder(torch.randn(2, 1, 16, dtype=dtype), cache=decoder.cache(capacity))
    assert not calls


def test_a_compiler_knows_the_shapes(calls):
    keys, values = torch.zeros(2, 1, 2, 8, 16).unbind(0)
    qkv, valid, start = torch.randn(1, 1, 6 * 16), torch.ones(1, 8, dtype=torch.bool), torch.tensor(3)
    inputs = (qkv, None, None, False, keys, values, valid, start, 0.25, -1)
    torch.library.opcheck(decode_step.attend_one, inputs, test_utils=("test_schema", "test_faketensor"))
