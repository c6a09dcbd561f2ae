"""What surrounds FlashAttention, with a plain loop in its place: borders, tail, gradients. On CUDA: tests/gpu."""

import pytest
import torch

from sciformer.nn import Attention, Causal, Documents, Full, Ragged, Request, Sight, Window, attend
from sciformer.nn.attention.kernels import flash

LENGTHS = torch.tensor([7, 0, 1, 11, 4])
TOTAL = 23 + 15  # the tail is longer than the longest


@pytest.fixture
def looped(monkeypatch):
    """`varlen_attn` as a loop over sequences that writes nothing outside of them, on the CPU."""
    calls = []

    def varlen_attn(query, key, value, starts, ends, longest, _, *, scale, window_size):
        assert starts is ends
        assert starts.dtype == torch.int32
        assert starts[0] == 0
        assert starts[-1] == len(query)
        assert (starts.diff() <= longest).all()
        pieces = []
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist()):
            q, k, v = (x[first:last].transpose(0, 1) for x in (query, key, value))
            weights = scale * q @ k.transpose(1, 2)
            if window_size == (-1, 0):
                hidden = torch.ones(last - first, last - first, dtype=torch.bool).triu(1)
                weights = weights.masked_fill(hidden, -torch.inf)
            pieces.append((weights.softmax(-1) @ v).transpose(0, 1))
        calls.append(len(pieces))
        return torch.cat(pieces)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    monkeypatch.setattr(flash, "supports", lambda request: None if isinstance(request.sight.pattern, Documents) else "")
    return calls


@pytest.mark.parametrize("within", [Full(), Causal()], ids=repr)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_agrees_with_the_definition(looped, within, kv_heads):
    shapes = [(1, 4, TOTAL, 8), (1, kv_heads, TOTAL, 8), (1, kv_heads, TOTAL, 8)]
    inputs = [torch.randn(shape).double().requires_grad_() for shape in shapes]
    upstream = torch.randn(1, 4, TOTAL, 8).double()
    sight = Sight(Documents(Ragged(LENGTHS, TOTAL, 12), within))
    found = []
    for kernel in ("flash", "reference"):
        out = attend(*inputs, sight, kernel=kernel)
        found.append([out.detach(), *torch.autograd.grad(out, inputs, upstream)])
    for mine, definition in zip(*found):
        torch.testing.assert_close(mine, definition)
    assert not found[0][0][:, :, 23:].any()
    assert len(looped) == 1


def test_a_module_gives_it_what_the_projection_made(looped, monkeypatch):
    module = Attention(16, 2).double()
    x, sight = torch.randn(1, TOTAL, 16).double(), Sight(Documents(Ragged(LENGTHS, TOTAL, 12)))
    expected = module(x, sight=sight)
    assert not looped  # short sequences go elsewhere
    monkeypatch.setattr(flash, "MIN_MEAN_LENGTH", 2)
    torch.testing.assert_close(module(x, sight=sight), expected)
    assert looped == [len(LENGTHS) + 4]  # and the tail in pieces


def test_what_it_refuses():
    documents, full = Documents(Ragged(LENGTHS, TOTAL)), torch.ones(1, TOTAL) > 0
    half = torch.empty(1, 2, TOTAL, 8, dtype=torch.bfloat16, device="meta")

    def why(sight, width=8, dropout=0.0):
        q = type("OnCuda", (), {"is_cuda": True, "dtype": half.dtype, "shape": (*half.shape[:3], width)})()
        return flash.supports(Request(q, q, q, sight, dropout=dropout))

    assert why(Sight(documents)) is None
    assert flash.supports(Request(half, half, half, Sight(documents)))  # not on CUDA
    assert "dropout" in why(Sight(documents), dropout=0.1)
    assert "12" in why(Sight(documents), width=12)
    other = Documents(documents.queries, keys=Ragged([1] * 5))
    for pattern in (Full(), Documents(documents.queries, Window(2)), other):
        assert why(Sight(pattern))
    for more in ({"bias": torch.zeros(1)}, {"valid": full}):
        assert why(Sight(documents, **more))
