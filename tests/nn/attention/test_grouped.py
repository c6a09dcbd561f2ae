"""Packed sets on the CPU, put together by length, against the definition: values, gradients, dropout."""

import pytest
import torch

from sciformer.nn import Documents, PairBias, Ragged, Request, Sight, Triangle, Window, attend
from sciformer.nn.attention.kernels import grouped
from sciformer.nn.dropout import Dropout, keep
from tests.nn.attention.packed import drawn, result

LENGTHS = [5, 0, 17, 1, 33, 0, 30, 29, 12, 3]


def run(kernel, lengths, heads, kv_heads, bias, hidden=0):
    """Output and gradients; the first `hidden` pairs have a bias of -inf."""
    torch.manual_seed(0)
    given = drawn(heads, 8, lengths, kv_heads, bias=bias)
    if hidden:
        given[3][:hidden] = -torch.inf
    return result(kernel, torch.float64, *given, lengths)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("lengths", [LENGTHS, [0, 0], [], [1], [40] * 3, [70, 0, 51]], ids=str)
def test_it_agrees_with_the_definition(lengths, heads, bias):
    for mine, definition in zip(*(run(kernel, lengths, *heads, bias=bias) for kernel in ("grouped", "reference"))):
        torch.testing.assert_close(mine, definition)


def test_a_hidden_first_pair_leaves_gradients_finite():
    mine, definition = (run(kernel, [9, 8], 2, 2, bias=True, hidden=1) for kernel in ("grouped", "reference"))
    torch.testing.assert_close(mine, definition)


@pytest.mark.parametrize(("lengths", "biased"), [([6, 6, 6], True), ([50, 50], False)], ids=str)
def test_dropout_is_the_same_backwards(lengths, biased, monkeypatch):
    """Out = sum_ij of a linear map of v: with what was kept fixed, the gradient is that of the definition."""
    drawn = []
    monkeypatch.setattr(grouped, "keep", lambda *a: drawn.append(keep(*a)) or drawn[-1])
    ragged, (b, n) = Ragged(lengths), (len(lengths), lengths[0])
    x = torch.randn(1, ragged.total, 48, dtype=torch.float64, requires_grad=True)
    dense = torch.randn(ragged.pairs, 2, dtype=torch.float64, requires_grad=True)
    bias = PairBias(dense, Triangle(ragged).starts, ragged) if biased else None
    parts = [part.unflatten(-1, (2, 8)).transpose(1, 2) for part in x.chunk(3, -1)]
    found = grouped.run(Request(*parts, Sight(Documents(ragged), bias=bias), dropout=0.4, qkv=x))
    kept = drawn[0].view(2, b, n, n).transpose(0, 1) if biased else torch.stack(drawn)
    q, k, v = (ragged.pad_heads(part) for part in parts)
    weights = (8**-0.5 * q @ k.transpose(2, 3) + (bias.dense() if biased else 0)).softmax(-1) * kept
    expected = ragged.flatten_heads(weights @ v)
    up, given = torch.randn_like(expected), (x, dense)[: 1 + biased]
    torch.testing.assert_close(found, expected)
    for mine, definition in zip(*(torch.autograd.grad(out, given, up) for out in (found, expected))):
        torch.testing.assert_close(mine, definition)


def test_groups_hold_every_token_once_and_waste_little():
    lengths = (45 + 15 * torch.randn(64)).round().long().clamp(2, 128)
    plan = grouped.Plan(Ragged(lengths))
    assert torch.equal(
        torch.cat([group.rows_or_none for group in plan.groups]).sort()[0].unique()[: int(lengths.sum())],
        torch.arange(int(lengths.sum())),
    )
    area = sum(group.count * group.width**2 for group in plan.groups)
    assert area < 1.3 * (lengths**2).sum() < 64 * lengths.max() ** 2
    assert len(plan.groups) < 16


def test_what_it_leaves_to_others():
    q = torch.zeros(1, 2, 9, 8)
    ragged = Ragged([4, 5])
    assert grouped.supports(Request(q, q, q, Sight(Documents(ragged)))) is None
    for sight in (
        Sight(),
        Sight(Documents(ragged, Window(2))),
        Sight(Documents(ragged, keys=ragged)),
        Sight(Documents(ragged), valid=torch.ones(1, 9, dtype=torch.bool)),
        Sight(Documents(ragged), bias=torch.zeros(1, 2, 9, 9)),
        Sight(Documents(Ragged([600], 600))),
    ):
        assert grouped.supports(Request(q, q, q, sight)) is not None


def test_dropout_on_the_cpu():
    drop, x = Dropout(0.1), torch.ones(100, 1003, requires_grad=True)
    torch.manual_seed(0)
    y = drop(x)
    torch.manual_seed(0)
    assert torch.equal(y, drop(x))
    kept = y != 0
    assert y[kept].unique().numel() == 1
    assert abs(y.mean().item() - 1) < 5e-3
    assert (kept.double().mean(0) - 0.9).abs().max() < 0.16
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    assert torch.equal(drop.eval()(x), x)
    for p, share in ((0.5, 0.5), (1.0, 0.0), (0.999, 0.001)):
        assert abs((keep((1 << 16,), p, torch.float32) != 0).double().mean().item() - share) < 0.01
    assert keep((0, 3), 0.1, torch.float32).shape == (0, 3)


@pytest.mark.parametrize("tail", [0, 5])
def test_long_sets_without_a_gradient_are_worked_through_one_by_one(tail, monkeypatch):
    lengths = [130, 0, 71, 200]
    ragged = Ragged(torch.tensor(lengths), total=sum(lengths) + tail, longest=200)
    q, k, v = (torch.randn(1, 4, ragged.total, 8) for _ in range(3))
    calls = []
    alone = grouped._alone
    monkeypatch.setattr(grouped, "_alone", lambda *given: calls.append(1) or alone(*given))
    with torch.no_grad():
        found = attend(q, k, v, Sight(Documents(ragged)), kernel="grouped")
    assert calls == [1]
    expected = attend(q, k, v, Sight(Documents(ragged)), kernel="reference")
    real = sum(lengths)
    torch.testing.assert_close(found[:, :, :real], expected[:, :, :real], atol=1e-5, rtol=1e-5)
    assert not found[:, :, real:].any()
