"""Attention kernels for small sets, in every layout of their programs; `jets_speed.py kernel`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch

from jets_sides import jets
from measure import interleave
from sciformer.nn import Documents, PairBias, Ragged, Request, Sight, Triangle
from sciformer.nn.attention.kernels import packed_bias
from sides import Times

BANDWIDTH = 4.2e12  # bytes a second that a copy reaches on an H200


def table(device: str, tiny: bool) -> Times:
    """Print microseconds, forward and backward, of one layer with 8 heads of width 16."""
    from sciformer.nn.attention.kernels import packed_bias_triton

    lengths = torch.as_tensor(jets(4 if tiny else 512, 0)["lengths"])
    total, pairs = int(lengths.sum()), int((lengths * (lengths + 1) // 2).sum())
    ragged = Ragged(lengths.to(device), total=total, longest=128, pairs=pairs)
    kind = torch.float32 if tiny else torch.bfloat16
    qkv = torch.randn(1, total, 384, device=device, dtype=kind, requires_grad=True)
    values = torch.randn(pairs, 8, device=device, dtype=kind)
    dense = values.requires_grad_()
    up = torch.randn(1, 8, total, 16, device=device, dtype=kind)
    size = up.element_size()
    bound = {"forward": size * (4 * total * 128 + pairs * 8), "backward": size * (8 * total * 128 + 2 * pairs * 8)}
    shown = {name: round(count / BANDWIDTH * 1e6, 1) for name, count in bound.items()}
    print(f"{total} tokens, {pairs} pairs, byte bound in microseconds {shown}", file=sys.stderr)
    times: Times = {}
    for block, warps, registers in itertools.product((32, 64), (2, 4, 8), (None, 128)):
        if tiny and (block, warps, registers) != (64, 4, None):
            continue
        packed_bias_triton.BLOCK = block
        for layouts in packed_bias_triton.LAYOUT.values():
            for rows, layout in layouts.items():
                layout |= {"num_warps": min(warps, rows // 4), "maxnreg": registers}
        for dropout, biased in ((0.1, True), (0.0, True), (0.0, False)):
            name = f"block {block} warps {warps} registers {registers} dropout {dropout} bias {biased}"
            try:
                found = timed(
                    qkv, PairBias(dense, Triangle(ragged).starts, ragged) if biased else None, ragged, up, dropout
                )
            except Exception as error:
                print(name, type(error).__name__, str(error)[:200], file=sys.stderr)
                continue
            print(f"{name}: forward {found['forward']:.1f}, both {found['both']:.1f}", file=sys.stderr, flush=True)
            times |= {f"{name} {key}": [value] for key, value in found.items()}
    return times


def timed(qkv: Any, bias: PairBias | None, ragged: Ragged, up: Any, dropout: float) -> dict[str, float]:
    """Microseconds of a call: forward, and with gradients."""
    sight = Sight(Documents(ragged), bias=bias)
    given = [qkv] if bias is None else [qkv, bias.values]

    def forward() -> Any:
        q, k, v = (part.unflatten(-1, (8, 16)).transpose(1, 2) for part in qkv.chunk(3, -1))
        return packed_bias.run(Request(q, k, v, sight, dropout=dropout, qkv=qkv))

    def both() -> Any:
        return torch.autograd.grad(forward(), given, up, retain_graph=True)

    device = qkv.device.type
    taken = interleave({"forward": forward, "both": both}, 3, device, stream=0.02 if device == "cuda" else 0.0)
    return {name: 1e6 * sorted(values)[len(values) // 2] for name, values in taken.items()}
