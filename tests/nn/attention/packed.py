"""Packed sets for tests of kernels: random inputs, and the output of a kernel with its gradients."""

import torch

from sciformer import nn

NAMES = ("out", "q", "k", "v", "bias")


def drawn(heads, width, lengths, kv_heads=None, tail=3, bias=True):
    """Queries, keys, values, bias and upstream gradient of packed sets, with a tail that belongs to nobody."""
    total, pairs = sum(lengths) + tail, sum(n * (n + 1) // 2 for n in lengths) + 4 * tail
    kv_heads = kv_heads or heads
    shapes = [(1, heads, total, width), (1, kv_heads, total, width), (1, kv_heads, total, width)]
    dense = torch.randn(pairs, heads) if bias else None
    return [*(torch.randn(shape) for shape in shapes), dense, torch.randn(1, heads, total, width)]


def result(kernel, dtype, q, k, v, dense, up, lengths, device="cpu"):
    """The output, and the gradients of all that can have one."""
    pairs, longest = 0 if dense is None else len(dense), max(lengths, default=0)
    ragged = nn.Ragged(torch.tensor(lengths, dtype=torch.long, device=device), q.shape[2], longest, pairs)
    given = [x.detach().to(device, dtype, copy=True).requires_grad_() for x in (q, k, v, dense) if x is not None]
    bias = None if dense is None else nn.PairBias(given[3], nn.Triangle(ragged).starts, ragged)
    out = nn.attend(*given[:3], nn.Sight(nn.Documents(ragged), bias=bias), kernel=kernel)
    return [out.detach(), *torch.autograd.grad(out, given, up.to(device, dtype))]


def assert_near(found, expected, tolerance, case=None):
    """Every tensor within a share of the norm of the definition."""
    for name, mine, definition in zip(NAMES, found, expected):
        assert mine.isfinite().all(), (case, name)
        error = (mine.cpu().double() - definition).norm() / definition.norm().clamp(min=1e-9)
        assert error < tolerance, (case, name, error.item())
