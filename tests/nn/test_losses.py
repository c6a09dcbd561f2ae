import pytest
import torch
import torch.nn.functional as F

from sciformer.nn.losses import IGNORE_INDEX, linear_cross_entropy, total_cross_entropy
from tests.nn.parity import assert_close


def example(dtype, n=29, ignored=0.3):
    torch.manual_seed(n)
    hidden, weight = torch.randn(n, 8, dtype=dtype, requires_grad=True), torch.randn(11, 8, dtype=dtype)
    target = torch.randint(0, 11, (n,))
    target[torch.rand(n) < ignored] = IGNORE_INDEX
    return hidden, weight.requires_grad_(), target


def plain(hidden, weight, target, smoothing=0.0):
    """By a loop: (1 - s) of the target's loss and s of the mean over the vocabulary."""
    total = (hidden.sum() + weight.sum()) * 0
    for h, t in zip(hidden, target):
        if t != IGNORE_INDEX:
            loss = -(weight @ h).log_softmax(-1)
            total = total + (1 - smoothing) * loss[t] + smoothing * loss.mean()
    return total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("ignored", [0, 0.3, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_chunks_change_neither_loss_nor_gradient(dtype, ignored, smoothing):
    hidden, weight, target = example(dtype, ignored=ignored)
    expected = plain(hidden, weight, target, smoothing)
    gradients = torch.autograd.grad(2.5 * expected, [hidden, weight])
    for chunk in (0, 1, 4, 28, 29, 30):
        found = total_cross_entropy(hidden, weight, target, chunk, smoothing)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, rtol=1e-5 if dtype == torch.float32 else 1e-11, atol=1e-11)
        for one, other in zip(torch.autograd.grad(2.5 * found, [hidden, weight]), gradients):
            assert one.dtype == dtype
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10 if dtype == torch.float64 else 2e-5)
    each = linear_cross_entropy(hidden, weight, target, smoothing)
    assert each.dtype == dtype
    assert (each[target == IGNORE_INDEX] == 0).all()
    assert_close(each.sum(), expected)


@pytest.mark.parametrize("chunk", [0, 4])
def test_a_bias_is_added_to_the_logits(chunk):
    hidden, weight, target = example(torch.float64)
    bias = torch.randn(len(weight), dtype=torch.float64, requires_grad=True)
    expected = F.cross_entropy(hidden @ weight.T + bias, target, reduction="sum", ignore_index=IGNORE_INDEX)
    found = total_cross_entropy(hidden, weight, target, chunk, bias=bias)
    assert_close(found, expected)
    assert_close(linear_cross_entropy(hidden, weight, target, bias=bias).sum(), expected)
    parts = [hidden, weight, bias]
    for one, other in zip(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts)):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_large_logits_and_no_tokens():
    hidden, weight, target = example(torch.float32)
    for chunk in (0, 7):
        loss = total_cross_entropy(hidden * 1e4, weight, target, chunk)
        assert loss.isfinite()
        assert all(g.isfinite().all() for g in torch.autograd.grad(loss, [hidden, weight]))
        assert total_cross_entropy(hidden[:0], weight, target[:0], chunk) == 0


def test_chunks_under_autocast():
    hidden, weight, target = example(torch.float32, n=64)
    with torch.autocast("cpu", torch.float16):  # bfloat16 is an illegal instruction where AMX is only promised
        chunked, whole = (total_cross_entropy(hidden, weight, target, chunk) for chunk in (10, 0))
    assert chunked.dtype == torch.float32
    torch.testing.assert_close(chunked, whole, rtol=1e-2, atol=1e-2)
    for one, other in zip(*(torch.autograd.grad(loss, [hidden, weight]) for loss in (chunked, whole))):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
